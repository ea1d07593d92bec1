"""The files that people start from: the examples, the starter, the schema, and the commands around them."""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from checked_text import check_text
from typer.testing import CliRunner

from adaptive_eval.cli import app
from adaptive_eval.config.document import read_document
from adaptive_eval.config.json_schema import json_schema
from adaptive_eval.config.load import load_config
from adaptive_eval.config.run import RunConfig
from adaptive_eval.config.starter import short_starter, starter
from adaptive_eval.core.registry import OBJECTIVES, POLICIES, RULES
from adaptive_eval.graders.registry import GRADERS
from adaptive_eval.questions import load_questions
from adaptive_eval.questions.prompts import render

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path for path in (ROOT / "configs").rglob("*.yaml") if not path.name.startswith("slurm_"))
"""All but those that need what a script puts into the environment: tests/sites/test_recipes.py has these."""
STARTER = ROOT / "adaptive_eval" / "config" / "starter.yaml"
WITH_QUESTIONS = [path for path in EXAMPLES if path.name != "vllm-aime.yaml"]
QUICKSTART = ROOT / "configs" / "quickstart.yaml"
by_name = {"ids": lambda path: path.name}


def uncommented(text: str) -> str:
    """The starter with the settings in its comments switched on, but for whole sections, which stand for others."""
    return re.sub(r"^( +)# (?=[a-z_]+:| *- )", r"\1", text, flags=re.MULTILINE)


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


@pytest.mark.parametrize("path", WITH_QUESTIONS, **by_name)
def test_they_are_sound_from_any_folder_and_their_questions_can_be_asked_and_graded(path: Path) -> None:
    result = CliRunner().invoke(app, ["validate", str(path)])
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"{path} is valid" in result.stdout and "\noptimize: " in result.stdout
    config = load_config(path)
    questions = load_questions(config.questions, folder=config.folder, seed=config.seed)
    assert len(questions) >= 10
    for question in questions:
        assert config.grader.key_problem(question) is None
        for model in config.models:
            messages = render(config.prompt_of(model, question), question, model.api).messages
            assert messages is not None and question.prompt in messages[-1].content


@pytest.mark.parametrize("path", sorted((ROOT / "configs" / "engines").glob("*.yaml")), **by_name)
def test_engines_are_left_no_choice_of_sampling(path: Path) -> None:
    for model in load_config(path).models:
        for setting in ("temperature", "top_p", "top_k", "min_p", "max_tokens"):
            assert getattr(model.sampling, setting) is not None, setting


@pytest.mark.parametrize("path", [*EXAMPLES, STARTER], **by_name)
def test_they_load_and_survive_the_store(path: Path) -> None:
    config = load_config(path)
    assert RunConfig.model_validate_json(config.model_dump_json()) == config


def test_the_quickstart_needs_nothing_and_the_paper_protocol_is_that_of_the_paper() -> None:
    assert all(model.simulate for model in load_config(QUICKSTART).models)
    config = load_config(ROOT / "configs" / "vllm-aime.yaml")
    assert (config.seed, config.trials.seeds, config.trials.max) == (1234, "consecutive", 80)
    for model in config.models:
        assert (model.sampling.temperature, model.sampling.top_p, model.sampling.max_tokens) == (0.6, 0.95, 32768)
        sentence = r"Please reason step by step, and put your final answer within \boxed{}."
        assert model.prompt.template.endswith(sentence)


def test_what_the_starter_shows_in_comments_is_sound() -> None:
    text = uncommented(starter())
    assert read_document(text, {}).problems == []
    path = Path("starter.yaml")
    path.write_text(text)
    config = load_config(path, ["questions.dataset=null", "questions.path=q.jsonl"])
    assert config.questions.fields.metadata == ("year",)
    assert (config.models[0].gpus, config.models[1].sampling.temperature) == (2, 0.7)
    assert config.prompt.few_shot[0].answer == r"\boxed{2}"


