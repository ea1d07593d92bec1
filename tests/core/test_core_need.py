"""Rounds: when they are composed, how large they are, and which are issued ahead of looks."""

import numpy as np
import pytest
from core_looks import evidence
from core_runs import BINARY, Answers, look_of, never_called, play_chances, standing_of, straight
from scipy.stats import binom, norm

from adaptive_eval.core import Controller, Judging, Plan, Rule, UnresolvedPairs, ZScore
from adaptive_eval.core.compose import times_to_decision
from adaptive_eval.core.in_flight import clock_seconds
from adaptive_eval.core.look import likely_open
from adaptive_eval.core.rounds import Batch
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.core.settings import Bench, Budget, Pace, Trials
from adaptive_eval.core.tape import Tape
from adaptive_eval.core.types import Ask, Outcome, Reason, Verdict
from adaptive_eval.study.drive import drive

QUESTIONS = 10


def test_the_soonest_is_where_a_pair_would_be_called_or_given_up() -> None:
    """A constant boundary b is reached with (b/z)^2 times the trials, here searched in twelve steps to the horizon."""

    def times(z: float, rule: Rule, futility: float | None) -> float:
        pair = evidence(2, [z], [0.1], [0.1 / np.sqrt(2.0)] * 2)
        return float(times_to_decision(pair, rule, Judging(futility=futility))[0])

    assert 4.0 <= times(1.2, ZScore(2.4), None) <= 4.0 * 10.0 ** (1.0 / 12.0)
    given_up, horizon = (times(0.0, Sequential(), futility) for futility in (0.3, None))
    assert 1.0 < given_up < horizon == pytest.approx(10.0)


def plan(pace: Pace, models: int = 2, **choices: object) -> Plan:
    settings: dict[str, object] = {"trials": Trials(min=4, max=80), "policy": UnresolvedPairs(), "pace": pace}
    return Plan(Bench(models, QUESTIONS, BINARY), **(settings | choices))  # type: ignore[arg-type]


def sizes(controller: Controller, answers: Answers) -> list[dict[int, int]]:
    """Trials by model in each round of a run, in the order asked."""
    rounds: dict[int, dict[int, int]] = {}
    while controller.finished is None:
        requested = controller.ask(1 << 20)
        for ask in requested:
            of = rounds.setdefault(ask.round, {})
            of[ask.model] = of.get(ask.model, 0) + 1
        controller.tell(answers.of(requested))
    return [rounds[number] for number in sorted(rounds)]


def test_rounds_are_whole_sets_of_questions_and_few() -> None:
    chosen = plan(Pace(share=0.8, opening=16), models=3)
    answers = Answers(chosen, 3, skill=lambda model, question: 0.45 + 0.05 * model)
    rounds = sizes(Controller(chosen), answers)
    assert rounds[0] == dict.fromkeys(range(3), 16 * QUESTIONS)
    assert all(size % QUESTIONS == 0 for by_model in rounds for size in by_model.values())
    assert len(rounds) < len(straight(plan(Pace(), models=3), answers).looks) / 3


def test_rounds_shrink_to_fit_caps_before_anyone_goes_without() -> None:
    """A cap that pays for the smallest first round, but not for that of the pace."""
    chosen = plan(Pace(share=0.8, opening=16), budget=Budget(trials=2 * QUESTIONS * 6))
    controller = Controller(chosen)
    assert len(controller.ask(1 << 20)) == 2 * QUESTIONS * 4
    ended = straight(chosen, Answers(chosen, 0, skill=lambda *_: 0.5))
    assert ended.finished in (Reason.BUDGET, Reason.OUT_OF_REACH)
    assert ended.trials.sum() <= 2 * QUESTIONS * 6
    cap = 2 * QUESTIONS * 19
    chosen = plan(Pace(share=1.0, opening=16), budget=Budget(trials=cap), judging=Judging(futility=None))
    controller = straight(chosen, Answers(chosen, 1, skill=lambda *_: 0.5))
    assert controller.finished is Reason.BUDGET
    assert controller.trials.sum() == cap


def outcomes_of(trials: list[Ask], seconds: float = 0.0) -> list[Outcome]:
    return [Outcome(*ask[:3], ask.trial % 2, seconds=seconds) for ask in trials]


