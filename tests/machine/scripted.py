"""Whole lives of a run with the real machine, in a scripted world: no event loop, no socket, no file.

`Disk` is what is stored: the newest row of each thing. `World` is all that outlives a process: servers, a batch
service, a judge. `Start` is one start of the run: what happens next, where commits are cut, and where it is killed, is
drawn.
"""

import random
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

import numpy as np
from fakes import describe_look, uniform

from adaptive_eval.core import Bench, Budget, Pace, Plan, Trials
from adaptive_eval.core.optimal import Optimal
from adaptive_eval.core.rules import ZScore
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.machine import events
from adaptive_eval.machine.alarms import AlarmSettings
from adaptive_eval.machine.charges import Charge
from adaptive_eval.machine.facts import facts_of
from adaptive_eval.machine.follow_up import RequestFailure
from adaptive_eval.machine.machine import Machine
from adaptive_eval.machine.records import (
    RESUMED,
    SETTINGS,
    Dropped,
    Json,
    LooksForgotten,
    LookTaken,
    Note,
    Record,
    Row,
    SettingsEnd,
)
from adaptive_eval.machine.repeats import Sampled
from adaptive_eval.machine.replay import Stage, replay
from adaptive_eval.machine.trial import DONE, GRADING, JUDGING, RESERVED, RUNNING, UNGRADED, GradeDetails, Key, Trial

LONGEST, VERDICT, VOTE = 25, 6, 3
"""The most tokens of an answer, of a verdict, and of a reply of the judge."""
AMPLE = 10**9
AT_ONCE = 2
"""Answers that the judge is given at a time."""


class Killed(BaseException):
    """The process is dead."""


# -- what is stored ----------------------------------------------------------------------------------------------------


@dataclass
class Disk:
    """Stored rows as the store keeps them: the newest row of each trial and look."""

    trials: dict[Key, tuple[int, Trial]] = field(default_factory=dict)
    charges: list[tuple[int, Charge]] = field(default_factory=list)
    notes: list[tuple[int, Note]] = field(default_factory=list)
    looks: dict[int, tuple[int, int, Json]] = field(default_factory=dict)
    """By number: sequence number, configuration, body."""
    at: dict[int, int] = field(default_factory=dict)
    """The commit of each sequence number."""
    commits: int = 0
    configuration: int = 0
    in_flight: dict[int, int] = field(default_factory=dict)
    """By model: trials in flight that have no row."""
    forgotten: int = 0
    """How often looks were replaced by others."""
    _sums: tuple[int, int] | None = None

    def commit(self, rows: Iterable[Row]) -> None:
        self.commits += 1
        self._sums = None
        for seq, record in rows:
            in_place = isinstance(record, Trial) and self.trials.get(record.key, (0,))[0] == seq
            assert in_place or seq > self.last, "a sequence number was used before"
            self.at.setdefault(seq, self.commits)
            match record:
                case Trial():
                    self.trials[record.key] = seq, record._replace(answer=None, facts=facts_of(record))
                case Dropped(key):
                    self.trials.pop(key, None)
                case Charge():
                    self.charges.append((seq, record))
                case Note():
                    self.notes.append((seq, record))
                    if record.kind == SETTINGS:
                        self.configuration = record.body["configuration"]
                case LookTaken(number, body):
                    self.looks[number] = seq, self.configuration, body
                case LooksForgotten(number):
                    self.forgotten += 1
                    self.looks = {at: look for at, look in self.looks.items() if at < number}

    def write(self, *records: Record) -> None:
        self.commit([*enumerate(records, self.last + 1)])

    @property
    def last(self) -> int:
        return next(reversed(self.at), 0)

    def log(self, block_size: int | None = None) -> Iterator[list[Row]]:
        """The log commit by commit, or in blocks of a size."""
        looks = [(seq, LookTaken(number, body)) for number, (seq, _, body) in self.looks.items()]
        rows: list[Row] = [*self.trials.values(), *self.charges, *self.notes, *looks]
        rows.sort(key=itemgetter(0))
        if block_size is None:
            for _, commit in groupby(rows, key=lambda row: self.at[row[0]]):
                yield list(commit)
        else:
            for start in range(0, len(rows), block_size):
                yield rows[start : start + block_size]

    def all_notes(self) -> list[tuple[int, Note]]:
        return self.notes

    def known(self, models: Collection[int], before: int) -> list[Trial]:
        return [trial for seq, trial in self.trials.values() if trial.model in models and seq < before]

    def ungraded(self) -> list[tuple[int, Trial]]:
        return sorted(row for row in self.trials.values() if row[1].state in (JUDGING, UNGRADED))

    # -- sums, made anew from the rows ----------------------------------------------------------------------------

    @property
    def sums(self) -> tuple[int, int]:
        """Tokens paid or charged, and tokens reserved."""
        if self._sums is None:
            paid = sum(charge.cost.tokens for _, charge in self.charges if not charge.estimated)
            held = 0
            for _, trial in self.trials.values():
                cost, verdict = trial.cost.tokens, trial.verdict.tokens
                paid += cost * (trial.state is not RESERVED) + verdict * (trial.state in (DONE, UNGRADED))
                held += cost * (trial.state is RESERVED) + verdict * (trial.state in (RESERVED, JUDGING))
            self._sums = paid, held
        return self._sums

    def stages(self, settings: Sequence[events.Setting]) -> list[Stage]:
        """The stages of the run, the last with the current settings."""
        ends = [
            SettingsEnd(seq, note.body["looks"], note.body["has_looked"])
            for seq, note in self.notes
            if note.kind == SETTINGS
        ]
        stages = [Stage(setting, end) for setting, end in zip(settings[:-1], ends, strict=True) if end.has_looked]
        return [*stages, Stage(settings[-1])]


