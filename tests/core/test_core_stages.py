"""Settings changed after looks: earlier looks stand, models join and leave, and every trial stays in its score."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from core_runs import (
    BINARY,
    Answers,
    Shell,
    after,
    exact,
    play,
    play_chances,
    restore,
    result_of,
    standing_of,
    straight,
)

from adaptive_eval.core import Bench, Budget, Controller, Optimal, Pace, Plan, Ranking, Trials, Uniform
from adaptive_eval.core.judge import Judging, rule_shared_among
from adaptive_eval.core.rules import Rule, has_error_left, is_giving_up
from adaptive_eval.core.sequential import Sequential
from adaptive_eval.core.stages import JoinedRule, StageBefore
from adaptive_eval.core.types import Ask, Cause, Cost, Outcome, Reason, SetAside, Verdict
from scorio.moments import over_categories

QUESTIONS = 12
PACES = (Pace(), Pace(2), Pace(share=0.5), Pace(lookahead=3, opening=6, dedicated_servers=True))


def plan(models: int = 3, pace: Pace | None = None, **changed: object) -> Plan:
    settings: dict[str, object] = {"trials": Trials(min=4, max=24), "pace": pace or Pace(), **changed}
    return Plan(Bench(models, QUESTIONS, BINARY), **settings)  # type: ignore[arg-type]


class Named(Answers):
    """Answers that depend on model names, whatever the numbers of the models."""

    def __init__(self, names: Sequence[int], seed: int = 5, gap: float = 0.08) -> None:
        super().__init__(plan(8), seed, lambda model, question: min(0.2 + gap * model, 0.95))
        self._names = tuple(names)

    def _outcome(self, ask: Ask) -> Outcome:
        return super()._outcome(ask._replace(model=self._names[ask.model]))._replace(model=ask.model)


def trials_of(run: Controller, models: Iterable[int]) -> list[int]:
    return run.trials[[*models]].tolist()


def to_the_end(run: Controller, answers: Answers) -> list[Ask]:
    """Whatever is asked of a run until it ends, and is told at once."""
    asked: list[Ask] = []
    while run.finished is None:
        asked += (requested := run.ask(1 << 30))
        run.tell(answers.of(requested))
    return asked


def calls(run: Controller) -> dict[tuple[int, int], int]:
    """The signs of all calls by model numbers."""
    assert run.last_look is not None
    first, second = run.plan.judged_pairs
    return dict(zip(zip(first.tolist(), second.tolist(), strict=True), run.last_look.memory.call.tolist(), strict=True))


@pytest.mark.parametrize("pace", PACES)
def test_a_model_that_joins_changes_no_earlier_look_and_takes_no_trial_from_a_score(pace: Pace) -> None:
    before = straight(plan(3, pace), Named((0, 1, 2)))
    looks_before, called, trials_before = exact(before.looks), calls(before), trials_of(before, range(3))
    joined = straight(after(before, plan(4, pace), (0, None, 1, 2)), Named((0, 7, 1, 2)))
    assert exact(joined.looks[: joined.first_look]) == looks_before
    first = joined.looks[joined.first_look]
    assert [first.trials[at] for at in (0, 2, 3)] == trials_before and first.trials[1] == 0
    assert all(now >= then for now, then in zip(trials_of(joined, (0, 2, 3)), trials_before, strict=True))
    assert joined.trials[1] >= joined.plan.opening[1].sum() > 0
    now = calls(joined)
    names = (0, 2, 3)
    assert all(now[names[better], names[worse]] == call for (better, worse), call in called.items() if call)
    assert joined.looks[-1].count(Verdict.RESOLVED) > 0 and joined.finished is not None


def came_back(without: Controller, second: Plan, left: int, outcomes: Iterable[Outcome] = ()) -> Plan:
    """The plan of a stage to which a model comes back that is not in the stage before."""
    roster = range(second.bench.models)
    models = tuple(None if model == left else model - (model > left) for model in roster)
    return replace(second, before=StageBefore(without, models, True, [*outcomes], [tuple(roster)]))


@pytest.mark.parametrize("pace", PACES)
def test_a_model_that_comes_back_goes_on_from_where_it_left(pace: Pace) -> None:
    patient = {"rule": Sequential(start=4 / 24), "judging": Judging(futility=None)}
    answers, before = Named((0, 1, 2), gap=0.02), Controller(plan(3, pace, **patient))
    while not before.looks:
        before.tell(answers.of(before.ask(1 << 30)))
    came = answers.of([ask for ask in before.ask(1 << 30) if ask.model == 1][:5])
    assert came and before.tell(came) == []
    without = straight(after(before, plan(2, pace, **patient), (0, 2)), Named((0, 2), gap=0.02))
    counted = over_categories(before.counts[1])
    stored = [
        answers.of([Ask(1, question, trial, 0)])[0]
        for question, number in enumerate(counted.tolist())
        for trial in range(number)
    ]
    back = Controller(came_back(without, plan(3, pace, **patient), 1, [*stored, *came]))
    assert list(back.looks[back.first_look].trials) == [without.trials[0], before.trials[1], without.trials[1]]
    asked = [ask[:3] for ask in to_the_end(back, answers) if ask.model == 1]
    assert asked and not {outcome[:3] for outcome in came}.intersection(asked), "what had come is not asked again"
    assert min(trial - counted[question] for _, question, trial in asked) >= 0
    assert back.finished is not None and back.trials[1] > before.trials[1]


def test_a_pair_keeps_its_decision_its_p_values_and_its_remaining_error_while_a_model_is_away() -> None:
    """The pairs of two models that were away at different times go on from the last stage that had both."""
    rule = Optimal(0.9)
    before = straight(plan(4, rule=rule), Named((0, 2, 1, 7), gap=0.03))
    of_one, called = before.taker, calls(before)
    without_1 = straight(after(before, plan(3, rule=rule), (0, 2, 3)), Named((0, 1, 7), gap=0.03))
    later = replace(plan(3, rule=rule), before=StageBefore(without_1, (0, None, 2), True, (), [(0, 1, 3)]))
    without_2 = straight(later, Named((0, 2, 7), gap=0.03))
    numbers = [(0, None, 1, 2), (0, 1, 2, 3)]
    back = Controller(replace(plan(4, rule=rule), before=StageBefore(without_2, (0, 1, None, 2), True, (), numbers)))
    assert back.plan.departed == without_2.plan.departed - 1 == 0
    assert list(back.trials) == [without_2.trials[0], without_2.trials[1], without_1.trials[1], without_2.trials[2]]
    assert called[0, 3] and not called[1, 2], "a pair that is decided, and one that is not"
    assert all(calls(back)[pair] == call for pair, call in called.items() if call)
    first, second = back.plan.judged_pairs
    at = int(np.flatnonzero((first == 1) & (second == 2))[0])
    for name in ("p_first", "p_second"):
        assert getattr(back.taker._memory, name)[at] <= getattr(of_one._memory, name)[at]
    fresh = Controller(replace(plan(4, rule=rule), before=StageBefore(without_2, (0, 1, None, 2))))
    then, anew = (run.taker.rule.boundary(standing_of(back).evidence)[at] for run in (back, fresh))
    assert then > anew, "looks had spent some of its error"


def parts_of(rule: Rule) -> int:
    """How many rules a boundary is computed by."""
    return parts_of(rule.rule) + parts_of(rule.fresh) if isinstance(rule, JoinedRule) else 1


def test_a_look_takes_no_longer_however_often_models_have_come_and_gone() -> None:
    """Four models, of which another one or two are away at every second stage."""
    rosters = [(0, 1, 2, 3)]
    run = Controller(plan(4))
    while not run.looks:
        run.tell(Named(rosters[0], gap=0.01).of(run.ask(1 << 30)))
    for away in ((2,), (1,), (0,), (1, 2), (2,), (1,)):
        for roster in (tuple(name for name in range(4) if name not in away), (0, 1, 2, 3)):
            numbers = [
                tuple(then.index(name) if name in then else None for name in roster) for then in reversed(rosters)
            ]
            run = Controller(replace(plan(len(roster)), before=StageBefore(run, numbers[0], True, (), numbers[1:])))
            rosters.append(roster)
            assert parts_of(run.taker.rule) <= len(run.plan.judged_pairs[0]) + 1
    assert parts_of(run.taker.rule) > 2, "pairs with different pasts"


@pytest.mark.parametrize("pace", PACES)
def test_a_model_that_leaves_takes_its_pairs_with_it_and_nothing_else(pace: Pace) -> None:
    before = straight(plan(4, pace), Named((0, 3, 1, 7)), looks=2)
    trials_before, called = trials_of(before, (0, 2, 3)), calls(before)
    less = straight(after(before, plan(3, pace), (0, 2, 3)), Named((0, 1, 7)))
    assert trials_of(before, (0, 2, 3)) == trials_before, "what goes on leaves the stage before as it was"
    assert list(less.looks[less.first_look].trials) == trials_before
    now, were = calls(less), (0, 2, 3)
    for (better, worse), call in called.items():
        if call and better in were and worse in were:
            assert now[were.index(better), were.index(worse)] == call
    assert less.finished is not None


@pytest.mark.slow
@pytest.mark.parametrize("pace", PACES)
def test_arrival_order_and_restarts_change_nothing_after_a_change(pace: Pace) -> None:
    before = straight(plan(3, pace), Named((0, 1, 2)), looks=3)
    changed = after(before, plan(4, pace, policy=Uniform()), (0, 1, None, 2))
    expected = straight(changed, Named((0, 1, 5, 2)))
    shuffled = Shell(changed, Named((0, 1, 5, 2)), np.random.default_rng(3), restarts=0.03).run()
    assert exact(shuffled.looks) == exact(expected.looks)


@pytest.mark.slow
@pytest.mark.parametrize("pace", PACES)
def test_outcomes_that_the_stage_before_has_taken_are_not_taken_twice(pace: Pace) -> None:
    """A resume is told everything that is stored."""
    answers, outcomes = Named((0, 1, 2)), list[Outcome]()
    before, asked = Controller(plan(3, pace)), list[Ask]()
    while before.taker.taken < 2:
        asked = asked or before.ask(1 << 30)
        outcomes += (came := answers.of([asked.pop(0)]))
        before.tell(came)
    outcomes += (came := answers.of([*asked, *before.ask(1 << 30)][:5]))
    assert came and before.tell(came) == []
    longer = after(before, plan(3, pace, trials=Trials(min=4, max=40)))
    resumed, fresh = Controller(longer), Controller(longer)
    restore(resumed, outcomes)
    assert exact(resumed.looks) == exact(fresh.looks)
    to_the_end(resumed, answers)
    assert exact(resumed.looks) == exact(straight(longer, answers).looks)


@pytest.mark.parametrize("pace", PACES)
def test_a_model_that_was_set_aside_comes_back_with_what_it_had_in_flight(pace: Pace) -> None:
    answers, before = Named((0, 1, 2), gap=0.02), Controller(plan(3, pace))
    while not before.looks:
        before.tell(answers.of(before.ask(1 << 30)))
    flying = before.ask(1 << 30)
    of_one = [ask for ask in flying if ask.model == 1]
    assert of_one
    before.tell(answers.of([ask for ask in flying if ask.model != 1] + of_one[: len(of_one) // 2]))
    before.tell([SetAside(1, "its server is gone", Cause.SERVER)])
    to_the_end(before, answers)
    trials_before = trials_of(before, range(3))
    back = Controller(after(before, plan(3, pace, trials=Trials(min=4, max=30))))
    assert not back.set_aside and list(back.looks[back.first_look].trials) == trials_before
    asked = to_the_end(back, answers)
    assert len(asked) == len(set(asked))
    came = {ask[:3] for ask in of_one[: len(of_one) // 2]}
    assert not came.intersection(ask[:3] for ask in asked), "what had come is not asked again"
    assert {ask[:3] for ask in of_one} <= came.union(ask[:3] for ask in asked)
    assert back.trials[1] > trials_before[1]


@pytest.mark.parametrize(("pace", "share"), [*zip(PACES, (0.2, 0.7, 0.7, 0.2), strict=True)])
def test_no_cap_is_exceeded_by_what_a_change_asks_for(pace: Pace, share: float) -> None:
    costs = (Cost(10, 0.1, 0.0), Cost(20, 0.4, 0.0), Cost(5, 0.2, 0.0), Cost(7, 0.3, 0.0))
    full_cost = sum(cost.usd for cost in costs) * QUESTIONS * 24

    def priced(models: int, usd: float) -> Plan:
        bench = Bench(models, QUESTIONS, BINARY, worst_cost=costs[:models])
        return replace(plan(models, pace), bench=bench, budget=Budget(usd=usd))

    first = priced(3, 0.3 * full_cost)
    before = straight(first, Answers(first, 3))
    used = result_of(before)
    assert used.spent.usd <= 0.3 * full_cost
    second = after(before, priced(4, max(share * full_cost, used.spent.usd)), (0, 1, 2, None))
    run, answers = Controller(second), Answers(replace(second, before=None), 3)
    came = answers.of(to_the_end(run, answers))
    bought = used.spent.usd + sum(outcome.cost.usd for outcome in came)
    assert max(bought, result_of(run).spent.usd) <= max(share * full_cost, used.spent.usd) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("pace", "arrived", "room"),
    [*((pace, 0, 2 * QUESTIONS) for pace in PACES), *zip(PACES, (5, 5, 0, 5), (0, 3, 3, 2 * QUESTIONS), strict=True)],
)
def test_a_lowered_cap_holds_for_rounds_that_the_stage_before_had_issued(pace: Pace, arrived: int, room: int) -> None:
    answers = Named((0, 1, 2), gap=0.01)
    before = Controller(plan(3, pace, budget=Budget(trials=800)))
    while not before.looks:
        before.tell(answers.of(before.ask(1 << 30)))
    before.tell(answers.of(before.ask(1 << 30)[:arrived]))
    cap = int(before.arrived.sum()) + room
    run = Controller(after(before, plan(3, pace, budget=Budget(trials=cap))))
    to_the_end(run, answers)
    assert int(run.arrived.sum()) <= cap
    if arrived == 0 and room >= QUESTIONS and not pace.dedicated_servers:
        assert int(run.arrived.sum()) > cap - room, "smaller rounds, which the cap covers, are asked"


def test_a_joining_model_that_cannot_be_paid_for_is_set_aside() -> None:
    costs = (Cost(0, 0.1, 0.0),) * 4
    first = replace(plan(3), bench=Bench(3, QUESTIONS, BINARY, worst_cost=costs[:3]), budget=Budget(usd=30.0))
    before = straight(first, Answers(first, 3))
    spent = result_of(before)
    second = replace(plan(4), bench=Bench(4, QUESTIONS, BINARY, worst_cost=costs), budget=Budget(usd=spent.spent.usd))
    run = Controller(after(before, second, (0, 1, 2, None)))
    assert run.finished is Reason.BUDGET and run.set_aside[3].cause is Cause.BUDGET
    assert trials_of(run, range(3)) == trials_of(before, range(3))
    third = replace(second, budget=Budget(usd=spent.spent.usd + 0.1 * 4 * QUESTIONS))
    again = straight(after(run, third), Answers(third, 3))
    seen = [int(look.trials[3]) for look in again.looks if len(look.trials) == 4 and look.trials[3]]
    assert seen[0] == 4 * QUESTIONS, "its first round"


def test_a_joining_model_that_cannot_be_paid_for_takes_no_score_from_another_that_joins() -> None:
    """As if its server had been down in an earlier start, in which the other was judged without it."""
    pace = Pace(share=0.5)
    first = plan(2, pace, budget=Budget(trials=2000))
    before = straight(first, Named((0, 1)))
    stored = Named((0, 1, 4)).of([Ask(2, q, trial, 0) for q in range(QUESTIONS) for trial in range(24)])
    cap = int(before.arrived.sum()) + len(stored) + QUESTIONS
    second = plan(4, pace, budget=Budget(trials=cap))
    run = Controller(after(before, second, (0, 1, None, None)))
    restore(run, stored)
    assert run.set_aside[3].cause is Cause.BUDGET and list(run.set_aside) == [3]
    assert run.looks[-1].trials[2] >= 4 * QUESTIONS and not run.looks[-1].trials[3]


def test_a_budget_that_is_raised_changes_no_look_and_the_run_goes_on() -> None:
    answers = Named((0, 1, 2), gap=0.02)
    patient = plan(3, rule=Sequential(start=4 / 24), judging=Judging(futility=None))
    small, large = (replace(patient, budget=Budget(trials=cap)) for cap in (250, 900))
    before = straight(small, answers)
    assert before.finished is Reason.BUDGET
    more, uninterrupted = straight(after(before, large), answers), straight(large, answers)
    assert exact(more.looks[: len(before.looks)]) == exact(before.looks)
    assert more.trials.sum() > before.trials.sum()
    assert calls(more) == calls(uninterrupted), "as certain as if it had had this budget from the beginning"
    assert more.taker.rule is before.taker.rule and not more.extensions


@pytest.mark.parametrize("familywise", [False, True])
def test_what_a_delta_could_certify_after_a_raise_is_what_it_could_in_a_new_run(familywise: bool) -> None:
    """In this run no delta certifies a tie; the boundary for a call, of the remaining error, says nothing of that."""
    answers, judging = Named((0, 1, 2), gap=0.01), Judging(familywise=familywise)
    before = straight(plan(3, judging=judging), answers)
    longer = plan(3, judging=judging, trials=Trials(min=4, max=30))
    raised = straight(after(before, longer), answers)
    look = standing_of(raised)
    rule = longer.deciding_rule
    fresh = rule.ties if is_giving_up(rule) else rule
    assert isinstance(fresh, Sequential)
    level = rule_shared_among(2 * len(Ranking().family(3)), fresh) if familywise else fresh
    assert has_error_left(look.rule)
    for position, certifiable in enumerate(look.forecast.certifiable.tolist()):
        at_end = look.evidence.sigma[position] * math.sqrt(
            look.evidence.information[position] / look.forecast.horizon[position]
        )
        assert certifiable == pytest.approx(
            at_end * level.boundary(replace(look.evidence, information=look.forecast.horizon))[position]
        )


def test_another_confidence_rejudges_calls_and_keeps_earlier_looks() -> None:
    before = straight(plan(3, rule=Sequential(0.9, start=4 / 24)), Named((0, 1, 2), gap=0.12))
    assert any(calls(before).values())
    run = Controller(after(before, plan(3, rule=Sequential(0.999999, start=4 / 24)), stands=False))
    assert exact(run.looks[: run.first_look]) == exact(before.looks)
    assert not any(calls(run).values()) and trials_of(run, range(3)) == trials_of(before, range(3))


def test_a_rule_that_gives_up_goes_on_unchanged_for_earlier_pairs_and_judges_new_ones_at_any_looks() -> None:
    before = straight(plan(3), Named((0, 1, 2)))
    rule = before.taker.rule
    assert is_giving_up(rule)
    joined = straight(after(before, plan(4), (0, 1, 2, None)), Named((0, 1, 2, 4)))
    mixed = joined.taker.rule
    assert isinstance(mixed, JoinedRule) and mixed.rule is rule and isinstance(mixed.fresh, Sequential)
    assert joined.last_look is not None
    evidence = joined.last_look.evidence
    bound, given_up = mixed.boundary(evidence), mixed.gives_up(evidence)
    new = (evidence.first == 3) | (evidence.second == 3)
    assert np.array_equal(bound[new], mixed.fresh.boundary(evidence)[new])
    assert np.array_equal(bound[~new], rule.boundary(evidence.at_positions(np.flatnonzero(~new))))
    assert not given_up[new].any()
    longer = straight(after(joined, plan(4, trials=Trials(min=4, max=60))), Named((0, 1, 2, 4)))
    assert len(longer.extensions) == 1 and longer.extensions[0].leaves_error
    assert longer.last_look is not None and np.isfinite(longer.taker.rule.boundary(longer.last_look.evidence)).any()
    open_before = calls(joined)
    assert all(calls(longer)[pair] == call for pair, call in open_before.items() if call)


def test_another_pace_leaves_each_pair_the_error_that_it_has() -> None:
    """Looks may be further apart than the rule was computed for: the remaining error is spent at any looks."""
    before = straight(plan(3), Named((0, 1, 2), gap=0.03), looks=4)
    wide = Controller(after(before, plan(3, Pace(share=0.7))))
    rule, pair = wide.taker.rule, before.taker.rule
    assert is_giving_up(pair) and not is_giving_up(rule) and not wide.extensions
    assert before.last_look is not None
    assert np.all(rule.error_left <= pair.chance_left(before.last_look.evidence) + pair.reserve)
    same = Controller(after(before, plan(3, policy=Uniform())))
    assert same.taker.rule is pair, "a built-in policy keeps the spacing"


def test_models_that_left_still_share_the_error_of_all_comparisons() -> None:
    rule, judging = Sequential(start=4 / 24), Judging(familywise=True)
    before = straight(plan(4, rule=rule, judging=judging), Named((0, 1, 2, 3), gap=0.01), looks=1)
    less = Controller(after(before, plan(2, rule=rule, judging=judging), (1, 3)))
    assert less.plan.departed == 2 and less.last_look is not None
    level = rule_shared_among(2 * len(Ranking().family(4)), rule)
    assert less.last_look.rule.boundary(less.last_look.evidence)[0] == level.boundary(less.last_look.evidence)[0]


def test_models_that_cannot_be_told_apart_from_those_before_are_refused() -> None:
    before = straight(plan(3), Named((0, 1, 2)), looks=1)
    with pytest.raises(ValueError, match="in the order they had"):
        after(before, plan(3), (1, 0, 2))
    with pytest.raises(ValueError, match="a number for each of 2 models"):
        after(before, plan(2), (0, 1, 2))
    with pytest.raises(ValueError, match="freely before the first look"):
        after(Controller(plan(3)), plan(3))


def false_calls(runs: int, rule: Optimal | Sequential, p: np.ndarray) -> dict[str, float]:
    """How often pairs of exact copies are called, of models that were there and of one that joins as soon as the
    others are done, in runs whose horizon is then raised as well."""
    counts = {"before": 0, "joined": 0}
    first = Plan(Bench(2, len(p), BINARY), rule=rule, trials=Trials(min=4, max=20))
    second = Plan(Bench(3, len(p), BINARY), rule=rule, trials=Trials(min=4, max=20))
    for seed in range(runs):
        rng = np.random.default_rng(seed)

        def grade(ask: Ask, rng: np.random.Generator = rng) -> int:
            return int(rng.random() < p[ask.question])

        before = play(Controller(first), grade)
        joined = play(Controller(after(before, second, (0, 1, None))), grade)
        called = calls(play(Controller(after(joined, replace(second, trials=Trials(min=4, max=40)))), grade))
        counts["before"] += called[0, 1] != 0
        counts["joined"] += called[0, 2] != 0
    return {name: number / runs for name, number in counts.items()}


def false_calls_of_returned(runs: int, rule: Optimal | Sequential, p: np.ndarray) -> float:
    """How often a model that is taken out at each of three raises of the horizon, and put back once the others have
    gone on, is called better or worse than an exact copy."""
    called = 0
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        run = play_chances(Controller(copies(3, 8, rule, p)), p, rng)
        for most in (16, 32, 64):
            others = play_chances(Controller(after(run, copies(2, most, rule, p), (0, 1))), p, rng)
            run = play_chances(Controller(came_back(others, copies(3, most, rule, p), 2)), p, rng)
        called += calls(run)[0, 2] != 0
    return called / runs


def copies(models: int, most: int, rule: Optimal | Sequential, p: np.ndarray) -> Plan:
    """A plan for copies of one model, by which pairs go on to the horizon unless the rule gives them up."""
    never = Judging(futility=None)
    bench, trials = Bench(models, len(p), BINARY), Trials(min=4, max=most)
    return Plan(bench, rule=replace(rule, start=4 / most), trials=trials, judging=never)


@pytest.mark.parametrize("rule", [Optimal(), Sequential()], ids=["optimal", "any looks"])
def test_nothing_changes_if_a_model_is_away_while_the_horizon_is_raised(rule: Optimal | Sequential) -> None:
    p = np.random.default_rng(7).beta(0.6, 0.6, 20)
    for seed in range(4):
        away, stays = (np.random.default_rng(seed) for _ in range(2))
        gone, stayed = (play_chances(Controller(copies(2, 8, rule, p)), p, rng) for rng in (away, stays))
        for most in (16, 32):
            alone = play_chances(Controller(after(gone, copies(1, most // 2, rule, p), (0,))), p, away)
            gone = play_chances(Controller(came_back(alone, copies(2, most, rule, p), 1)), p, away)
            stayed = play_chances(Controller(after(stayed, copies(2, most, rule, p))), p, stays)
        assert gone.finished == stayed.finished and calls(gone) == calls(stayed)
        assert np.array_equal(gone.counts, stayed.counts)
        now, then = (standing_of(run) for run in (gone, stayed))
        assert np.array_equal(now.rule.boundary(now.evidence), then.rule.boundary(then.evidence))


@pytest.mark.release
@pytest.mark.parametrize("rule", [Optimal(start=0.2), Sequential(start=0.2)], ids=["optimal", "any looks"])
def test_a_model_that_comes_back_keeps_the_promise_on_exact_ties(rule: Optimal | Sequential) -> None:
    runs = 300
    share = false_calls_of_returned(runs, rule, np.random.default_rng(7).beta(0.6, 0.6, 30))
    assert share <= 0.1 + 3.0 * math.sqrt(0.09 / runs), share


@pytest.mark.release
@pytest.mark.parametrize("rule", [Optimal(start=0.2), Sequential(start=0.2)], ids=["optimal", "any looks"])
@pytest.mark.parametrize("shape", [0.6, 400.0], ids=["spread", "alike"])
def test_a_model_that_joins_keeps_the_promise_on_exact_ties(rule: Optimal | Sequential, shape: float) -> None:
    runs = 300
    shares = false_calls(runs, rule, np.random.default_rng(7).beta(shape, shape, 30))
    assert max(shares.values()) <= 0.1 + 3.0 * math.sqrt(0.09 / runs), shares
