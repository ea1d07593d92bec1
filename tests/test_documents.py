"""What the documents say is so: their code runs, their configurations are valid, their commands and links exist."""

import contextlib
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from document_blocks import ROOT, Block, blocks, blocks_of, commands, documents, require_understood, without_fences
from test_layers import LAYERS, short
from typer.testing import CliRunner

from adaptive_eval import testing
from adaptive_eval.base.errors import ExitCode
from adaptive_eval.cli import COMMANDS, app, load_command
from adaptive_eval.config.json_schema import json_schema
from adaptive_eval.config.load import load_config

LANGUAGES = {"python", "yaml", "sh", "text", "mermaid"}
OTHERS = {
    "python3",
    "pip",
    "ray",
    "sky",
    "sbatch",
    "ssh",
    "kubectl",
    "curl",
    "ruff",
    "mypy",
    "pytest",
    "python",
    "source",
}
OTHERS |= {"uv", "cyclonedx-py", "sigstore", "twine"}
"""Programs that the documents name besides our own; those of a virtual environment are named by their path."""
BESIDE: dict[str, object] = {
    "questions": {"path": "questions.jsonl"},
    "models": [{"name": name, "base_url": "http://localhost:8000/v1"} for name in ("small", "large")],
    "prompt": "{prompt}",
    "grader": "exact",
}
"""What stands around a configuration of which a document shows a part."""

ENDED = {ExitCode.REACHED, ExitCode.SPENT}

ALL = documents()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the documents take to be there."""
    row = '{"id": "1", "prompt": "1 + 1?", "answer": "2"}\n'
    for name in ("questions.jsonl", "aime.jsonl"):
        (tmp_path / name).write_text(row)
    (tmp_path / "answers.jsonl").write_text('{"model": "in-production", "question": "1", "text": "2"}\n')
    for name in ("configs", "benchmarks", "examples", "tests", ".ci"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QWEN_URL", "http://localhost:8000/v1")
    return tmp_path


OWN = re.compile(r"# (\w+\.py)\n")
"""The first line of a block that shows a file of a reader's own."""


def write_own_modules(document: str, folder: Path) -> None:
    """The files that a document shows, for the configurations in it that name them."""
    for block in blocks("python"):
        named = OWN.match(block.text)
        if named and block.document == document:
            (folder / named[1]).write_text(block.text)


def test_every_block_of_code_is_of_a_kind_that_is_tested() -> None:
    for path in ALL:
        text = path.read_text()
        assert text.count("```") % 2 == 0, path
        assert not re.search(r"\n\n {4}\S", without_fences(text)), "code is fenced, so that it says what it is"
        kinds = set(re.findall(r"^```(\w*)", text, flags=re.MULTILINE)) - {""}
        assert kinds <= LANGUAGES, path


SUITES = re.compile(r"^    (check_\w+)\(", flags=re.MULTILINE)
BROUGHT = {"my_grade": "def my_grade(ask: Ask) -> int:\n    return int(hash((ask.question, ask.trial)) % 4 > 0)\n"}
"""What a reader brings along: it finds three answers of four right."""


def write_module(block: Block, folder: Path) -> Path:
    """The block as a file of a reader's own; what it is given by the reader stands behind its imports."""
    name = re.sub(r"\W", "_", str(block))
    name_line = OWN.match(block.text)
    path = folder / (name_line[1] if name_line else f"{name}.py")
    *_, last = re.finditer(r"^(?:import|from) .*\n", block.text, flags=re.MULTILINE)
    brought = "".join(text for name, text in BROUGHT.items() if name in block.text)
    above, below = block.text[: last.end()], block.text[last.end() :]
    needed = brought and "from adaptive_eval.core import Ask\n"
    path.write_text(f"{above}{needed}\n\n{brought}\n\n{below.lstrip()}" if brought else block.text)
    return path


