"""Whatever servers say and lose, and whenever a run is killed, no cap is exceeded by what was generated and charged."""

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, given, seed
from hypothesis import strategies as st
from ledger_check import stored_rows
from lives import QUESTIONS, SKILLS, Fate, Start
from spending import (
    ABSURD,
    BEYOND,
    GARBLED,
    GPUS,
    HUNG,
    LOW,
    MAX_TOKENS,
    MISSING,
    PRICE,
    PROMPT_TOKENS,
    REFUSED,
    RESET,
    SLOTS,
    TIMEOUT,
    TIMES_BEYOND,
    TRUE,
    Attempt,
    Spender,
)
from thoroughness import examples, only_drawn

from adaptive_eval.config.load import load_config
from adaptive_eval.config.run import RunConfig
from adaptive_eval.core.account import RESERVE_FACTOR
from adaptive_eval.endpoints import settings
from adaptive_eval.machine.driver import TICK_SECONDS
from adaptive_eval.notes import AnswersLost, ModelSetAside, events_of_kind
from adaptive_eval.report.reader import RunReader

MOST_SLACK = TICK_SECONDS + 0.1
"""A cap on time is looked at with every tick."""


@dataclass
class Life:
    """The starts of one run."""

    world: Spender
    budget: Mapping[str, float]
    slots: int
    samples: int
    trials: int
    lost: list[AnswersLost]
    set_aside: bool
    reason: str | None
    bounded: bool


def config_of(
    folder: Path,
    budget: Mapping[str, float],
    samples: int,
    slots: int,
    absent: str | None = None,
    *,
    bounded: bool = True,
) -> RunConfig:
    rows = ({"id": key, "prompt": f"ask {key}", "answer": "right"} for key in QUESTIONS)
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    model = {"base_url": "http://127.0.0.1:9/v1", "price": {"input": PRICE, "output": PRICE}, "gpus": GPUS}
    document: dict[str, Any] = {
        "questions": "questions.jsonl",
        "models": [{"name": name, **model} for name in SKILLS if name != absent],
        "sampling": {"temperature": 0.6, "max_tokens": MAX_TOKENS if bounded else None, "timeout": TIMEOUT},
        "grader": "exact",
        "stopping": {
            "rule": "published",
            "options": {"threshold": 50},
            "on_alarm": "never",
        },
        "trials": {"min": 1, "max": 8, "optimize": "cost"},
        "budget": {key: f"{cap:.6f}s" if key == "wall_time" else cap for key, cap in budget.items()},
        "concurrency": {"in_flight": slots, "samples_per_request": samples, "attempts": 3, "retry_for": 5.0},
    }
    (folder / "run.yaml").write_text(json.dumps(document))
    return load_config(folder / "run.yaml")


def lead(
    budget: Mapping[str, float],
    usage: str = TRUE,
    samples: int = 1,
    slots: int = SLOTS,
    faults: Mapping[str, float] | None = None,
    starts: tuple[Start, ...] = (),
    absent: tuple[str | None, ...] = (),
    bounded: bool = True,
) -> Life:
    """A run with these starts, and then one that is left alone; each has all models but one, where one is `absent`.

    `bounded`: the run knows how many tokens an answer may have.
    """
    place = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=place) as name:
        folder, world = Path(name), Spender(usage=usage, faults=faults or {})
        for start, missing in zip_longest((*starts, Start()), absent[: len(starts) + 1]):
            ended = world.run(
                config_of(folder, budget, samples, slots, missing, bounded=bounded), folder / "run", start
            )
        reader = RunReader.open(folder / "run")
        try:
            events = reader.events()
            aside = any(True for _ in events_of_kind(events, ModelSetAside))
            reason = str(ended.reason) if ended is not None else None
            lost = list(events_of_kind(events, AnswersLost))
        finally:
            reader.close()
        return Life(world, budget, slots, samples, len(stored_rows(folder / "run")), lost, aside, reason, bounded)


