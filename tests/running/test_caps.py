"""Whatever servers say and lose, and whenever a run is killed, no cap is exceeded by what was generated and charged.

Also with a judge, whose verdicts are worked out by hand.
"""

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import astuple, dataclass
from functools import reduce
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, given, seed
from hypothesis import strategies as st
from ledger_check import Row, Trial, stored_rows
from lives import QUESTIONS, SKILLS, Fate, Start
from spending import (
    ABSURD,
    ADDED,
    ADDED_TOKENS,
    BEYOND,
    GARBLED,
    GPUS,
    HUNG,
    JUDGE,
    LOW,
    MAX_TOKENS,
    MISSING,
    PRICE,
    PROMPT_TOKENS,
    REFUSED,
    REPLY_TOKENS,
    RESET,
    SLOTS,
    TIMEOUT,
    TIMES_BEYOND,
    TRUE,
    Attempt,
    Spender,
)
from thoroughness import examples, only_drawn

from adaptive_eval.base.errors import AdaptiveEvalError, ConfigError, GraderError, StoreError, Unavailable
from adaptive_eval.config.load import load_config
from adaptive_eval.config.run import RunConfig
from adaptive_eval.core.account import RESERVE_FACTOR
from adaptive_eval.core.types import NO_COST, Cause, Cost
from adaptive_eval.endpoints import settings
from adaptive_eval.machine.follow_up import FIRST_ANSWERS
from adaptive_eval.machine.trial import ANSWERED, DONE, UNGRADED
from adaptive_eval.notes import AnswersLost, ModelSetAside, events_of_kind
from adaptive_eval.report.findings import findings_of_end, findings_of_view
from adaptive_eval.report.other_costs import stored_cost
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.records import AWAITS_VERDICT
from adaptive_eval.report.status import Status
from adaptive_eval.report.stored import StoredRun
from adaptive_eval.report.view import read_view
from adaptive_eval.running.driver import TICK_SECONDS
from adaptive_eval.show.markdown import markdown
from adaptive_eval.show.serve.attach import stored_status
from adaptive_eval.show.serve.feed import Feed

MOST_SLACK = TICK_SECONDS + 0.1
"""A cap on time is looked at with every tick."""
EXACT, JUDGED = "exact", "judged"
JUDGE_PRICE, JUDGE_GPUS, JUDGE_SLOTS = 3.0, 1.0, 3
SERVER = {"base_url": "http://127.0.0.1:9/v1"}


