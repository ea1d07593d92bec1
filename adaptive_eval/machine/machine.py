"""The machine of a run: events in, actions out. Pure: no clock, no task, no file, no chance.

All that is known of trials that are not over stands in one table (`table`), and each sum in one account (`charges`).

A decision is a function of the plan and of the log, in the order of sequence numbers: the core is told of a row once it
is on disk (`logged_core`), also by a resume. What the machine intends (to send nothing more to a model, to count a
loss) holds at once. What follows from the log (looks, models that the core sets aside) is never decided twice: while
the log is replayed it is only compared with what the log has of it, and the difference is written at the end
(`derived`).

    Regrade     stored answers without a grade are graded first; such a machine replays nothing
    Replayed    the log, row by row;  StageBegun  the settings changed here
    Opened      the end of the log: from here on requests are sent
"""

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence

from adaptive_eval.core.controller import Controller
from adaptive_eval.core.types import NO_COST, Cause, Cost
from adaptive_eval.machine.alarms import Alarms, alarm_note
from adaptive_eval.machine.caps import Caps
from adaptive_eval.machine.charges import Account, Charge, ChargeKind, earlier_verdict, sum_costs
from adaptive_eval.machine.derived import DerivedRecords
from adaptive_eval.machine.events import (
    Abort,
    AbortKind,
    Action,
    Allow,
    Answered,
    Cancel,
    Capacity,
    Committed,
    Event,
    Failed,
    Finish,
    GradeAnswer,
    Graded,
    GradingCutOff,
    Hopeless,
    JudgeAnswer,
    MakeReport,
    Noted,
    Opened,
    Received,
    Regrade,
    Replayed,
    Send,
    Setting,
    StageBegun,
    Stop,
    Tick,
    Ungraded,
    Unservable,
    VerdictWasted,
    Wasted,
    Write,
)
from adaptive_eval.machine.first_grades import FirstGrades
from adaptive_eval.machine.follow_up import (
    EXCEEDED,
    MAY_HAVE_COST,
    PROMPT_EXCEEDED_TEXT,
    REFUSALS_SECONDS,
    VERDICT_EXCEEDED,
    FollowUp,
    RequestFailure,
    follow_up,
)
from adaptive_eval.machine.logged_core import LoggedCore
from adaptive_eval.machine.records import (
    FINISHED,
    PROMPT_EXCEEDED,
    SET_ASIDE,
    SETTLED,
    STOPPED,
    UNGRADED_ANSWER,
    Dropped,
    LookTaken,
    Note,
    Record,
    Row,
)
from adaptive_eval.machine.table import TrialTable
from adaptive_eval.machine.trial import (
    DONE,
    GRADING,
    HELD,
    JUDGING,
    LOST,
    QUEUED,
    RESERVED,
    RUNNING,
    UNGRADED,
    Key,
    Request,
    Trial,
)
from adaptive_eval.machine.usage import AnswerFault

EVERYTHING = 2**31
"""Trials that the core is asked for: all it wants, since how far it was asked must not matter."""


