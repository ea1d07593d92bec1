"""Inspect runs the samples, the decision core says which: one `EarlyStopping` manager for several models.

    manager = AdaptiveStopping(["openai/gpt-x", "vllm/y"], {"stopping": {"delta": "2%"}, "trials": {"max": 80}})
    task = Task(dataset, solver=generate(), scorer=match(), epochs=84, early_stopping=manager)
    eval(task, model=["openai/gpt-x", "vllm/y"], fail_on_error=False)
    manager.result().models  # the ranking

An epoch of a sample is a trial of a question. Inspect schedules all of them in its own order and asks before each
whether it is to be skipped, and to skip is all that a manager can do. So an epoch that no look needs yet is held: it
keeps its place among `max_samples` until it is needed, or until the comparison is over and all that is held is skipped.

- The models have to run at the same time, since a look needs all of them: in one `eval`, where `max_tasks` is their
  number unless it is given.
- By default each round has every question once (policy `unresolved_pairs`), which is the order in which Inspect comes
  with them. A policy that weights questions works too, but wants `max_samples` of several times their number.
- An error is no wrong answer: the next epoch of that question serves its trial. So give `fail_on_error=False`, and a
  few more epochs than `trials.max`. A model whose trials cannot be had is set aside, and the others go on.
- Give no `seed`: Inspect sends it in every epoch, and the trials of a question would be one and the same.

Settings of Inspect under which a comparison would hang or mislead are refused before a sample is run.
"""

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from adaptive_eval.errors import ConfigError
from adaptive_eval.exchange.epochs import DecisionSettings, Epoch, EpochController, EpochDecision, Epochs, rubric_of
from adaptive_eval.exchange.samples import LETTERS
from adaptive_eval.graders.rubric import Rubric
from adaptive_eval.record.results import Results
from adaptive_eval.store import Names

if TYPE_CHECKING:
    from inspect_ai.log import EvalSpec
if TYPE_CHECKING:
    from inspect_ai.dataset import Sample
    from inspect_ai.log import EvalSpec
    from inspect_ai.scorer import SampleScore


SIGNALS = frozenset({"score", "is_correct", "has_answer"})
"""What a rubric may ask of a score: its number, whether that is 1, and whether there was an answer."""


def require_scorable(rubric: Rubric) -> None:
    """Raise `ConfigError` for a rubric that needs what a score does not have."""
    missing = sorted(rubric.needs - SIGNALS)
    if missing:
        raise ConfigError(
            f"the rubric needs the signal {missing[0]}, but a score of another harness has only "
            f"{', '.join(sorted(SIGNALS))}; declare categories by `score`"
        )


def category_of(value: object, rubric: Rubric, scorer: str) -> int | None:
    """The category of a score; None where the scorer has given none (nan): then there is no trial."""
    number = _number(value, scorer)
    if math.isnan(number):
        return None
    if "score" not in rubric.needs and number not in (0.0, 1.0):
        raise ConfigError(
            f"scorer {scorer} gave {value!r}, but the rubric knows right and wrong alone; declare what it is worth: "
            "rubric: {categories: [{name: half, weight: 0.5, when: {score: {at_least: 0.5, below: 1}}}, ...]}"
        )
    return rubric.category({"score": number, "is_correct": number == 1.0, "has_answer": value != "N"})


def _number(value: object, scorer: str) -> float:
    if isinstance(value, str) and value in LETTERS:
        return LETTERS[value]
    if isinstance(value, bool | int | float):
        return float(value)
    raise ConfigError(
        f"scorer {scorer} gave {value!r:.80}, but a trial needs one number, true or false, or C, P, I or N; "
        "name a scorer that gives that"
    )


def require_usable(task: "EvalSpec", names: Sequence[str]) -> None:
    """Raise `ConfigError` for what cannot work."""
    config = task.config
    if task.model not in names:
        raise ConfigError(f"{task.model} is none of the manager's models, {', '.join(names)}; name it there")
    if len(names) > 1 and (config.max_tasks or 1) < len(names):
        raise ConfigError(
            f"{len(names)} models must run at the same time, since a look needs all of them, but max_tasks is "
            f"{config.max_tasks or 1}; run them in one call, eval(task, model=[...]), and leave max_tasks out"
        )
    if config.log_samples is False:
        raise ConfigError("log_samples is off, and then Inspect does not ask which samples to skip; leave it on")
    if config.retry_on_error:
        raise ConfigError(
            "retry_on_error puts a sample behind all that are held, where its turn may never come; leave it out: the "
            "next epoch serves the trial of one that failed"
        )
    if config.score_on_error:
        raise ConfigError("score_on_error would count failures as answers; leave it out")
    if (seed := task.model_generate_config.seed) is not None:
        raise ConfigError(
            f"{task.model} has seed={seed}, which Inspect sends in every epoch, so that the trials of a question would "
            "be one and the same; leave it out"
        )


