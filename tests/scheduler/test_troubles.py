"""What a person is told of servers that fail: once, when it lasts, and when it is over."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from fakes import SKILLS, Bed, FakeEndpoint
from patient_time import until

from adaptive_eval.endpoints.types import Again, Answer, EndpointStats, Prompt, ReplicaStats
from adaptive_eval.scheduler import scheduler as scheduler_module
from adaptive_eval.scheduler import troubles as troubles_module
from adaptive_eval.scheduler.troubles import LOST_SECONDS, RETRYING_SECONDS, Troubles
from adaptive_eval.store import OnlyFailures, ReplicaBack, ReplicaLost, RunReader, RunStarted


def stats(healthy: Sequence[bool] = (), errors: int = 0) -> EndpointStats:
    replicas = tuple(ReplicaStats(f"http://{number}/v1", well, 0, 8) for number, well in enumerate(healthy))
    return EndpointStats(errors={"server_error": errors}, last_error="HTTP 500: on fire", replicas=replicas)


def kinds(troubles: Troubles, seen: EndpointStats, answers: int, now: float) -> list[str]:
    return [event.kind for event in troubles.noticed(seen, answers, now)]


def test_a_replica_is_lost_once_and_back_once() -> None:
    troubles = Troubles("ada")
    assert kinds(troubles, stats([True, True]), 0, 0.0) == []
    assert kinds(troubles, stats([True, False]), 0, 1.0) == []
    (lost,) = troubles.noticed(stats([True, False]), 0, 1.0 + LOST_SECONDS)
    assert lost == ReplicaLost("ada", "http://1/v1")
    assert kinds(troubles, stats([True, False]), 0, 9.0) == []
    assert kinds(troubles, stats([True, True]), 0, 10.0) == [ReplicaBack.KIND]
    assert kinds(troubles, stats([True, True]), 0, 11.0) == []


def test_what_is_wrong_with_a_lost_replica_is_told() -> None:
    troubles, away = Troubles("ada"), ReplicaStats("http://0/v1", False, 0, 8, "no connection")
    assert kinds(troubles, EndpointStats(replicas=(away,)), 0, 0.0) == []
    (lost,) = troubles.noticed(EndpointStats(replicas=(away,)), 0, LOST_SECONDS)
    assert lost == ReplicaLost("ada", "http://0/v1", "no connection")


def test_a_replica_that_is_back_in_a_moment_is_no_news() -> None:
    troubles = Troubles("ada")
    for second in range(20):
        assert kinds(troubles, stats([second % 2 == 0]), 0, float(second)) == []


def test_nothing_but_failures_is_told_once_until_an_answer_comes() -> None:
    troubles = Troubles("ada")
    assert kinds(troubles, stats(errors=1), 3, 0.0) == []
    for later, errors in ((1.0, 2), (RETRYING_SECONDS, 3)):
        assert kinds(troubles, stats(errors=errors), 3, later) == []
    (told,) = troubles.noticed(stats(errors=4), 3, RETRYING_SECONDS + 1.0)
    assert told == OnlyFailures("ada", round(RETRYING_SECONDS), {"server_error": 4}, "HTTP 500: on fire")
    assert kinds(troubles, stats(errors=5), 3, 80.0) == []
    assert kinds(troubles, stats(errors=5), 4, 81.0) == []
    assert kinds(troubles, stats(errors=6), 4, 82.0) == []
    assert kinds(troubles, stats(errors=7), 4, 120.0) == [OnlyFailures.KIND]


def test_one_failure_before_a_long_answer_is_no_trouble() -> None:
    troubles = Troubles("ada")
    for second in range(1000):
        assert kinds(troubles, stats(errors=1), 0, float(second)) == []


def test_a_model_is_stuck_while_all_of_its_replicas_are_lost() -> None:
    troubles = Troubles("ada")
    for now, healthy, stuck in (
        (0.0, [False, False], False),
        (LOST_SECONDS, [False, False], True),
        (9.0, [True, False], False),
        (10.0, [False, False], False),
        (10.0 + LOST_SECONDS, [False, False], True),
    ):
        kinds(troubles, stats(healthy), 0, now)
        assert troubles.stuck is stuck


def test_a_model_is_stuck_while_its_requests_fail_again_and_none_is_answered() -> None:
    troubles = Troubles("ada")
    for now, errors, answers, stuck in (
        (0.0, 1, 0, False),
        (500.0, 1, 0, False),  # one failure before a long answer
        (501.0, 2, 0, True),
        (502.0, 2, 0, True),
        (503.0, 2, 1, False),
        (504.0, 3, 1, False),
        (504.0 + LOST_SECONDS, 4, 1, True),
    ):
        kinds(troubles, stats(errors=errors), answers, now)
        assert troubles.stuck is stuck, now


@dataclass
class HeldEndpoint(FakeEndpoint):
    """Answers once something has happened."""

    happened: Callable[[], bool] = lambda: True

    async def sample(self, prompt: Prompt, seeds: range, again: Again | None = None) -> list[Answer]:
        await until(self.happened)
        return await super().sample(prompt, seeds, again)


async def test_a_run_records_what_its_servers_went_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_module, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(troubles_module, "LOST_SECONDS", 0.0)
    bed = Bed(tmp_path)

    def told(kind: str) -> bool:
        return any(event.kind == kind for event in bed.observer.events)

    ada = bed.endpoints["ada"] = HeldEndpoint("ada", SKILLS["ada"], happened=lambda: told(ReplicaBack.KIND))
    ada.health = lambda: stats([told(ReplicaLost.KIND)]).replicas
    await bed.start()
    with closing(RunReader.open(tmp_path)) as reader:
        stored = [event.kind for event in reader.events() if event.kind != RunStarted.KIND]
    assert stored[:2] == [ReplicaLost.KIND, ReplicaBack.KIND]
