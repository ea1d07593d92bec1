"""What is compared of a golden run: looks, trials, events, results and an export, without what a clock or a port says.

A run becomes lines, each a list whose first word says what it is. Numbers are compared to nine digits, since other
processors round the last ones otherwise; everything else must be the same.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from typing import Any

import orjson
from typer.testing import CliRunner

from adaptive_eval.cli import app
from adaptive_eval.notes import Event
from adaptive_eval.report.question_rows import as_json
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.records import TrialRecord
from adaptive_eval.report.stored import open_run

EXPECTED = Path(__file__).with_name("expected")
PARTS = ("asked", "look", "trial", "event", "result", "export")
Line = list[Any]

CLOCK = "measured by a clock"
MASKED: Mapping[str, str] = {
    "at": CLOCK,
    "created": CLOCK,
    "updated": CLOCK,
    "active_seconds": CLOCK,
    "seconds": CLOCK,
    "server_seconds": CLOCK,
    "server_gpu_seconds": CLOCK,
    "gpu_seconds": CLOCK,
    "judge_gpu_seconds": CLOCK,
    "judge_seconds": CLOCK,
    "seconds_per_answer": CLOCK,
    "latency": CLOCK,
    "ttft": CLOCK,
    "waited": CLOCK,
    "elapsed": CLOCK,
    "version": "of the package, or of a server's software",
    "pid": "the operating system numbers processes",
    "host": "the name of the machine",
    "arguments": "how the run was started",
    "replica": "the operating system chooses ports",
    "kills": "the same run killed or not",
    "waited_for": "nothing of a run that was killed",
    "longest_prompts": "prompts that are known when the run starts, before any is needed",
    "decisions": "repeats the configuration with the defaults of every rule and objective there is",
    "id": "a batch service or server chooses it",
    "checksum": "of results.json with all that is masked here",
}
"""Keys that are left out wherever they stand, and why."""
PATTERNS = (
    (re.compile(r"http://127\.0\.0\.1:\d+"), "SERVER"),
    (re.compile(r"\b\d+(\.\d+)?(ms|s|m|h)\b( \d+s)?"), "TIME"),
    (re.compile(r"\b20\d\d-\d\d-\d\d\b"), "DATE"),
    (re.compile(r"\b(adaptive-eval|Python|numpy|scipy) \d+\.\d+\.\w+"), "VERSION"),
)
"""What is replaced in texts: addresses, durations, dates, and versions."""


ASKED_AHEAD = frozenset(
    {"tokens", "usd", "stored_trials", "signals", "repeats", "identical", "usd_per_answer", "tokens_per_answer"}
)
"""Keys of a model's results that count what was asked ahead, too: as much as there was time for."""
ROW_MASKED = frozenset({"latency", "ttft", "gpu_seconds", "replica", "attempts", "signals", "usd"})
"""Columns that are not in the digest of an export: clocks and ports; how often a request was repeated before it was
given up; signals, which may have times, and are compared with the trials; money, the last digit of which is rounded."""


def lines_of(directory: Path, folder: Path, ahead: bool = False) -> list[Line]:
    """All that is compared of a run; paths begin with its folder. Where it asks ahead, only what looks count."""
    with closing(RunReader.open(directory)) as reader:
        looks: list[Line] = [["look", look.number, look.body] for look in reader.log.looks()]
        trials = [_trial(trial) for trial in reader.trials()]
        events: list[Line] = [["event", event.kind, _fields(event)] for event in reader.events()]
    trials.sort(key=lambda line: line[1:4])  # they are stored in the order of arrival
    if ahead:
        trials, other_lines = _counted(trials, directory), list(_ranking(directory))
    else:
        other_lines = [*_results(directory), _export(directory, folder)]
    return [masked(line, folder) for line in (*looks, *trials, *events, *other_lines)]


def _trial(trial: TrialRecord) -> Line:
    """A trial: its category, or why it has none, and how its answer ended."""
    ended = " ".join([trial.answer.finish_reason, *sorted(trial.answer.signals)])
    category = trial.category if trial.grader_error is None else trial.grader_error
    key = [trial.model, trial.question, trial.trial]
    return ["trial", *key, trial.answer.seed, category, trial.extracted, dict(trial.signals), ended]


def _fields(event: Event) -> dict[str, Any]:
    """The fields of an event that are set."""
    return {key: value for key, value in asdict(event).items() if value not in (None, "", {}, ())}


def stored_report(directory: Path, folder: Path) -> list[Line]:
    """The newest stored report, as the results are compared."""
    with open_run(directory) as stored:
        results = orjson.loads(orjson.dumps(stored.results(running=False), default=as_json))
    return [masked(line, folder) for line in _rows(results)]