try:
    from inspect_ai.util import EarlyStop
except ImportError as missing:
    raise ConfigError("the adapter for Inspect needs an extra; pip install 'adaptive-eval[inspect]'") from missing


MANAGER = "adaptive-eval"
GIVE_WAY_SECONDS = 0.5
"""How long nothing may move for a model before one of those that are held gives way."""
START_SECONDS = 300.0
"""How long after the first model the last one may begin."""
GAVE_WAY = "gave its place to a sample that is needed now; a larger max_samples avoids it"


@dataclass(slots=True, eq=False)
class _Lane:
    """One model."""

    number: int
    epochs: Epochs
    held: dict[Epoch, "asyncio.Future[str | None]"] = field(default_factory=dict)
    begun: bool = False
    over: bool = False
    moves: int = 0
    """Counts whatever happens to its epochs."""

    def let_go(self, here: Epoch, why: str | None) -> None:
        """Have an epoch that is held run, or be skipped for a reason."""
        held = self.held.pop(here, None)
        if held is not None and not held.done():
            held.set_result(why)


class AdaptiveStopping:
    """An `EarlyStopping` manager for one comparison; see the module's text."""

    def __init__(
        self, models: Sequence[str], decisions: DecisionSettings | None = None, *, scorer: str | None = None
    ) -> None:
        """`models` are named as in `eval`; `decisions` are the sections rubric, objective, stopping, allocation, trials
        and budget of a configuration; `scorer` is the one that counts, where a task has several."""
        if not models or len(set(models)) < len(models):
            raise ConfigError(f"models must be different names, one at least, but got {', '.join(models) or 'none'}")
        self._names, self._settings, self._scorer = Names(models), dict(decisions or {}), scorer
        self._rubric = rubric_of(self._settings, tuple(self._names))
        require_scorable(self._rubric)
        self._controller: EpochController | None = None
        self._lanes: list[_Lane] = []
        self._samples = Names(())
        """The ids of Inspect's samples, which are the questions."""
        self._epochs = 0
        self._began = self._ended = 0.0
        self._lane: ContextVar[_Lane] = ContextVar("lane")
        """Inspect does not say whose sample it asks about; it asks within the task of the model that has begun."""
        self._failure: ConfigError | None = None

    def result(self) -> Results | None:
        """The ranking, and everything else that results.json would say; None before the first look."""
        if self._controller is None:
            return None
        over = all(lane.over for lane in self._lanes)
        return self._controller.results(self._began, self._ended if over else time.time(), stopped=over)

    # -- what Inspect calls --------------------------------------------------------------------------------------

    async def start_task(self, task: "EvalSpec", samples: "list[Sample]", epochs: int) -> str:
        """A model begins."""
        ids = [str(sample.id) for sample in samples]
        try:
            own = _own_task()
            require_usable(task, tuple(self._names))
            if self._controller is None:
                self._begin(ids, epochs)
            lane = self._lanes[self._names.position_of(task.model)]
            self._require_alike(task.model, lane, ids, epochs)
        except ConfigError as error:
            self._fail(error)
            raise
        lane.begun = True
        self._lane.set(lane)
        own.add_done_callback(partial(self._task_over, lane))
        return MANAGER

    async def schedule_sample(self, id: str | int, epoch: int) -> EarlyStop | None:
        """Whether an epoch is to be skipped; the answer comes when that is known."""
        lane, here, controller = self._lane.get(), Epoch(self._samples.position_of(str(id)), epoch), self._opened()
        if (why := controller.why_over(lane.number)) is not None:
            return EarlyStop(id=id, epoch=epoch, reason=why)
        arrival = lane.epochs.arrive(here)
        self._moved(lane)
        match arrival:
            case EpochDecision.SKIP:
                return EarlyStop(id=id, epoch=epoch, reason=GAVE_WAY)
            case EpochDecision.HOLD:
                why = await self._hold(lane, here)
                if why is not None:
                    return EarlyStop(id=id, epoch=epoch, reason=why)
        _own_task().add_done_callback(partial(self._sample_over, lane, here))
        return None

    async def complete_sample(self, id: str | int, epoch: int, scores: "Mapping[str, SampleScore]") -> None:
        """An epoch has its scores."""
        lane, here, controller = self._lane.get(), Epoch(self._samples.position_of(str(id)), epoch), self._opened()
        name = self._counting(scores)
        category = category_of(scores[name].score.value, self._rubric, name)
        if category is not None:  # what has no score is lost, as `_sample_over` finds
            controller.complete(lane.number, here, category)
            self._moved(lane)
            self._let_go()

    async def complete_task(self) -> dict[str, Any]:
        """A model is through with its epochs."""
        lane, controller = self._lane.get(), self._opened()
        lane.over, self._ended = True, time.time()
        lane.epochs.close()
        controller.give_up_if_hopeless(lane.number)
        self._let_go()
        return {
            "samples_run": len(lane.epochs.done),
            "samples_lost": lane.epochs.lost,
            "samples_that_gave_way": lane.epochs.skipped,
            "why_stopped": controller.why_over(lane.number),
        }

    # -- the beginning -------------------------------------------------------------------------------------------

    def _begin(self, ids: Sequence[str], epochs: int) -> None:
        """Now the questions are known, and how many trials there can be."""
        self._controller = EpochController(tuple(self._names), ids, epochs, self._settings)
        self._lanes = [_Lane(number, one) for number, one in enumerate(self._controller.models)]
        self._samples = Names(ids)
        self._epochs, self._began = epochs, time.time()
        asyncio.get_running_loop().call_later(START_SECONDS, self._go_on_without_the_late)

    def _require_alike(self, name: str, lane: _Lane, ids: Sequence[str], epochs: int) -> None:
        if lane.begun:
            raise ConfigError(f"{name} has begun before; make a new manager for every eval, one for all its models")
        if set(ids) != set(self._samples) or epochs != self._epochs:
            raise ConfigError(
                f"{name} has {len(ids)} samples in {epochs} epochs, but the first model {len(self._samples)} in "
                f"{self._epochs}, or others; give every model the same samples and epochs"
            )

    # -- what is held, and how it goes on --------------------------------------------------------------------------

    async def _hold(self, lane: _Lane, here: Epoch) -> str | None:
        """Wait until an epoch is needed (None), or until it is known why it will not be."""
        held: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        lane.held[here] = held
        try:
            return await held
        finally:
            lane.held.pop(here, None)
            lane.epochs.leave(here)

    def _let_go(self) -> None:
        """Let what is held go on, where it is needed now or never will be."""
        controller = self._opened()
        for lane in self._lanes:
            why = controller.why_over(lane.number)
            for here in list(lane.held) if why is not None else list(lane.epochs.released()):
                lane.let_go(here, why)
            self._watch(lane)

    def _moved(self, lane: _Lane) -> None:
        lane.moves += 1
        self._watch(lane)

    def _watch(self, lane: _Lane) -> None:
        if lane.epochs.starved:
            asyncio.get_running_loop().call_later(GIVE_WAY_SECONDS, self._give_way, lane, lane.moves)

    def _give_way(self, lane: _Lane, moves: int) -> None:
        """Nothing has moved meanwhile: what is needed is behind those that are held."""
        if lane.moves == moves and (here := lane.epochs.give_way()) is not None:
            lane.let_go(here, GAVE_WAY)
            self._moved(lane)

    # -- what goes wrong -----------------------------------------------------------------------------------------

    def _sample_over(self, lane: _Lane, here: Epoch, task: "asyncio.Task[object]") -> None:
        """However a sample has ended; an error that comes as far as this ends all of its model."""
        if task.cancelled() or task.exception() is not None or self._failure is not None:
            return
        if self._opened().end(lane.number, here):
            self._let_go()
        self._moved(lane)

    def _task_over(self, lane: _Lane, task: "asyncio.Task[object]") -> None:
        """However the task of a model has ended."""
        if not lane.over:
            lane.over, self._ended = True, time.time()
            self._go_on_without(lane, "its task ended early, for the reason that Inspect's log has")

    def _go_on_without_the_late(self) -> None:
        for lane in self._lanes:
            if not lane.begun:
                self._go_on_without(lane, f"it did not begin within {START_SECONDS:.0f} s of the first model")

    def _go_on_without(self, lane: _Lane, reason: str) -> None:
        if self._failure is None:
            self._opened().set_aside(lane.number, reason)
            self._let_go()

    def _fail(self, error: ConfigError) -> None:
        """Have every model end with the error: what one of them cannot do, all of them cannot be compared in."""
        self._failure = error
        for lane in self._lanes:
            for held in lane.held.values():
                if not held.done():
                    held.set_exception(error)

    def _opened(self) -> EpochController:
        if self._failure is not None:
            raise self._failure
        assert self._controller is not None  # a task has begun
        return self._controller

    def _counting(self, scores: "Mapping[str, SampleScore]") -> str:
        """The scorer that counts."""
        names = ", ".join(scores) or "none"
        if self._scorer is None and len(scores) != 1:
            raise ConfigError(
                f"a sample must have one score, but has {names}; give the manager a `scorer`, one of these"
            )
        name = self._scorer if self._scorer is not None else next(iter(scores))
        if name not in scores:
            raise ConfigError(f"the manager's scorer is {name}, but a sample has {names}; name one of these")
        return name


def _own_task() -> "asyncio.Task[object]":
    """The task that runs this: of a sample, or of a model's whole evaluation."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    if task is None:
        raise ConfigError("the adapter needs Inspect on asyncio, which is its default; unset INSPECT_ASYNC_BACKEND")
    return task
