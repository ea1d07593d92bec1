"""The beginning of a start, before it sends requests: it grades answers without a grade, and replays the log.

The past is rewritten only here, and before the log is replayed, so that this start and all later ones read the same:

    1. the note that a start has begun
    2. requests without an answer, of models that were set aside for that, are forgotten, to be asked again, unless a
       comparison of the model is decided, which this could undo, or no server of it can be reached
    3. stored answers without a grade are graded, in their places
    4. the log is replayed, stage by stage
    5. what earlier starts had in flight is claimed by its supply, or charged (`Opened`)
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from adaptive_eval.core.answer_kinds import AnswerKind
from adaptive_eval.core.rounds import enough_answers
from adaptive_eval.core.types import NO_COST, Cause, Cost, Reason, Verdict
from adaptive_eval.machine.alarms import StopOn
from adaptive_eval.machine.charges import Account, Charge, ChargeKind, is_verdict_reserved, sum_costs
from adaptive_eval.machine.events import Abort, AbortKind, Event, Opened, Regrade, Setting, Ungraded
from adaptive_eval.machine.machine import Machine
from adaptive_eval.machine.records import (
    ALARM,
    ASKED_AGAIN,
    BEGUN,
    CORE_SET_ASIDE,
    DISCARDED,
    REGRADED,
    REGRADING,
    RESUMED,
    SET_ASIDE,
    STARTED,
    STOPPED,
    Dropped,
    Note,
    Record,
)
from adaptive_eval.machine.replay import Stage, has_counted_repeats, replay_steps
from adaptive_eval.machine.trial import Key, Trial
from adaptive_eval.machine.usage import AnswerFault
from adaptive_eval.notes.answers import standing_alarms
from adaptive_eval.running.driver import Aborted, Driver
from adaptive_eval.store.read import LogReader

RETAKES_LOOKS = frozenset({SET_ASIDE, CORE_SET_ASIDE, REGRADED, DISCARDED})
"""Kinds of notes that say why looks are taken again."""
END_OF_LOG = 2**62
AT_A_TIME = 256
"""Answers that are graded again at once: a bound for the memory that their texts take."""


ReserveOf = Callable[[Trial], Cost]
"""The most that the grade of a stored answer may cost."""


async def begin(
    driver: Driver,
    stages: Sequence[Stage],
    reserve_of: ReserveOf = lambda trial: NO_COST,
    *,
    about: Mapping[str, Any] | None = None,
    waited: Collection[int] = (),
    kept: Collection[Key] = (),
    ask_again: bool = False,
) -> tuple[Machine | None, list[Event]]:
    """Bring a run to where it can go on; returns its machine, and the first events for it. The machine is None if
    the run is to stop at once before the whole log is replayed.

    `about`: what the note of the start says; `waited`: models of which all that was asked in earlier starts has come;
    `kept`: trials in flight that are neither claimed nor charged now; `ask_again`: discard answers that repeat, or
    since alarms about changes of servers, and ask models again of which not every comparison is decided.
    """
    store, reader = driver.store, driver.store.reader
    setting, verdicts = stages[-1].setting, verdicts_asked(reader)
    kind = RESUMED if store.is_resumed else STARTED
    about = {**(about or {}), **({"judged_at_once": setting.verdicts_at_once} if setting.judged else {})}
    driver.append(Note(kind, None, about))
    if ask_again and (discarded := [*_since_alarms(reader, setting)]):
        driver.append(*discarded)
    machine, replayed = None, -1
    if aside := models_without_answers(reader, setting.roster):
        machine, replayed = await _replay(driver, stages), store.last_seq
        if machine is not None:
            aside -= _decided_models(machine, fully=ask_again)
            aside -= (await driver.unreachable([*aside])).keys()
            if not driver.stops and (forgotten := [*_unanswered(reader, aside, store.last_seq)]):
                driver.append(*forgotten)
    await _regrade(driver, setting, reserve_of, verdicts)
    if store.last_seq != replayed:
        machine = await _replay(driver, stages)
    if machine is None:
        driver.append(Note(STOPPED))
        return None, []
    is_explained = any(note.kind in RETAKES_LOOKS for _, note in reader.notes())
    unreachable = await _unreachable_models(driver, machine)
    opened = Opened(
        driver.claims(reader.reserved()),
        kept=kept,
        last=store.last_seq,
        is_explained=is_explained,
        unreachable=unreachable,
        waited=waited,
        in_flight=reader.in_flight(),
    )
    return machine, [driver.tick(machine), opened]


async def _replay(driver: Driver, stages: Sequence[Stage]) -> Machine | None:
    """The machine at the end of the log; None if the run is to stop at once meanwhile."""
    reader = driver.store.reader
    steps = replay_steps(
        lambda in_commits: reader.log(in_whole_commits=in_commits), stages, reader.notes(), reader.known_answers
    )
    while driver.stops < 2:
        try:
            next(steps)
        except StopIteration as end:
            machine: Machine = end.value
            return machine
        await asyncio.sleep(0)  # an interrupt is heard
    return None


async def _unreachable_models(driver: Driver, machine: Machine) -> Mapping[int, str]:
    """Models with answers of earlier starts of which no server can be reached now: the run goes on without them.

    Raises `Aborted` if such a model has no answer yet: what others answer could be for nothing.
    """
    if driver.stops or machine.controller.finished is not None:
        return {}
    models = [model for model in machine.setting.roster if not machine.is_gone(model) and not machine.is_settled(model)]
    troubles = await driver.unreachable(models)
    if new := {model: why for model, why in troubles.items() if not machine.account.models[model].answers}:
        raise Aborted(Abort(AbortKind.REFUSED, new))
    return troubles


def alarms_without_discard(notes: Sequence[Note], stop_on: StopOn) -> list[Note]:
    """The latest alarm of each model about a changed server, or answers that repeat, if none were discarded since.

    Repeats that count as samples, by `stop_on` or an import, are left out."""
    needed = {ALARM: "since", DISCARDED: "discarded"}
    changes = [note for note in notes if note.kind in needed and note.body.get(needed[note.kind]) is not None]
    if stop_on == "never" or has_counted_repeats(notes):
        changes = [note for note in changes if note.body.get("fault") != AnswerFault.REPEATED]
    return [*standing_alarms((note.model, note if note.kind == ALARM else None) for note in changes).values()]


def _since_alarms(reader: LogReader, setting: Setting) -> Iterator[Record]:
    """Records that discard the answers that alarms are about; what they have cost stays charged."""
    for alarm in alarms_without_discard([note for _, note in reader.notes()], setting.alarms.stop_on):
        if (model := alarm.model) is None or model not in setting.roster:
            continue
        since = [int(alarm.body["since"].get(key, 0)) for key in setting.questions]
        answers = reader.known_answers({model}, END_OF_LOG)
        costs = {trial.key: trial.total for trial in answers if trial.number >= since[trial.question]}
        yield from map(Dropped, costs)
        yield Charge(ChargeKind.DISCARDED, "answer", model, len(costs), sum_costs(costs.values()))
        yield Note(DISCARDED, model, {"answers": len(costs), "discarded": True})


def _decided_models(machine: Machine, *, fully: bool) -> set[int]:
    """Models with a decided comparison at the newest look: asking again could undo it; `fully`: only those of which
    each is decided."""
    controller, roster = machine.controller, machine.setting.roster
    look = controller.latest_look()
    if look is None or controller.finished is Reason.SETTLED:
        return set() if look is None else {*roster}
    decided, others = set[int](), set[int]()
    for pair in look.comparisons:
        models = {roster[position] for position in (pair.first, pair.second) if position is not None}
        (decided if pair.verdict in (Verdict.RESOLVED, Verdict.TIED) else others).update(models)
    return decided - others if fully else decided


def models_without_answers(reader: LogReader, roster: Collection[int]) -> set[int]:
    """Models of the roster that were set aside, with requests that were not answered."""
    notes = (note for _, note in reader.notes() if note.kind in (SET_ASIDE, CORE_SET_ASIDE))
    aside = {note.model for note in notes if note.model is not None and note.body.get("cause") != Cause.ANSWERS}
    aside.intersection_update(roster)
    missing = AnswerKind.UNANSWERED | AnswerKind.TIMED_OUT
    answers = reader.known_answers(aside, END_OF_LOG) if aside else ()
    return {trial.model for trial in answers if trial.kinds & missing}


def _unanswered(reader: LogReader, aside: Collection[int], last: int) -> Iterator[Record]:
    """Records that forget the requests which these models did not answer: time-outs of rounds with too few answers, and
    requests that fail every time. What they have cost stays charged."""
    rounds: defaultdict[tuple[int, int], list[Trial]] = defaultdict(list)
    for trial in reader.known_answers(aside, last + 1) if aside else ():
        rounds[trial.model, trial.round].append(trial)
    asked_again = Counter[int]()
    for (model, _), trials in rounds.items():
        late = [trial for trial in trials if trial.kinds & AnswerKind.TIMED_OUT]
        missing = [trial for trial in trials if trial.kinds & AnswerKind.UNANSWERED]
        missing += [] if enough_answers(len(late), len(trials)) else late
        yield from (Dropped(trial.key) for trial in missing)
        cost = sum_costs(trial.total for trial in missing)
        if cost != NO_COST:
            yield Charge(ChargeKind.UNANSWERED, "answer", model, len(missing), cost)
        asked_again[model] += len(missing)
    for model, number in asked_again.items():
        if number:
            text = f"{number} of its requests had no answer when it was set aside, and were asked again"
            yield Note("noticed", model, {"notice": ASKED_AGAIN, "text": text})


async def _regrade(driver: Driver, setting: Setting, reserve_of: ReserveOf, asked: int) -> None:
    """Grade stored answers that have no grade, a part at a time; earlier starts may have asked for the verdicts on the
    first `asked`."""
    store, reader, roster = driver.store, driver.store.reader, frozenset(setting.roster)
    waiting = (row for row in reader.ungraded() if row[1].model in roster)
    ungraded = dict[int, tuple[str, str]]()
    total, graded, failed, is_late = reader.ungraded_count(roster), 0, 0, False
    if total:
        clock = Machine(setting)
        clock.handle(driver.tick(clock))
        is_late = clock.is_out_of_time
        late = {"late": True} if is_late and setting.judged else {}
        driver.observer.on_note(Note(REGRADING, None, {"trials": total, **late}))
    spent, unpaid = (_spent(reader, roster, asked) if total else NO_COST), NO_COST
    while not driver.stops and (rows := list(islice(waiting, AT_A_TIME))):
        answers = []
        for seq, trial in rows:
            reserve = NO_COST if trial.kinds & AnswerKind.UNANSWERED else reserve_of(trial)
            answers.append(Ungraded(seq, trial, reserve, was_asked=asked > 0))
            asked -= is_verdict_reserved(trial)
        machine = Machine(setting, seq=store.last_seq, spent=spent, has_grades=reader.has_grades())
        machine.ungraded = ungraded
        await driver.run(machine, [driver.tick(machine), Regrade(answers, is_late)])
        spent = machine.account.total
        unpaid = sum_costs([unpaid, *machine.unpaid])
        if machine.regraded or machine.unpaid:
            graded += machine.regraded
            failed += machine.failed_again
            short = {} if unpaid == NO_COST else {"short_caps": machine.caps.short_of(unpaid)}
            body = {"trials": machine.regraded, "so_far": graded, "of": total, "failed": failed, **short}
            driver.append(Note(REGRADED, None, body))


def _spent(reader: LogReader, models: Collection[int], asked: int) -> Cost:
    """Spending that caps count, without reserves of these models for verdicts that nobody was asked for: earlier starts
    may have asked for the first `asked`."""
    answers, account = reader.known_answers(models, END_OF_LOG), Account()
    account.add_outside(reader.spent())
    for trial in islice((trial for trial in answers if is_verdict_reserved(trial)), asked, None):
        account.add_outside(trial.verdict.times(-1))
    return account.total


def verdicts_asked(reader: LogReader) -> int:
    """How many of the first answers without a verdict the starts so far may have asked a judge about."""
    begun = (note for _, note in reader.notes() if note.kind in BEGUN)
    return max((int(note.body.get("judged_at_once", 0)) for note in begun), default=0)
