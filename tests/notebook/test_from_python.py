"""`adaptive_eval.run` and `adaptive_eval.read_run`: where no loop runs, where one does, and what they give."""

import inspect
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from live_runs import MODELS, RunOutcome, Site, wait_for_trials
from patient_time import HANGS

import adaptive_eval
from adaptive_eval.base.errors import ConfigError, StoreError
from adaptive_eval.config.load import load_config


@pytest.fixture
def place(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A site whose folder is the current directory."""
    monkeypatch.chdir(site.folder)
    return site


@pytest.mark.parametrize("name", ["read_run", "run"])
def test_public_functions_document_arguments_returns_and_an_example(name: str) -> None:
    function = getattr(adaptive_eval, name)
    doc = inspect.getdoc(function) or ""
    described = set(re.findall(r"^    (\w+): ", doc[doc.index("Args:") : doc.index("Returns:")], re.MULTILINE))
    assert described == set(inspect.signature(function).parameters)
    assert f"adaptive_eval.{name}(" in doc[doc.index("Example:") :]


def test_importing_the_package_loads_nothing_else() -> None:
    code = (
        "import sys, adaptive_eval; assert {'run', 'read_run', 'RunRecord'} <= set(dir(adaptive_eval));"
        "heavy = {'numpy', 'scipy', 'pydantic', 'httpx2', 'rich', 'yaml'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.release
def test_run_is_a_function_whatever_was_imported_before() -> None:
    code = (
        "import adaptive_eval.running.start, adaptive_eval.cli.run, adaptive_eval.config.run, adaptive_eval;"
        "assert callable(adaptive_eval.run) and adaptive_eval.run.__name__ == 'run'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


ONCE: dict[str, Any] = {"trials": {"min": 4, "max": 4}}
"""A run of one round."""


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory, base_url: str) -> adaptive_eval.RunRecord:
    """What a run gives where no loop runs."""
    site = Site.make(tmp_path_factory.mktemp("recorded"), base_url)
    return adaptive_eval.run(site.write(), directory=site.directory(), display="none")


@pytest.mark.slow
def test_a_run_waits_for_its_end_where_no_loop_runs(place: Site, record: adaptive_eval.RunRecord) -> None:
    assert record.results is not None and record.results.run.status == "finished"
    assert {row.name for row in record.results.models} == set(MODELS)
    assert place.write(**ONCE).name == "run.yaml"
    assert adaptive_eval.run("run.yaml", display="none").directory == Path("runs/run"), "where the command puts it"


async def test_a_run_waits_for_its_end_where_a_loop_runs(place: Site, capsys: pytest.CaptureFixture[str]) -> None:
    record = adaptive_eval.run(place.write(**ONCE | {"stopping": {"rule": "anytime"}}), display="plain")
    assert record.results is not None and record.results.run.status == "finished"
    (to_do,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("to do ")]
    assert to_do.endswith(", then run the same command again"), "a call has no options of a command"


@pytest.mark.release
def test_a_mapping_and_a_whole_configuration_decide_as_their_file_does(place: Site) -> None:
    of_file = adaptive_eval.run(place.write(), display="none")
    settings = place.config(name="mapped", questions=place.folder / "questions.jsonl")
    of_mapping = adaptive_eval.run(settings, ["trials.max=30"], display="none")
    of_config = adaptive_eval.run(load_config(place.write("whole")), display="none")
    looks = [RunOutcome.of(result.directory).looks for result in (of_file, of_mapping, of_config)]
    assert of_mapping.directory == Path("runs/mapped") and looks[0] == looks[1] == looks[2]


def test_wrong_arguments_are_named(place: Site) -> None:
    def local(answer: object, question: object) -> None: ...

    with pytest.raises(ConfigError, match="did you mean max_tokens|max_token"):
        adaptive_eval.run(place.config(sampling={"max_tokenz": 3}))
    with pytest.raises(ConfigError, match="move it to the top level of a file"):
        adaptive_eval.run(place.config(grader={"kind": "python", "function": local}))
    with pytest.raises(ConfigError, match="neither a plain value"):
        adaptive_eval.run(place.config(seed=object()))
    with pytest.raises(ConfigError, match=r"^configuration: 1 problem\n  name must be given; add `name:`$"):
        adaptive_eval.run(place.config())
    with pytest.raises(ConfigError, match="only one of the two"):
        adaptive_eval.run(place.write(), directory="here", fresh=True)
    with pytest.raises(ConfigError, match="overrides are for a file"):
        adaptive_eval.run(load_config(place.write()), ["seed=1"])
    with pytest.raises(StoreError):
        adaptive_eval.read_run("nowhere")


@pytest.mark.slow
def test_a_grader_may_be_a_function_of_a_module(place: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "def right(answer, question):\n    return {'is_correct': question.answer in answer}\n"
    (place.folder / "graders_of_a_notebook.py").write_text(source)
    monkeypatch.syspath_prepend(place.folder)
    import graders_of_a_notebook  # type: ignore[import-not-found]

    grader = {"kind": "python", "function": graders_of_a_notebook.right}
    record = adaptive_eval.run(place.config(name="mine", grader=grader), display="none")
    assert record.results is not None and record.results.run.status == "finished"


LONG: dict[str, Any] = {"trials": {"min": 4, "max": 20_000, "policy": "uniform"}}
"""A run that nobody waits for."""


PROGRAM = """
import asyncio, sys, adaptive_eval

async def in_a_loop():
    adaptive_eval.run(sys.argv[1], directory=sys.argv[2], display="plain")

try:
    asyncio.new_event_loop().run_until_complete(in_a_loop())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.slow
def test_ctrl_c_stops_a_run_in_order_where_a_loop_runs(site: Site) -> None:
    command = [sys.executable, "-c", PROGRAM, str(site.write(**LONG)), str(site.directory())]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=site.folder, stdout=pipe, stderr=pipe, text=True)
    site.processes.append(process)
    assert wait_for_trials(site.directory(), 1, process), process.communicate()
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=HANGS)
    assert process.returncode == 0 and output.endswith("interrupted\n"), errors
    assert "Stopped. The same command continues" in output and "Traceback" not in errors
    assert adaptive_eval.read_run(site.directory()).view.events[-1].kind == "stopped"


def test_a_run_becomes_data_frames(record: adaptive_eval.RunRecord) -> None:
    from pandas import DataFrame

    trials = record.trials(texts=True)
    assert isinstance(trials, DataFrame) and "text" not in record.trials()
    assert record.results is not None
    assert len(trials) == record.results.cost.trials and trials["text"].str.len().min() > 0
    scores = trials.groupby(["model", "question"])["value"].mean().groupby("model").mean()
    expected = {row.name: row.score for row in record.results.models if row.stored_trials == row.trials}
    assert expected and all(np.isclose(scores[name], score) for name, score in expected.items())
    assert list(record.ranking["name"]) == [row.name for row in record.results.models]
    assert set(record.comparisons["verdict"]) <= {"resolved", "tied", "open", "out_of_reach", "blocked"}


def test_errors_say_how_to_get_pandas(record: adaptive_eval.RunRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigError, match=r"pip install 'adaptive-eval\[pandas\]'"):
        assert record.ranking is None
