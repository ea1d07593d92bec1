"""A run that is watched and one that is read give the same status, and end alike, whatever has happened to them."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import orjson
import pytest
import yaml
from fakes import QUESTIONS, SKILLS, FakeEndpoint
from played import Played, prepared
from thoroughness import first_of

from adaptive_eval.base.errors import GraderError, Rejected, Unavailable
from adaptive_eval.config.load import load_config
from adaptive_eval.config.prepare import prepare
from adaptive_eval.config.run import RunConfig
from adaptive_eval.core.types import Look
from adaptive_eval.endpoints.types import Answer, EndpointStats
from adaptive_eval.exchange.configure import ImportRequest
from adaptive_eval.exchange.importing import import_logs
from adaptive_eval.graders.pool import GradingPool
from adaptive_eval.graders.types import Grade
from adaptive_eval.questions.types import Question
from adaptive_eval.record.ending import Ended
from adaptive_eval.record.live_status import StatusTaker
from adaptive_eval.record.question_rows import as_json
from adaptive_eval.record.restore import open_run
from adaptive_eval.record.results_file import RESULTS_FILE
from adaptive_eval.record.snapshot import run_subject
from adaptive_eval.record.status import Status
from adaptive_eval.running.execute import execute
from adaptive_eval.running.serving import Serving
from adaptive_eval.running.watching import Display
from adaptive_eval.show.serve.attach import build_ended_from_feed, stored_status
from adaptive_eval.show.serve.feed import Feed
from adaptive_eval.store import CommitBatch, HeldTime, ModelSetAside
from adaptive_eval.store.spending import HeldServers

OWN = {"traffic", "models", "elapsed", "new_trials", "new_tokens"}
"""What only the process of the run knows, and what depends on when one came."""
WHEN = {"updated", "active_seconds"}
OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
SHOWN = ("name", "tier", "score", "lo", "hi", "trials", "set_aside", "recorded")
"""Of a model in the ranking; what it has used may have grown since the look."""


def said(status: Status) -> dict[str, object]:
    """Everything that a display shows of the run itself."""
    derived = {name: getattr(status, name) for name in ("verdicts", "trials_to_go", "gate", "finding")}
    plain = orjson.loads(orjson.dumps(replace(status, caps=(), results=None), default=list, option=OPTIONS))
    plain |= orjson.loads(orjson.dumps(derived, default=list, option=OPTIONS))
    plain["usage"] = [round(used, 9) for used in plain["usage"]]  # the same sum in another order
    ranking = [([getattr(one.row, name) for name in SHOWN], one.clauses[:1]) for one in status.standings]
    caps = [(cap.name, cap.used, cap.cap) for cap in status.caps if cap.name != "wall_seconds"]
    return {key: value for key, value in plain.items() if key not in OWN} | {"caps": caps, "ranking": ranking}


def told(found: Ended) -> dict[str, object]:
    """How it ended."""
    names = ("reason", "why", "exit_code", "gate", "lost", "fixed", "fatal_error", "ungraded")
    results = None if found.results is None else orjson.loads(orjson.dumps(found.results, default=as_json))
    if results is not None:
        results["run"] = {key: value for key, value in results["run"].items() if key not in WHEN}
    return {name: getattr(found, name) for name in names} | {"results": results, "status": said(found.status)}


# -- at every step -----------------------------------------------------------------------------------------------------

GOING = {
    "plain": {},
    "budget": {"budget": {"trials": 200, "tokens": 50_000}},
    "fixed": {"trials": {"min": 5, "max": 5}},
    "against one": {"objective": {"kind": "baseline", "baseline": "bob", "gate": True}},
    "precision": {"objective": {"kind": "precision", "half_width": 0.1}},
    "threshold": {"objective": {"kind": "threshold", "value": 0.6}},
    "servers of its own": {
        "server": {"gpus": 2, "launch": {"command": "serve --port {port}"}},
        "budget": {"gpu_hours": 10},
    },
}


@pytest.mark.parametrize("changes", first_of(GOING.values(), 2), ids=GOING.keys())
def test_at_every_step(tmp_path: Path, changes: dict[str, object]) -> None:
    plan = prepared(tmp_path, **changes)
    played = Played(tmp_path / "run", plan)
    subject = run_subject(plan.config, plan.questions, played.store.reader.created)
    times = [HeldTime() for _ in plan.models]
    at_work = SimpleNamespace(
        state=SimpleNamespace(spent=SimpleNamespace(usages=list(played.usages.values()))),
        requests=SimpleNamespace(in_flight=[0, 0, 0]),
        supply=SimpleNamespace(pending=[]),
        meter=SimpleNamespace(
            elapsed=lambda: played.seconds,
            held_times=lambda: times,
            servers=lambda: HeldServers(times, subject.launched),
        ),
        taken_up=(0, 0),
    )
    endpoints = [SimpleNamespace(stats=EndpointStats()) for _ in plan.models]
    taker = StatusTaker(subject, played.controller, at_work, endpoints)  # type: ignore[arg-type]
    feed, looks = Feed(tmp_path / "run"), set()
    while played.controller.finished is None:
        played.step(15)
        times = [HeldTime(100.0 * played.seconds + at, 200.0 * played.seconds + at) for at in range(3)]
        played.store.commit(CommitBatch(held=dict(zip(plan.models, times, strict=True))))
        feed.poll()
        assert said(taker.take()) == said(stored_status(feed))
        looks.add(taker.take().looks)
    played.publish()
    feed.poll()
    assert said(taker.take()) == said(stored_status(feed))
    assert 0 in looks and len(looks) > 1
    played.close()


# -- at the end --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gone", [("ada",), ("ada", "bob"), ("ada", "bob", "cyd")], ids=len)
@pytest.mark.parametrize("first", [("ada",), ("ada", "cyd"), ("ada", "bob", "cyd")], ids=len)
@pytest.mark.parametrize("together", first_of([True, False], 1), ids=["together", "apart"])
def test_models_are_read_as_set_aside_where_they_were(
    tmp_path: Path, first: Sequence[str], gone: Sequence[str], together: bool
) -> None:
    """Whether the answers of others had come by then, and whether those that had are committed with the events."""
    plan = prepared(tmp_path)
    played = Played(tmp_path / "run", plan)
    played.answer(played.controller.ask(54))
    asks = played.controller.ask(18)
    came = [ask for ask in asks if plan.models[ask.model] in first]
    events = [ModelSetAside(name, "gone") for name in gone]
    if together:
        played.answer(came, events)
    else:
        played.answer(came)
        played.answer([], events)
    played.answer([ask for ask in asks if ask not in came and plan.models[ask.model] not in gone])
    for _ in range(3):
        if played.controller.finished is None:
            played.step(40)
    with open_run(tmp_path / "run") as stored:
        restored = stored.state.controller
    assert repr(restored.looks) == repr(played.controller.looks)  # as nan is equal to no nan
    assert restored.finished == played.controller.finished
    assert np.array_equal(restored.arrived, played.controller.arrived)
    played.close()


class Watching(Display):
    """Hears of looks, and of the end."""

    def __init__(self, at_look: Callable[[], object]) -> None:
        self._at_look, self._looked = at_look, False
        self.found: list[Ended] = []

    def looked(self, looks: Sequence[Look]) -> None:
        if not self._looked:  # a third Ctrl-C would end this process
            self._at_look()
        self._looked = True


@dataclass(frozen=True)
class Life:
    """A run from beginning to end."""

    changes: Mapping[str, object] = field(default_factory=dict)
    """Of the configuration."""
    fail: Mapping[str, Exception] = field(default_factory=dict)
    """What a model's server says after its first few answers."""
    answers: int = 30
    """How many that are."""
    ungraded: str | None = None
    """A question on which the grader fails."""
    at_look: Callable[[], object] = lambda: None
    then: "Life | None" = None
    """A second start."""


