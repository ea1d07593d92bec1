"""Caps hold for runs with a judge too, whatever servers report and lose, and whenever a run is killed.

Also where the judge compares with the answers of another run: what was compared with what is worked out by hand.
"""

import json
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import reduce
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, given, seed
from hypothesis import strategies as st
from judged_spending import JUDGE, REPLY_TOKENS, JudgedSpender
from ledger_check import Row, Trial, stored_rows
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
    TRUE,
    Attempt,
)
from thoroughness import examples, only_drawn

from adaptive_eval.base.errors import AdaptiveEvalError, ConfigError, GraderError, StoreError, Unavailable
from adaptive_eval.config.load import load_config
from adaptive_eval.config.run import RunConfig
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.machine.follow_up import FIRST_ANSWERS
from adaptive_eval.machine.trial import ANSWERED, DONE, UNGRADED
from adaptive_eval.notes import AnswersLost, events_of_kind
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.stored import StoredRun

BASELINE, DEPTH = "bob", 2
"""The model whose answers others are compared with, and how many it has to each question."""
BETTER, TIE, WORSE = range(3)
JUDGE_PRICE, JUDGE_GPUS, JUDGE_SLOTS = 3.0, 1.0, 3
GRADED = {DONE, UNGRADED}
UNDECIDED = {"rule": "published", "options": {"threshold": 50}}


@dataclass
class JudgedLife:
    """The starts of one run, and what its files say in the end."""

    world: JudgedSpender
    budget: Mapping[str, float]
    slots: int
    rows: Mapping[Trial, Row]
    stored: Cost
    """What it has spent on stored answers."""
    reason: str | None
    failed: AdaptiveEvalError | None
    """Why the last start ended."""
    parts: Mapping[str, Cost]
    """What is stored of it, for the answers themselves, for their grades, and for verdicts in vain."""
    lost: Sequence[AnswersLost]
    others: Mapping[Trial, Row]
    """Answers of an earlier run that this one's are compared with."""

    def expected(self, trial: Trial) -> int:
        """The category of an answer by a judge that makes no mistakes."""
        text, (_, question, number) = self.rows[trial].text, trial
        if not self.others:
            return int(text == "right")
        other_text = self.others[BASELINE, question, number % DEPTH].text
        return TIE if text == other_text else BETTER if text == "right" else WORSE


def judged_config(
    folder: Path,
    budget: Mapping[str, float],
    slots: int,
    votes: int,
    structured: object,
    horizon: int = 6,
    **how: object,
) -> RunConfig:
    """`how`: further settings of the grader."""
    rows = ({"id": key, "prompt": f"ask {key}", "answer": "right"} for key in QUESTIONS)
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    model = {"base_url": "http://127.0.0.1:9/v1", "price": {"input": PRICE, "output": PRICE}, "gpus": GPUS}
    grader = {
        "kind": "judge",
        "server": {
            "base_url": "http://127.0.0.1:9/v1",
            "model": JUDGE,
            "price": {"input": JUDGE_PRICE, "output": JUDGE_PRICE},
            "gpus": JUDGE_GPUS,
        },
        "sampling": {"temperature": 0.5, "max_tokens": REPLY_TOKENS, "timeout": TIMEOUT},
        "max_answer_bytes": 1024,
        "votes": votes,
        "structured": structured,
        "concurrency": {"in_flight": JUDGE_SLOTS, "attempts": 3, "retry_for": 5.0},
        **how,
    }
    document: dict[str, Any] = {
        "questions": "questions.jsonl",
        "models": [{"name": name, **model} for name in SKILLS],
        "sampling": {"temperature": 0.6, "max_tokens": MAX_TOKENS, "timeout": TIMEOUT},
        "grader": grader,
        "stopping": UNDECIDED | {"on_alarm": "never"},  # budgets end it
        "trials": {"min": 1, "max": horizon},
        "budget": dict(budget),
        "concurrency": {"in_flight": slots, "attempts": 3, "retry_for": 5.0},
    }
    (folder / "run.yaml").write_text(json.dumps(document))
    return load_config(folder / "run.yaml")