@dataclass(frozen=True)
class Setting:
    """How a run is configured."""

    budget: Mapping[str, float]
    grader: str = EXACT
    samples: int = 1
    slots: int = SLOTS
    bounded: bool = True
    """The run knows how many tokens an answer may have."""
    votes: int = 1
    lines: bool = False
    """The judge is not asked for JSON."""
    opening: int = 1
    """`trials.min`."""

    def config(self, folder: Path, absent: str | None = None, horizon: int = 8) -> RunConfig:
        rows = ({"id": key, "prompt": f"ask {key}", "answer": "right"} for key in QUESTIONS)
        (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
        model = {**SERVER, "price": {"input": PRICE, "output": PRICE}, "gpus": GPUS}
        document: dict[str, Any] = {
            "questions": "questions.jsonl",
            "models": [{"name": name, **model} for name in SKILLS if name != absent],
            "sampling": {"temperature": 0.6, "max_tokens": MAX_TOKENS if self.bounded else None, "timeout": TIMEOUT},
            "grader": EXACT if self.grader == EXACT else self._judge(),
            "stopping": {"rule": "published", "confidence": 1 - 1e-15, "on_alarm": "never"},  # budgets end it
            "trials": {"min": self.opening, "max": horizon, "optimize": "cost" if self.grader == EXACT else "auto"},
            "budget": {key: f"{cap:.6f}s" if key == "wall_time" else cap for key, cap in self.budget.items()},
            "concurrency": {
                "in_flight": self.slots, "samples_per_request": self.samples, "retry_for": 5.0
            },
        }  # fmt: skip
        (folder / "run.yaml").write_text(json.dumps(document))
        return load_config(folder / "run.yaml")

    def _judge(self) -> dict[str, object]:
        price = {"input": JUDGE_PRICE, "output": JUDGE_PRICE}
        return {
            "kind": "judge",
            "server": {**SERVER, "model": JUDGE, "price": price, "gpus": JUDGE_GPUS},
            "sampling": {
                "temperature": 0.5,
                "max_tokens": REPLY_TOKENS,
                "timeout": TIMEOUT,
                "extra_body": {"response_format": {"type": "text"}} if self.lines else {},
            },
            "max_answer_bytes": 1024,
            "votes": self.votes,
            "concurrency": {"in_flight": JUDGE_SLOTS},
        }


@dataclass(frozen=True)
class Life:
    """The starts of one run, and what its files say in the end."""

    world: Spender
    setting: Setting
    rows: Mapping[Trial, Row]
    lost: Sequence[AnswersLost]
    set_aside: frozenset[Cause]
    reason: str | None
    failed: AdaptiveEvalError | None
    """Why the last start ended."""
    stored: Cost
    """What it has spent on stored answers."""
    parts: Mapping[str, Cost]
    """What is stored of it, for the answers themselves, for their grades, and for verdicts in vain."""


OF_WORLD = ("usage", "faults", "judge_usage", "judge_faults", "judge_excess", "mute", "slow")


def lead(
    budget: Mapping[str, float],
    starts: tuple[Start, ...] = (),
    absent: tuple[str | None, ...] = (),
    regrades: tuple[Start | None, ...] = (),
    **how: Any,
) -> Life:
    """A run with these starts, and then one that is left alone; each has all models but one, where one is `absent`.
    After each of them all may be judged anew, and from then on the horizon is larger."""
    world = Spender(**{name: how.pop(name) for name in OF_WORLD if name in how})
    horizon = how.pop("horizon", 8)
    setting, place = Setting(budget, **how), Path("/dev/shm") if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=place) as name:
        folder = Path(name)
        count = len(starts) + 1
        for start, missing, anew in zip_longest((*starts, Start()), absent[:count], regrades[:count]):
            ended = failed = None
            config = setting.config(folder, missing, horizon)
            try:
                ended = world.run(config, folder / "run", start)
            except Unavailable as error:
                assert setting.grader != EXACT
                failed = error
            if anew is not None:
                with suppress(ConfigError, GraderError, StoreError, Unavailable):  # as caps may bring about
                    world.judge_anew(config, folder / "run", anew)
                horizon *= 2
        with closing(RunReader.open(folder / "run")) as reader:
            events, account = reader.events(), reader.log.account()
            uses, trials = reader.grading_uses().values(), list(reader.trials())
        paid = [line.cost for line in account if line.state in ANSWERED]
        paid += [line.verdicts for line in account if line.state in {DONE, UNGRADED} or line.kind == "wasted"]
        spent = sum(trial.answer.prompt_tokens + trial.answer.completion_tokens for trial in trials)
        return Life(
            world,
            setting,
            stored_rows(folder / "run"),
            list(events_of_kind(events, AnswersLost)),
            frozenset(event.cause for event in events_of_kind(events, ModelSetAside)),
            None if ended is None else str(ended.reason),
            failed,
            reduce(Cost.plus, paid, NO_COST),
            {
                "answers": Cost(spent, spent * PRICE / 1e6),
                "grades": reduce(Cost.plus, (use.cost for use in uses), NO_COST),
                "in vain": reduce(Cost.plus, (use.wasted for use in uses), NO_COST),
            },
        )


def within_reserve(attempt: Attempt) -> int:
    """Its tokens, but no more of each answer than a server gives that keeps to `max_tokens`."""
    longest = REPLY_TOKENS if attempt.model == JUDGE else MAX_TOKENS
    return sum(min(tokens, longest + attempt.prompt_tokens) for tokens in attempt.tokens)


def unforeseen(life: Life) -> int:
    """Tokens that gateways have added to prompts before anybody could know: to the first requests of models, and to
    those that were lost before."""
    if life.world.usage != ADDED:
        return 0
    lost = sum(loss.answers for loss in life.lost if loss.tokens < loss.answers * ADDED_TOKENS)
    return (len(SKILLS) * life.setting.samples + lost) * ADDED_TOKENS