def config_of(folder: Path, changes: Mapping[str, object]) -> RunConfig:
    """Three models on six questions, the last two close together."""
    rows = [{"id": one.id, "prompt": one.prompt, "answer": one.answer} for one in QUESTIONS]
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    settings = {
        "name": "life",
        "questions": "questions.jsonl",
        "models": [{"name": name, "base_url": "http://127.0.0.1:9/v1"} for name in SKILLS],
        "prompt": {"template": "{prompt}"},
        "sampling": {"temperature": 0.6, "max_tokens": 100},
        "grader": "exact",
        "trials": {"min": 3, "max": 12},
        "concurrency": 4,
    } | changes
    if isinstance(trials := settings["trials"], dict):
        settings["trials"] = {"optimize": "cost", **trials}
    path = folder / "life.yaml"
    path.write_text(yaml.safe_dump(settings))
    return load_config(path)


def live(folder: Path, directory: Path, life: Life) -> Ended | None:
    """How the run itself says that it has ended; None where an error ended it."""

    class Pool(GradingPool):
        async def grade(self, answer: Answer, question: Question, again: object = None) -> Grade:
            if question.id == life.ungraded:
                raise GraderError("it is broken")
            return await super().grade(answer, question)

    @asynccontextmanager
    async def opened(config: RunConfig, logs: Path, **_: object) -> AsyncIterator[Serving]:
        yield Serving([_endpoint(model.name, life) for model in config.models])

    plan, watching = prepare(config_of(folder, life.changes)), Watching(life.at_look)
    with (
        patch("adaptive_eval.running.execute.opened_endpoints", opened),
        patch("adaptive_eval.running.answer_keys.GradingPool", Pool),
        patch("adaptive_eval.scheduler.loop.REFUSALS_SECONDS", 0.05),
    ):
        try:
            asyncio.run(execute(plan, directory, watching, watching.found.append))
        except Rejected:
            return None
    return watching.found[0]


def _endpoint(name: str, life: Life) -> FakeEndpoint:
    endpoint = FakeEndpoint(name, SKILLS[name])
    if name in life.fail:
        endpoint.fail = lambda prompt, seeds: life.fail[name] if len(endpoint.samples) > life.answers else None  # type: ignore[assignment,return-value]
    return endpoint