def earlier_run(folder: Path) -> Path:
    """A run with seeds of its own, with whose answers others are compared."""
    config = judged_config(folder, {}, SLOTS, 1, None)
    document: dict[str, Any] = {
        "questions": "questions.jsonl",
        "seed": config.seed + 1,
        "models": [{"name": BASELINE, "base_url": "http://127.0.0.1:9/v1"}],
        "sampling": {"max_tokens": MAX_TOKENS},
        "grader": "exact",
        "trials": {"min": DEPTH, "max": DEPTH},
        "objective": {"kind": "threshold", "value": 0.5},
    }
    (folder / "earlier.yaml").write_text(json.dumps(document))
    assert JudgedSpender().run(load_config(folder / "earlier.yaml"), folder / "earlier", Start()) is not None
    return folder / "earlier"


def lead_judged(
    budget: Mapping[str, float],
    slots: int = SLOTS,
    votes: int = 1,
    structured: object = None,
    starts: tuple[Start, ...] = (),
    regrades: tuple[Start | None, ...] = (),
    *,
    is_compared: bool = False,
    **world: Any,
) -> JudgedLife:
    """A run with these starts, and then one that is left alone; after each of them all may be judged anew, and from
    then on the horizon is larger. With `is_compared`, the judge compares with the answers of an earlier run."""
    place = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=place) as name:
        folder, servers, horizon = Path(name), JudgedSpender(**world), 6
        others, how = dict[Trial, Row](), dict[str, object]()
        if is_compared:
            others = stored_rows(earlier_run(folder))
            assert set(others) == {(BASELINE, key, number) for key in QUESTIONS for number in range(DEPTH)}
            how = {"compare_to": {"run": str(folder / "earlier"), "model": BASELINE}}
        for start, anew in zip_longest((*starts, Start()), regrades[: len(starts) + 1]):
            ended = failed = None
            config = judged_config(folder, budget, slots, votes, structured, horizon, **how)
            try:
                ended = servers.run(config, folder / "run", start)
            except Unavailable as error:
                failed = error
            if anew is not None:
                with suppress(ConfigError, GraderError, StoreError, Unavailable):  # as caps may bring about
                    servers.judge_anew(config, folder / "run", anew)
                horizon *= 2
        reader = RunReader.open(folder / "run")
        try:
            account, lost = reader.account(), events_of_kind(reader.events(), AnswersLost)
            uses, trials = reader.grading_uses().values(), list(reader.trials())
        finally:
            reader.close()
        paid = [line.cost for line in account if line.state in ANSWERED]
        paid += [line.verdicts for line in account if line.state in GRADED or line.kind == "wasted"]
        stored = reduce(Cost.plus, paid, NO_COST)
        spent = sum(trial.answer.prompt_tokens + trial.answer.completion_tokens for trial in trials)
        parts = {
            "answers": Cost(spent, spent * PRICE / 1e6),
            "grades": reduce(Cost.plus, (use.cost for use in uses), NO_COST),
            "in vain": reduce(Cost.plus, (use.wasted for use in uses), NO_COST),
        }
        reason = None if ended is None else str(ended.reason)
        rows = stored_rows(folder / "run")
        return JudgedLife(servers, budget, slots, rows, stored, reason, failed, parts, lost, others)


def kept_to(attempt: Attempt) -> int:
    """Tokens of an attempt, but no more than a server gives that keeps to `max_tokens`."""
    longest = REPLY_TOKENS if attempt.model == JUDGE else MAX_TOKENS
    return sum(min(tokens, longest + PROMPT_TOKENS) for tokens in attempt.tokens)


