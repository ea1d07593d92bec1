"""Golden runs by the machine: the looks and trials that were recorded of the old way."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "golden"), str(TESTS / "running")]

from golden_cases import CAP_TOKENS, CAP_TRIALS, TIME  # noqa: E402
from golden_record import Line, differences, masked, parts_of, read  # noqa: E402
from golden_stage import Stage  # noqa: E402
from road import start  # noqa: E402

from adaptive_eval.run.trial import Trial  # noqa: E402
from adaptive_eval.simulate.faults import Faults  # noqa: E402
from adaptive_eval.storage.read import RunReader  # noqa: E402
from adaptive_eval.storage.verify import Integrity  # noqa: E402

SAME = ("look", "trial")


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with ExitStack() as exits:
        yield Stage(tmp_path, exits)


def lines_of(directory: Path, folder: Path) -> list[Line]:
    with closing(RunReader.open(directory)) as reader:
        models, questions = (
            {number: name for name, number in one.items()} for one in (reader.models(), reader.questions())
        )
        looks: list[Line] = [["look", look.number, look.body] for look in reader.looks()]
        trials = [_trial(one, models, questions) for _, one in reader.trials()]
    trials.sort(key=lambda line: line[1:4])
    return [masked(line, folder) for line in (*looks, *trials)]


def _trial(trial: Trial, models: dict[int, str], questions: dict[int, str]) -> Line:
    answer, grade = trial.answer, trial.grade
    assert answer is not None and grade is not None
    ended = " ".join([answer.finish_reason, *sorted(answer.signals)])
    category = trial.category if grade.error is None else grade.error
    key = [models[trial.model], questions[trial.question], trial.number]
    return ["trial", *key, answer.seed, category, grade.extracted, dict(grade.signals), ended]


def require_same(stage: Stage, expected: str, parts: tuple[str, ...] = SAME) -> None:
    found = parts_of(lines_of(stage.directory(), stage.folder), parts)
    told = differences(found, parts_of(read(expected), parts))
    assert not told, "\n".join([f"the run is not as in {expected}.jsonl:", *told])
    assert not Integrity.check(stage.directory()).damages


def run(stage: Stage, config: Path, **how: Any) -> Any:
    return asyncio.run(start(config, stage.directory(), **how))


def killed(stage: Stage, config: Path, trials: int) -> None:
    """A start in a process of its own, which is killed once so many answers are stored."""
    command = [sys.executable, str(Path(__file__).with_name("road.py")), str(config), str(stage.directory())]
    process = subprocess.Popen(command, cwd=stage.folder)
    try:
        deadline = time.monotonic() + 60
        while _stored(stage.directory()) < trials:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()


def _stored(directory: Path) -> int:
    try:
        with closing(RunReader.open(directory)) as reader:
            return sum(line.number for line in reader.account() if line.state is not None and line.state != "reserved")
    except Exception:  # it is being begun
        return 0


def test_plain_run(stage: Stage) -> None:
    reason, seen = run(stage, stage.config(stage.serve()))
    require_same(stage, "plain")
    assert reason is not None and seen.looks and seen.notes["finished"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("slots", [1, 64])
def test_concurrency_changes_nothing(stage: Stage, slots: int) -> None:
    run(stage, stage.config(stage.serve(), concurrency=slots))
    require_same(stage, "plain")


@pytest.mark.slow
def test_killed_run_goes_on(stage: Stage) -> None:
    killed(stage, stage.config(stage.gate(60).base_url), 30)
    run(stage, stage.config(stage.serve()))
    require_same(stage, "plain")


@pytest.mark.slow
def test_faults_change_nothing(stage: Stage) -> None:
    stage.short_pauses()
    faults = Faults(server_error=0.1, reset=0.1, rate_limited=0.1, retry_after=0.01)
    run(stage, stage.config(stage.serve(faults=faults)))
    require_same(stage, "plain")


@pytest.mark.slow
def test_rounds_ahead_of_looks(stage: Stage) -> None:
    run(stage, stage.config(stage.serve(), trials={"lookahead": 2}))
    require_same(stage, "lookahead")


@pytest.mark.slow
def test_several_answers_per_request(stage: Stage) -> None:
    run(stage, stage.config(stage.serve(), concurrency={"in_flight": 8, "samples_per_request": 4}))
    require_same(stage, "several_answers_a_request")


@pytest.mark.slow
@pytest.mark.parametrize(("expected", "caps"), [("cap_trials", CAP_TRIALS), ("cap_tokens", CAP_TOKENS)])
def test_caps(stage: Stage, expected: str, caps: dict[str, Any]) -> None:
    run(stage, stage.config(stage.serve(), **caps))
    require_same(stage, expected)


@pytest.mark.slow
def test_stopped_run_goes_on(stage: Stage) -> None:
    config = stage.config(stage.serve(), **CAP_TOKENS)
    reason, seen = run(stage, config, stop_after=60)
    assert reason is None and seen.notes["stopped"] == 1
    run(stage, config)
    require_same(stage, "cap_tokens")


@pytest.mark.slow
def test_a_finished_run_asks_nothing_again(stage: Stage) -> None:
    config = stage.config(stage.serve())
    first, _ = run(stage, config)
    asked = stage.asked
    again, seen = run(stage, config)
    assert again == first and stage.asked == asked and not seen.looks


@pytest.mark.slow
def test_time_pace(stage: Stage) -> None:
    run(stage, stage.config(stage.serve(), **TIME))
    require_same(stage, "time", ("look",))
