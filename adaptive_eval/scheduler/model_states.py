"""Models that are asked nothing more, and why.

A model is set aside when its servers do not answer, when too many of its answers cannot be graded, or when it uses more
than caps reserve: the core is told when the event is on disk, and goes on without it. If a model refuses its very first
request, the configuration is wrong, and the run ends. A model is settled when nothing can want it again, and parked
while nothing is asked of it.

Methods return the events to record; an error that they raise ends the run.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np

from adaptive_eval.base.errors import EndpointError, Rejected
from adaptive_eval.core.controller import Controller
from adaptive_eval.core.types import Cause, Lost
from adaptive_eval.store import AnswerUngraded, Event, ModelSetAside, ModelSettled, RunBegun, SettingsChanged

ELSEWHERE = "\nwhich of the other models can be used: adaptive-eval run CONFIG --dry-run"
"""Ends an error about some models when not all others have answered yet."""


class GradedBenchmarks:
    """The benchmarks of which some answer has a grade, so that their graders are known to work."""

    def __init__(self, benchmarks: Sequence[str] = (), with_grades: Collection[int] = ()) -> None:
        """`benchmarks`: the name of each question's benchmark, empty if there is one alone; `with_grades`: models whose
        answers come with their grades, and are lost without."""
        self._benchmarks, self._names, self._with_grades = benchmarks, {*benchmarks} or {""}, with_grades
        self._graded: set[tuple[int, str]] = set()

    def benchmark(self, question: int) -> str:
        """The benchmark of a question."""
        return self._benchmarks[question] if self._benchmarks else ""

    def add(self, model: int, question: int) -> None:
        """Note that an answer of a model has a grade."""
        self._graded.add((model, self.benchmark(question)))

    def has_grade(self, benchmark: str, model: int | None = None) -> bool:
        """Whether an answer in a benchmark has a grade: one of a model, or of any."""
        return any(name == benchmark and model in (None, of) for of, name in self._graded)

    def is_awaited(self, model: int) -> bool:
        """Whether answers of a model come with grades, and none has come in some benchmark."""
        return model in self._with_grades and not all(self.has_grade(name, model) for name in self._names)


class ModelStates:
    """Which models were set aside, have refused, are settled or parked."""

    def __init__(
        self,
        names: Sequence[str],
        recorded: Collection[int] = frozenset(),
        graded: GradedBenchmarks | None = None,
    ) -> None:
        """`recorded` models are never asked anything, so they do not count as departed."""
        self._names, self.recorded = names, frozenset(recorded)
        self.graded = graded or GradedBenchmarks()
        """The graders that are known to work."""
        self.aside: dict[int, Lost] = {}
        """Models that were set aside since this start."""
        self.refused: dict[int, str] = {}
        """Models that refused their first request, and why."""
        self.settled: set[int] = set()
        """Models that nothing can want again, as far as the run goes today."""
        self.parked: set[int] = set()
        """Models that are asked nothing more until trials of others want them again."""
        self.answers = [0] * len(names)
        """Requests of each model that were answered since this start."""
        self._reported_settled: set[str] = set()
        """Models that were reported as settled since the settings were last changed."""
        self._ungraded: dict[int, tuple[str, str]] = {}
        """By model, the first question since this start on which the grader failed, and its error."""

    def apply(self, event: Event) -> None:
        """Apply a recorded event, of these models alone."""
        match event:
            case RunBegun():  # what earlier starts have given up is asked again
                self.aside.clear()
                self._ungraded.clear()
            case ModelSetAside(model=name, reason=reason, cause=cause):
                self.aside.setdefault(self._names.index(name), Lost(cause, reason))
            case AnswerUngraded(model=name, question=question, error=error):
                self._ungraded.setdefault(self._names.index(name), (question, error))
            case SettingsChanged():  # it may want them again
                self._reported_settled.clear()
            case ModelSettled(model=name):
                self._reported_settled.add(name)

    def is_gone(self, model: int) -> bool:
        """Whether the model is asked nothing more."""
        return model in self.aside or model in self.refused

    # -- servers --------------------------------------------------------------------------------------------------

    @property
    def all_heard(self) -> bool:
        """Whether every model has answered or refused."""
        silent = self.refused.keys() | set(self.recorded)
        return all(answers or model in silent for model, answers in enumerate(self.answers))

    def refuses(self, model: int, error: EndpointError) -> bool:
        """Whether the error is a refusal of a model that has not answered yet, which is noted."""
        if isinstance(error, Rejected) and not self.answers[model]:
            self.refused.setdefault(model, str(error))
            return True
        return False

    def refusals(self) -> Rejected:
        """The error of a run whose models refuse."""
        told = [f"{self._names[model]}: {reason}" for model, reason in sorted(self.refused.items())]
        return Rejected("\n".join(told) + ("" if self.all_heard else ELSEWHERE))

    def drop_unserved(self, model: int, error: EndpointError) -> Iterable[Event]:
        """Set aside a model that cannot be served; if no model has answered yet, raise the error instead."""
        if any(self.answers):
            return self.set_aside(model, Lost(Cause.SERVER, str(error)))
        raise type(error)(f"{self._names[model]}: {error}{ELSEWHERE}")

    # -- set aside ------------------------------------------------------------------------------------------------

    def set_aside(self, model: int, lost: Lost) -> Iterable[Event]:
        """Go on without a model; the core is told when the event is on disk."""
        if model in self.aside:
            return ()
        self.aside[model] = lost
        return [ModelSetAside(self._names[model], lost.reason, lost.cause)]

    def ungraded(self, model: int, question: str, error: str) -> Iterable[Event]:
        """Report a model's first answer without a grade; the run goes on."""
        if model in self._ungraded:
            return ()
        self._ungraded[model] = (question, error)
        return [AnswerUngraded(self._names[model], question, error)]

    def set_aside_by_core(self, controller: Controller) -> Iterator[Event]:
        """Set aside the models that the core has set aside."""
        for model, lost in controller.set_aside.items():
            if lost.cause is Cause.GRADER and model in self._ungraded:
                example = "on question {}: {}".format(*self._ungraded[model])
                lost = lost._replace(reason=f"{lost.reason}; {example}")
            yield from self.set_aside(model, lost)

    # -- settled --------------------------------------------------------------------------------------------------

    def find_settled(self, controller: Controller, launched: Collection[int]) -> Iterator[Event]:
        """Settle the models that nothing can want again; each is reported once under the settings of today.

        The run starts the servers of `launched` models itself.
        """
        if controller.finished is not None:
            return
        self.parked = set(np.flatnonzero(controller.parked_models()).tolist())
        wanted = controller.still_wanted()
        self.settled = {model for model in range(len(self._names)) if not wanted[model] and model not in self.aside}
        for model in sorted(self.settled.difference(self.recorded)):
            name = self._names[model]
            if name not in self._reported_settled:
                self._reported_settled.add(name)
                yield ModelSettled(name, launched=model in launched)