# -- the world ---------------------------------------------------------------------------------------------------------

PACES = (Pace(), Pace(lookahead=1), Pace(lookahead=2), Pace(share=0.3), Pace(lookahead=2, dedicated_servers=True))


@dataclass(frozen=True, slots=True)
class Kind:
    """The kind of a run."""

    pace: Pace
    cap: float | None
    """In first rounds at their worst; AMPLE: a cap that never bears on anything."""
    bounded: bool
    judged: bool
    remembers: bool
    samples: int
    special: str
    """refuses, down: what befalls the last model; raised, leaves, joins, returns: what changes between starts."""
    broken: float
    """Share of the answers on which the grader fails, the first time."""
    wall: float | None
    stops: bool
    is_optimal: bool
    """Whether the default rule decides, which takes more time."""

    @classmethod
    def drawn(cls, seed: int) -> "Kind":
        chance = random.Random(f"kind {seed}")
        special = chance.choice(["refuses", "down", "raised", "leaves", "joins", "returns", *[""] * 8])
        cap = chance.choice([None, None, AMPLE, chance.uniform(0.4, 4), chance.uniform(0.8, 3)])
        return cls(
            pace=chance.choice(PACES),
            cap=cap,
            bounded=chance.random() < 0.85,
            judged=chance.random() < 0.4,
            remembers=chance.random() < 0.25,
            samples=chance.choice([1, 1, 1, 2, 3]),
            special=special,
            broken=chance.choice([0.0, 0.0, 0.0, 0.03]),
            wall=chance.choice([None] * 9 + [20.0]),
            stops=chance.random() < 0.3,
            is_optimal=chance.random() < 0.1,
        )

    @property
    def is_capped(self) -> bool:
        return self.cap is not None

    @property
    def is_compared(self) -> bool:
        """Whether results depend only on answers."""
        tight = self.cap is not None and self.cap != AMPLE
        return not (tight or self.special or self.broken or self.wall)


def answer_text(seed: int, key: Key) -> str:
    """The answer of a server; in some worlds the first model always gives the same answer, a short or a long one."""
    return "the same" * (1 if seed % 2 else 300) if key[0] == 0 and seed % 3 == 0 else f"answer {key}"