def spending_keeps_to(budget: Mapping[str, float], world: JudgedSpender, slots: int) -> None:
    """Counted at the servers: what was generated, whether it came or not, and what is charged for it."""
    attempts = world.attempts
    tokens = sum(map(kept_to, attempts))
    assert tokens <= budget.get("tokens", tokens)
    usd = sum(kept_to(attempt) * (JUDGE_PRICE if attempt.model == JUDGE else PRICE) for attempt in attempts) / 1e6
    assert usd <= budget.get("usd", usd)
    seconds = sum(
        attempt.seconds * (JUDGE_GPUS / JUDGE_SLOTS if attempt.model == JUDGE else GPUS / slots)
        for attempt in attempts
        if attempt.tokens
    )
    assert seconds <= 3600.0 * budget.get("gpu_hours", seconds)


def caps_hold(life: JudgedLife) -> None:
    """The budget holds, and every grade comes from a judge."""
    spending_keeps_to(life.budget, life.world, life.slots)
    assert len(life.rows) <= life.budget.get("trials", len(life.rows))
    for trial, row in life.rows.items():
        assert row.category in (None, life.expected(trial)), "a verdict that nobody gave"


SHARES = st.sampled_from([0.0, 0.0, 0.05, 0.3])
FAULTS = st.fixed_dictionaries({fate: SHARES for fate in (RESET, HUNG, GARBLED, REFUSED)}).filter(
    lambda shares: sum(shares.values()) < 0.9
)
JUDGED = {
    "budget": st.fixed_dictionaries(
        {},
        optional={
            "tokens": st.integers(40_000, 400_000),
            "usd": st.floats(0.1, 1.0),
            "gpu_hours": st.floats(0.05, 0.4),
        },
    ).filter(bool),
    "usage": st.sampled_from([TRUE, MISSING, ABSURD, LOW]),
    "judge_usage": st.sampled_from([TRUE, MISSING, ABSURD, LOW, BEYOND]),
    "slots": st.sampled_from([1, SLOTS]),
    "votes": st.sampled_from([1, 1, 3]),
    "structured": st.sampled_from([None, False]),
    "mute": st.sampled_from([0.0, 0.2]),
    "faults": FAULTS,
    "judge_faults": FAULTS,
    "starts": st.lists(
        st.builds(Start, st.sampled_from([Fate.KILL, Fate.KILL, Fate.NOTHING, Fate.STOP_AT_ONCE]), st.integers(2, 300)),
        max_size=3,
    ).map(tuple),
    "regrades": st.lists(
        st.none() | st.builds(Start, st.sampled_from([Fate.KILL, Fate.NOTHING]), st.integers(2, 80)), max_size=3
    ).map(tuple),
}


def parts_add_up(life: JudgedLife) -> None:
    """What answers have cost, their grades, and verdicts that led to none, are all that is stored with the answers."""
    total = reduce(Cost.plus, life.parts.values())
    assert (total.tokens, total.usd) == (life.stored.tokens, pytest.approx(life.stored.usd))


def check_judged(**chosen: Any) -> None:
    life = lead_judged(**chosen)
    event(f"in vain: {life.parts['in vain'].tokens > 0}")
    parts_add_up(life)
    event(f"ended: {life.reason}")
    event(f"judged: {bool(life.world.judged)}")
    caps_hold(life)


KINDS = {
    "judged": JUDGED,
    "compared": {key: how for key, how in JUDGED.items() if key != "regrades"} | {"is_compared": st.just(True)},
}


@pytest.mark.parametrize("kind", ["judged", pytest.param("compared", marks=pytest.mark.slow)])
def test_some_judged_budgets_hold(kind: str) -> None:
    seed(1)(only_drawn(examples(2))(given(**KINDS[kind])(check_judged)))()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(2, marks=pytest.mark.slow),
        *(pytest.param(number, marks=pytest.mark.release) for number in (3, 4, 5)),
    ],
)
def test_a_hundred_judged_budgets_hold(kind: str, number: int) -> None:
    seed(number)(only_drawn(25)(given(**KINDS[kind])(check_judged)))()