SHARES = st.sampled_from([0.0, 0.0, 0.05, 0.3])
BUDGETS = {
    "budget": st.fixed_dictionaries(
        {},
        optional={
            "tokens": st.integers(20_000, 300_000),
            "trials": st.integers(12, 100),
            "usd": st.floats(0.04, 0.6),
            "gpu_hours": st.floats(0.04, 0.4),
            "wall_time": st.floats(4.0, 80.0),
        },
    ).filter(bool),
    "usage": st.sampled_from([TRUE, MISSING, ABSURD, LOW, BEYOND]),
    "samples": st.sampled_from([1, 1, 3]),
    "slots": st.sampled_from([1, SLOTS]),
    "faults": st.fixed_dictionaries({fate: SHARES for fate in (RESET, HUNG, GARBLED, REFUSED)}).filter(
        lambda shares: sum(shares.values()) < 0.9
    ),
    "starts": st.lists(
        st.builds(
            Start,
            st.sampled_from([Fate.KILL, Fate.KILL, Fate.NOTHING, Fate.STOP_AT_ONCE]),
            st.integers(2, 200),
            st.one_of(st.just({}), st.dictionaries(st.sampled_from(sorted(SKILLS)), st.integers(1, 20), max_size=1)),
        ),
        max_size=3,
    ).map(tuple),
    "absent": st.lists(st.sampled_from([None, None, *sorted(SKILLS)]), max_size=4).map(tuple),
}
"""Now and then a model is left out, which comes back or does not."""


def within_reserve(attempt: Attempt) -> int:
    """Its tokens, but no more of each answer than a server gives that keeps to `max_tokens`."""
    return sum(min(tokens, MAX_TOKENS + PROMPT_TOKENS) for tokens in attempt.tokens)


def holds(life: Life) -> None:
    """Counted at the servers: what was generated, whether it came or not, and what is charged for it."""
    attempts, budget = life.world.attempts, life.budget
    tokens = sum(map(within_reserve, attempts))
    if not life.bounded:  # nobody knows what an answer has cost that is lost before the first of its model is stored
        tokens -= sum(loss.answers for loss in life.lost if not loss.tokens) * (MAX_TOKENS + PROMPT_TOKENS)
    assert tokens <= budget.get("tokens", tokens)
    assert tokens * PRICE <= 1e6 * budget.get("usd", tokens * PRICE)
    seconds = sum(attempt.seconds for attempt in attempts if attempt.tokens) * GPUS / life.slots
    assert seconds <= 3600.0 * budget.get("gpu_hours", seconds)
    assert life.trials <= budget.get("trials", life.trials)
    active = sum(life.world.active)
    assert active <= budget.get("wall_time", active) + MOST_SLACK
    if life.world.usage == BEYOND and budget.keys() & {"tokens", "usd", "gpu_hours"}:
        noticed = [sum(attempt.tokens) - within_reserve(attempt) for attempt in attempts if attempt.came]
        starts = len(life.world.active)
        assert sum(noticed) <= starts * len(SKILLS) * life.slots * life.samples * (TIMES_BEYOND - 1) * MAX_TOKENS


def check(**chosen: Any) -> None:
    life = lead(**chosen)
    event(f"ended: {life.reason}")
    event(f"set aside: {life.set_aside}")
    event(f"lost: {bool(life.lost)}")
    holds(life)


@seed(1)
@only_drawn(3)
@given(**BUDGETS)
def test_some_budgets_hold(**chosen: Any) -> None:
    check(**chosen)


UNBOUNDED = BUDGETS | {
    "budget": BUDGETS["budget"].filter(lambda budget: budget.keys() & {"tokens", "usd"}),
    "usage": st.sampled_from([TRUE, MISSING, ABSURD, LOW]),
    "absent": st.just(()),
    "bounded": st.just(False),
}


@pytest.mark.slow
@seed(3)
@only_drawn(examples(12))
@given(**UNBOUNDED)
def test_some_budgets_hold_without_a_limit_on_the_length_of_answers(**chosen: Any) -> None:
    """Its answers are nearly as long as each other: what is reserved by the largest is enough for any."""
    check(**chosen)


@contextmanager
def much_is_sent_twice() -> Iterator[None]:
    """Requests that take a little longer than the shortest answers are sent a second time."""
    soon = settings.EndpointSettings(
        tick=0.1, min_late=0.7, late_factor=0.3, late_share=100.0, late_after=2, late_free=1000
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "DEFAULT", soon)
        yield