@pytest.mark.parametrize("held", [False, True])
def test_a_fast_model_goes_on_while_a_slow_one_is_at_its_first_round(held: bool) -> None:
    """With dedicated servers, the fast model's trials depend only on what the slow one takes in the end."""
    chosen = plan(Pace(lookahead=1, dedicated_servers=True) if held else Pace(share=0.5))
    controller = Controller(chosen)
    fast, slow = (controller.ask(1 << 20, model) for model in (0, 1))
    controller.tell(outcomes_of(fast, 2.0))
    assert controller.ask(1 << 20) == []
    more = []
    for ask in slow[: 4 * QUESTIONS - 1]:
        controller.tell(outcomes_of([ask], 16.0))
        more += controller.ask(1 << 20)
    assert not controller.looks
    assert {ask.model for ask in more} == ({0} if held else set())
    at_once = Controller(chosen)
    at_once.tell(outcomes_of(at_once.ask(1 << 20, 0), 2.0))
    asked = at_once.ask(1 << 20, 1)
    at_once.tell(outcomes_of([ask for ask in asked if ask.round == 0][:-1], 16.0))
    assert [ask[:3] for ask in at_once.ask(1 << 20, 0)] == [ask[:3] for ask in more]


def test_no_model_waits_for_the_rounds_of_a_slow_stranger() -> None:
    """Models 0 and 1 take a second, 2 and 3 take 32: many fast rounds come between two slow ones."""
    nobody = {"rule": ZScore(99.0), "judging": Judging(futility=None)}
    controller = Controller(plan(Pace(lookahead=1, dedicated_servers=True), models=4, **nobody))
    requested = controller.ask(1 << 20)
    fast = [ask for ask in requested if ask.model < 2]
    controller.tell(outcomes_of([ask for ask in requested if ask.model >= 2 and ask.round == 0], 32.0))
    controller.tell(outcomes_of(fast, 1.0))
    looks = len(controller.looks)
    for _ in range(6):  # nothing more comes of the slow ones
        controller.tell(outcomes_of([ask for ask in controller.ask(1 << 20) if ask.model < 2], 1.0))
    assert len(controller.looks) >= looks + 5
    late = controller.looks[-1].trials
    assert min(late[:2]) > max(late[2:])


def test_the_clock_goes_by_the_square_root_of_seconds_in_steps() -> None:
    batch = Batch(0, 0, np.zeros(4, dtype=int), np.ones(4, dtype=int))
    for question, (seconds, expected) in enumerate(((0.2, 1.0), (7.8, 1.5), (8.0, 2.0), (19.0, 3.0))):
        batch.place(Outcome(0, question, 0, 1, seconds=seconds))
        assert clock_seconds(batch) == expected


PACES = (Pace(lookahead=7, opening=12, dedicated_servers=True), Pace(share=0.8, opening=24), Pace(share=0.3))


@pytest.mark.parametrize(
    ("pace", "profile", "runs"),
    [
        pytest.param(PACES[1], "alike", 40, id="in turn-alike", marks=pytest.mark.slow),
        pytest.param(PACES[1], "spread", 80, id="in turn-spread", marks=pytest.mark.release),
        pytest.param(PACES[0], "alike", 40, id="a server each-alike", marks=pytest.mark.slow),
        pytest.param(PACES[0], "spread", 80, id="a server each-spread", marks=pytest.mark.release),
        pytest.param(PACES[2], "alike", 80, id="small-alike", marks=pytest.mark.release),
        pytest.param(PACES[2], "spread", 80, id="small-spread", marks=pytest.mark.release),
    ],
)
def test_exact_ties_are_called_no_more_often_than_promised(pace: Pace, profile: str, runs: int) -> None:
    """At most 2 (1 - confidence) for the default rule, at looks whose times depend on the data."""
    questions = 30
    p = np.full(questions, 0.5) if profile == "alike" else np.random.default_rng(8).beta(0.6, 0.4, questions)
    rule, called = Sequential(start=max(4, pace.opening) / 80), 0
    for seed in range(runs):
        rng = np.random.default_rng([seed, 5])
        controller = Controller(Plan(Bench(2, questions, BINARY), rule=rule, pace=pace), keep_looks=False)
        look = look_of(play_chances(controller, p, rng))
        called += look.count(Verdict.RESOLVED)
    assert called <= binom.ppf(0.999, runs, 0.10)