def holds(life: Life) -> None:
    """Counted at the servers: what was generated, whether it came or not, and what is charged for it. Every grade comes
    from a grader, and what answers have cost, their grades, and verdicts that led to none, are all that is stored."""
    attempts, setting, budget = life.world.attempts, life.setting, life.setting.budget
    unseen = 0
    if not setting.bounded:  # nobody knows what an answer has cost that is lost before the first of its model is stored
        unseen = sum(loss.answers for loss in life.lost if not loss.tokens) * (MAX_TOKENS + PROMPT_TOKENS)
    unseen += unforeseen(life)
    tokens = sum(map(within_reserve, attempts)) - unseen
    assert tokens <= budget.get("tokens", tokens)
    prices = [JUDGE_PRICE if attempt.model == JUDGE else PRICE for attempt in attempts]
    usd = sum(price * within_reserve(attempt) for price, attempt in zip(prices, attempts, strict=True)) - unseen * PRICE
    assert usd <= 1e6 * budget.get("usd", max(usd, 0.0))
    seconds = sum(
        attempt.seconds * (JUDGE_GPUS / JUDGE_SLOTS if attempt.model == JUDGE else GPUS / setting.slots)
        for attempt in attempts
        if attempt.tokens
    )
    assert seconds <= 3600.0 * budget.get("gpu_hours", seconds)
    assert len(life.rows) <= budget.get("trials", len(life.rows))
    active = sum(life.world.active)
    assert active <= budget.get("wall_time", active) + MOST_SLACK
    if life.world.usage == BEYOND and budget.keys() & {"tokens", "usd", "gpu_hours"}:
        noticed = [sum(attempt.tokens) - within_reserve(attempt) for attempt in attempts if attempt.came]
        most = len(life.world.active) * len(SKILLS) * setting.slots * setting.samples
        assert sum(noticed) <= most * (TIMES_BEYOND - 1) * MAX_TOKENS
    for row in life.rows.values():
        assert row.category in (None, int(row.text == "right")), "a grade that nobody gave"
    if setting.grader != EXACT:
        total = reduce(Cost.plus, life.parts.values())
        assert (total.tokens, total.usd) == (life.stored.tokens, pytest.approx(life.stored.usd))


# -- any of them --------------------------------------------------------------------------------------------------

SHARES = st.sampled_from([0.0, 0.0, 0.05, 0.3])
FAULTS = st.fixed_dictionaries({fate: SHARES for fate in (RESET, HUNG, GARBLED, REFUSED)}).filter(
    lambda shares: sum(shares.values()) < 0.9
)
FATES = st.sampled_from([Fate.KILL, Fate.KILL, Fate.NOTHING, Fate.STOP_AT_ONCE])
GONE = st.one_of(st.just({}), st.dictionaries(st.sampled_from(sorted(SKILLS)), st.integers(1, 20), max_size=1))


def budgets(**caps: st.SearchStrategy[float]) -> st.SearchStrategy[dict[str, float]]:
    return st.fixed_dictionaries({}, optional=caps).filter(bool)


def several(starts: st.SearchStrategy[Any], most: int = 3) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(starts, max_size=most).map(tuple)


BUDGETS: dict[str, st.SearchStrategy[Any]] = {
    "budget": budgets(
        tokens=st.integers(20_000, 300_000),
        trials=st.integers(12, 100),
        usd=st.floats(0.04, 0.6),
        gpu_hours=st.floats(0.04, 0.4),
        wall_time=st.floats(4.0, 80.0),
    ),
    "usage": st.sampled_from([TRUE, MISSING, ABSURD, LOW, BEYOND, ADDED]),
    "samples": st.sampled_from([1, 1, 3]),
    "slots": st.sampled_from([1, SLOTS]),
    "faults": FAULTS,
    "starts": several(st.builds(Start, FATES, st.integers(2, 200), GONE)),
    "absent": several(st.sampled_from([None, None, *sorted(SKILLS)]), 4),
}
"""Now and then a model is left out, which comes back or does not."""
OF_A_JUDGE = {
    "grader": st.just(JUDGED),
    "budget": budgets(tokens=st.integers(40_000, 400_000), usd=st.floats(0.1, 1.0), gpu_hours=st.floats(0.05, 0.4)),
    "usage": st.sampled_from([TRUE, MISSING, ABSURD, LOW]),
    "judge_usage": st.sampled_from([TRUE, MISSING, ABSURD, LOW, BEYOND]),
    "slots": st.sampled_from([1, SLOTS]),
    "votes": st.sampled_from([1, 1, 3]),
    "lines": st.booleans(),
    "mute": st.sampled_from([0.0, 0.2]),
    "faults": FAULTS,
    "judge_faults": FAULTS,
    "starts": several(st.builds(Start, FATES, st.integers(2, 300))),
    "regrades": several(st.none() | st.builds(Start, st.sampled_from([Fate.KILL, Fate.NOTHING]), st.integers(2, 80))),
}
KINDS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    EXACT: BUDGETS,
    # answers are nearly as long as each other: what is reserved by the largest is enough for any
    "without a limit on the length of answers": BUDGETS
    | {
        "budget": BUDGETS["budget"].filter(lambda budget: budget.keys() & {"tokens", "usd"}),
        "usage": OF_A_JUDGE["usage"],
        "absent": st.just(()),
        "bounded": st.just(False),
    },
    "much is sent again": BUDGETS,
    JUDGED: OF_A_JUDGE,
}


