"""The source of a grader is part of what a run means; that of a rule may change, and the change is recorded."""

from pathlib import Path

import pytest
from command_line import typed
from live_runs import RunOutcome, Site
from stored_runs import events_in

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.base.imports import docstring_summary, fingerprints
from adaptive_eval.notes import SettingsChanged

GRADER = "from marking.keys import right\n\n\ndef grade(text, question):\n    return right(text, question)\n"
KEYS = "def right(text, question):\n    return '{' + question.answer + '}' in text\n"
RULE = "from adaptive_eval.core.sequential import Sequential\n\n\nclass Rule(Sequential):\n    'Mine.'\n"


@pytest.fixture
def marked(site: Site) -> Path:
    """A configuration with a grader in a package that imports a sibling module."""
    package = site.folder / "marking"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "grader.py").write_text(GRADER)
    (package / "keys.py").write_text(KEYS)
    grader = {"kind": "python", "function": "marking.grader:grade"}
    return site.write(trials={"min": 2, "max": 2}, grader=grader, grading={"workers": 1})


@pytest.mark.parametrize(
    "edited", [pytest.param(file, marks=pytest.mark.slow) for file in ("keys.py", "grader.py", "__init__.py")]
)
def test_an_edited_grader_is_noticed_and_regrading_mends_it(site: Site, marked: Path, edited: str) -> None:
    assert site.run(marked).exit_code == ExitCode.SPENT
    before = RunOutcome.of(site.directory()).outcomes
    path = site.folder / "marking" / edited
    path.write_text(path.read_text() + "\n# another\n")
    refused = site.run(marked, code=ExitCode.CONFIGURATION)
    assert f"marking/{edited} was edited after the start of the run" in refused.stderr
    assert f"regrade {site.directory()} --config {marked}" in refused.stderr
    assert "--fresh" in refused.stderr
    done = typed("regrade", site.directory(), "--config", marked)
    assert f"graded {len(before)} answers again: 0 have another category" in done.stdout, done.stderr
    assert site.run(marked).exit_code == ExitCode.SPENT
    assert RunOutcome.of(site.directory()).outcomes == before


def test_an_edited_rule_goes_on_and_is_recorded(site: Site) -> None:
    rule = site.folder / "my_own_rule.py"
    rule.write_text(RULE)
    config = site.write(trials={"min": 2, "max": 2}, stopping={"rule": "my_own_rule:Rule"})
    assert site.run(config).exit_code == ExitCode.SPENT
    rule.write_text(RULE + "\n# another\n")
    assert site.run(config).exit_code == ExitCode.SPENT
    changed = events_in(site.directory(), SettingsChanged)
    paths = [change.path for event in changed for change in event.changes]
    assert paths == ["plug_ins.stopping.rule.sources.my_own_rule.py"]


def test_what_is_beside_a_module_belongs_to_it_and_nothing_is_imported(tmp_path: Path) -> None:
    (tmp_path / "top.py").write_text("import os, numpy\nfrom deep import inner\nraise SystemExit('it was imported')\n")
    deep = tmp_path / "deep"
    (deep / "more").mkdir(parents=True)
    (deep / "__init__.py").touch()
    (deep / "inner.py").write_text("def f():\n    from .more.leaf import x\n    from . import cousin\n")
    (deep / "cousin.py").write_text("import top  # in a circle\n")
    (deep / "more" / "__init__.py").touch()
    (deep / "more" / "leaf.py").write_text("x = (")  # no source that could be read further
    (tmp_path / "unused.py").touch()
    inside = [f"deep/{name}.py" for name in ("__init__", "cousin", "inner", "more/__init__", "more/leaf")]
    assert list(fingerprints("top:f", tmp_path)) == [*inside, "top.py"]
    assert fingerprints("nowhere_at_all:f", tmp_path) == {}
    installed = fingerprints("yaml.loader:Loader", tmp_path)
    assert installed.keys() >= {"yaml/loader.py", "yaml/reader.py"}
    assert all(name.startswith("yaml/") for name in installed), "of a package its own files count"
    (tmp_path / "spoken.py").write_text("class Rule:\n    'One.\\n\\nTwo.'\n\ndef silent(): pass\n")
    assert docstring_summary("spoken:Rule", tmp_path) == "One." and docstring_summary("spoken:silent", tmp_path) is None