NEEDED_FOR = {
    "cheapest": [
        *(f"models.{at}.price={{input: 1, output: 2}}" for at in (0, 1)),
        "stopping={rule: optimal}",  # the margin is an option of the objective
    ],
    "near_best": ["objective=best"],
    "place": ["models.1={name: model-b, recorded: runs/before}"],
}


def test_the_starter_shows_every_objective_and_each_line_holds() -> None:
    lines = re.findall(r"^#? ?(objective: .*)$", starter(), flags=re.MULTILINE)
    shown = [line for line in lines if "use:" not in line and '"' not in line]
    for line, entry in zip(shown, OBJECTIVES.values(), strict=True):
        text = re.sub(r"^objective: .*$", line, starter(), flags=re.MULTILINE)
        assert entry.summary in line
        checked = check_text(text, Path("a.yaml"), NEEDED_FOR.get(entry.name, ()), {})
        assert checked.config is not None, checked.problems
        assert checked.config.chosen["objective.kind"] == entry.name


@pytest.mark.parametrize(("key", "entries"), [("stopping.rule", RULES), ("trials.policy", POLICIES)])
def test_the_starter_shows_every_rule_and_policy_and_each_can_be_chosen(key: str, entries: dict[str, Any]) -> None:
    for entry in entries.values():
        (line,) = re.findall(rf"^  (?:{key.partition('.')[2]}: |#   ){entry.name} .*$", starter(), flags=re.MULTILINE)
        assert entry.summary in line
        assert all(f"{option.name}: {option.example}" in line for option in entry.options)
        needed = [*NEEDED_FOR.get(entry.name, ())]
        options = json.dumps({option.name: option.example for option in entry.options})
        for given in ([], [f"{key.partition('.')[0]}.options={options}"]):
            checked = check_text(starter(), Path("a.yaml"), [*needed, f"{key}={entry.name}", *given], {})
            assert checked.config is not None, checked.problems
            assert checked.config.chosen[key] == entry.name


known_schema = cache(json_schema)


class TestSchema:
    def properties(self, section: dict[str, Any]) -> dict[str, Any]:
        """What a section of the schema may say, short forms left out."""
        for choice in (section, *section.get("anyOf", ()), *section.get("oneOf", ())):
            if "$ref" in choice:
                return self.properties(known_schema()["$defs"][choice["$ref"].rpartition("/")[2]])
            if "oneOf" in choice and choice is not section:
                merged: dict[str, Any] = {}
                for kind in choice["oneOf"]:
                    merged |= self.properties(kind)
                return merged
            if "properties" in choice:
                return dict(choice["properties"])
        return {}

    def test_every_key_and_section_says_what_it_is_for(self) -> None:
        sections = {"": known_schema(), **known_schema()["$defs"]}
        silent = [
            f"{section}.{key}"
            for section, body in sections.items()
            for key, value in {"": body, **body.get("properties", {})}.items()
            if not value.get("description", "").strip()
        ]
        assert silent == []
        assert known_schema()["required"] == ["models"], "what is filled in is not required"
        assert known_schema()["$defs"]["ModelConfig"]["required"] == ["name"]
        short = {name: part["anyOf"][0] for name, part in known_schema()["properties"].items() if "anyOf" in part}
        assert short["grader"] == {"enum": sorted(set(GRADERS) - {"regex", "python"}) + ["reported"]}
        assert short["objective"]["enum"][:2] == ["ranking", "best"] and short["concurrency"]["type"] == "integer"

    def unknown(self, value: Any, section: dict[str, Any], path: str = "") -> Iterator[str]:
        """The keys of a file that the schema does not know."""
        if isinstance(value, list):
            items = section.get("items") or next((c["items"] for c in section.get("anyOf", ()) if "items" in c), {})
            for entry in value:
                yield from self.unknown(entry, items, f"{path}[]")
        properties = self.properties(section)
        if isinstance(value, dict) and properties:
            for key, inner in value.items():
                if key not in properties:
                    yield f"{path}.{key}"
                else:
                    yield from self.unknown(inner, properties[key], f"{path}.{key}")

    @pytest.mark.parametrize("text", [*(path.read_text() for path in EXAMPLES), starter(), short_starter()])
    def test_it_knows_every_key_of_the_examples_and_no_others(self, text: str) -> None:
        assert list(self.unknown(read_document(text, {}).tree, known_schema())) == []
        tree = {"trials": {"mx": 1}, "models": [{"sampling": {"temp": 1}}], "x": 1}
        assert list(self.unknown(tree, known_schema())) == [".trials.mx", ".models[].sampling.temp", ".x"]


