"""Whole lives of a run on the pure state: no event loop, no socket, no file.

`Disk` is what is stored, as the store gives it back. `Start` is one start of the run, with what a shell would do of
it: it books, sends, commits, judges and mends, in an order that is drawn, and dies wherever it is to. `Endpoints` count
what was generated, whether it came or not.
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, NamedTuple, Self

from adaptive_eval.base.errors import GraderError, JudgeFailed
from adaptive_eval.core import Controller
from adaptive_eval.core.plan import Plan, SpentBefore
from adaptive_eval.core.settings import Bench, Budget, Pace, Trials
from adaptive_eval.core.types import NO_COST, Cause, Cost, Look, Lost
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.graders.asked import USED
from adaptive_eval.graders.types import Grade
from adaptive_eval.questions.types import Question
from adaptive_eval.scheduler.asked_again import trials_to_ask_again
from adaptive_eval.scheduler.first_answers import FirstRequests
from adaptive_eval.scheduler.grading import make_record, make_regrade, waiting_record, wasted_verdict
from adaptive_eval.scheduler.requests import lose_entered
from adaptive_eval.scheduler.state import RunState, committed_records, stored_records
from adaptive_eval.scheduler.trial_queues import TrialQueues
from adaptive_eval.scheduler.trials import Step
from adaptive_eval.store import (
    AnswersLost,
    CommitBatch,
    Event,
    ModelSetAside,
    Regrade,
    Roster,
    RunResumed,
    SentRequest,
    ServersNoticed,
    StoredOutcome,
    TrialPlace,
    TrialRecord,
    VerdictsWasted,
    events_of_kind,
)
from adaptive_eval.store.records import NO_GRADING, GradingUse, wasted_use
from adaptive_eval.store.spending import in_flight_cost, lost_costs
from adaptive_eval.supply.types import Lane, Request, TrialPrice

SKILLS = {"ada": 0.9, "bob": 0.5, "cyd": 0.4}
QUESTIONS = tuple(Question(f"q{number}", f"ask {number}", "right") for number in range(3))
PROMPT_TOKENS, MAX_TOKENS, VERDICT_TOKENS = 3, 20, 9
WORST = PROMPT_TOKENS + MAX_TOKENS
AMPLE = 10**9
WASTED_TOKENS = 2
"""Of a verdict, besides what its grade has used."""
WEIGHTS = [0.0, 1.0]

Place = tuple[str, str, int]


class Killed(BaseException):
    """The process is dead."""


def share_of(*parts: object) -> float:
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=8).digest(), "big") / 2**64


class Setting(NamedTuple):
    """The configuration of a run."""

    number: int
    """By which servers answer, and how they go about it."""
    judged: bool
    slots: int
    samples: int
    trials: Trials
    pace: Pace
    budget: Budget
    bounded: bool = True
    """It is known how many tokens an answer may have."""

    @classmethod
    def drawn(cls, chance: random.Random, number: int) -> Self:
        least = chance.choice([1, 2])
        paces = [Pace(), Pace(lookahead=2), Pace(lookahead=2, held=True)]
        budgets = [
            Budget(),
            Budget(),
            Budget(tokens=AMPLE),
            Budget(tokens=chance.randrange(300, 1500)),
            Budget(trials=chance.randrange(9, 50)),
        ]
        return cls(
            number,
            judged=chance.random() < 0.4,
            slots=chance.choice([1, 3, 16]),
            samples=chance.choice([1, 1, 2, 5]),
            trials=Trials(least, 4),
            pace=chance.choice(paces),
            budget=chance.choice(budgets),
            bounded=number % 4 != 1,
        )

    @property
    def capped(self) -> bool:
        return self.budget.bought

    @property
    def tight(self) -> bool:
        """A cap bears on what is asked, and what was lost counts."""
        return self.budget.tokens is not None and self.budget.tokens < AMPLE

    @property
    def reserve(self) -> Cost | None:
        """Of a verdict; None where nobody is asked."""
        if not self.judged:
            return None
        return Cost(tokens=VERDICT_TOKENS) if self.capped else NO_COST

    @property
    def worst(self) -> Cost:
        answer = Cost(tokens=WORST) if self.bounded or self.budget.tokens is None else Cost(usd=math.inf)
        return answer.plus(self.reserve or NO_COST)


@dataclass
class Disk:
    """What is stored, and who reads it: the part of a store that a start goes by."""

    rows: dict[Place, TrialRecord] = field(default_factory=dict)
    log: list[Event] = field(default_factory=list)
    asked_for: Counter[str] = field(default_factory=Counter)
    looks: list[Look] = field(default_factory=list)
    look_commits: list[float] = field(default_factory=list)
    """The commit in which each look was stored."""
    commits: int = 0
    taken_with: tuple[str, ...] = ()
    """The models by which these looks were taken, if nothing disturbed them."""
    unknown: int = 0
    """Answers that servers gave before their entries were on disk, less those that were entered and never sent, when
    starts died."""

    @property
    def reader(self) -> "Disk":
        return self

    def commit(self, batch: CommitBatch, looks: Sequence[Look] = ()) -> None:
        self.commits += 1
        for trial in batch.trials:
            place = (trial.model, trial.question, trial.trial)
            assert place not in self.rows, f"{place} was stored twice"
            self.rows[place] = trial
        for verdict in batch.verdicts:
            self.rows[verdict[:3]] = self.rows[verdict[:3]].judged(verdict)
        self.log += [replace(event, at=float(self.commits)) for event in batch.events]
        for entry in batch.sent:
            self.asked_for[entry.model] += entry.trials
        for trial in batch.trials:
            self.asked_for[trial.model] -= 1
        for entry in batch.unsent:
            self.asked_for[entry.model] -= entry.trials
        assert min(self.asked_for.values(), default=0) >= 0
        for look in looks:
            if self.looks[look.index : look.index + 1] != [look]:
                self.forget_looks(look.index)
                self.looks.append(look)
                self.look_commits.append(float(self.commits))

    def lose(self, event: AnswersLost) -> None:
        self.commits += 1
        self.asked_for[event.model] = 0
        if event.answers:
            self.log.append(replace(event, at=float(self.commits)))

    def forget_looks(self, number: int) -> None:
        del self.looks[number:], self.look_commits[number:]

    # -- as a reader gives it -----------------------------------------------------------------------------------------

    def events(self) -> list[Event]:
        return list(self.log)

    def look_times(self) -> dict[int, float]:
        return dict(enumerate(self.look_commits))

    def most_looks(self) -> int:
        return len(self.looks)

    def in_flight(self) -> Mapping[str, int]:
        return +self.asked_for

    def largest_costs(self) -> dict[str, Cost]:
        largest: dict[str, Cost] = {}
        for one in self.rows.values():
            largest[one.model] = max(one.cost, largest.get(one.model, NO_COST))
        return largest

    def outcomes(self) -> Iterator[StoredOutcome]:
        return (one.outcome()._replace(awaits_verdict=one.awaits_verdict) for one in list(self.rows.values()))

    def trials(self, which: str) -> Iterator[TrialRecord]:
        assert which == "ungraded"
        return (one for one in list(self.rows.values()) if one.category is None)

    def places(self) -> Iterator[TrialPlace]:
        for one in self.rows.values():
            yield TrialPlace(one.model, one.question, one.trial, one.round, one.outcome().flags)

    def grading_uses(self) -> dict[str, GradingUse]:
        uses: dict[str, GradingUse] = {}
        for one in self.rows.values():
            if used := one.signals.get(USED[0]):
                more = GradingUse(1, Cost(tokens=int(used)))
                uses[one.model] = uses.get(one.model, NO_GRADING).plus(more)
        for event in events_of_kind(self.log, VerdictsWasted):
            uses[event.model] = uses.get(event.model, NO_GRADING).plus(wasted_use(event))
        return uses

    # -- counted from the raw records ---------------------------------------------------------------------------------

    def spent(self) -> int:
        """Tokens of answers and verdicts, with what is lost and what is under way at its worst."""
        lost = sum(event.tokens for event in events_of_kind(self.log, AnswersLost))
        return sum(one.cost.tokens for one in self.rows.values()) + lost

    def told(self) -> int:
        """Answers that are stored, told as lost, or entered as under way."""
        lost = sum(event.answers for event in events_of_kind(self.log, AnswersLost))
        return len(self.rows) + lost + sum(self.asked_for.values())

    def spent_on_others(self, models: Sequence[str], worst: Cost) -> SpentBefore:
        """What was spent on others than these."""
        rows = [one for one in self.rows.values() if one.model not in models]
        lost = [event.tokens for event in events_of_kind(self.log, AnswersLost) if event.model not in models]
        entered = self.entered({model: worst for model in self.asked_for if model not in models})
        tokens = sum(one.cost.tokens for one in rows) + sum(lost) + entered
        return SpentBefore(len(rows), Cost(tokens=tokens))

    def entered(self, worst: Mapping[str, Cost]) -> int:
        """Tokens that are reserved for what is under way of these models."""
        return in_flight_cost(self, worst).tokens  # type: ignore[arg-type]


@dataclass
class Endpoints:
    """Servers of models and of a judge: they answer by model, question and trial alone."""

    number: int
    generated: int = 0
    """Tokens, whether they came or not."""
    answers: int = 0
    broken: frozenset[str] = frozenset()
    """Questions on which the grader fails."""

    def answer(self, model: str, question: str, trial: int) -> Answer:
        right = share_of(self.number, model, question, trial) < SKILLS[model]
        tokens = 5 + int(15 * share_of("tokens", self.number, model, question, trial))
        self.generated += PROMPT_TOKENS + tokens
        self.answers += 1
        text = "right" if right else "wrong"
        return Answer(text, "stop", trial, "here", 0.1, prompt_tokens=PROMPT_TOKENS, completion_tokens=tokens)

    def take_back(self, model: str, question: str, trial: int) -> None:
        """An answer was not generated after all."""
        answer = Endpoints(self.number).answer(model, question, trial)
        self.generated -= answer.prompt_tokens + answer.completion_tokens
        self.answers -= 1

    def grade(self, answer: Answer, question: Question, *, judged: bool) -> Any:
        """A grade, or why there is none."""
        more: dict[str, Any] = {}
        spent = NO_COST
        if judged:
            used = 4 + int(3 * share_of("verdict", self.number, answer.seed, answer.text))
            self.generated += used + WASTED_TOKENS
            spent = Cost(tokens=used + WASTED_TOKENS)
            more = dict.fromkeys(USED, 0.0) | {USED[0]: used}
        if question.id in self.broken:
            return JudgeFailed("it is broken", spent) if judged else GraderError("it is broken")
        signals = {"is_correct": answer.text == "right"} | more
        return Grade(int(answer.text == "right"), signals, answer.text, spent)


@dataclass
class Start:
    """One start of a run."""

    setting: Setting
    disk: Disk
    endpoints: Endpoints
    chance: random.Random
    models: Sequence[str] = tuple(SKILLS)
    dies_at: int | None = None
    """The moment of its death."""
    stops_at: int | None = None
    """When the user stops it."""
    trouble: float = 0.0
    """How often an answer is lost, or a model set aside."""
    only_losses: bool = False
    """Answers are lost, and no model is set aside."""
    moments: int = 0
    disturbed: bool = False
    """Models were set aside, by whomever."""

    def __post_init__(self) -> None:
        setting, names = self.setting, self.models
        self.questions = {question.id: question for question in QUESTIONS}
        self.lanes = [self._lane(name) for name in names]
        worst = (setting.worst,) * len(names)
        bench = Bench(len(names), len(QUESTIONS), WEIGHTS, worst)  # type: ignore[arg-type]
        plan = Plan(bench, prior="uniform", trials=setting.trials, pace=setting.pace, budget=setting.budget)
        self.controller = Controller(plan, outside_plan=self.disk.spent_on_others(names, setting.worst))
        roster = Roster.of(names, self.questions)
        self.state = RunState(self.controller, roster, self.lanes, reserve=setting.reserve)
        self.queues = TrialQueues(self.state, FirstRequests(self.state))
        self.draft, self.writing = Draft(), Draft()
        self.booked: list[Request] = []
        self.flying: list[Request] = []
        self.hesitating: list[Request] = []
        """Lost on the way, and asked for again as soon as the loss is on disk."""
        self.judging: list[TrialRecord] = []
        self.taken = [0] * len(names)
        self.stopping = False

    def _lane(self, name: str) -> Lane:
        return Lane(
            name,
            endpoint=None,  # type: ignore[arg-type]
            prompt=lambda question: None,  # type: ignore[arg-type,return-value]
            seed_base=lambda question: 0,
            slots=self.setting.slots,
            samples_per_request=self.setting.samples,
            price=TrialPrice(
                lambda answer: Cost(tokens=answer.prompt_tokens + answer.completion_tokens), self.setting.worst
            ),
        )

    @property
    def is_plain(self) -> bool:
        """Nothing bears on the looks but answers."""
        return not (self.stopping or self.disturbed or self.endpoints.broken)

    def run(self) -> bool:
        """Whether it came to its end."""
        try:
            self._mend()
            self._begin()
            self._go_on()
        except Killed:
            self.check_spending()
            self.disk.unknown += self._untold()
            return False
        self.check_sums()
        return True

    def moment(self) -> None:
        """Between any two things that happen."""
        self.moments += 1
        self.check_spending()
        if self.moments == self.dies_at:
            raise Killed
        if self.moments == self.stops_at:
            self.stopping = True
            self.queues.clear()

    # -- the beginning ------------------------------------------------------------------------------------------------

    def _mend(self) -> None:
        disk = self.disk
        if disk.log:
            disk.commit(CommitBatch(events=[RunResumed()]))
        self.moment()
        for name, keys in trials_to_ask_again(disk).items():  # type: ignore[arg-type]
            if name in self.models:
                for key in keys:
                    del disk.rows[name, *key]
                disk.commit(CommitBatch(events=[ServersNoticed(name, "asked_again", "")]))
        if self.setting.judged:
            self._lose_reserved()
        for record in self._ungraded():
            self.moment()
            if self.stopping:
                return
            self._grade_again(record)
        self.moment()

    def _ungraded(self) -> list[TrialRecord]:
        return [one for one in self.disk.trials("ungraded") if one.model in self.models]

    def _lose_reserved(self) -> None:
        for record in self._ungraded():
            reserved = record.cost.tokens - self._lane(record.model).price.cost(record.answer).tokens
            if record.awaits_verdict and reserved:
                looks = self.disk.most_looks() or None
                event = AnswersLost(record.model, 0, reserved, killed=True, verdicts=1, looks=looks)
                self.disk.commit(CommitBatch(events=[event], verdicts=[at_cost(record, Cost(tokens=-reserved))]))
                self.moment()

    def _grade_again(self, record: TrialRecord) -> None:
        reserved = self.setting.reserve or NO_COST
        if reserved.tokens:
            under_way = self.disk.entered(dict.fromkeys(self.models, self.setting.worst))
            if not self.controller.can_afford(Cost(tokens=self.disk.spent() + under_way).plus(reserved)):
                return
            self.disk.commit(CommitBatch(verdicts=[at_cost(record, reserved)]))
            self.moment()
        verdict = make_regrade(record, self._graded(record.answer, record.question))
        self.moment()
        self.disk.commit(CommitBatch(verdicts=[self._used(verdict)], events=[*filter(None, [wasted_verdict(verdict)])]))

    def _begin(self) -> None:
        for record in stored_records(self.disk, judged=self.setting.judged):  # type: ignore[arg-type]
            self.state.apply(record)
        looks = self._decide()
        for event in lose_entered(self.disk, self.state, {}):  # type: ignore[arg-type]
            self._check_loss(event)
            self.moment()
        looks = [*looks, *self._decide()]
        if self.disk.taken_with == tuple(self.models) and self.is_plain:
            assert [*looks[: len(self.disk.looks)]] == self.disk.looks, "a stored look is not taken again"
        self.disk.taken_with = ()
        self.disk.forget_looks(len(looks))

    # -- what goes on -------------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        self._fill_all()
        while True:
            self.moment()
            acts = self._possible()
            if not acts:
                break
            self.chance.choice(acts)()
        over = self.stopping or self.controller.finished is not None
        assert over, "the core is neither finished nor asks for trials"

    def _possible(self) -> list[Callable[[], None]]:
        acts: list[Callable[[], None]] = []
        if self.flying:
            acts += [self._answer] * 4
            if self.chance.random() < self.trouble:
                acts += [self._lose_one]
                acts += [] if self.only_losses else [self._set_one_aside, self._give_one_up]
        if self.judging:
            acts += [self._judge] * 3
        if self.draft.any:
            acts += [self._commit]
        return acts

    def _fill_all(self) -> None:
        for model in range(len(self.models)):
            self._fill(model)

    def _fill(self, model: int) -> None:
        if self.stopping or self.state.models.is_gone(model):
            return
        lane = self.lanes[model]
        while (free := lane.slots - self.taken[model]) > 0:
            request = self.queues.take(model, free * lane.samples_per_request)
            if request is None:
                return
            self.taken[model] += 1
            self.draft.sent.append(self._entry(request))
            if self.setting.capped:
                self.state.trials.move_request(request, Step.BOOKED)
                self.booked.append(request)
            else:
                self._send(request)

    def _entry(self, request: Request) -> SentRequest:
        return SentRequest(self.models[request.model], request.size)

    def _send(self, request: Request) -> None:
        name, question = self.models[request.model], QUESTIONS[request.question].id
        for trial in request.trials:
            assert (name, question, trial) not in self.disk.rows, f"{name} is asked {question}/{trial} again"
        self.state.trials.move_request(request, Step.IN_FLIGHT)
        self._ask(request)

    def _ask(self, request: Request) -> None:
        under_way = {place for other in self.flying for place in places_of(other)}
        assert under_way.isdisjoint(places_of(request)), f"{request} is in flight twice"
        self.flying.append(request)
        name, question = self.models[request.model], QUESTIONS[request.question].id
        for trial in request.trials:
            self.endpoints.answer(name, question, trial)

    def _take_one(self) -> Request:
        return self.flying.pop(self.chance.randrange(len(self.flying)))

    def _answer(self) -> None:
        request = self._take_one()
        self.state.trials.move_request(request, Step.ANSWERED)
        self.taken[request.model] -= 1
        self._fill(request.model)
        lane, question, reserve = self.lanes[request.model], QUESTIONS[request.question], self.setting.reserve
        server = Endpoints(self.endpoints.number)
        for trial in request.trials:
            answer = server.answer(lane.name, question.id, trial)
            if reserve is not None:
                record = waiting_record(lane, question, trial, request.round, answer)
                record = replace(record, cost=record.cost.plus(reserve))
            else:
                record = make_record(lane, question, trial, request.round, answer, self._graded(answer, question.id))
            self.draft.trials.append(record)

    def _graded(self, answer: Answer, question: str) -> Any:
        return self.endpoints.grade(answer, self.questions[question], judged=self.setting.judged)

    def _used(self, verdict: Regrade) -> Regrade:
        return verdict._replace(cost=verdict.cost.plus((self.setting.reserve or NO_COST).times(-1)))

    def _judge(self) -> None:
        record = self.judging.pop(self.chance.randrange(len(self.judging)))
        verdict = make_regrade(record, self._graded(record.answer, record.question))
        self.draft.verdicts.append(self._used(verdict))
        self.draft.events += filter(None, [wasted_verdict(verdict)])

    def _lose_one(self) -> None:
        """An answer is lost on the way, and asked for again; under a cap, which counts it at its worst, once that is on
        disk."""
        request = self._take_one()
        event = self.state.placed(self.state.loss(request.model, request.size, killed=False))
        self._check_loss(event)
        self.draft.events.append(event)
        self.state.apply(event)
        self._decide()
        if not self.setting.capped:
            self._ask(request)
            return
        if self.controller.finished is not None:
            self.queues.clear()
        self.hesitating.append(request)

    def _ask_again(self, hesitating: Sequence[Request]) -> None:
        for request in hesitating:
            if self.controller.finished is None and not self.state.models.is_gone(request.model):
                self._ask(request)
                continue
            self.taken[request.model] -= 1
            self._cross_out(request, Step.LOST)

    def _give_one_up(self) -> None:
        """A request fails at no cost; only a model that is not paused is set aside for it."""
        request = self._take_one()
        for trial in request.trials:  # nobody was charged for it
            self.endpoints.take_back(self.models[request.model], QUESTIONS[request.question].id, trial)
        self.taken[request.model] -= 1
        if self.controller.is_paused(request.model):
            self._cross_out(request, Step.WANTED)
            self.queues.give_back(request)
        else:
            self._cross_out(request, Step.LOST)
            self._set_aside(request.model)

    def _cross_out(self, request: Request, step: Step) -> None:
        self.state.trials.move_request(request, step)
        self.draft.unsent.append(self._entry(request))

    def _set_one_aside(self) -> None:
        self._set_aside(self.chance.randrange(len(self.models)))

    def _set_aside(self, model: int) -> None:
        self._go_without(self.state.models.set_aside(model, Lost(Cause.SERVER, "gone")))

    def _go_without(self, events: Any) -> None:
        for event in events:
            self.draft.events.append(event)
            if isinstance(event, ModelSetAside):
                self.disturbed = True
                self.queues.forget(self.state.roster.models.position(event.model))

    def _commit(self) -> None:
        batch, looks = self.draft.batch(), self.draft.looks
        self.draft, self.writing = Draft(), self.draft
        self.moment()
        self.disk.commit(batch, looks)
        self.writing = Draft()
        self.disk.taken_with = tuple(self.models) if self.is_plain else ()
        self.moment()
        for record in committed_records(batch):
            self.state.apply(record)
        self.judging += [trial for trial in batch.trials if trial.awaits_verdict]
        self._decide()
        over = self.stopping or self.controller.finished is not None
        count = len(batch.sent)
        booked, self.booked = self.booked[:count], self.booked[count:]
        for request in booked:
            if over or self.state.models.is_gone(request.model):
                self.taken[request.model] -= 1
                self._cross_out(request, Step.LOST)
            else:
                self._send(request)
        again, self.hesitating = self.hesitating, []
        self._ask_again(again)
        self._fill_all()

    def _decide(self) -> Sequence[Look]:
        decision = self.state.decide(stopping=self.stopping)
        self._go_without(decision.set_aside)
        self.draft.looks += decision.looks
        self.draft.events += decision.events
        self.queues.core_was_told()
        return decision.looks

    # -- what holds ---------------------------------------------------------------------------------------------------

    def check_spending(self) -> None:
        """By what is on disk, whatever dies next: no cap is exceeded, and nothing generated is not counted."""
        disk, cap, budget = self.disk, self.setting.budget.tokens, self.setting.budget
        if self.setting.capped and not self.setting.worst.is_unbounded:
            reserved = sum(disk.asked_for.values()) * self.setting.worst.tokens
            assert self.endpoints.generated <= disk.spent() + reserved, "something generated is not counted"
            assert cap is None or disk.spent() + reserved <= cap, "a cap is exceeded"
        assert budget.trials is None or len(disk.rows) <= budget.trials
        assert self.endpoints.answers == disk.told() + disk.unknown + self._untold(), "an answer is not accounted for"

    def _untold(self) -> int:
        """Answers that were given and are not on disk in any way, less those on disk that are not given yet."""
        drafts = (self.draft, self.writing)
        lost = sum(event.answers for one in drafts for event in events_of_kind(one.events, AnswersLost))
        sent = sum(entry.trials for one in drafts for entry in one.sent)
        unsent = sum(entry.trials for one in drafts for entry in one.unsent)
        return sent - unsent + lost - sum(request.size for request in [*self.booked, *self.hesitating])

    def _check_loss(self, event: AnswersLost) -> None:
        """A lost answer counts at its worst under a cap, else as much as stored ones do in the mean, without their
        verdicts; as those of all models if its own has none."""
        name = event.model
        if self.setting.capped:
            worst = lost_costs(self.disk, {name: self.setting.worst})[name]  # type: ignore[arg-type]
            assert event.tokens >= event.answers * worst.tokens and event.estimated is None
            return
        rows = [one for one in self.disk.rows.values() if one.model in self.models]
        rows = [one for one in rows if one.model == name] or rows
        tokens = sum(one.answer.prompt_tokens + one.answer.completion_tokens for one in rows)
        assert event.tokens == event.answers * round(tokens / (len(rows) or 1)) and event.estimated

    def check_sums(self) -> None:
        """The sums of the state are those of the raw records."""
        grading = self.disk.grading_uses()
        lost = Counter[str]()
        for event in events_of_kind(self.disk.log, AnswersLost):
            lost[event.model] += event.tokens
        for usage, name in zip(self.state.spent.usages, self.models, strict=True):
            rows = [one for one in self.disk.rows.values() if one.model == name]
            assert usage.trials == len(rows)
            assert usage.tokens == sum(one.cost.tokens for one in rows)
            judged = [one for one in rows if not one.awaits_verdict]
            assert usage.ungraded == sum(one.category is None for one in judged)
            assert usage.grading == grading.get(name, NO_GRADING)
        assert not any(self.disk.asked_for[name] for name in self.models), "requests are booked that nobody waits for"


@dataclass
class Draft:
    """The next commit."""

    trials: list[TrialRecord] = field(default_factory=list)
    verdicts: list[Regrade] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    sent: list[SentRequest] = field(default_factory=list)
    unsent: list[SentRequest] = field(default_factory=list)

    @property
    def any(self) -> bool:
        return any(vars(self).values())

    def batch(self) -> CommitBatch:
        return CommitBatch(
            trials=self.trials, verdicts=self.verdicts, events=self.events, sent=self.sent, unsent=self.unsent
        )


def at_cost(record: TrialRecord, more: Cost) -> Regrade:
    """The record still without a grade, at another cost."""
    return Regrade(record.model, record.question, record.trial, None, {}, None, record.grader_error, more)


def places_of(request: Request) -> set[tuple[int, int, int]]:
    return {(request.model, request.question, trial) for trial in request.trials}