def interrupt() -> None:
    """As Ctrl-C does."""
    signal.raise_signal(signal.SIGINT)


GONE = Unavailable("no replica is left\n  a line of a log")
BASELINE = {"kind": "baseline", "baseline": "ada"}
TWO = [{"name": name, "base_url": "http://127.0.0.1:9/v1"} for name in ("ada", "bob")]
HARD: dict[str, Any] = {"trials": {"min": 3, "max": 3}}
UNDECIDED: dict[str, Any] = {
    "budget": {"trials": 100},
    "stopping": {"rule": "published", "options": {"threshold": 50}},
}
LIVES = {
    "nothing fits the budget": Life({"budget": {"trials": 5}}),
    "settled": Life({"objective": BASELINE, "trials": {"min": 3, "max": 60}}),
    "a gate": Life({"objective": BASELINE | {"gate": True}, "trials": {"min": 3, "max": 60}}),
    "out of reach": Life(),
    "a fixed number of trials": Life(HARD),
    "budget": Life({"budget": {"trials": 80}}),
    "tokens": Life({"budget": {"tokens": 20_000}}),
    "no time": Life({"budget": {"wall_time": "0.000001s"}}),
    "one set aside": Life(fail={"cyd": GONE}),
    "blocked": Life(fail={"cyd": GONE}, answers=0),
    "all set aside": Life(fail=dict.fromkeys(SKILLS, GONE)),
    "the baseline set aside": Life({"objective": BASELINE}, fail={"ada": GONE}),
    "a fixed number, one set aside": Life(HARD, fail={"cyd": GONE}, answers=5),
    "ungraded": Life(ungraded="q2"),
    "stopped by the user": Life(at_look=interrupt),
    "stopped, and resumed": Life(at_look=interrupt, then=Life()),
    "a longer horizon": Life(HARD, then=Life({"trials": {"min": 3, "max": 12}})),
    "without a model": Life(then=Life({"models": TWO})),
    "resumed at its end": Life(then=Life()),
    "one joins beyond the budget": Life(UNDECIDED | {"models": TWO}, then=Life(UNDECIDED)),
    "one leaves": Life(UNDECIDED, then=Life(UNDECIDED | {"models": TWO})),
}  # fmt: skip


ALIKE = {"settled", "out of reach", "tokens", "blocked", "a fixed number, one set aside", "without a model"} | {
    "a longer horizon", "resumed at its end", "one joins beyond the budget", "the baseline set aside",
}  # fmt: skip
"""These end for a reason that another one has, or go on as another one does: they are tried with the long tests."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.release] if name in ALIKE else []) for name in LIVES]
)
def test_at_the_end(tmp_path: Path, name: str) -> None:
    directory, life = tmp_path / "run", LIVES[name]
    while True:
        found = live(tmp_path, directory, life)
        assert found is not None
        assert_read_alike(directory, found)
        if life.then is None:
            return
        life = life.then


def assert_read_alike(directory: Path, found: Ended) -> None:
    """Whether its results are read, or worked out anew."""
    expected = told(found)
    for _ in range(2):
        feed = Feed(directory)
        feed.poll()
        assert told(build_ended_from_feed(feed)) == expected
        (directory / RESULTS_FILE).unlink(missing_ok=True)


def test_an_error_is_told_alike(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    assert live(tmp_path, directory, Life(fail=dict.fromkeys(SKILLS, Rejected("401: no such key")), answers=0)) is None
    feed = Feed(directory)
    feed.poll()
    found = build_ended_from_feed(feed)
    assert found.fatal_error is not None and "401: no such key" in found.why and found.reason is None
    assert live(tmp_path, directory, Life()) is not None
    feed.poll()
    assert build_ended_from_feed(feed).fatal_error is None


@pytest.mark.parametrize("most", [3, 12])
def test_an_import_is_told_alike(tmp_path: Path, most: int) -> None:
    directory, changes = tmp_path / "run", {"trials": {"min": 2, "max": most}}
    request = ImportRequest(files=[str(table(tmp_path))], to=directory, config=config_of(tmp_path, changes))
    import_logs(request, lambda share, trials: None)
    found = live(tmp_path, directory, Life(changes))
    assert found is not None
    assert_read_alike(directory, found)
    assert found.fixed == (most == 3) == ("all trials are there" in found.why)


def test_an_import_that_is_finished_has_all_its_trials(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    import_logs(ImportRequest(files=[str(table(tmp_path))], to=directory, finished=True), lambda share, trials: None)
    feed = Feed(directory)
    feed.poll()
    assert "all trials are there" in build_ended_from_feed(feed).why


def table(folder: Path) -> Path:
    """Three trials of every model and question."""
    path = folder / "table.csv"
    rows = [f"{m},{one.id},{t},{(t + n) % 2}" for n, m in enumerate(SKILLS) for one in QUESTIONS for t in range(3)]
    path.write_text("\n".join(["model,question,trial,category", *rows]))
    return path