def _results(directory: Path) -> Iterator[Line]:
    return _rows(json.loads((directory / "results.json").read_text()))


def _rows(results: Mapping[str, Any]) -> Iterator[Line]:
    for key, value in results.items():
        if isinstance(value, list) and key != "weights":
            yield from (["result", key, item] for item in value)
        elif value not in (None, {}) and key not in MASKED:
            yield ["result", key, value]


def _counted(trials: list[Line], directory: Path) -> list[Line]:
    """The trials that the last look counts: a number of each model, in the order of its rounds."""
    with closing(RunReader.open(directory)) as reader:
        rounds = {(trial.model, trial.question, trial.trial): trial.round for trial in reader.trials()}
        last: dict[str, Any] = dict(reader.log.looks()[-1].body)
    counted = []
    for model, number in zip(last["models"], last["trials"], strict=True):
        model_lines = sorted((line for line in trials if line[1] == model), key=lambda line: rounds[tuple(line[1:4])])
        counted += model_lines[:number]
    return sorted(counted, key=lambda line: line[1:4])


def _ranking(directory: Path) -> Iterator[Line]:
    """The results of models and pairs, without what was asked ahead."""
    for line in _results(directory):
        if line[1] in ("models", "pairs"):
            yield [*line[:2], {key: value for key, value in line[2].items() if key not in ASKED_AHEAD}]


def _export(directory: Path, folder: Path) -> Line:
    """How many rows the table of the trials has, its columns, and a digest of them all."""
    path = folder / "export.jsonl"
    result = CliRunner().invoke(app, ["export", str(directory), "--format", "jsonl", "-o", str(path), "--force"])
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows.sort(key=lambda row: (row["model"], row["question"], row["trial"]))  # they stand in the order of arrival
    columns = list(rows[0]) if rows else []
    masked_rows = [json.dumps({key: value for key, value in row.items() if key not in ROW_MASKED}) for row in rows]
    return ["export", len(rows), columns, blake2b("\n".join(masked_rows).encode(), digest_size=8).hexdigest()]


def masked(value: Any, folder: Path) -> Any:
    """A value without what differs from run to run."""
    if isinstance(value, Mapping):
        return {str(key): masked(item, folder) for key, item in value.items() if key not in MASKED}
    if isinstance(value, list | tuple | set | frozenset):
        return [masked(item, folder) for item in value]
    if isinstance(value, Path):
        value = str(value)
    if isinstance(value, str):
        value = str(value).replace(str(folder), "FOLDER")
        for pattern, word in PATTERNS:
            value = pattern.sub(word, value)
    return value


def parts_of(lines: Iterable[Line], parts: Iterable[str]) -> list[Line]:
    """Lines of these parts alone."""
    names = set(parts)
    return [line for line in lines if line[0] in names]


def write(name: str, lines: Iterable[Line]) -> None:
    """Store the lines as the expectation of a run."""
    EXPECTED.mkdir(exist_ok=True)
    (EXPECTED / f"{name}.jsonl").write_text("".join(f"{_text(line)}\n" for line in lines))


def read(name: str) -> list[Line]:
    """The stored expectation of a run."""
    return [json.loads(line) for line in (EXPECTED / f"{name}.jsonl").read_text().splitlines()]


def differences(played: Iterable[Line], expected: Iterable[Line], limit: int = 12) -> list[str]:
    """The first lines that differ, as text."""
    played, expected = json.loads(json.dumps(list(played))), list(expected)
    texts = []
    for part in PARTS:
        actual_part, expected_part = parts_of(played, [part]), parts_of(expected, [part])
        if len(actual_part) != len(expected_part):
            texts.append(f"{part}: {len(actual_part)} lines, and {len(expected_part)} were expected")
        texts += [
            f"- {_text(was)}\n+ {_text(now)}"
            for now, was in zip(actual_part, expected_part, strict=False)
            if not alike(now, was)
        ]
    return texts[:limit]


def _text(line: Line) -> str:
    return json.dumps(line, separators=(",", ":"), ensure_ascii=False, sort_keys=True)


def alike(now: Any, was: Any) -> bool:
    """Equal, numbers to nine digits."""
    if isinstance(now, float) or isinstance(was, float):
        numbers = isinstance(now, int | float) and isinstance(was, int | float)
        if not numbers or math.isnan(now) or math.isnan(was):
            return numbers and math.isnan(now) and math.isnan(was)
        return math.isclose(now, was, rel_tol=1e-9, abs_tol=1e-12)
    if isinstance(now, dict) and isinstance(was, dict):
        return now.keys() == was.keys() and all(alike(now[key], was[key]) for key in now)
    if isinstance(now, list) and isinstance(was, list):
        return len(now) == len(was) and all(map(alike, now, was))
    return type(now) is type(was) and now == was