@contextmanager
def much_is_sent_again() -> Iterator[None]:
    """Requests that take a little longer than the shortest answers are cancelled and sent again."""
    soon = settings.EndpointSettings(
        tick=0.1, min_late=0.7, late_factor=0.3, late_share=100.0, late_after=2, late_free=1000
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "DEFAULT", soon)
        yield


def check(**chosen: Any) -> None:
    life = lead(**chosen)
    event(f"ended: {life.reason}")
    event(f"set aside: {sorted(life.set_aside)}")
    event(f"lost: {bool(life.lost)}")
    event(f"judged: {bool(life.world.judged)}, in vain: {life.parts['in vain'].tokens > 0}")
    holds(life)


def drawn(kind: str, number: int, lives: int, mark: str = "") -> Any:
    marks = [getattr(pytest.mark, mark)] if mark else []
    return pytest.param(kind, number, lives, marks=marks, id=f"{kind}-{number}")


@pytest.mark.parametrize(
    ("kind", "number", "lives"),
    [
        drawn(EXACT, 1, 2),
        drawn(JUDGED, 1, examples(2)),
        drawn("without a limit on the length of answers", 3, examples(12), "slow"),
        drawn("much is sent again", 5, examples(12), "slow"),
        drawn(JUDGED, 2, 8, "slow"),
        *(drawn(JUDGED, number, 25, "release") for number in (3, 4, 5)),
        *(drawn(EXACT, number, 50, "release") for number in range(2, 12)),
    ],
)
def test_any_budget_holds(kind: str, number: int, lives: int) -> None:
    with much_is_sent_again() if kind == "much is sent again" else nullcontext():
        seed(number)(only_drawn(lives)(given(**KINDS[kind])(check)))()


# -- single ones --------------------------------------------------------------------------------------------------

ONCE_EXCEEDED: dict[str, dict[str, Any]] = {
    "asked again": {"budget": {"tokens": 34_502}, "usage": ABSURD, "faults": {RESET: 0.3, HUNG: 0.3}},
    "time over at the end": {
        "budget": {"tokens": 34_558, "wall_time": 4.0},
        "usage": BEYOND,
        "samples": 3,
        "slots": 1,
        "faults": {GARBLED: 0.3},
    },
    "time over while the last come back": {
        "budget": {"tokens": 104_940, "wall_time": 34.4},
        "samples": 3,
        "faults": {HUNG: 0.3, REFUSED: 0.3},
    },
    "looks of earlier settings are taken no more": {
        "budget": {"wall_time": 77.46362850901633},
        "usage": LOW,
        "slots": 4,
        "faults": {GARBLED: 0.3},
        "starts": (Start(Fate.KILL, 187), Start(Fate.KILL, 81), Start(Fate.NOTHING, 35)),
        "absent": (None, "ada", "cyd", "ada"),
    },
    "one joins, trials": {"budget": {"trials": 40}, "starts": (Start(),), "absent": ("ada",)},
    "one joins, tokens": {"budget": {"tokens": 80_000}, "starts": (Start(),), "absent": ("ada",)},
    "one leaves, trials": {"budget": {"trials": 60}, "starts": (Start(),), "absent": (None, "ada")},
    "one leaves, tokens": {"budget": {"tokens": 110_000}, "starts": (Start(),), "absent": (None, "ada")},
}


@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param(chosen, id=name, marks=[pytest.mark.slow] if len(chosen.get("starts", ())) > 1 else [])
        for name, chosen in ONCE_EXCEEDED.items()
    ],
)
def test_budgets_that_were_once_exceeded_hold(chosen: dict[str, Any]) -> None:
    holds(lead(**chosen))


def generated(life: Life) -> int:
    return sum(sum(attempt.tokens) for attempt in life.world.attempts)


