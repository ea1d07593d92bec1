"""The machine, event by event."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, islice

import numpy as np
import pytest
from fakes import describe_look
from scripted import Disk

from adaptive_eval.core import Bench, Budget, Cost, Pace, Plan, Reason, Trials
from adaptive_eval.core.types import NO_COST
from adaptive_eval.machine import events
from adaptive_eval.machine.charges import Account, Charge, ChargeKind
from adaptive_eval.machine.follow_up import FIRST_IN_FLIGHT, REFUSALS_SECONDS, RequestFailure
from adaptive_eval.machine.machine import Machine
from adaptive_eval.machine.records import Note, Record, Row, SettingsEnd
from adaptive_eval.machine.replay import Stage, replay, replay_steps
from adaptive_eval.machine.trial import DONE, JUDGING, RESERVED, GradeDetails, Request, Trial


def setting(**changes: object) -> events.Setting:
    """Three models, three questions, ten tokens at most for an answer."""
    settings: dict[str, object] = {"trials": Trials(min=2, max=4), "prior": "uniform"}
    together = (2, 2, 2) if "samples" in changes else ()
    bench = Bench(3, 3, np.array([0.0, 1.0]), worst_cost=(Cost(10),) * 3, together=together)
    options = {name: changes.pop(name) for name in ("slots", "samples", "seed") if name in changes}
    plan = Plan(bench, **(settings | changes))  # type: ignore[arg-type]
    options = {"slots": dict.fromkeys(range(3), 100), "seed": lambda *key: key[2], **options}
    return events.Setting(plan, (0, 1, 2), describe=describe_look, **options)  # type: ignore[arg-type]


class Played:
    """A machine with a disk that stores rows at once."""

    def __init__(self, setup: events.Setting, machine: type[Machine] = Machine) -> None:
        self.setting, self.machine, self.disk = setup, machine(setup), Disk()
        self.sent: list[Request] = []
        self.reports: list[bool] = []
        """Whether the start was over, for each report."""
        self.others: list[object] = []

    def do(self, *happened: events.Event, now: float = 0.0, commit: bool = True) -> list[Row]:
        """Handle events, then commit their rows in one commit; returns these rows."""
        rows: list[Row] = []
        for event in happened:
            for action in self.machine.handle(event, now):
                match action:
                    case events.Write(written):
                        rows += written
                    case events.Send(request):
                        self.sent.append(request)
                    case events.MakeReport(is_over):
                        self.reports.append(is_over)
                    case _:
                        self.others.append(action)
        if commit and rows:
            self.disk.commit(rows)
            self.do(events.Committed(rows), now=now)
        return rows

    def answer(self, request: Request, category: int = 1) -> list[events.Event]:
        """The events of an answered request."""
        received = [events.Received(number, None, Cost(10), 1.0) for number in request.numbers]
        return [events.Answered(request.id, received), *(events.Graded(key, category) for key in request.keys)]

    def replayed(self) -> Machine:
        return replay(lambda in_whole_commits: self.disk.log(), [Stage(self.setting)], self.disk.notes, self.disk.known)


def test_a_replay_can_be_stopped_between_looks_that_it_adds() -> None:
    """An ended stage has looks whose answers were discarded."""
    ended = Stage(setting(), SettingsEnd(1, looks=50, has_looked=True))
    steps = replay_steps(lambda in_commits: (), [ended, Stage(setting())], (), lambda models, before: ())
    assert [*islice(steps, 5)] == [None] * 5


def opened(setup: events.Setting, machine: type[Machine] = Machine) -> Played:
    played = Played(setup, machine)
    played.do(events.Opened())
    return played


def records_of(actions: Iterable[object]) -> list[Record]:
    """What is to be written."""
    return [record for action in actions if isinstance(action, events.Write) for _, record in action.rows]


class TellsAnswersFirst(Machine):
    """Tells the core the answers of a commit before everything else."""

    def _tell_rows(self, rows: Iterable[Row]) -> None:
        ordered: Sequence[Row] = sorted(rows, key=lambda row: not isinstance(row[1], Trial))
        super()._tell_rows(ordered if self.is_live else rows)


@pytest.mark.parametrize("loss_first", [True, False])
@pytest.mark.parametrize("faulty", [False, True])
def test_loss_that_ends_a_run_and_completing_answer_in_one_commit(*, loss_first: bool, faulty: bool) -> None:
    small_budget = setting(
        trials=Trials(min=2, max=6), pace=Pace(lookahead=1), budget=Budget(tokens=360)
    )  # 27 trials, and 90 tokens that are lost
    played = opened(small_budget, TellsAnswersFirst if faulty else Machine)
    firsts = list(played.sent)  # until these are answered, nobody knows what is added to prompts
    for request in firsts:
        played.do(*played.answer(request, int(request.model >= request.question)))
    opening = [request for request in played.sent if request.first < 2]
    ahead = [request for request in played.sent if request.first >= 2]
    assert len(opening) == 18 and len(ahead) == 9
    for request in opening[len(firsts) : -1]:
        played.do(*played.answer(request, int(request.model >= request.question)))
    loss: list[events.Event] = [events.Wasted(ahead[0].model, 1, Cost(91))]
    last = played.answer(opening[-1])
    played.do(*(loss + last if loss_first else last + loss))
    again = played.replayed()
    live = len(played.machine.controller.looks), played.machine.controller.finished
    is_alike = live == (len(again.controller.looks), again.controller.finished)
    assert is_alike is not (faulty and loss_first)
    if not faulty:
        assert live == (0 if loss_first else 1, Reason.BUDGET)


def test_model_is_owed_its_trials_until_their_verdicts_are_on_disk() -> None:
    played = opened(replace(setting(), judged=frozenset(range(3)), verdicts_at_once=100))
    answered = [(request, *played.answer(request)) for request in played.sent if request.model == 0]
    played.do(*(answer for _, answer, *_ in answered))
    assert played.machine.counts[JUDGING] == 6 and played.machine.is_owed(0)
    rows = played.do(*(verdict for _, _, *verdicts in answered for verdict in verdicts), commit=False)
    assert not played.machine.counts[JUDGING] and played.machine.is_owed(0)
    played.disk.commit(rows)
    played.do(events.Committed(rows))
    assert not played.machine.is_owed(0) and played.machine.is_owed(1)


def test_an_answer_is_judged_once_its_grade_is_paid() -> None:
    account, waiting = Account(), Trial(0, 0, 0, 0, JUDGING, Cost(30), Cost(15))
    account.enter(waiting)
    assert (account.models[0].answers, account.models[0].verdicts.cost) == (1, NO_COST)
    account.enter(waiting, -1)
    account.enter(waiting._replace(state=DONE, category=1))
    assert (account.models[0].answers, account.models[0].verdicts.cost) == (1, Cost(15))


def test_seeds_that_do_not_follow_each_other_are_asked_apart() -> None:
    apart = setting(samples=dict.fromkeys(range(3), 2), seed=lambda model, question, number: 10 * number)
    played = opened(apart)
    assert {request.size for request in played.sent} == {1}


def test_reports_are_made_at_the_beginning_with_each_look_and_at_the_end() -> None:
    played = opened(setting(trials=Trials(min=2, max=2)))
    assert played.reports == [False]
    for request in list(played.sent):
        played.do(*played.answer(request))
    begun, *looks, over = played.reports
    assert len(looks) == len(played.disk.looks) > 0
    assert not any((begun, *looks)) and over


def test_first_refusal_ends_the_run_with_those_of_others() -> None:
    played = opened(setting())
    requests = {request.model: request for request in played.sent}
    played.do(events.Failed(requests[0].id, RequestFailure.REFUSED, "no such model"), now=1.0)
    played.do(events.Failed(requests[1].id, RequestFailure.REFUSED, "nor this"), now=1.5)
    assert not [other for other in played.others if isinstance(other, events.Abort)]
    played.do(events.Stop(), now=1.1 + REFUSALS_SECONDS)
    (abort,) = [other for other in played.others if isinstance(other, events.Abort)]
    assert abort == events.Abort(events.AbortKind.REFUSED, {0: "no such model", 1: "nor this"})


def test_first_refusal_ends_the_run_at_once_where_nothing_is_asked_of_others() -> None:
    played = opened(setting(trials=Trials(min=2, max=2)))
    for request in played.sent:
        if request.model != 0:
            played.do(*played.answer(request))
    again = Played(played.setting)
    again.machine, again.disk = played.replayed(), played.disk
    again.do(events.Opened())
    assert {request.model for request in again.sent} == {0}
    again.do(events.Failed(again.sent[0].id, RequestFailure.REFUSED, "no such model"))
    assert again.others[0] == events.Abort(events.AbortKind.REFUSED, {0: "no such model"})


def test_stop_waits_for_what_is_in_flight_and_a_second_one_cancels_what_no_later_start_claims() -> None:
    claimed = Played(replace(setting(), remembers=frozenset({0})))
    claimed.do(events.Opened(), events.Stop(at_once=True))
    (cancel,) = [other for other in claimed.others if isinstance(other, events.Cancel)]
    assert {request.model for request in claimed.sent if request.id in cancel.requests} == {1, 2}
    played = opened(setting())
    played.do(*played.answer(played.sent[0]))
    played.do(events.Stop())
    assert not [other for other in played.others if isinstance(other, events.Cancel | events.Finish)]
    played.do(events.Stop())
    (cancel,) = [other for other in played.others if isinstance(other, events.Cancel)]
    assert set(cancel.requests) == {request.id for request in played.sent[1:]}
    played.do(*(events.Failed(number, RequestFailure.CUT_OFF) for number in cancel.requests))
    assert events.Finish(None) in played.others
    assert not any(trial.state is RESERVED for _, trial in played.disk.trials.values())
    assert sum(charge.number for _, charge in played.disk.charges) == 17


def test_answer_that_comes_when_all_is_cancelled_is_stored_and_not_graded() -> None:
    played = opened(setting())
    first = played.sent[0]
    played.do(events.Stop(at_once=True))
    answered, _ = played.answer(first)
    played.do(answered)
    assert not [other for other in played.others if isinstance(other, events.GradeAnswer)]
    assert {trial.state for _, trial in played.disk.trials.values() if trial.key in first.keys} == {JUDGING}


def test_trials_that_a_killed_start_sent_before_there_was_a_cap_are_charged_at_their_worst() -> None:
    capped, in_flight = Played(setting(budget=Budget(tokens=1000))), opened(setting()).machine.in_flight_without_rows
    written = records_of(capped.machine.handle(events.Opened(in_flight=in_flight)))
    charge = next(record for record in written if isinstance(record, Charge))
    assert charge.cost == Cost(10).times(in_flight[charge.model]) and not charge.estimated


def test_trials_that_a_killed_start_sent_to_a_removed_model_are_charged_at_its_mean_under_a_cap() -> None:
    played = opened(setting())
    request = played.sent.pop()
    played.do(*played.answer(request))
    removed, others = request.model, tuple(model for model in range(3) if model != request.model)
    capped = setting(budget=Budget(tokens=10_000))
    bench = Bench(2, 3, np.array([0.0, 1.0]), worst_cost=(Cost(10),) * 2)
    machine = Machine(replace(capped, plan=replace(capped.plan, bench=bench), roster=others))
    for rows in played.disk.log():
        machine.handle(events.Replayed(rows))
    written = records_of(machine.handle(events.Opened(in_flight={removed: 3})))
    (charge,) = [record for record in written if isinstance(record, Charge)]
    assert charge == Charge(ChargeKind.KILLED, "answer", removed, 3, Cost(30))


def test_a_model_whose_answers_come_with_grades_is_asked_little_until_each_benchmark_has_a_grade() -> None:
    played = opened(replace(setting(trials=Trials(min=8, max=8)), own_grades=frozenset({0}), benchmarks=(0, 1, 1)))
    questions = Counter(request.question for request in played.sent if request.model == 0)
    assert questions[0] == FIRST_IN_FLIGHT and questions[1] + questions[2] == FIRST_IN_FLIGHT
    assert questions[1] and questions[2], "different ones"
    assert {request.model for request in played.sent[2 * FIRST_IN_FLIGHT :]} == {1, 2}, "others are asked all at once"
    played.do(*played.answer(next(request for request in played.sent if request[1:3] == (0, 0))))
    questions = Counter(request.question for request in played.sent if request.model == 0)
    assert questions[0] == 8 and questions[1] + questions[2] == FIRST_IN_FLIGHT


@pytest.mark.parametrize("benchmarks", [(), (0, 1, 1)], ids=["one", "two"])
def test_a_grader_that_fails_on_all_first_answers_to_a_benchmark_ends_the_run(benchmarks: tuple[int, ...]) -> None:
    """Whatever it says of answers to another."""
    played = opened(replace(setting(trials=Trials(min=8, max=8)), benchmarks=benchmarks))
    for event in chain.from_iterable(map(played.answer, [*played.sent])):
        if isinstance(event, events.Graded) and (not benchmarks or benchmarks[event.key[1]] == 1):
            event = event._replace(category=None, details=GradeDetails(error="is away"), has_failed=True)
        played.do(event)
    (abort,) = [other for other in played.others if isinstance(other, events.Abort)]
    assert abort.kind is events.AbortKind.GRADER and {*abort.reasons.values()} == {"is away"}


def test_no_more_verdicts_are_asked_for_at_a_time_than_allowed() -> None:
    played = opened(replace(setting(), judged=frozenset(range(3)), verdicts_at_once=2))
    played.do(*(played.answer(request)[0] for request in played.sent))
    _, second = (action.trial.key for action in played.others if isinstance(action, events.JudgeAnswer))
    played.do(events.Graded(second, 1))
    assert sum(isinstance(action, events.JudgeAnswer) for action in played.others) == 3


def test_stored_answers_wait_in_their_order_for_room_under_the_caps() -> None:
    """A start that is killed takes the first with a reserve for those that a judge was asked about."""
    played = Played(replace(setting(budget=Budget(tokens=40)), judged=frozenset(range(3)), verdicts_at_once=2))
    stored = [Trial(0, 0, number, 0, JUDGING, verdict=Cost(7)) for number in range(4)]
    played.disk.write(*stored)
    reserves = [Cost(30), Cost(30), Cost(5), Cost(50)]
    played.machine.seq = played.disk.last
    played.do(events.Regrade([events.Ungraded(*row) for row in zip(range(1, 5), stored, reserves, strict=True)]))

    def reserved() -> list[int]:
        return [trial.verdict.tokens for _, trial in played.disk.ungraded()]

    assert reserved() == [30, 0, 0, 0], "the third does not overtake the second"
    played.do(events.Graded(stored[0].key, 1, cost=Cost(5)))
    assert reserved() == [30, 5, 0] and not played.machine.unpaid
    played.do(events.Graded(stored[2].key, 1, cost=Cost(5)), events.Graded(stored[1].key, 1, cost=Cost(20)))
    assert reserved() == [0] and played.machine.unpaid == [Cost(50)] and isinstance(played.others[-1], events.Finish)
    asked = [action.trial.key for action in played.others if isinstance(action, events.JudgeAnswer)]
    assert asked == [trial.key for trial in stored[:3]]


def test_stored_answers_are_graded_after_the_time_is_over_but_by_no_judge() -> None:
    played = Played(replace(setting(budget=Budget(wall_seconds=9.0)), judged=frozenset({1}), verdicts_at_once=1))
    stored = [Trial(0, question, 0, 0, JUDGING) for question in (0, 1, 2)]
    played.disk.write(*stored)
    played.machine.seq = played.disk.last
    rows = [events.Ungraded(seq, trial, NO_COST) for seq, trial in enumerate(stored, 1)]
    played.do(events.Tick(9.0, 0.0), events.Regrade(rows, is_late=True))
    assert played.machine.has_stopped_clock
    played.do(events.Graded(stored[0].key, 1))
    played.do(events.Graded(stored[2].key, 1))
    assert [trial.key for _, trial in played.disk.ungraded()] == [stored[1].key]
    assert isinstance(played.others[-1], events.Finish)
    assert not any(isinstance(action, events.JudgeAnswer) for action in played.others)


def test_the_time_may_be_over_while_a_verdict_is_being_written() -> None:
    played = Played(replace(setting(budget=Budget(wall_seconds=9.0)), judged=frozenset({0}), verdicts_at_once=2))
    stored = [Trial(0, 0, number, 0, JUDGING) for number in (0, 1)]
    played.disk.write(*stored)
    played.machine.seq = played.disk.last
    rows = [events.Ungraded(seq, trial, NO_COST) for seq, trial in enumerate(stored, 1)]
    played.do(events.Tick(1.0, 0.0), events.Regrade(rows))
    assert records_of(played.machine.handle(events.Graded(stored[0].key, 1)))
    (cancelled,) = (act for act in played.machine.handle(events.Tick(9.0, 0.0)) if isinstance(act, events.Cancel))
    assert stored[1].key in cancelled.gradings


def test_trials_without_rows_of_a_killed_start_are_charged_at_the_mean() -> None:
    played = opened(setting())
    request = played.sent.pop()
    rows = played.do(*played.answer(request))
    assert [record.key for _, record in rows if isinstance(record, Trial)] == request.keys, "only answers have rows"
    in_flight = played.machine.in_flight_without_rows
    assert sum(in_flight.values()) == len(played.sent)
    written = records_of(played.replayed().handle(events.Opened(in_flight=in_flight)))
    charges = {record.model: record for record in written if isinstance(record, Charge)}
    assert {model: charge.number for model, charge in charges.items()} == in_flight
    assert charges[request.model].cost == Cost(10).times(in_flight[request.model])
    assert all(charge.estimated and charge.kind is ChargeKind.KILLED for charge in charges.values())


@pytest.mark.parametrize(("wasted", "is_allowed"), [(180, True), (181, False)])
def test_a_lost_request_is_repeated_only_within_the_caps(wasted: int, is_allowed: bool) -> None:
    """The first round is reserved at 180 tokens, and the lost answer took some in vain."""
    played = opened(setting(budget=Budget(tokens=360)))
    first, *_ = played.sent
    played.do(events.Wasted(first.model, 1, Cost(wasted), first.id))
    played.do()
    assert [one for one in played.others if isinstance(one, events.Allow)] == [events.Allow(first.id, is_allowed)]


@pytest.mark.parametrize(("tokens", "first_requests"), [(300, 1), (100_000, 6)])
def test_a_model_gets_one_request_until_it_is_known_what_is_added_to_prompts(tokens: int, first_requests: int) -> None:
    """Far from the cap nobody waits. From then on that is reserved, for requests in flight and in later starts, too."""
    played = opened(setting(budget=Budget(tokens=tokens)))
    assert Counter(request.model for request in played.sent) == dict.fromkeys(range(3), first_requests)
    first = played.sent[0]
    received = events.Received(first.first, None, Cost(50), 1.0)
    rows = played.do(events.Answered(first.id, [received]), events.Graded(first.keys[0], 1))
    assert any(isinstance(record, Note) and record.kind == "noticed" for _, record in rows)
    in_flight = [trial for _, trial in played.disk.trials.values() if trial.state is RESERVED and trial.model == 0]
    assert in_flight and {trial.cost.tokens for trial in in_flight} == {60}
    played.setting = setting(budget=Budget(tokens=tokens + 200))  # what was in flight is charged
    again = Played(played.setting)
    again.machine, again.disk = played.replayed(), played.disk
    again.do(events.Opened())
    reserves = {(trial.model, trial.cost.tokens) for _, trial in again.disk.trials.values() if trial.state is RESERVED}
    assert reserves == {(0, 60), (1, 10), (2, 10)}


@pytest.mark.parametrize(("tokens", "answered", "at_once"), [(200, 9, 1), (100_000, 18, 18)])
def test_the_first_verdict_is_waited_for_unless_the_cap_is_far_away(tokens: int, answered: int, at_once: int) -> None:
    judged = replace(setting(budget=Budget(tokens=tokens)), judged=frozenset(range(3)), verdict=Cost(5))
    played, sent = Played(judged), 0
    played.do(events.Opened())
    while sent < len(played.sent):
        request = played.sent[sent]
        received = [events.Received(number, None, Cost(5), 1.0, reserve=Cost(5)) for number in request.numbers]
        played.do(events.Answered(request.id, received))
        sent += 1
    asked = [action.trial.key for action in played.others if isinstance(action, events.JudgeAnswer)]
    assert sent == answered and len(asked) == at_once
    played.do(events.Graded(asked[0], 1, cost=Cost(5)))
    assert sum(isinstance(action, events.JudgeAnswer) for action in played.others) == answered
