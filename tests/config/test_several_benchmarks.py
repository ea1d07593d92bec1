"""Several benchmarks in a run: what a file may say, and what it comes to before anything is asked."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from checked_text import config_in, problems_in

from adaptive_eval.config.benchmarks import BenchmarkPart, weigh_questions
from adaptive_eval.config.fingerprint import differences
from adaptive_eval.config.json_schema import json_schema
from adaptive_eval.config.load import load_config
from adaptive_eval.config.prepare import prepare, run_header, stored_setup
from adaptive_eval.core.settings import Margin
from adaptive_eval.graders.by_benchmark import ByBenchmark
from adaptive_eval.graders.mathematics import Math
from adaptive_eval.graders.numeric import Numeric
from adaptive_eval.graders.types import GradingLimits
from adaptive_eval.questions.types import Question
from adaptive_eval.report.words import decisions_in_words

MODELS = """\
models:
  - {name: a, base_url: http://a/v1}
  - {name: b, base_url: http://b/v1, prompt: {system: Think.}}
"""
TWO = """\
benchmarks:
  - {name: easy, weight: 3, questions: e.jsonl}
  - name: hard
    questions: {path: h.jsonl, fields: {metadata: [topic], cluster: topic}}
    grader: numeric
    prompt: "{prompt} ({topic})"
grader: math
prompt: "Q: {prompt}"
"""
JUDGE = "{kind: judge, server: {base_url: 'http://j/v1', model: j}"
KEYED = JUDGE.replace("base_url", "api_key_env: KEY, base_url")
SCORE = "{name: depth, levels: {low: 0, high: 1}}"
TASK = TWO.replace(", questions: e.jsonl", ", benchmark: {inspect: a/b}")
GATED = TWO.replace("weight: 3", "gate: 5%") + "objective: {kind: baseline, baseline: a, gate: true}\n"


def graded(grader: str) -> str:
    return TWO.replace("grader: numeric", f"grader: {grader}")


def rows(folder: Path) -> Path:
    """A configuration of two benchmarks, of two and of three questions."""
    for name, many in (("e", 2), ("h", 3)):
        lines = (
            {"id": f"q{at}", "prompt": f"{name}{at}?", "answer": str(at), "topic": "ab"[at % 2]} for at in range(many)
        )
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    path = folder / "bench.yaml"
    path.write_text(TWO + MODELS)
    return path


def test_questions_and_graders_of_all_are_one_section_each() -> None:
    config = config_in(TWO + MODELS)
    assert [(part.name, part.weight) for part in config.benchmarks] == [("easy", 3.0), ("hard", 1.0)]
    paths = {name: str(source.path) for name, source in config.questions.benchmarks.items()}
    assert paths == {"easy": "e.jsonl", "hard": "h.jsonl"}
    assert isinstance(config.grader, ByBenchmark)
    assert {name: type(grader) for name, grader in config.grader.graders.items()} == {"easy": Math, "hard": Numeric}
    changed = config_in(TWO + MODELS, "benchmarks.1.weight=7", "benchmarks[1].questions.limit=2")
    assert changed.benchmarks[1].weight == 7.0 and changed.questions.benchmarks["hard"].limit == 2
    task = config_in("benchmarks:\n  - {name: gsm, benchmark: {lm_eval: gsm8k_cot}, questions: {limit: 5}}\n" + MODELS)
    assert task.questions.benchmarks["gsm"].limit == 5
    assert task.questions.benchmarks["gsm"].options == {"task": "gsm8k_cot", "limit": 5}
    assert isinstance(task.grader, ByBenchmark) and task.grader.functions == ("adaptive_eval.lm_eval.tasks:grade",)


def test_all_graders_share_the_limits_of_the_run() -> None:
    task = "  - {name: gsm, benchmark: {lm_eval: gsm8k_cot}}\n"
    both = TWO.replace("grader: math", f"{task}grader: math") + MODELS
    usual, quick = config_in(TWO + MODELS), config_in(TWO + MODELS, "grading.timeout=5")
    assert (usual.grading, quick.grading) == (GradingLimits(), GradingLimits(timeout=5.0))
    assert run_header(usual, ()).meaning == run_header(quick, ()).meaning, "no grade depends on them"
    assert config_in(both).grading == GradingLimits(workers=1, timeout=60.0)
    assert config_in(both, "grading={workers: 2, memory: 4}").grading == GradingLimits(
        workers=2, timeout=60.0, memory=4.0
    )
    assert config_in("benchmark: {lm_eval: gsm8k_cot}\n" + MODELS, "grading.timeout=5").grading.timeout == 5.0
    hint = "benchmarks[1].grader.timeout is not a known key; did you mean grading.timeout?"
    assert hint in problems_in(graded("{kind: numeric, timeout: 3}") + MODELS)[0]


def test_ids_clusters_prompts_and_weights_are_those_of_the_benchmark(tmp_path: Path) -> None:
    prepared = prepare(load_config(rows(tmp_path)))
    assert tuple(prepared.roster.questions)[:3] == ("easy/q0", "easy/q1", "hard/q0")
    assert [question.cluster for question in prepared.questions][2:] == ["hard/a", "hard/b", "hard/a"]
    first, second = prepared.prompts
    assert [first[at].messages[-1].content for at in (0, 2)] == ["Q: e0?", "h0? (a)"]
    assert [message.role for message in second[2].messages] == ["system", "user"]
    bench = prepared.plan.bench
    assert bench.benchmark_of is not None
    assert bench.question_weights is not None
    assert bench.benchmark_of.tolist() == [0, 0, 1, 1, 1]
    words = decisions_in_words(prepared.config, {}, began_at=80, imported=False)
    assert words.prior.startswith(
        "The score is the mean over questions of each question's mean, weighted by benchmark."
    )
    np.testing.assert_allclose(bench.question_weights / 5, [3 / 8, 3 / 8, 1 / 12, 1 / 12, 1 / 12])
    read = stored_setup(prepared.header)
    assert (read.config, read.questions) == (prepared.config, prepared.questions), "a stored run is read as written"


def test_gates_of_benchmarks_are_those_of_the_plan(tmp_path: Path) -> None:
    (path := rows(tmp_path)).write_text(GATED + MODELS)
    plan = prepare(load_config(path)).plan
    assert plan.bench.gates == ((0, 0.05),)
    assert plan.objective.margin == Margin(0, 0.0, (0.05,))
    meaning = run_header(load_config(path), ()).meaning
    assert run_header(load_config(path, ["benchmarks.0.gate=0.2"]), ()).meaning == meaning


@pytest.mark.parametrize(
    "change", ["benchmarks.0.weight=2", "benchmarks.1.prompt='{prompt}'", "benchmarks.0.grader=exact"]
)
def test_what_the_score_means_is_kept(tmp_path: Path, change: str) -> None:
    path = rows(tmp_path)
    was, now = (run_header(load_config(path, changes), ()).meaning for changes in ((), (change,)))
    assert len(list(differences(was, now))) == 1


def test_a_grader_is_that_of_the_question(tmp_path: Path) -> None:
    grader = load_config(rows(tmp_path)).grader
    easy, hard = Question("easy/q", "?", "1/2"), Question("hard/q", "?", "0.5")
    assert grader.grade(r"\boxed{\frac{1}{2}}", easy).signals["is_correct"]
    assert grader.grade("0.5", hard).signals["is_correct"]
    assert grader.key_problem(Question("hard/q", "?", "no number")) is not None
    assert grader.key_problem(Question("easy/q", "?", "x+1")) is None
    assert {"is_correct", "has_answer"} <= grader.gives


def test_weights_are_shared_by_the_questions_that_are_there() -> None:
    parts = [BenchmarkPart(name="a", weight=2.0), BenchmarkPart(name="b"), BenchmarkPart(name="c")]
    weighed = weigh_questions(parts, ["c/1", "a/1", "a/2/x"])
    assert weighed is not None
    assert weighed.benchmark_of.tolist() == [1, 0, 0]
    assert weighed.question_weights.tolist() == [1.0, 1.0, 1.0]
    assert weigh_questions((), ["q"]) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (TWO + "questions: q.jsonl\n", "line 9: questions cannot be combined with benchmarks"),
        (TWO + "benchmark: {inspect: a/b}\n", "benchmark cannot be combined with benchmarks"),
        ("benchmarks: []\ngrader: math\n", "line 1: questions must be given; add `questions:`"),
        (TWO.replace("hard", "easy"), "benchmarks[1].name must differ from the other names"),
        (TWO.replace("name: hard", "name: a/b"), "line 3: benchmarks[1].name must consist of letters"),
        (TWO.replace("weight: 3", "weight: 0"), "line 2: benchmarks[0].weight must be greater than 0"),
        (TWO.replace("path: h.jsonl, ", ""), "line 4: benchmarks[1].questions.world or path"),
        (TWO.replace("e.jsonl", "{path: e.jsonl, limit: 0}"), "line 2: benchmarks[0].questions.limit must"),
        (graded("numerix"), "line 5: benchmarks[1].grader must be one of"),
        (graded("{kind: verifier}"), "line 5: benchmarks[1].grader.kind cannot grade one of several benchmarks: a"),
        (graded(f"{JUDGE}, compare_to: reference}}"), "line 5: benchmarks[1].grader.compare_to cannot grade one of"),
        (graded(f"{JUDGE}, scores: [{SCORE}]}}"), "rubric needs the signal is_correct, which no answer to hard will"),
        (graded(f"{KEYED}}}") + "budget: {usd: 5}\n", "budget.usd needs price of the judge of hard, to reserve the"),
        (TWO.replace("grader: math\n", ""), "line 2: benchmarks[0].grader must be given"),
        (TWO.replace(", questions: e.jsonl", ""), "line 2: benchmarks[0].questions must be given"),
        (TASK, "models[0].inspect must be set"),
        (TASK.replace("b}", "b}, grader: math"), "benchmarks[0].grader has no effect: the task's own scorer grades"),
        (
            re.sub("questions: .*topic.*\n    grader: numeric", "benchmark: {inspect: a/b}", TWO),
            "benchmarks[1].prompt has no effect: the Inspect task has its own prompts",
        ),
        (TWO.replace("weight: 3", "gate: 5%"), "line 2: benchmarks[0].gate needs objective.gate as well"),
        (GATED.replace("gate: 5%", "gate: -0.1"), "line 2: benchmarks[0].gate must be"),
        (GATED + "stopping: {rule: published}\n", "benchmarks[0].gate needs a rule with a valid p-value"),
        (GATED + "stopping: {familywise: holm}\n", "benchmarks[0].gate already shares the error with a model's"),
        (GATED + "trials: {seeds: coupled}\n", "benchmarks[0].gate cannot be combined with coupled seeds"),
        (
            GATED.replace("baseline, baseline: a", "threshold, value: 0.6"),
            "line 2: benchmarks[0].gate compares with a baseline; a gate on a value judges the total alone; remove",
        ),
        (TWO.replace("({topic})", "({level})"), "line 6: benchmarks[1].prompt has a name in braces that is not a"),
        (TWO + "trials: {draw: 100, min: 1, max: 1}\n", "trials.draw cannot be combined with several benchmarks"),
        (TWO + "report: {metrics: [pass@2]}\n", "report.metrics cannot be combined with several benchmarks"),
        (TWO + "report: {group_by: [level]}\n", "report.group_by must be fields of the questions that are kept"),
        (TWO.replace("e.jsonl", "{world: coins}"), "has several worlds, but the simulator serves one"),
        ("questions: {benchmarks: {e: {path: e.jsonl}}}\ngrader: math\n", "questions.benchmarks is set by `benchm"),
        (TWO.replace("e.jsonl", "{path: e.jsonl, fields: {answer: null}}"), "questions.fields.answer must be set"),
    ],
)
def test_impossible_settings_are_reported_with_their_line(text: str, problem: str) -> None:
    lines = problems_in(text + MODELS)
    assert any(problem in line for line in lines), lines


def test_the_schema_for_editors_has_every_setting_of_an_entry() -> None:
    schema = json_schema()
    entry = schema["$defs"]["BenchmarkPart"]["properties"]
    assert {"name", "weight", "gate", "questions", "grader", "prompt", "benchmark"} == entry.keys()
    assert "benchmarks" not in schema["$defs"]["QuestionsConfig"]["properties"]
    assert all(setting.get("description") for setting in entry.values())