class TestCommands:
    def run(self, *words: str) -> tuple[int, str, str]:
        result = CliRunner().invoke(app, words)
        return result.exit_code, result.stdout, result.stderr

    def test_schema(self) -> None:
        code, out, _ = self.run("schema")
        assert code == 0
        assert json.loads(out) == json_schema()
        assert json_schema()["$defs"]["BudgetConfig"]["properties"]["trials"]["anyOf"][0]["minimum"] == 1
        assert not re.search(r'"(ge|gt|le|lt)":', out), "editors know no such bounds"

    def test_init_writes_and_never_overwrites(self, tmp_path: Path) -> None:
        assert self.run("init")[0] == 0
        file = tmp_path / "adaptive-eval.yaml"
        assert file.read_text() == short_starter()
        file.write_text("mine")
        code, _, err = self.run("init")
        assert (code, file.read_text()) == (2, "mine")
        assert "already exists; give another name, or --force" in err
        assert self.run("init", "--force")[0] == 0
        assert file.read_text() == short_starter()
        assert self.run("init", "other.yaml", "--full")[0] == 0
        assert (tmp_path / "other.yaml").read_text() == starter()
        assert self.run("init", "no/such/folder.yaml")[0] == 2

    def test_validate_tells_what_would_be_asked_and_first_if_nothing_would(self) -> None:
        words = "validate", str(QUICKSTART), "--set"
        code, out, err = self.run(*words, "trials.max=10")
        assert (code, err) == (0, "")
        assert "6 models, 30 questions, objective ranking, up to 10 trials per question, first look after 4, " in out
        assert ", 1,800 trials at most" in out
        _, out, _ = self.run(*words, "trials.optimize=time", "--set", "budget.trials=4000")
        # without a cap the first round has 12, which 4,000 trials do not pay for twice
        assert "up to 80 trials per question, first look after 4, 4,000 trials at most" in out
        for cap in ("budget.trials=1", "budget.tokens=1"):
            code, out, _ = self.run(*words, cap, "--set", "sampling.max_tokens=100")
            assert code == 0 and "quickstart.yaml is valid, but a run of it would request no answers: 6 models" in out
        assert "no answers" not in self.run(*words, "budget.trials=1000000")[1]

    def test_validate_looks_at_the_questions_and_names_those_that_are_there_again(self, tmp_path: Path) -> None:
        asked = {"a": "1 + 1?", "b": "2 + 2?", "c": "1 +  1?", "d": "2 + 2?", "e": "?"}
        rows = [{"id": key, "prompt": asked[key], "answer": answer} for key, answer in zip(asked, "24251", strict=True)]
        (tmp_path / "q.jsonl").write_text("\n".join([json.dumps(row) for row in rows]))
        (tmp_path / "c.yaml").write_text(
            "questions: q.jsonl\ngrader: numeric\n"
            "models: [{name: a, base_url: http://a/v1}, {name: b, base_url: http://b/v1}]"
        )
        code, out, _ = self.run("validate", "c.yaml")
        assert code == 0
        assert "warning: 2 questions repeat the text of another one: a = c, b = d (with different answer keys)" in out
        (tmp_path / "q.jsonl").write_text('{"prompt": "?", "answer": "seven"}')
        code, _, err = self.run("validate", "c.yaml")
        assert code == 2 and "needs a number as its answer, but has 'seven'" in err
