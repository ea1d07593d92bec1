"""Golden runs by the machine: the looks and trials that were recorded of the old way."""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "golden"), str(TESTS / "running")]

from golden_cases import CASES  # noqa: E402
from golden_record import Line, differences, masked, parts_of, read  # noqa: E402
from golden_stage import ENDED, Stage  # noqa: E402
from road import start  # noqa: E402

from adaptive_eval.base.errors import ExitCode, StoreError  # noqa: E402
from adaptive_eval.run.trial import ANSWERED, Trial  # noqa: E402
from adaptive_eval.storage.read import LogReader  # noqa: E402
from adaptive_eval.storage.verify import Integrity  # noqa: E402

LATER = {
    "imported",
    "regraded",
    "r0",
    "recorded",
    "judge_against_a_model",
    "thresholds",
}
"""Runs that need what is not moved yet: other supplies, regrading, imports, readers of other runs."""
SHORT = {"plain", "plain_killed", "cap_tokens_stopped", "judge_killed", "extended"}
"""Of these one of each kind is among the short tests."""


class RoadStage(Stage):
    """A folder in which the machine runs instead of the command line."""

    def run(self, config: Path, name: str = "run", codes: tuple[ExitCode, ...] = ENDED) -> None:
        reason, seen = asyncio.run(start(config, self.directory(name)))
        assert reason is not None
        assert seen.notes["finished"] == 1

    def killed(self, config: Path, trials: int, name: str = "run") -> None:
        process = self._started(config, trials, name)
        process.kill()
        process.wait()

    def stopped(self, config: Path, trials: int, open_gate: Callable[[], None], name: str = "run") -> None:
        process = self._started(config, trials, name)
        process.send_signal(signal.SIGINT)
        open_gate()
        assert process.wait(60) == 0

    def _started(self, config: Path, trials: int, name: str) -> "subprocess.Popen[bytes]":
        """A start in a process of its own, once so many answers are stored."""
        directory, road = self.directory(name), Path(__file__).with_name("road.py")
        process = subprocess.Popen([sys.executable, str(road), str(config), str(directory)], cwd=self.folder)
        self.exits.callback(process.wait)
        self.exits.callback(process.kill)
        deadline = time.monotonic() + 60
        while stored_answers(directory) < trials:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        return process


def stored_answers(directory: Path) -> int:
    with suppress(StoreError), closing(LogReader.open(directory)) as reader:
        return sum(line.number for line in reader.account() if line.state in ANSWERED)
    return 0  # it is being begun


def lines_of(directory: Path, folder: Path, *, ahead: bool) -> list[Line]:
    """Looks and trials; if more is asked than looks count, of these only what the last look counts."""
    with closing(LogReader.open(directory)) as reader:
        models = {number: name for name, number in reader.models().items()}
        questions = {number: name for name, number in reader.questions().items()}
        looks: list[Line] = [["look", look.number, look.body] for look in reader.looks()]
        stored = [trial for _, trial in reader.trials()]
    assert all(trial.state in ANSWERED for trial in stored), "something is left in flight"
    if ahead:
        stored = counted(stored, looks[-1][2], models)
    trials = sorted((_trial(trial, models, questions) for trial in stored), key=lambda line: line[1:4])
    return [masked(line, folder) for line in (*looks, *trials)]


def counted(trials: list[Trial], last: dict[str, Any], models: dict[int, str]) -> list[Trial]:
    found = []
    for model, number in zip(last["models"], last["trials"], strict=True):
        own = [trial for trial in trials if models[trial.model] == model]
        own.sort(key=lambda trial: (trial.round, models[trial.model], trial.question, trial.number))
        found += own[:number]
    return found


def _trial(trial: Trial, models: dict[int, str], questions: dict[int, str]) -> Line:
    answer, grade = trial.answer, trial.grade
    assert answer is not None and grade is not None
    ended = " ".join([answer.finish_reason, *sorted(answer.signals)])
    category = trial.category if grade.error is None else grade.error
    key = [models[trial.model], questions[trial.question], trial.number]
    return ["trial", *key, answer.seed, category, grade.extracted, dict(grade.signals), ended]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in SHORT else pytest.mark.slow) for name in CASES if name not in LATER]
)
def test_the_machine_plays_a_golden_run(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    parts = tuple(part for part in case.parts if part in ("look", "trial"))
    with ExitStack() as exits:
        stage = RoadStage(tmp_path, exits)
        case.play(stage)
        found = parts_of(lines_of(stage.directory(), stage.folder, ahead=case.ahead), parts)
    told = differences(found, parts_of(read(case.expected), parts))
    assert not told, "\n".join([f"{name} is not as in {case.expected}.jsonl:", *told])
    assert not Integrity.check(stage.directory()).damages


def test_a_finished_run_asks_nothing_again(tmp_path: Path) -> None:
    with ExitStack() as exits:
        stage = RoadStage(tmp_path, exits)
        config = stage.config(stage.serve())
        first, _ = asyncio.run(start(config, stage.directory()))
        asked = stage.asked
        again, seen = asyncio.run(start(config, stage.directory()))
        assert again == first and stage.asked == asked and not seen.looks