class World:
    """Everything that outlives a process. A server that does not fail always gives the same answer to a request."""

    def __init__(self, seed: int, kind: Kind) -> None:
        self.seed, self.kind, self.chance = seed, kind, random.Random(seed)
        self.models, self.questions = self.chance.choice([(3, 3), (3, 2), (2, 4)])
        shape = self.models, self.questions
        self.p = np.random.default_rng(seed).beta(0.7, 0.7, shape) * np.linspace(1, 0.4, self.models)[:, None]
        self.generated = 0
        self.jobs: dict[Key, events.Received] = {}
        """Results at the batch service that nobody has stored yet."""
        self.asked: Counter[Key] = Counter()
        self.grader_works = False

    def received(self, key: Key) -> events.Received:
        tokens = 1 + int(LONGEST * uniform(self.seed, "tokens", key) * 0.999)
        seconds = 1.0 + key[0] * 2 + round(uniform(self.seed, "seconds", key), 3)
        answer = Answer(answer_text(self.seed, key), "stop", key[2], "here", seconds, completion_tokens=tokens)
        return events.Received(key[2], answer, Cost(tokens, tokens / 1024), seconds, reserve=self.verdict)

    def category(self, key: Key) -> int:
        return int(uniform(self.seed, key) < self.p[key[:2]])

    def graded(self, key: Key) -> events.Graded:
        tokens = 1 + int(VERDICT * uniform(self.seed, "verdict", key) * 0.999) if self.kind.judged else 0
        cost = Cost(tokens, tokens / 1024)
        if not self.grader_works and uniform(self.seed, "broken", key) < self.kind.broken:
            return events.Graded(key, None, GradeDetails(error="cannot be read"), cost)
        return events.Graded(key, self.category(key), GradeDetails(), cost)

    @property
    def verdict(self) -> Cost:
        return Cost(VERDICT, VERDICT / 1024) if self.kind.judged and self.kind.is_capped else NO_COST

    def is_dead(self, key: Key) -> bool:
        return self.kind.special in ("refuses", "down") and key[0] == self.models - 1 and key[2] >= 4

    def setting(self, roster: Sequence[int], trials: Trials) -> events.Setting:
        kind, models = self.kind, len(roster)
        worst = Cost(LONGEST, LONGEST / 1024).plus(self.verdict)
        if not kind.bounded and kind.is_capped:
            worst = Cost(usd=float("inf"))
        first = self.models * self.questions * 3 * (LONGEST + self.verdict.tokens)
        cap = None if kind.cap is None else int(min(AMPLE, kind.cap * first))
        bench = Bench(
            models, self.questions, np.array([0.0, 1.0]), (worst,) * models, together=(kind.samples,) * models
        )
        budget = Budget(tokens=cap, wall_seconds=kind.wall)
        rule = Optimal() if kind.is_optimal else ZScore()
        plan = Plan(
            bench, rule=rule, prior="uniform", trials=trials, pace=kind.pace, budget=budget, stops_on_alarm=False
        )
        return events.Setting(
            plan,
            tuple(roster),
            slots=dict.fromkeys(roster, 10**6 if kind.remembers else 4),
            samples=dict.fromkeys(roster, kind.samples),
            remembers=frozenset(roster if kind.remembers else ()),
            judged=frozenset(range(self.questions) if kind.judged else ()),
            verdict=self.verdict,
            vote=Cost(VOTE, VOTE / 1024) if kind.judged else NO_COST,
            verdicts_at_once=AT_ONCE,
            questions=[f"q{number}" for number in range(self.questions)],
            alarms=AlarmSettings("all", dict.fromkeys(roster, Sampled(1.0))),
            seed=lambda model, question, number: number if number < 6 else number + 100,
            describe=describe_look,
        )


# -- one start ---------------------------------------------------------------------------------------------------------