def what_was_sent_again_is_lost_once(life: Life) -> bool:
    sent = sum(len(attempt.tokens) for attempt in life.world.attempts)
    return sent - len(life.rows) == sum(loss.answers for loss in life.lost) > 10


def lost_at_their_worst_case(life: Life) -> bool:
    return bool(life.lost) and all(loss.killed and loss.tokens >= loss.answers * MAX_TOKENS for loss in life.lost)


def lost_at_the_size_of_stored_answers(life: Life) -> bool:
    sizes = [loss.tokens / loss.answers / RESERVE_FACTOR for loss in life.lost]
    killed = [loss.killed for loss in life.lost]
    return bool(killed) and all(killed) and all(MAX_TOKENS - 50 < size < MAX_TOKENS + 5 for size in sizes)


def judged_again_at_a_cost(life: Life) -> bool:
    replaced = life.parts["in vain"].tokens >= life.parts["grades"].tokens > 0
    return len(life.world.judged) > len(life.rows) and life.stored.tokens == generated(life) and replaced


def each_judged_by_three_votes(life: Life) -> bool:
    return len(life.world.judged) == 3 * len(life.rows) > 0 and life.stored.tokens == generated(life) <= 400_000


def some_ungraded_and_none_failed(life: Life) -> bool:
    ungraded = sum(row.category is None for row in life.rows.values())
    return FIRST_ANSWERS < ungraded < len(life.rows) and life.failed is None


def verdicts_lost_by_a_kill(life: Life) -> bool:
    return any(loss.killed and loss.verdicts for loss in life.lost)


def ended_by_the_judge(life: Life) -> bool:
    """A cap is exceeded only by the first verdict of each start, and its second request."""
    ended = "" if life.failed is None else str(life.failed)
    starts = len(life.world.active)
    noticed = "does not keep to grader.sampling.max_tokens" in ended or (starts > 1 and life.reason == "budget")
    return noticed and 0 < len(life.world.judged) <= starts * 2


Case = tuple[dict[str, Any], Callable[[Life], bool]]
SINGLE: dict[str, Case] = {
    "refused requests cost nothing": (
        {"budget": {"tokens": 300_000}, "faults": {REFUSED: 1.0}, "starts": (Start(),)},
        lambda life: not life.lost and bool(life.set_aside),
    ),
    "a model that exceeds its reservation is set aside": (
        {"budget": {"tokens": 300_000}, "usage": BEYOND, "slots": 1},
        lambda life: life.set_aside == {Cause.EXCESS},
    ),
    "requests in flight at a kill count at their worst case": (
        {"budget": {"tokens": 300_000}, "starts": (Start(Fate.KILL, 40),)},
        lost_at_their_worst_case,
    ),
    "a judge that exceeds its reservation ends a killed run": (
        {
            "budget": {"tokens": 150_000},
            "grader": JUDGED,
            "judge_excess": 60,
            "starts": (Start(Fate.KILL, 90), Start()),
        },
        ended_by_the_judge,
    ),
}
SLOW: dict[str, Case] = {
    "a request sent again is reported as lost once": (
        {"budget": {"tokens": 3_000_000}},
        what_was_sent_again_is_lost_once,
    ),
    "without a limit requests in flight count as the largest stored answer": (
        {"budget": {"tokens": 300_000}, "starts": (Start(Fate.KILL, 60),), "bounded": False},
        lost_at_the_size_of_stored_answers,
    ),
    "verdicts that are given again count again": (
        {"budget": {"tokens": 4_000_000}, "grader": JUDGED, "regrades": (Start(),)},
        judged_again_at_a_cost,
    ),
    "nothing is judged twice without a kill": (
        {"budget": {"tokens": 400_000}, "grader": JUDGED, "votes": 3},
        each_judged_by_three_votes,
    ),
    "a judge with earlier verdicts may fail on the first requests of a later start": (
        {"budget": {"tokens": 900_000}, "grader": JUDGED, "starts": (Start(),), "mute": 0.2},
        some_ungraded_and_none_failed,
    ),
    "an unreadable verdict is not reported as lost by a later kill": (
        {"budget": {"tokens": 900_000}, "grader": JUDGED, "starts": (Start(), Start(Fate.KILL, 8)), "mute": 0.2},
        verdicts_lost_by_a_kill,
    ),
    "verdicts cut off by a kill are reported when everything is judged again": (
        {"budget": {"tokens": 400_000}, "grader": JUDGED, "starts": (Start(Fate.KILL, 60),), "regrades": (Start(),)},
        verdicts_lost_by_a_kill,
    ),
}
CASES = [
    *(pytest.param(name, *case, id=name) for name, case in SINGLE.items()),
    *(pytest.param(name, *case, id=name, marks=pytest.mark.slow) for name, case in SLOW.items()),
]