@pytest.mark.parametrize("lookahead", [0, 1, 3])
def test_rounds_in_flight_are_one_more_than_the_lookahead(lookahead: int) -> None:
    settings = {"policy": UnresolvedPairs(), "trials": Trials(min=2, max=30), "pace": Pace(lookahead=lookahead)}
    controller = Controller(never_called(Bench(2, 3, BINARY), **settings))
    in_flight = controller.ask(1000)
    assert {ask.round for ask in in_flight} == set(range(1 + lookahead))
    for look in range(5):
        now = [ask for ask in in_flight if ask.round == look]
        later = [ask for ask in in_flight if ask.round != look]
        assert controller.tell(outcomes_of(now[:-1])) == []
        assert controller.ask(1000) == []  # nothing useful to issue until the round is complete
        assert len(controller.tell(outcomes_of(now[-1:]))) == 1
        composed = controller.ask(1000)
        assert {ask.round for ask in composed} == {look + lookahead + 1}
        in_flight = later + composed


def test_at_the_stop_what_is_in_flight_is_drained_and_counted() -> None:
    settings = {"policy": UnresolvedPairs(), "trials": Trials(min=4, max=30), "pace": Pace(lookahead=2)}
    chosen = never_called(Bench(2, 3, BINARY), rule=ZScore(2.0), **settings)
    answers, controller = Answers(chosen, 0, skill=lambda model, question: float(model)), Controller(chosen)
    requested = controller.ask(1000)
    (look,) = controller.tell(answers.of(ask for ask in requested if ask.round == 0))
    assert controller.finished is None and controller.ask(1000) == []
    looks = controller.tell(answers.of(ask for ask in requested if ask.round > 0))
    assert len(looks) == 2 and controller.finished is Reason.SETTLED
    assert sum(looks[-1].trials) == sum(look.trials) + 12


OF_TWENTY = 20
START = 0.2


def plan_ahead(lookahead: int, **choices: object) -> Plan:
    """No call before a fifth of the horizon of 80 trials, that is before 16 trials a question."""
    settings: dict[str, object] = {
        "rule": Sequential(start=START),
        "policy": UnresolvedPairs(),
        "prior": "uniform",
        "judging": Judging(futility=None),
        "pace": Pace(lookahead),
    }
    return Plan(Bench(3, OF_TWENTY, BINARY), **(settings | choices))  # type: ignore[arg-type]


def tape(*means: float) -> Tape:
    p = np.repeat(np.array(means)[:, None], OF_TWENTY, axis=1)
    return Tape.from_chances(np.stack([1.0 - p, p], axis=-1), BINARY, np.random.default_rng(11))


@pytest.mark.parametrize("lookahead", [4, 12])
def test_nothing_runs_ahead_for_a_difference_that_the_next_allowed_look_will_call(lookahead: int) -> None:
    """The first model leads clearly from the start: 16 trials, or those before the first look if more."""
    per_question = drive(Controller(plan_ahead(lookahead)), tape(0.9, 0.2, 0.2)).trials / OF_TWENTY
    assert max(16, 4 + lookahead) <= per_question[0] <= max(17, 4 + lookahead)
    assert per_question[1] >= 40, "the two equals stay open, and rounds run ahead for them"


@pytest.mark.parametrize(("times", "stay"), [(1.0, [True, True]), (1.5, [True, True]), (2.5, [True, False])])
def test_likely_is_more_likely_than_not_by_the_normal_forecast(times: float, stay: list[bool]) -> None:
    """With q times the information, z is normal around z sqrt(q) with variance q - 1."""
    bound, outcomes = 2.5, tape(0.5, 0.45, 0.3)
    controller = Controller(plan_ahead(0, rule=ZScore(bound)))
    controller.tell([Outcome(*ask[:3], outcomes.at(*ask[:3])) for ask in controller.ask(1000)])
    standing, held = standing_of(controller), controller.trials
    z = np.abs(standing.evidence.z[standing.evidence.positions(standing.open_pairs())])
    centre, spread = z * np.sqrt(times), np.sqrt(times - 1.0) + 1e-12
    called = norm.sf((bound - centre) / spread) + norm.cdf((-bound - centre) / spread)
    assert (called <= 0.5).tolist() == stay
    assert likely_open(standing, held, np.rint(held * times).astype(np.int64), 0.0).tolist() == stay