class Start:
    """One start of a run."""

    def __init__(
        self,
        world: World,
        disk: Disk,
        settings: Sequence[events.Setting],
        chance: random.Random,
        *,
        kill_at: int = 0,
        is_troubled: bool = True,
    ) -> None:
        """`settings`: of all configurations so far; `kill_at`: the moment at which it is killed."""
        self.world, self.disk, self.settings, self.chance, self.kill_at = world, disk, settings, chance, kill_at
        self.is_troubled = is_troubled
        self.machine = Machine(settings[-1])
        self.inbox: list[events.Event] = []
        self.groups: list[Sequence[Row]] = []
        self.hesitating: dict[int, events.Send] = {}
        """Requests that wait for permission to be repeated."""
        self.judging: dict[Key, Trial] = {}
        self.cut_off: set[Key] = set()
        """Answers whose grading was cancelled."""
        self.moments = self.stopped = 0
        self.seconds = 0.0
        self.ended = ""
        self.events: Counter[str] = Counter()

    def moment(self) -> None:
        """Called between any two events; the run may be killed here."""
        self.moments += 1
        if self.moments == self.kill_at:
            raise Killed
        if self.world.kind.is_capped and self.world.kind.bounded:
            cap, (paid, held) = self.settings[-1].plan.budget.tokens, self.disk.sums
            assert cap is not None
            assert paid <= cap, "a cap is exceeded"
            assert self.world.generated <= paid + held, "something generated is not counted"
            assert self.world.generated <= cap, "servers have generated more than the cap"

    # -- a start's beginning --------------------------------------------------------------------------------------

    def run(self) -> str:
        self.begin()
        while not self.ended:
            self.step()
        assert not self.groups, "a start has ended with rows that are not stored"
        return self.ended

    def begin(self) -> None:
        disk, number = self.disk, len(self.settings) - 1
        self.moment()
        if disk.configuration < number:
            for at in range(disk.configuration + 1, number + 1):
                looked = {configuration for _, configuration, _ in disk.looks.values()}
                ended = {"looks": len(disk.looks), "has_looked": at - 1 in looked}
                disk.write(Note(SETTINGS, None, {"configuration": at, **ended}))
            self.moment()
        disk.write(Note(RESUMED))
        self.moment()
        self.regrade()
        self.machine = self.replayed()
        self.moment()
        if self.stopped:
            self.do(events.Stop(at_once=self.stopped > 1))
        self.do(events.Tick(self.seconds))
        for key in [key for key in self.world.jobs if key[0] not in self.settings[-1].roster]:
            del self.world.jobs[key]  # of a model that was taken out, which nobody collects
        claims = [key for key, (_, trial) in disk.trials.items() if trial.state is RESERVED and key in self.world.jobs]
        self.do(events.Opened(claims, in_flight=dict(disk.in_flight)))

    def replayed(self) -> Machine:
        disk, stages = self.disk, self.disk.stages(self.settings)
        block_size = (7, 50, 999)[self.moments % 3]
        return replay(
            lambda in_whole_commits: disk.log(None if in_whole_commits else block_size),
            stages,
            disk.all_notes(),
            disk.known,
        )

    def regrade(self) -> None:
        roster = self.settings[-1].roster
        rows = [row for row in self.disk.ungraded() if row[1].model in roster]
        if not rows:
            return
        spent, asked = sum(self.disk.sums), 0
        answers = []
        for seq, trial in rows:
            is_reserved = trial.state is JUDGING and trial.verdict != NO_COST
            was_asked = is_reserved and asked < AT_ONCE
            asked += was_asked
            spent -= trial.verdict.tokens * (is_reserved and not was_asked)
            answers.append(events.Ungraded(seq, trial, self.world.verdict, was_asked))
        self.machine = Machine(self.settings[-1], seq=self.disk.last, spent=Cost(spent, spent / 1024), has_grades=True)
        self.do(events.Regrade(answers))
        while not self.ended:
            self.step()
        self.ended = ""
        assert not self.groups

    # -- what happens ---------------------------------------------------------------------------------------------

    def step(self) -> None:
        self.moment()
        drawn, kind, machine = self.chance.random(), self.world.kind, self.machine
        if self.is_troubled and kind.stops and drawn < 0.004:
            at_once = self.chance.random() < 0.3
            self.stopped = 2 if at_once or self.stopped else 1
            self.do(events.Stop(at_once))
        elif self.is_troubled and drawn < 0.02 and not kind.remembers:
            model = self.chance.choice(machine.setting.roster)
            self.do(events.Capacity(model, self.chance.choice([0, 1, 4])))
        elif drawn < 0.05:
            self.seconds += 1.0
            self.do(events.Tick(self.seconds))
        elif self.groups and drawn < 0.35:
            self.commit()
        elif self.inbox:
            self.do(self.inbox.pop(self.chance.randrange(len(self.inbox))))
        elif self.groups:
            self.commit()
        elif not self.ended:
            self.wait()

    def wait(self) -> None:
        """Nothing is in progress: servers that are down come up, or a stop gives up what hangs."""
        machine = self.machine
        down = [model for model in machine.setting.roster if not machine.slots.get(model)]
        if down:
            self.do(events.Capacity(self.chance.choice(down), 4))
        elif machine._is_aborted and machine.is_quiet:
            self.ended = "aborted"
        elif machine.refused:
            self.moments += 3
            self.do(events.Tick(self.seconds))
        else:
            raise AssertionError("nothing happens any more")

    def commit(self) -> None:
        number = self.chance.randint(1, len(self.groups))
        rows = [row for group in self.groups[:number] for row in group]
        self.moment()  # dies before it
        self.disk.commit(rows)
        del self.groups[:number]
        if not self.machine.is_regrading:
            self.disk.in_flight = self.in_flight()
        for _, record in rows:
            if isinstance(record, Trial) and record.state is not RESERVED:
                self.world.jobs.pop(record.key, None)
        self.moment()  # dies between the commit and its news
        self.do(events.Committed(rows))
        if self.machine.is_live and not self.machine.is_regrading and self.chance.random() < 0.01:
            self.audit()

    def in_flight(self) -> dict[int, int]:
        """By model: trials that were sent, and have neither an answer that is written nor a row of their own."""
        machine, counts = self.machine, Counter[int]()
        if not machine.caps.are_set:
            for trial in machine.trials.values():
                is_sent = trial.state in (RUNNING, GRADING) and trial.model not in machine.setting.remembers
                counts[trial.model] += is_sent
        return dict(+counts)

    def do(self, event: events.Event) -> None:
        for action in self.machine.handle(event, self.moments):
            match action:
                case events.Write(rows):
                    self.groups.append(rows)
                case events.Send():
                    self.send(action)
                case events.GradeAnswer(trial):
                    self.inbox.append(self.world.graded(trial.key)._replace(cost=NO_COST))
                case events.JudgeAnswer(trial):
                    self.judging[trial.key] = trial
                    self.judge(trial.key)
                case events.Allow(target, allowed):
                    self.on_allow(target, allowed)
                case events.Cancel(requests, gradings):
                    self.cancel(requests, gradings)
                case events.Abort():
                    self.events["aborted"] += 1
                case events.Finish(reason):
                    self.ended = "stopped" if reason is None else reason.value
            self.moment()

    # -- servers --------------------------------------------------------------------------------------------------

    def send(self, send: events.Send) -> None:
        request = send.request
        for key in request.keys:
            stored = self.disk.trials.get(key)
            is_reserved = stored is not None and stored[1].state is RESERVED
            waits = self.machine.caps.are_set or request.model in self.machine.setting.remembers
            assert is_reserved or not waits, "sent before its reservation was stored"
            assert is_reserved is waits, "a row that nobody needs"
            assert stored is None or is_reserved, "an answer is asked for again"
        if request.model in self.machine.setting.remembers:
            self.hand_in(send)
        else:
            self.ask(send)

    def hand_in(self, send: events.Send) -> None:
        """A batch service has the request even if the process dies; results arrive one by one."""
        request, world = send.request, self.world
        for key in request.keys:
            if send.claimed and self.chance.random() < 0.1:  # it has lost it
                world.jobs.pop(key, None)
                self.inbox.append(events.Failed(request.id, RequestFailure.GONE))
                continue
            assert send.claimed or key not in world.jobs, "the service is asked for what it still has"
            if key not in world.jobs:
                world.jobs[key] = world.received(key)
                world.generated += world.jobs[key].cost.tokens
                world.asked[key] += 1
            self.inbox.append(events.Answered(request.id, [world.jobs[key]]))

    def ask(self, send: events.Send) -> None:
        request, world, drawn = send.request, self.world, self.chance.random()
        received = [world.received(key) for key in request.keys]
        if any(map(world.is_dead, request.keys)):
            if world.kind.special == "down" and self.machine.caps.answered:  # else it is an error of the run
                self.inbox.append(events.Unservable(request.model, "all its servers are gone"))
            self.inbox.append(events.Failed(request.id, RequestFailure.UNAVAILABLE, "its server refuses requests"))
            return
        world.generated += sum(answer.cost.tokens for answer in received)
        for key in request.keys:
            world.asked[key] += 1
        if drawn < 0.03 * self.is_troubled:
            waits = self.machine.caps.are_set
            self.inbox.append(events.Wasted(request.model, request.size, None, request.id if waits else None))
            self.events["lost"] += 1
            if waits:
                self.hesitating[request.id] = send
            else:
                self.ask(send)
        elif drawn < 0.04 * self.is_troubled:
            self.inbox.append(events.Failed(request.id, RequestFailure.LOST))
        else:
            self.inbox.append(events.Answered(request.id, received))

    def judge(self, key: Key) -> None:
        graded = self.world.graded(key)
        if self.machine.caps.are_set and self.chance.random() < 0.03 * self.is_troubled:
            vote = min(VOTE, graded.cost.tokens)
            self.world.generated += vote
            self.inbox.append(events.VerdictWasted(key, Cost(VERDICT, VERDICT / 1024)))
        else:
            self.world.generated += graded.cost.tokens
            self.inbox.append(graded)

    def on_allow(self, target: int | Key, allowed: bool) -> None:
        if isinstance(target, int):
            if (send := self.hesitating.pop(target, None)) is not None:
                if allowed:
                    self.ask(send)
                else:
                    self.inbox.append(events.Failed(target, RequestFailure.NOT_ALLOWED))
        elif target in self.cut_off:
            return
        elif allowed:
            self.judge(target)
        else:
            self.inbox.append(events.Graded(target, None, GradeDetails(error="its reply was lost"), NO_COST))

    def cancel(self, requests: Sequence[int], gradings: Sequence[Key]) -> None:
        """Some were answered just before."""
        for number in requests:
            if self.hesitating.pop(number, None) is not None:
                waiting = [each for each in self.inbox if isinstance(each, events.Wasted) and each.request == number]
                self.inbox = [event for event in self.inbox if event not in waiting] + [
                    event._replace(request=None) for event in waiting
                ]
                self.inbox.append(events.Failed(number, RequestFailure.NOT_SENT))
                continue
            pending = [
                event
                for event in self.inbox
                if isinstance(event, events.Answered | events.Failed) and event.request == number
            ]
            if pending and self.chance.random() < 0.7:
                self.inbox = [event for event in self.inbox if event not in pending]
                self.inbox.append(events.Failed(number, RequestFailure.CUT_OFF))
        for key in gradings:
            pending = [event for event in self.inbox if isinstance(event, events.Graded) and event.key == key]
            asked = [event for event in self.inbox if isinstance(event, events.VerdictWasted) and event.key == key]
            if asked or not pending or self.chance.random() < 0.7:
                self.inbox = [event for event in self.inbox if event not in pending and event not in asked]
                self.inbox += asked
                self.cut_off.add(key)
                self.inbox.append(events.GradingCutOff(key))

    # -- what holds -----------------------------------------------------------------------------------------------

    def audit(self) -> None:
        """Check that the machine's state equals that of a new machine read from disk, and fresh counts."""
        machine, again = self.machine, self.replayed()
        if machine.controller.finished is not None and again.controller.finished is None:
            again.handle(events.Tick(self.seconds))  # it ends where no trial fits or no time is left
            again.handle(events.Opened())
        states = Counter(trial.state for trial in machine.trials.values())
        assert +machine.counts == states, "a count differs from the table"
        in_flight = Counter(request.model for request, _ in machine.requests.values())
        assert +machine.in_flight == in_flight
        assert machine.in_flight_without_rows == self.in_flight()
        assert decisions(machine) == decisions(again), "live and replay differ"
        if not machine.unwritten:
            assert sums(machine) == sums(again), "the sums of live and replay differ"
            assert not machine.caps.are_set or machine.account.total.tokens == sum(self.disk.sums)
        self.events["audits"] += 1


def decisions(machine: Machine) -> list[object]:
    """All decisions of the core."""
    controller = machine.controller
    looks = [(one.index, one.trials, one.order, one.tiers, one.scores, one.comparisons) for one in controller.looks]
    return [
        repr(looks),  # some numbers are nan
        controller.finished,
        sorted(controller.set_aside.items()),
        controller.counts.tolist(),
        [controller.most_issued(model) for model in range(controller.plan.bench.models)],
        controller._flight.account.spent() if machine.caps.are_set else None,
    ]


def sums(machine: Machine) -> dict[int, list[object]]:
    """The account by model, without models that cost nothing."""
    by_model = dict[int, list[object]]()
    for model, account in machine.account.models.items():
        parts = (account.paid, account.held, account.charged, account.verdicts)
        by_model[model] = [account.answers, *(part.cost for part in parts)]
    return {model: parts for model, parts in sorted(by_model.items()) if parts != [0, *[NO_COST] * 4]}
