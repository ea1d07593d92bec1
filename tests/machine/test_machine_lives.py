"""A run, its resume and a reader of its log get the same results whatever happens, and caps hold; lives find faults."""

from collections.abc import Sequence
from typing import Any

import pytest
import scripted
from scripted import Kind
from scripted_lives import life
from thoroughness import THOROUGH

from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.machine import machine as machine_module
from adaptive_eval.machine import replay as replay_module
from adaptive_eval.machine.charges import Charge, ChargeKind
from adaptive_eval.machine.events import Allow, JudgeAnswer, Opened
from adaptive_eval.machine.machine import Machine
from adaptive_eval.machine.trial import Key, Request

LIVES_EACH = 400 if THOROUGH else 40


@pytest.mark.parametrize("seed", range(2))
def test_killed_runs_find_what_unkilled_runs_find(seed: int) -> None:
    life(seed)


@pytest.mark.parametrize(
    "part", [pytest.param(part, marks=pytest.mark.slow if part < 3 else pytest.mark.release) for part in range(10)]
)
def test_many_killed_runs_find_what_unkilled_runs_find(part: int) -> None:
    for seed in range(part * LIVES_EACH, (part + 1) * LIVES_EACH):
        life(seed)


class CountsLossesAtOnce(Machine):
    """Tells the core of a loss when it is noticed, but after a restart at its place in the log."""

    def _charge(self, kind: ChargeKind, model: int, reserved: Sequence[Cost]) -> Charge:
        charge = super()._charge(kind, model, reserved)
        if self.is_capped:
            super()._lose(charge)
        return charge

    def _lose(self, charge: Charge) -> None:
        if not self.is_live:
            super()._lose(charge)


class SendsEarly(Machine):
    """Sends requests while their rows are still being written."""

    def _fill(self, model: int) -> None:
        before = set(self._unsent)
        super()._fill(model)
        for key in [key for key in self._unsent if key not in before]:
            self._send(self._unsent.pop(key))


class TakesLossesToBeFree(Machine):
    """Treats requests in flight at a kill as free."""

    def _new_charge(self, kind: ChargeKind, model: int, number: int, cost: Cost) -> Charge:
        return super()._new_charge(kind, model, number, NO_COST if kind is ChargeKind.KILLED else cost)


class RepeatsUnasked(Machine):
    """Repeats a lost request before its loss is on disk."""

    def _on_wasted(self, event: machine_module.Wasted) -> None:
        super()._on_wasted(event)
        for waiting in self._permits.values():
            for target, _ in waiting:
                self._actions.append(Allow(target, True))
        self._permits.clear()


class AsksAllVerdictsAtOnce(Machine):
    """Asks for more verdicts at a time than a later start counts as lost."""

    def _judge_more(self) -> None:
        while self._to_judge and not self._stop:
            key = self._to_judge.popleft()
            if key in self.trials:
                self._judging.add(key)
                self._actions.append(JudgeAnswer(self.trials[key]))


class ForgetsReserves(Machine):
    """Asks for a verdict without a reservation."""

    def _store_ungraded(self, key: Key, reserve: Cost) -> None:
        super()._store_ungraded(key, NO_COST)


class AsksClaimedAgain(Machine):
    """Asks again for requests that a batch service still has."""

    def _on_opened(self, event: Opened) -> None:
        super()._on_opened(event._replace(claimed=()))


class ForgetsToRelease(Machine):
    """Keeps the slot of a dropped request."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        table = self.table
        release = table._leave_request

        def keep_slot(key: Key) -> None:
            number = table._request_of[key]
            request: Request = table.requests[number][0]
            release(key)
            table.in_flight[request.model] += self._stop and number not in table.requests

        table._leave_request = keep_slot  # type: ignore[method-assign]


FAULTY: Sequence[tuple[type[Machine], object]] = [
    (CountsLossesAtOnce, lambda kind: kind.cap is not None and kind.cap < 4),
    (SendsEarly, lambda kind: kind.is_capped),
    (TakesLossesToBeFree, lambda kind: kind.is_capped and kind.bounded),
    (RepeatsUnasked, lambda kind: kind.samples == 3 and kind.is_capped and kind.bounded),
    (AsksAllVerdictsAtOnce, lambda kind: kind.judged and kind.is_capped and kind.bounded),
    (ForgetsReserves, lambda kind: kind.judged and kind.is_capped and kind.bounded),
    (AsksClaimedAgain, lambda kind: kind.remembers),
    (ForgetsToRelease, lambda kind: kind.stops),
]
MAX_LIVES = 200


@pytest.mark.slow
@pytest.mark.parametrize(("faulty", "concerns"), FAULTY, ids=lambda value: getattr(value, "__name__", ""))
def test_lives_find_a_fault(faulty: type[Machine], concerns: object, monkeypatch: pytest.MonkeyPatch) -> None:
    assert callable(concerns)
    for module in (scripted, replay_module):
        monkeypatch.setattr(module, "Machine", faulty)
    seeds = [seed for seed in range(2000) if concerns(Kind.drawn(seed))]
    with pytest.raises(Exception):  # noqa: B017
        for seed in seeds[:MAX_LIVES]:
            life(seed)