class Machine:
    """State of a run, and what follows from each event."""

    def __init__(
        self,
        setting: Setting,
        *,
        regraded_at: int = 0,
        repeats_count: bool = False,
        seq: int = 0,
        spent: Cost = NO_COST,
        has_grades: bool = False,
    ) -> None:
        """`regraded_at`: where the log says that all answers were graded anew and looks begin again; 0: nowhere;
        `repeats_count`: whether an import has counted repeated answers as samples.

        The other keywords are for a machine that grades stored answers and replays nothing: `seq`, the newest sequence
        number; `spent`, the account of the store, without what is reserved for verdicts that nobody was asked for;
        `has_grades`, whether the grader has graded an answer of this run."""
        self.account = Account()
        self.account.add_outside(spent)
        self.waited_before: Collection[int] = ()
        """Models of which all that was asked in earlier starts has come, if there were any."""
        self.alarms = Alarms(repeats_count=repeats_count)
        """Sums over the graded answers of each model."""
        self.table = TrialTable(self.account)
        self.trials, self.counts, self.busy = self.table.trials, self.table.counts, self.table.busy
        self.requests, self.in_flight = self.table.requests, self.table.in_flight
        self._failing: set[int] = set()
        """Requests in flight that were given up since all attempts fail: no answer of theirs is lost."""
        self.aside: dict[int, str] = {}
        """Models that are asked nothing more because of their servers, and why."""
        self.refused: dict[int, str] = {}
        """Models that have refused their first request, and why."""
        self.seq = seq
        """The newest sequence number."""
        self.unwritten = 0
        """Rows that are not on disk yet."""
        self.is_regrading = False
        """Whether it only grades stored answers."""
        self._is_late = False
        """Whether it does so after the time is over."""
        self.regraded = 0
        """Stored answers that were graded again."""
        self.failed_again = 0
        """Those of them that got no grade."""
        self.unpaid: list[Cost] = []
        """What is to be reserved for verdicts on stored answers that the caps do not cover."""
        self._to_regrade: deque[Ungraded] = deque()
        """Stored answers that wait, in their order, until verdicts on others leave room under the caps."""
        self._unsent: dict[Key, Request] = {}
        """Requests that are sent once the row of their last trial is on disk, by that trial."""
        self._permits: defaultdict[int, list[tuple[int | Key, int]]] = defaultdict(list)
        """Requests and verdicts that wait for a charge to be on disk, by its sequence number, each with its model."""
        self._queues: defaultdict[int, deque[Key]] = defaultdict(deque)
        self._paid: dict[Key, Cost] = {}
        """Cost of the answers that are being graded; the table still has what is reserved for them."""
        self._to_judge: deque[Key] = deque()
        self._judging: set[Key] = set()
        """Answers whose verdicts were asked for and are not on disk."""
        self._places: dict[Key, int] = {}
        """Sequence numbers at which rows stay that are graded again."""
        self._unclaimed: dict[Key, Trial] = {}
        """Rows of the log without an outcome: reserved, or awaiting a verdict."""
        self._unasked: set[Key] = set()
        """Claimed trials that the core has not asked for."""
        self.caps = Caps(self.account, self.table, self._judging)
        self._first_grades = FirstGrades(has_grades=has_grades)
        self.derived = DerivedRecords(self._write)
        self.ungraded: dict[int, tuple[str, str]] = {}
        """By model: the first answer of this start on which the grader has failed, and its error."""
        self._stop = 0
        """0: go on, 1: ask nothing more, 2: cancel what is in flight."""
        self._clock = (0.0, 0.0)
        self.is_out_of_time = False
        """Whether a cap on time is reached."""
        self._refused_at = 0.0
        self._is_aborted = False
        self.is_ended = False
        """Whether the end of this start was decided."""
        self._is_report_due = False
        """Whether a look was taken, or this start has begun or ended."""
        self._now = 0.0
        self._actions: list[Action] = []
        self.core = LoggedCore(
            setting,
            account=self.account,
            alarms=self.alarms,
            derived=self.derived,
            regraded_at=regraded_at,
            unasked=self._unasked,
            aside=self.aside,
            ungraded=self.ungraded,
        )
        self._use(setting)

    def _use(self, setting: Setting) -> None:
        plan = setting.plan
        self._opening = plan.opening
        self._first_grades.use(setting)
        self.caps.use(setting)
        self.slots = dict(setting.slots)

    @property
    def setting(self) -> Setting:
        """The settings of today."""
        return self.core.setting

    @property
    def controller(self) -> Controller:
        """The decision core."""
        return self.core.controller

    @property
    def position(self) -> Mapping[int, int]:
        """The core's position of each model."""
        return self.core.position

    @property
    def is_live(self) -> bool:
        """Whether the log was replayed, or is not to be."""
        return self.core.is_live

    def handle(self, event: Event, now: float = 0.0) -> list[Action]:
        """Take in an event; returns what is to be done, in order. `now`: seconds of any monotonic clock."""
        self._now = now
        actions: list[Action] = []
        self._actions = actions
        match event:
            case Answered():
                self._on_answered(event)
            case Graded():
                self._on_graded(event)
            case Committed(rows):
                self._on_committed(rows)
            case Wasted():
                self._on_wasted(event)
            case VerdictWasted():
                self._on_verdict_wasted(event)
            case Failed():
                self._on_failed(event)
            case GradingCutOff(key):
                self._on_grading_cut_off(key)
            case Capacity(model, slots):
                self.slots[model] = slots
                self._fill(model)
            case Unservable(model, reason, was_served):
                if was_served or self.caps.answered or self._is_finished:
                    self._set_aside(model, reason)
                else:
                    self._abort(AbortKind.UNSERVABLE, {model: reason})
            case Hopeless(model):
                self._on_hopeless(model)
            case Noted(note):
                self._write(note)
            case Tick(elapsed, held):
                self._on_tick(elapsed, held)
            case Stop(at_once):
                self._on_stop(at_once=at_once)
            case Replayed(rows):
                self._on_replayed(rows)
            case StageBegun():
                self._on_stage_begun(event)
            case Opened():
                self.waited_before = event.waited
                self._on_opened(event)
            case Regrade(answers, is_late):
                self._is_late = is_late
                self._on_regrade(answers)
        if self.refused and (now - self._refused_at >= REFUSALS_SECONDS or self.all_have_answered):
            self._abort(AbortKind.REFUSED, dict(self.refused))
        if self.is_live:
            self._finish_if_over()
        if self._is_report_due:
            self._is_report_due = False
            self._actions.append(MakeReport(self.is_ended))
        return actions

    # -- the log ---------------------------------------------------------------------------------------------------

    def _write(self, *records: Record) -> None:
        """Write records, all or none."""
        first = self.seq + 1
        self.seq += len(records)
        self.unwritten += len(records)
        self._actions.append(Write([*enumerate(records, first)]))

    def _on_committed(self, rows: Sequence[Row]) -> None:
        self.unwritten -= len(rows)
        if not self.is_regrading:
            self._tell_rows(rows)
            self._follow()
        for seq, record in rows:
            if type(record) is Trial:
                state = record.state
                if state is RESERVED:
                    if (request := self._unsent.pop(record.key, None)) is not None:
                        self._send_reserved(request)
                elif state is JUDGING:
                    held = self.trials.get(record.key)
                    if held is not None and held.verdict == record.verdict:  # else it waits for room under the caps
                        self._to_judge.append(record.key)
                else:
                    self._judging.discard(record.key)
                    self._places.pop(record.key, None)
                    if not self.is_regrading:
                        self.table.on_stored(record)
            for target, model in self._permits.pop(seq, ()) if self._permits else ():
                self._permit(target, model)
        self._regrade_more()
        self._judge_more()
        self._fill_all()

    def _on_replayed(self, rows: Sequence[Row]) -> None:
        """Enter rows of earlier starts into the account, and tell the core of them."""
        self.seq = max(self.seq, rows[-1][0]) if rows else self.seq
        for _, record in rows:
            if type(record) is Trial:
                self.account.enter(record)
                if record.category is not None:
                    self._first_grades.on_grade(record)
                elif record.state is not UNGRADED:
                    self._unclaimed[record.key] = record
            elif type(record) is Charge:
                self.account.charge(record)
            elif type(record) is LookTaken:
                self.derived.restore_look(record)
            elif type(record) is Note:
                if record.kind == SET_ASIDE and record.model is not None:
                    self.aside[record.model] = str(record.body.get("reason", ""))
                self.derived.restore_note(record)
        self._tell_rows(rows)

    def _tell_rows(self, rows: Iterable[Row]) -> None:
        """Tell the core of rows that are on disk, and note what follows."""
        has_looked = self.core.tell(rows)
        if self.is_live:
            self._stop_if_alarmed()
            if has_looked:
                self._is_report_due = True
                self._note_settled()

    def _stop_if_alarmed(self) -> None:
        """End this start by an alarm, once what is in flight has come."""
        if self.alarms.stopped is not None and not self._is_aborted:
            self._is_aborted = True
            self._stop = max(self._stop, 1)
            self._actions.append(Abort(AbortKind.ALARM, dict(self.alarms.stopped)))

    def _note_settled(self) -> None:
        if self.controller.finished is not None:
            return
        needed = self.controller.needed_models()
        for position, model in enumerate(self.setting.roster):
            never_asked = self.is_gone(model) or position in self.setting.plan.bench.recorded
            if not needed[position] and not never_asked:
                self.derived.write_once(Note(SETTLED, model, {} if self.setting.slots[model] else {"launched": True}))

    # -- a start ---------------------------------------------------------------------------------------------------

    def _on_stage_begun(self, event: StageBegun) -> None:
        """Go on under other settings from here."""
        self.aside.clear()
        self.core.begin_stage(event)
        self._use(event.setting)

    def _on_opened(self, event: Opened) -> None:
        """Go on from the end of the log: claim, or give up, what earlier starts had in flight."""
        self.core.is_live = self._is_report_due = True
        self.seq = max(self.seq, event.last)
        lost: defaultdict[int, list[Trial]] = defaultdict(list)
        is_unjudged = False
        for key, trial in self._unclaimed.items():
            if trial.state is JUDGING:
                is_unjudged = is_unjudged or trial.model in self.position
            elif key in event.claimed and trial.model in self.position:
                self._claim(trial)
            elif key not in event.kept:
                lost[trial.model].append(trial)
        self._unclaimed.clear()
        self.derived.write_owed(self.controller.first_look, is_explained=event.is_explained)
        for model, reason in event.unreachable.items():
            self._set_aside(model, reason)
        self._stop_if_alarmed()
        for model, trials in lost.items():
            for trial in trials:
                self.account.enter(trial, -1)
            charge = self._charge(ChargeKind.KILLED, model, [trial.cost for trial in trials])
            self._write(charge, *(Dropped(trial.key) for trial in trials))
        for model, number in event.in_flight.items():
            if number:
                self._write(self._charge_in_flight(model, number))
        if is_unjudged and not (self._stop or self.is_out_of_time):  # the caps do not pay for their verdicts
            self.controller.end_over_budget()
        self._note_settled()
        self._follow()
        self._fill_all()

    def _claim(self, trial: Trial) -> None:
        """Go on waiting for a trial of an earlier start."""
        request = self.table.new_request([trial])
        self.table.add(trial._replace(state=RUNNING))
        self._unasked.add(trial.key)
        self._actions.append(Send(request, claimed=True))

    def _on_regrade(self, answers: Sequence[Ungraded]) -> None:
        """Grade stored answers: what an earlier attempt has cost is charged, and their rows stay in their places."""
        self.core.is_live = self.is_regrading = True
        self._to_regrade.extend(answers)
        self._regrade_more()
        self._to_regrade = deque(map(self._put_off, self._to_regrade))
        self._judge_more()

    def _regrade_more(self) -> None:
        """Have stored answers graded as far as the caps allow now, none before one that stands earlier: of those with
        a reserve, a judge is asked about the first. Nothing is left to wait for once no verdict is."""
        while self._to_regrade and not (self._stop or self._is_aborted):
            answer = self._to_regrade[0]
            if self._is_too_late(answer.trial):
                self._put_off(self._to_regrade.popleft())
                continue
            is_paid = self.caps.are_set and answer.trial.question in self.setting.judged
            is_too_much = is_paid and not self.caps.cover(answer.reserve)
            if is_too_much and self.counts[JUDGING]:
                return
            self._to_regrade.popleft()
            if is_too_much:
                self.unpaid.append(answer.reserve)
                self._put_off(answer)
            else:
                self._regrade_answer(answer, answer.reserve if is_paid else NO_COST)

    def _regrade_answer(self, answer: Ungraded, reserve: Cost) -> None:
        trial = answer.trial
        self.table.add(trial)
        self._places[trial.key] = answer.seq
        after = trial._replace(state=JUDGING, verdict=reserve)
        self.account.add_outside(reserve)
        self.table.move(after, is_charged=True)
        if trial.verdict != NO_COST or reserve != NO_COST:
            self._write_at(answer.seq, after, earlier_verdict(trial, was_asked=answer.was_asked))
        else:
            self._to_judge.append(after.key)

    def _put_off(self, answer: Ungraded) -> Ungraded:
        """Remove the reserve of an earlier start for a verdict that has no room now."""
        trial = answer.trial._replace(verdict=NO_COST)
        if trial.state is not JUDGING or answer.trial.verdict == NO_COST:
            return answer
        self._write_at(answer.seq, trial, earlier_verdict(answer.trial, was_asked=answer.was_asked))
        return answer._replace(trial=trial)

    def _write_at(self, seq: int, trial: Trial, charge: Charge | None = None) -> None:
        """Write a row in its place, and a charge with it."""
        rows: list[Row] = [(seq, trial)]
        if charge is not None:
            self.seq += 1
            rows.append((self.seq, charge))
        self.unwritten += len(rows)
        self._actions.append(Write(rows))

    # -- trials ----------------------------------------------------------------------------------------------------

    def _drop(self, trials: Sequence[Trial], *first: Record) -> None:
        """Remove the rows of trials in flight: they are asked again, or lost for this start."""
        model = trials[0].model
        rows = [Dropped(trial.key) for trial in trials] if self._has_rows_in_flight(model) else []
        if first or rows:
            self._write(*first, *rows)
        is_wanted = self._is_wanted(model)
        for trial in trials:
            is_asked = trial.key not in self._unasked
            self._unasked.discard(trial.key)
            state = QUEUED if is_wanted and is_asked else LOST
            self.table.move(trial._replace(state=state, cost=NO_COST, verdict=NO_COST))
            if state is QUEUED:
                self._queues[trial.model].append(trial.key)

    def _is_wanted(self, model: int) -> bool:
        """Whether trials of a model may still be asked in this run."""
        return not self.is_gone(model) and self.controller.finished is None

    def _may_ask(self, model: int) -> bool:
        """Whether a request may be sent to a model now."""
        if self._stop or self.is_out_of_time or self._is_aborted or not self.is_live:
            return False
        return self._is_wanted(model) and not self.controller.is_paused(self.position[model])

    # -- requests --------------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Queue the trials that the core wants, and forget those of models that are gone."""
        controller, roster = self.controller, self.setting.roster
        for position, question, number, round_ in controller.ask(EVERYTHING):
            model = roster[position]
            key = model, question, number
            if key in self.trials:  # an earlier start has asked for it
                self._unasked.discard(key)
            elif self._is_wanted(model):
                self.table.move(Trial(model, question, number, round_))
                self._queues[model].append(key)
        if controller.finished is not None:
            for model in self._queues:
                self._forget_queue(model)
        else:
            for position in controller.set_aside:
                self._forget_queue(roster[position])

    def _forget_queue(self, model: int) -> None:
        for key in self._queues[model]:
            self.table.move(self.trials[key]._replace(state=LOST))
        self._queues[model].clear()

    def _fill_all(self) -> None:
        for model in self._queues:
            self._fill(model)

    def _fill(self, model: int) -> None:
        """Reserve and send as many requests of a model as its slots and the caps allow."""
        if not self._queues[model] or not self._may_ask(model):
            return
        waits = self._has_rows_in_flight(model)
        while self.in_flight[model] < self.slots.get(model, 0) and (trials := self._take_from_queue(model)):
            request = self.table.new_request(trials)
            for trial in trials:
                self.table.move(trial)
            if waits:
                self._write(*trials)
                self._unsent[trials[-1].key] = request
            else:
                self._actions.append(Send(request))

    def _has_rows_in_flight(self, model: int) -> bool:
        """Whether trials of a model are stored before they are sent: caps count them, or a later start claims them."""
        return self.caps.are_set or model in self.setting.remembers

    def _take_from_queue(self, model: int) -> list[Trial]:
        """Remove and return the next trials that fit into one request and the caps, as they are when it is sent."""
        queue, batch = self._queues[model], list[Trial]()
        max_trials = self.setting.samples.get(model, 1)
        if self._first_grades.are_awaited(model):
            max_trials = int(self._bring_forward(model))
        state, needed = RESERVED if self._has_rows_in_flight(model) else RUNNING, NO_COST
        while queue and len(batch) < max_trials:
            trial = self.trials[queue[0]]
            if batch and (not self._follows(batch[-1], trial) or len(batch) >= self._most_together(trial)):
                break
            trial = trial._replace(state=state, cost=self.caps.reserve(model), verdict=self.caps.verdict_reserve(trial))
            if self.caps.are_set and not self.caps.allow_request(model, needed := needed.plus(trial.total)):
                break
            batch.append(trial)
            queue.popleft()
        return batch

    def _bring_forward(self, model: int) -> bool:
        """Bring the trial that may be sent to a model without grades to the front of its queue, if there is one."""
        queue, trials = self._queues[model], self.trials
        queued = [trials[key] for key in queue]
        held = [trial for trial in trials.values() if trial.model == model and trial.state in HELD]
        if (first := self._first_grades.first_to_send(queued, held)) is None:
            return False
        queue.remove(first.key)
        queue.appendleft(first.key)
        return True

    def _most_together(self, trial: Trial) -> int:
        """The most trials to ask in one request. The first ones of a question take two or more, each with an even
        number: so a server that copies one answer for each of a request shows itself."""
        most, first = self.setting.samples[trial.model], int(self._opening[self.position[trial.model], trial.question])
        return min(most, max(first // 4 * 2, 1)) if trial.number < first else most

    def _follows(self, last: Trial, trial: Trial) -> bool:
        """Whether a trial can be asked in the same request as the one before it."""
        if (trial.question, trial.number, trial.round) != (last.question, last.number + 1, last.round):
            return False
        seed = self.setting.seed
        return seed(*trial.key) == seed(*last.key) + 1

    def _send_reserved(self, request: Request) -> None:
        """Send a request whose rows are on disk, unless it is no longer needed."""
        if self._may_ask(request.model):
            self._send(request)
        else:
            self._drop(self.table.open_trials(request.id))

    def _send(self, request: Request) -> None:
        for key in request.keys:
            self.table.move(self.trials[key]._replace(state=RUNNING))
        self._actions.append(Send(request))

    def _on_answered(self, event: Answered) -> None:
        request, open_trials = self.requests[event.request]
        model, question = request.model, request.question
        self.caps.answered.add(model)
        is_judged = question in self.setting.judged
        for received in event.answers:
            if received.number not in open_trials:
                raise RuntimeError(f"request {request} was answered twice for trial {received.number}")
            self._check_reserve(model, received)  # until it is graded, its reserve counts
            trial = self.trials[model, question, received.number]
            trial = trial._replace(
                state=GRADING, answer=received.answer, kinds=received.kinds, seconds=received.seconds
            )
            self.table.move(trial)
            self._paid[trial.key] = received.cost
            if is_judged:
                self._store_ungraded(trial.key, received.reserve if self.caps.are_set else NO_COST)
            elif self._has_cancelled:  # its grading would be waited for
                self._store_ungraded(trial.key, NO_COST)
            else:
                self._actions.append(GradeAnswer(trial))
        self._fill(model)

    def _store_ungraded(self, key: Key, reserve: Cost) -> None:
        """Store an answer whose grade comes later."""
        trial = self.trials[key]._replace(state=JUDGING, cost=self._paid.pop(key), verdict=reserve)
        self._write(trial)
        self.table.move(trial)

    def _check_reserve(self, model: int, received: Received) -> None:
        """Compare the cost of an answer with what caps reserve for it: if its prompt was longer, more is reserved for
        those in flight and the next ones; a model whose answer alone is longer is set aside."""
        worst, answer, account = self.caps.worst[model], received.answer, self.account.models[model]
        before = account.largest
        account.note_largest(received.cost)
        if not self.caps.are_set or worst.is_unbounded or not 0 < worst.tokens < received.cost.tokens:
            return
        if answer is not None and worst.tokens < answer.completion_tokens:
            self._set_aside(model, EXCEEDED.format(answer.completion_tokens, worst.tokens), Cause.EXCESS)
        elif before.tokens <= worst.tokens:
            text = PROMPT_EXCEEDED_TEXT.format(received.cost.tokens, worst.tokens)
            self._write(Note("noticed", model, {"notice": PROMPT_EXCEEDED, "text": text}))
        if account.largest is before:
            return
        if raised := self.table.raise_reserve(model, self.caps.reserve(model)):
            self._write(*(trial._replace(state=RESERVED) for trial in raised))

    def _on_failed(self, event: Failed) -> None:
        if event.request not in self.requests:
            return
        trials = self.table.open_trials(event.request)
        model, kind = trials[0].model, event.kind
        charges: list[Record] = []
        has_failed = event.request in self._failing
        self._failing.discard(event.request)
        if kind in MAY_HAVE_COST and not has_failed:
            why = ChargeKind.KILLED if kind is RequestFailure.GONE else ChargeKind.LOST
            charges.append(self._charge(why, model, [trial.cost for trial in trials]))
        paused = model in self.position and self.controller.is_paused(self.position[model])
        then = follow_up(kind, has_answered=model in self.caps.answered, is_paused=paused or self._stop > 0)
        if then is FollowUp.END_RUN:
            self._refused_at = self._refused_at if self.refused else self._now
            self.refused.setdefault(model, event.reason)
            self._forget_queue(model)
        elif then is FollowUp.SET_ASIDE:
            if kind is RequestFailure.COPIED:
                self.derived.write_once(alarm_note(model, AnswerFault.REPEATED, event.reason, since={}))
            self._set_aside(model, event.reason)
        self._drop(trials, *charges)
        self._fill(model)

    def _on_wasted(self, event: Wasted) -> None:
        """Charge answers that came to nothing; a request that is to be repeated waits until that is on disk."""
        model, answers, cost, request = event
        if cost is not None:
            charge = Charge(ChargeKind.WASTED, "answer", model, answers, cost)
            self.account.charge(charge)
            self._write(charge)
        elif answers:
            self._write(self._charge(ChargeKind.LOST, model, [self.caps.reserve(model)] * answers))
        if request is not None and self.unwritten:
            self._permits[self.seq].append((request, model))
        elif request is not None:
            self._permit(request, model)

    def _charge(self, kind: ChargeKind, model: int, reserved: Sequence[Cost]) -> Charge:
        """Charge answers at what was reserved for them, or at the mean cost of answers if no cap counts them."""
        costs = reserved if self.caps.are_set else [self.account.mean_cost(model)] * len(reserved)
        return self._new_charge(kind, model, len(reserved), sum_costs(costs))

    def _charge_in_flight(self, model: int, number: int) -> Charge:
        """Charge trials without a row that a killed start had in flight; a model that was removed has no reserve."""
        is_reserved = self.caps.are_set and model in self.caps.worst
        each = self.caps.reserve(model) if is_reserved else self.account.mean_cost(model)
        return self._new_charge(ChargeKind.KILLED, model, number, each.times(number))

    def _new_charge(self, kind: ChargeKind, model: int, number: int, cost: Cost) -> Charge:
        charge = Charge(kind, "answer", model, number, cost, estimated=not self.caps.are_set)
        self.account.charge(charge)
        return charge

    def _permit(self, target: int | Key, model: int) -> None:
        """Decide whether a lost request or verdict may be repeated, now that its charge is on disk."""
        within = not self.caps.are_set or self.caps.cover(NO_COST)
        is_unneeded = isinstance(target, int) and not self._is_wanted(model)
        self._actions.append(Allow(target, within and not (self._is_finished or is_unneeded)))

    def _set_aside(self, model: int, reason: str, cause: Cause = Cause.SERVER) -> None:
        """Stop asking a model; the core is updated when that is on disk."""
        if model not in self.aside and model in self.position:
            self.aside[model] = reason
            self._write(Note(SET_ASIDE, model, {"reason": reason, "cause": cause.value}))
            self._forget_queue(model)

    # -- grades ----------------------------------------------------------------------------------------------------

    def _judge_more(self) -> None:
        """Have stored answers graded, in the order in which they came, as many at a time as the grader takes."""
        if self._stop or self._is_aborted:
            return
        while self._to_judge and len(self._judging) < self.setting.verdicts_at_once:
            key = self._to_judge[0]
            trial = self.trials.get(key)
            if trial is not None and trial.state is JUDGING and not (key in self._judging or self._is_too_late(trial)):
                needs_judge = trial.question in self.setting.judged
                if needs_judge and not self.caps.allow_verdict(trial):
                    return
                self._judging.add(key)
                self._actions.append(JudgeAnswer(trial) if needs_judge else GradeAnswer(trial))
            self._to_judge.popleft()

    def _is_too_late(self, trial: Trial) -> bool:
        """Whether the time is over for the grade of an answer. A start after that still grades stored answers that no
        judge grades: it takes nothing that is counted."""
        return self.is_out_of_time and not (self._is_late and trial.question not in self.setting.judged)

    def _on_graded(self, event: Graded) -> None:
        key, category = event.key, event.category
        trial = self.trials[key]
        reserve = trial.verdict
        self.caps.has_verdict = self.caps.has_verdict or event.cost != NO_COST
        after = trial._replace(
            state=UNGRADED if category is None else DONE,
            cost=self._paid.pop(key, trial.cost),
            verdict=event.cost,
            category=category,
            grade=event.details,
        )
        self.regraded += self.is_regrading
        self.failed_again += self.is_regrading and category is None
        if key in self._places:
            self._write_at(self._places[key], after)
        else:
            self._write(after)
        self.table.move(after)
        if event.details.error is not None and trial.model not in self.ungraded:
            question = self.setting.questions[trial.question] if self.setting.questions else str(trial.question)
            self.ungraded[trial.model] = question, event.details.error
            self._write(Note(UNGRADED_ANSWER, trial.model, {"question": question, "error": event.details.error}))
        self._watch_grader(event, trial)
        if (
            trial.state is JUDGING
            and self.caps.are_set
            and 0 < reserve.tokens < event.cost.tokens - self.setting.vote.tokens
        ):
            reason = VERDICT_EXCEEDED.format(event.cost.tokens, reserve.tokens)
            self._abort(AbortKind.VERDICT_COST, {trial.model: reason})

    def _watch_grader(self, event: Graded, trial: Trial) -> None:
        """End the run if the grader has failed on the first answers, and has graded none."""
        if event.category is not None:
            self._first_grades.on_grade(trial)
        elif event.has_failed and self._first_grades.has_failed_on_all(trial) and not self._is_finished:
            is_judged = trial.question in self.setting.judged
            kind = AbortKind.GRADER_SERVER if is_judged else AbortKind.GRADER
            self._abort(kind, {trial.model: event.details.error or ""})

    def _on_grading_cut_off(self, key: Key) -> None:
        self._judging.discard(key)
        self._places.pop(key, None)
        if (trial := self.trials.get(key)) is not None and trial.state is GRADING:
            self._store_ungraded(key, NO_COST)

    def _on_verdict_wasted(self, event: VerdictWasted) -> None:
        model = event.key[0]
        charge = Charge(ChargeKind.LOST, "verdict", model, 1, event.cost, estimated=not self.caps.are_set)
        self.account.charge(charge)
        self._write(charge)
        self._permits[self.seq].append((event.key, model))

    # -- the end ---------------------------------------------------------------------------------------------------

    @property
    def _is_finished(self) -> bool:
        return self.controller.finished is not None

    @property
    def _is_cutting_off(self) -> bool:
        return self._stop == 2 or self.is_out_of_time or self._is_aborted

    @property
    def _has_cancelled(self) -> bool:
        """Whether all that was in flight is cancelled: what is asked when an alarm ends the run is waited for."""
        is_waiting = self.alarms.stopped is not None and not self.is_out_of_time and self._stop < 2
        return self._is_cutting_off and not is_waiting

    @property
    def all_have_answered(self) -> bool:
        """Whether every model that is asked anything has answered in this start, or has refused its first request."""
        asked = {model for model in self.setting.roster if self.busy[model] or self._queues[model]}
        return asked <= self.caps.answered | self.refused.keys()

    def _on_stop(self, *, at_once: bool) -> None:
        self._stop = 2 if at_once or self._stop else 1
        if self._stop == 2:
            self._cancel_all()

    def _cancel_all(self) -> None:
        """Cancel what is in flight, but for requests that outlive this process: the next start claims them."""
        stays = () if self._is_finished else self.setting.remembers
        unsent = {request.id for request in self._unsent.values()}
        requests = [
            number
            for number, (request, _) in self.requests.items()
            if request.model not in stays and number not in unsent
        ]
        gradings = [key for key, trial in self.trials.items() if trial.state is GRADING]
        self._actions.append(Cancel(requests, [*gradings, *self._judging]))

    def _on_hopeless(self, model: int) -> None:
        """Give up requests that only fail, at the end of a run."""
        if self._stop or (self._is_finished and not self.caps.are_set):  # under caps, only a failure has cost nothing
            numbers = [number for number, (request, _) in self.requests.items() if request.model == model]
            if not self.caps.are_set:
                self._failing.update(numbers)
            self._actions.append(Cancel(numbers))

    def _on_tick(self, elapsed: float, held: float) -> None:
        self._clock = elapsed, held
        budget = self.setting.plan.budget
        wall, gpu = budget.wall_seconds, budget.held_gpu_seconds
        is_over = (wall is not None and elapsed >= wall) or (gpu is not None and held >= gpu)
        if is_over and not self.is_out_of_time:
            self.is_out_of_time = True
            self._cancel_all()

    def _abort(self, kind: AbortKind, reasons: dict[int, str]) -> None:
        if not self._is_aborted:
            self._is_aborted = True
            self._actions.append(Abort(kind, reasons))
            self._cancel_all()

    @property
    def has_stopped_clock(self) -> bool:
        """Whether time is no longer counted: this start has ended, or grades stored answers though the time is over."""
        return self.is_ended or self._is_late

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is in flight, being graded or being written that this start waits for."""
        if self.unwritten or self._unsent or self.counts[GRADING]:
            return False
        ends = self._stop or self._is_cutting_off
        stays = self.setting.remembers if ends and not self._is_finished else ()
        if any(number and model not in stays for model, number in self.in_flight.items()):
            return False
        return not (self._judging if ends else self.counts[JUDGING])

    def _finish_if_over(self) -> None:
        """End this start if nothing is left to wait for."""
        if self.is_ended:
            if not self.unwritten:
                self._actions.append(Finish(self.controller.finished))
            return
        if not self.is_quiet or self._is_aborted:
            return
        if self.is_regrading:
            self._actions.append(Finish(None))
            return
        if not (self._stop or self.is_out_of_time or self._is_finished):
            if self._is_waiting:
                return
            self.controller.end_over_budget()  # nothing is in flight, and no trial fits
            self._follow()
        if self.is_out_of_time:
            self.controller.tick(*self._clock)
            self._tell_rows(())  # a last search may have found repeated answers
            self._follow()
            if self._is_aborted:
                return
            if self._is_finished and not self.is_quiet:  # what outlives this process is not waited for
                self._cancel_all()
                return
        self.is_ended = self._is_report_due = True
        waited = self.count_overrun()
        reason = self.controller.finished
        body = {"waited_for": waited} if waited else {}
        if reason is None:
            self._write(Note(STOPPED, None, body))
            return
        short = {"short_caps": dict(caps)} if (caps := self.controller.short_caps) else {}
        self._write(Note(FINISHED, None, {"reason": reason.value, **body, **short}))

    def count_overrun(self) -> list[int]:
        """Count what was asked ahead of looks once the run is finished; returns the models of which all has come, now
        and in earlier starts."""
        if not self.setting.plan.pace.dedicated_servers:
            return []
        pending = {key[0] for key, trial in self.trials.items() if trial.state is not QUEUED} | self.table.unanswered
        waited = [model for model in self.setting.roster if model not in pending and model in self.waited_before]
        self.controller.count_overrun(self.position[model] for model in waited)
        return waited

    @property
    def _is_waiting(self) -> bool:
        """Whether a model waits for a server; raises `RuntimeError` if nothing waits for anything."""
        waiting = [model for model, queue in self._queues.items() if queue and self._may_ask(model)]
        if not waiting:
            raise RuntimeError("the decision core is neither finished nor asks for trials")
        return all(self.slots.get(model, 0) == 0 for model in waiting)

    # -- what supplies go by ---------------------------------------------------------------------------------------

    def waiting(self, model: int) -> int:
        """Trials of a model that could be sent if it had free slots."""
        return len(self._queues[model]) if self._may_ask(model) else 0

    @property
    def in_flight_without_rows(self) -> dict[int, int]:
        """By model: trials in flight of which nothing is stored before their answers."""
        return {
            model: number for model, number in self.table.held.items() if number and not self._has_rows_in_flight(model)
        }

    def is_owed(self, model: int) -> bool:
        """Whether this model has trials whose outcomes are not on disk, asked or queued. False once the run stops."""
        return not self._stop and self._is_wanted(model) and bool(self.busy[model] or self._queues[model])

    def is_gone(self, model: int) -> bool:
        """Whether this model is asked nothing more because of itself or its servers."""
        return model in self.aside or model in self.refused or self.position.get(model) in self.controller.set_aside

    @property
    def is_ending(self) -> bool:
        """Whether nothing more is asked."""
        return self._stop > 0 or self._is_finished or self._is_cutting_off

    def is_settled(self, model: int) -> bool:
        """Whether this model has nothing in flight, and nothing can want it again under the settings of today."""
        is_done = self.derived.has(Note(SETTLED, model)) or self.is_gone(model)
        return is_done and not self.in_flight[model]

    def is_parked(self, model: int) -> bool:
        """Whether nothing is asked of this model until trials of others want it again."""
        is_paused = model in self.position and self.controller.is_paused(self.position[model])
        return is_paused and not self.busy[model] and not self._is_finished