OF_A_RUN = "runs/quickstart"
TAKES_A_WHILE = re.compile(rf"{SUITES.pattern}|{OF_A_RUN}|adaptive_eval\.run\(|inspect_ai", flags=re.MULTILINE)
WANDB = """
class Run(dict):
    summary: dict = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        assert self.summary

    def save(self, path):
        open(path).close()


def init(project, name):
    return Run()
"""
"""Stands for the package, which tests do not have."""


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(block, marks=[pytest.mark.slow] if TAKES_A_WHILE.search(block.text) else [], id=str(block))
        for block in blocks("python")
    ],
)
def test_python_runs(
    block: Block, place: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if OF_A_RUN in block.text:
        shutil.copytree(request.getfixturevalue("finished") / "runs", place / "runs")
        (place / "wandb.py").write_text(WANDB)
    path = write_module(block, place)
    monkeypatch.syspath_prepend(place)
    monkeypatch.delitem(sys.modules, path.stem, raising=False)
    module = import_module(path.stem)
    for name, test in vars(module).items():
        if name.startswith("test_"):
            test()
    del sys.modules[path.stem]


def test_python_is_without_lint(tmp_path: Path) -> None:
    """By the rules of this repository."""
    for block in blocks("python"):
        (tmp_path / re.sub(r"\W", "_", str(block))).with_suffix(".py").write_text(block.text)
    words = [sys.executable, "-m", "ruff", "check", "--no-cache", "--config", str(ROOT / "pyproject.toml")]
    words += ["--config", 'lint.isort.known-first-party = ["adaptive_eval", "scorio"]']
    done = subprocess.run([*words, "--ignore=F821", "."], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    done = subprocess.run(
        [*words[:3], "format", "--no-cache", "--diff", *words[5:], "."], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.release
def test_python_is_typed(tmp_path: Path) -> None:
    paths = [str(write_module(block, tmp_path)) for block in blocks("python")]
    words = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml")]
    done = subprocess.run(
        [*words, "--cache-dir", str(ROOT / ".mypy_cache"), *paths],
        cwd=tmp_path,
        env=os.environ | {"MYPYPATH": f"{ROOT}:{ROOT / 'tests'}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_can_be_added_is_shown_with_its_contract_suite() -> None:
    shown = {
        name for block in blocks("python") if block.document == "CONTRIBUTING.md" for name in SUITES.findall(block.text)
    }
    assert shown == {*testing.__all__}
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert "### A configuration key" in text and "### A command" in text


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_configurations_are_valid(block: Block, place: Path) -> None:
    """A whole configuration as it is, a part of one beside the rest."""
    shown = yaml.safe_load(block.text)
    is_complete = {"questions", "models"} <= shown.keys() or {"benchmark", "benchmarks"} & shown.keys()
    config = shown if is_complete else BESIDE | shown
    write_own_modules(block.document, place)
    path = place / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    load_config(path)


@pytest.mark.parametrize("block", blocks("sh"), ids=str)
def test_commands_and_their_options_exist(block: Block, place: Path) -> None:
    for words in commands(block):
        program = Path(words[0])
        if program.name == "adaptive-eval":
            require_understood(words)
        elif words[0].startswith((".ci/", "tests/")):
            assert os.access(ROOT / program, os.X_OK), words[0]
        else:
            assert program.name in OTHERS, f"{block}: what is {words[0]}?"
            files = [word for word in words[1:] if word.startswith(("tests", "benchmarks/", "documents/"))]
            missing = [word for word in files if not (ROOT / word).exists()]
            assert not missing, f"{block}: {missing}"


def test_commands_in_sentences_and_their_options_exist() -> None:
    for path in ALL:
        for text in re.findall(r"`adaptive-eval\s+([a-z][^`]*)`", without_fences(path.read_text())):
            words = text.split()
            assert words[0] in COMMANDS, f"no such command: {text}"
            options = {option for parameter in load_command(words[0]).params for option in parameter.opts} | {"--help"}
            assert {word for word in words if word.startswith("--")} <= options, text


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the quickstart has been run twice, with fewer trials than the documents speak of."""
    folder = tmp_path_factory.mktemp("documents")
    small = yaml.safe_load((ROOT / "configs" / "quickstart.yaml").read_text()) | {"trials": {"min": 2, "max": 2}}
    (folder / "configs").mkdir()
    (folder / "configs" / "quickstart.yaml").write_text(yaml.safe_dump(small))
    for more in ([], ["--fresh"]):
        with contextlib.chdir(folder):
            words = ["run", "configs/quickstart.yaml", "--display", "none", *more]
            assert CliRunner().invoke(app, words).exit_code in ENDED
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("path", [path for path in ALL if path.parent.name == "guide"], ids=lambda path: path.stem)
def test_commands_that_need_no_server_of_yours_run(
    path: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(finished, tmp_path / "here")
    monkeypatch.chdir(folder)
    (folder / "questions.jsonl").write_text('{"id": "1", "prompt": "1 + 1?", "answer": "2"}\n')
    for block in blocks_of(path):
        for words in commands(block) if block.language == "sh" else ():
            if Path(words[0]).name == "adaptive-eval" and needs_nothing(words):
                done = CliRunner().invoke(app, words[1:])
                assert done.exit_code in ENDED, f"{block}: {words}: {done.output}"


def needs_nothing(words: list[str]) -> bool:
    """Whether a command can be run here, in a moment."""
    if words[1] == "monitor":
        return "--once" in words
    if words[1] == "import":
        return words[2] == "outcomes.npz"
    if words[1] in {"report", "export"}:
        return words[2] not in {"runs/logs", "runs/baseline"}
    if words[1] == "run":
        return words[2] == "configs/quickstart.yaml" and "--fresh" not in words
    return words[1] in {"compare", "init", "schema"} or words[1:3] == ["replay", "runs/quickstart"]


def test_every_link_leads_somewhere() -> None:
    for path in ALL:
        links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", without_fences(path.read_text()))
        missing = [link for link in links if not link.startswith("http") and not (path.parent / link).exists()]
        assert not missing, path


def test_every_link_into_a_page_leads_to_a_heading() -> None:
    for path in ALL:
        links = re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", without_fences(path.read_text()))
        for page, anchor in [(page, anchor) for page, anchor in links if not page.startswith("http")]:
            text = without_fences((path.parent / page if page else path).read_text())
            headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
            assert anchor in {re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", heading.lower())) for heading in headings}, (
                page,
                anchor,
            )


def test_the_reference_of_the_configuration_has_all_that_the_schema_has() -> None:
    """As text, for it is read where nothing is made of it."""
    made = runpy.run_path(str(ROOT / "documents" / "reference.py"))["reference"]()
    page = (ROOT / "docs" / "reference" / "configuration.md").read_text()
    assert page.split() == made.split(), "python documents/write.py writes it"
    schema = json_schema()
    for section in (schema, *schema["$defs"].values()):
        for key in section.get("properties", {}):
            assert f"\n| `{key}` | " in page


def schema_words(part: object) -> Iterator[str]:
    """The keys of a JSON schema and the words that they may have as values."""
    if isinstance(part, dict):
        yield from part.get("properties", {})
        yield from (word for word in (*part.get("enum", ()), part.get("const")) if isinstance(word, str))
    for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from schema_words(inner)


def test_every_word_of_the_configuration_stands_in_code_of_the_guide() -> None:
    pages = "\n".join(page.read_text() for page in sorted((ROOT / "docs" / "guide").glob("*.md")))
    shown = {word for code in re.findall(r"```.*?```|`[^`]+`", pages, re.DOTALL) for word in re.findall(r"\w+", code)}
    assert sorted({*schema_words(json_schema())} - shown) == []


def test_every_file_that_is_named_exists() -> None:
    for path in ALL:
        text = without_fences(path.read_text())
        named = re.findall(r"`((?:adaptive_eval|scorio|tests|benchmarks|configs|examples|documents)/[\w./-]+)`", text)
        assert not [name for name in named if not (ROOT / name).exists()], path


def test_benchmarks_have_a_page_where_one_is_cited_and_it_is_short() -> None:
    citing = [*(ROOT / "docs" / "guide").glob("*.md"), ROOT / "README.md"]
    cited = {name for path in citing for name in re.findall(r"\]\((?:[./]*benchmarks/)?(\w+)\.md", path.read_text())}
    pages = {path.stem: path.read_text() for path in (ROOT / "benchmarks").glob("*.md")}
    assert pages.keys() - {"README"} <= cited, "a page that nobody cites: its script prints it"
    long = {name for name, text in pages.items() if text.count("\n") > 40 or len(text.replace("|", " ").split()) > 700}
    assert not long, "a page is as long as a screen"


def test_every_value_on_a_trials_way_exists_and_its_home_too() -> None:
    homes = re.findall(r"`([a-z_]+/[a-z0-9_]+\.py)`", (ROOT / "ARCHITECTURE.md").read_text())
    assert not [home for home in homes if not (ROOT / "adaptive_eval" / home).exists() and not (ROOT / home).exists()]
    named = re.findall(r"`((?:core|endpoints|graders|store|record)\.[\w.]+)`", (ROOT / "ARCHITECTURE.md").read_text())
    assert named
    for name in named:
        module, _, value = name.rpartition(".")
        assert hasattr(import_module(f"adaptive_eval.{module}"), value), name


def test_the_table_of_the_rooms_is_in_their_order() -> None:
    table = re.findall(r"^\| `(\w+)` +\|", (ROOT / "ARCHITECTURE.md").read_text(), flags=re.MULTILINE)
    assert table == [short(level) for level in range(len(LAYERS)) if not LAYERS[level].endswith("__main__")]


def test_every_room_has_a_folder_of_tests_and_contributing_names_the_others() -> None:
    """Who has changed a room finds there which tests to run."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    folders = {path.name for path in (ROOT / "tests").iterdir() if any(path.glob("test_*.py"))}
    rooms = {short(level) for level in range(len(LAYERS)) if (ROOT / LAYERS[level].replace(".", "/")).is_dir()}
    assert rooms <= folders
    lacking = {name for name in folders - rooms if not re.search(rf"\btests/{name}\b", text)}
    assert not lacking, f"CONTRIBUTING.md, Tests: a line for {', '.join(sorted(lacking))}"


def test_the_whole_configuration_of_the_readme_passes_validate(place: Path) -> None:
    (block,) = [block for block in blocks("yaml") if block.document == "README.md" and "questions:" in block.text]
    (place / "mine.yaml").write_text(block.text)
    result = CliRunner().invoke(app, ["validate", "mine.yaml"])
    assert result.exit_code == 0, result.output