EXCESS = 60


@pytest.mark.parametrize("starts", [(), (Start(Fate.KILL, 90), Start())], ids=["one start", "killed"])
def test_a_judge_that_exceeds_its_reservation_ends_a_run(starts: tuple[Start, ...]) -> None:
    """A cap is exceeded only by the requests in flight when that was noticed, once a start."""
    life = lead_judged({"tokens": 150_000}, judge_excess=EXCESS, starts=starts)
    assert 0 < len(life.world.judged) <= (len(starts) + 1) * 2 * JUDGE_SLOTS
    ended = "" if life.failed is None else str(life.failed)
    assert "does not keep to grader.sampling.max_tokens" in ended or (starts and life.reason == "budget")


@pytest.mark.slow
def test_verdicts_that_are_given_again_count_again() -> None:
    life = lead_judged({"tokens": 4_000_000}, regrades=(Start(),))
    generated = sum(sum(attempt.tokens) for attempt in life.world.attempts)
    assert len(life.world.judged) > len(life.rows) and life.stored.tokens == generated
    caps_hold(life)
    parts_add_up(life)
    assert life.parts["in vain"].tokens >= life.parts["grades"].tokens > 0, "those that were replaced"


@pytest.mark.slow
def test_nothing_is_judged_twice_without_a_kill() -> None:
    life = lead_judged({"tokens": 400_000}, votes=3)
    asked = Counter(attempt.model == JUDGE for attempt in life.world.attempts)
    assert asked[True] == 3 * asked[False] == 3 * len(life.rows)
    generated = sum(sum(attempt.tokens) for attempt in life.world.attempts)
    assert life.stored.tokens == generated <= 400_000


@pytest.mark.slow
def test_a_comparison_takes_two_requests_a_vote_and_a_tie_word_for_word_takes_none() -> None:
    life = lead_judged({"tokens": 600_000}, votes=3, is_compared=True)
    caps_hold(life)
    graded = Counter(row.category for row in life.rows.values())
    assert set(SKILLS) == {model for model, _, _ in life.rows} and None not in graded
    assert len(life.world.judged) == 2 * 3 * (graded[BETTER] + graded[WORSE]) > 0


@pytest.mark.slow
def test_a_judge_with_earlier_verdicts_may_fail_on_the_first_requests_of_a_later_start() -> None:
    life = lead_judged({"tokens": 900_000}, starts=(Start(),), mute=0.2)
    ungraded = sum(row.category is None for row in life.rows.values())
    assert FIRST_ANSWERS < ungraded < len(life.rows) and life.failed is None


@pytest.mark.slow
def test_an_unreadable_verdict_is_not_reported_as_lost_by_a_later_kill() -> None:
    life = lead_judged({"tokens": 900_000}, starts=(Start(), Start(Fate.KILL, 8)), mute=0.2)
    assert any(loss.killed and loss.verdicts for loss in life.lost)
    parts_add_up(life)


@pytest.mark.slow
def test_verdicts_cut_off_by_a_kill_are_reported_when_everything_is_judged_again() -> None:
    life = lead_judged({"tokens": 400_000}, starts=(Start(Fate.KILL, 60),), regrades=(Start(),))
    parts_add_up(life)
    assert any(loss.killed and loss.verdicts for loss in life.lost)
    caps_hold(life)


def test_answers_without_their_verdicts_are_in_the_cost_of_a_killed_run(tmp_path: Path) -> None:
    config = judged_config(tmp_path, {}, SLOTS, votes=1, structured=None)
    JudgedSpender().run(config, tmp_path / "run", Start(Fate.KILL, 300))
    with closing(RunReader.open(tmp_path / "run")) as reader:
        results, trials = StoredRun(reader).results(running=False), list(reader.trials())
    assert results is not None and any(trial.awaits_verdict for trial in trials)
    assert results.cost.trials == len(trials)
    assert results.cost.tokens == sum(trial.cost.tokens for trial in trials)