@pytest.mark.slow
@seed(5)
@only_drawn(examples(12))
@given(**BUDGETS)
def test_some_budgets_hold_where_much_is_sent_twice(**chosen: Any) -> None:
    with much_is_sent_twice():
        check(**chosen)


@pytest.mark.slow
def test_a_request_sent_twice_is_reported_as_lost_once() -> None:
    with much_is_sent_twice():
        life = lead({"tokens": 3_000_000})
    sent = sum(len(attempt.tokens) for attempt in life.world.attempts)
    assert sent - life.trials == sum(loss.answers for loss in life.lost) > 10
    holds(life)


@pytest.mark.parametrize(
    "chosen",
    [
        {"budget": {"tokens": 34_502}, "usage": ABSURD, "faults": {RESET: 0.3, HUNG: 0.3}},
        {
            "budget": {"tokens": 34_558, "wall_time": 4.0},
            "usage": BEYOND,
            "samples": 3,
            "slots": 1,
            "faults": {GARBLED: 0.3},
        },
        {"budget": {"tokens": 104_940, "wall_time": 34.4}, "samples": 3, "faults": {HUNG: 0.3, REFUSED: 0.3}},
        {
            "budget": {"wall_time": 77.46362850901633},
            "usage": LOW,
            "slots": 4,
            "faults": {GARBLED: 0.3},
            "starts": (Start(Fate.KILL, 187), Start(Fate.KILL, 81), Start(Fate.NOTHING, 35)),
            "absent": (None, "ada", "cyd", "ada"),
        },
        {"budget": {"trials": 40}, "starts": (Start(),), "absent": ("ada",)},
        {"budget": {"tokens": 80_000}, "starts": (Start(),), "absent": ("ada",)},
        {"budget": {"trials": 60}, "starts": (Start(),), "absent": (None, "ada")},
        {"budget": {"tokens": 110_000}, "starts": (Start(),), "absent": (None, "ada")},
    ],
    ids=[
        "asked again",
        "time over at the end",
        "time over while the last come back",
        "looks of earlier settings are taken no more",
        "one joins, trials",
        "one joins, tokens",
        "one leaves, trials",
        "one leaves, tokens",
    ],
)
def test_budgets_that_were_once_exceeded_hold(chosen: dict[str, Any]) -> None:
    holds(lead(**chosen))


def test_refused_requests_cost_nothing() -> None:
    life = lead({"tokens": 300_000}, faults={REFUSED: 1.0}, starts=(Start(),))
    assert (life.lost, life.set_aside) == ([], True)


CHUNKS = 10


@pytest.mark.release
@pytest.mark.parametrize("number", range(2, CHUNKS + 2))
def test_five_hundred_budgets_hold(number: int) -> None:
    seed(number)(only_drawn(500 // CHUNKS)(given(**BUDGETS)(check)))()


def test_requests_in_flight_at_a_kill_count_at_their_worst_case() -> None:
    life = lead({"tokens": 300_000}, starts=(Start(Fate.KILL, 40),))
    assert life.lost
    assert all(event.killed and event.tokens >= event.answers * MAX_TOKENS for event in life.lost)
    holds(life)


@pytest.mark.slow
def test_without_a_limit_requests_in_flight_count_as_the_largest_stored_answer() -> None:
    life = lead({"tokens": 300_000}, starts=(Start(Fate.KILL, 60),), bounded=False)
    assert life.lost
    sizes = [event.tokens / event.answers / RESERVE_FACTOR for event in life.lost]
    assert all(event.killed for event in life.lost) and all(MAX_TOKENS - 50 < size < MAX_TOKENS + 5 for size in sizes)
    holds(life)


def test_a_run_without_kills_loses_nothing() -> None:
    life = lead({"tokens": 300_000}, samples=3)
    assert (life.lost, life.set_aside) == ([], False)


def test_a_model_that_exceeds_its_reservation_is_set_aside() -> None:
    assert lead({"tokens": 300_000}, usage=BEYOND, slots=1).set_aside