@pytest.mark.parametrize(("name", "chosen", "as_it_says"), CASES)
def test_lost_and_judged_answers_count_once(name: str, chosen: dict[str, Any], as_it_says: Callable[..., bool]) -> None:
    with much_is_sent_again() if "sent again" in name else nullcontext():
        life = lead(**chosen)
    assert as_it_says(life), (life.lost, life.set_aside, life.reason, life.failed, life.parts)
    holds(life)


@pytest.mark.parametrize("starts", [(), (Start(Fate.KILL, 30), Start(Fate.KILL, 60))])
@pytest.mark.parametrize("cap", [{"tokens": 40_000}, {"usd": 0.08}, {"tokens": 200_000}])
def test_only_first_requests_exceed_a_cap_by_added_prompts(cap: dict[str, float], starts: tuple[Start, ...]) -> None:
    """What the first answers show is reserved for all others, and no model is set aside."""
    life = lead(cap, starts, usage=ADDED, slots=64)
    assert not life.set_aside and life.reason == "budget"
    assert starts or generated(life) > 0.8 * cap.get("tokens", 40_000)
    assert generated(life) <= cap.get("tokens", 40_000) + unforeseen(life)


@pytest.mark.parametrize("cap", [400_000, 900_000])
def test_a_model_that_is_known_leaves_others_what_their_first_answers_may_cost(cap: int) -> None:
    """Many requests of a slow model are sent while the cap is far away; nothing else then brings it near."""
    life = lead({"tokens": cap}, usage=ADDED, slots=64, slow="ada", opening=40, horizon=60)
    assert generated(life) <= cap + unforeseen(life)


def test_answers_without_their_verdicts_are_in_the_cost_of_a_killed_run(tmp_path: Path) -> None:
    config = Setting({}, grader=JUDGED).config(tmp_path)
    Spender().run(config, tmp_path / "run", Start(Fate.KILL, 300))
    with closing(RunReader.open(tmp_path / "run")) as reader:
        results, trials = StoredRun(reader).results(running=False), list(reader.trials())
    assert results is not None and any(trial.grader_error == AWAITS_VERDICT for trial in trials)
    assert results.cost.trials == len(trials)
    assert results.cost.tokens == sum(trial.cost.tokens for trial in trials)


def test_all_displays_say_alike_what_a_judged_run_has_used(tmp_path: Path) -> None:
    """Before its first look, after further verdicts on the same answers, and with looks."""
    world, directory = Spender(mute=0.2, usage=TRUE), tmp_path / "run"
    seen = list[Status]()
    for usd in (0.1, 0.1, 4.0):
        ended = world.run(Setting({"usd": usd}, grader=JUDGED).config(tmp_path), directory, Start())
        assert ended is not None
        feed, live = Feed(directory), ended.status
        feed.poll()
        stored, view = stored_status(feed), read_view(directory)
        one, other = stored.used, live.used
        assert (one.ungraded, one.beside, one.spent.trials) == (other.ungraded, other.beside, other.spent.trials)
        assert stored_cost(one.spent) == pytest.approx(stored_cost(other.spent))
        assert one.grading is not None and other.grading is not None
        assert astuple(one.grading)[:2] == astuple(other.grading)[:2]
        assert astuple(one.grading.in_vain or other.grading)[:2] == astuple(other.grading.in_vain or other.grading)[:2]
        caps = {cap.name: cap.used for cap in live.caps}
        assert {cap.name: cap.used for cap in stored.caps} == pytest.approx(caps)
        with closing(RunReader.open(directory)) as reader:
            assert caps["usd"] == pytest.approx(reader.log.spent().usd)
        found, text = findings_of_end(ended), markdown(view).replace("\\", "")
        assert findings_of_view(view).costs == found.costs
        assert all(sentence in text for sentence in (*found.headline, found.cost.rpartition(", ")[0]))
        assert live.looks or all(cost in text for _, cost in found.costs)
        seen.append(live)
    assert [status.looks > 0 for status in seen] == [False, False, True]
    first, second = seen[0].used, seen[1].used
    assert 0 < first.ungraded < first.spent.trials == second.spent.trials and first.spent.usd < second.spent.usd
