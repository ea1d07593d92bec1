"""R0: outcomes of an earlier run that count as trials of this one (paper, 2.8).

What is taken are trials that the earlier run had before its first look, in their order: those of its first round, or
those that it had imported. Every question got them whatever was answered, while later ones went where the answers had
left something open. So R0 is selected by nothing, and since no question has more of it than this run has at its own
first look, it never outweighs what is asked anew.

With a `discount` a0 each outcome counts a0 (power prior: Ibrahim and Chen 2000). From a related data set R0 comes by a
map of questions, or of groups of them: then a question takes the shares of the categories over the whole group.

Greedy answers, one to each question at temperature 0, are R0 in the same way: a run of their own has asked for them
(`running.greedy`), and nothing was selected there either.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.config.prepare import PreparedRun
from adaptive_eval.config.run import PriorEvidenceConfig
from adaptive_eval.core.plan import NOTHING_SPENT, SpentBefore
from adaptive_eval.errors import ConfigError
from adaptive_eval.graders.rubric import Rubric, SchemaRubric
from adaptive_eval.questions import Question
from adaptive_eval.store import Event, Json, PriorTaken, RunReader, events_of_kind
from adaptive_eval.store.spending import stored_cost
from scorio.moments import CountArray

Outcomes = Mapping[str, Sequence[int]]
"""The categories of a model's first trials, by question."""


@dataclass(frozen=True, slots=True)
class PriorOutcomes:
    """Outcomes of an earlier run, by model of this one; empty for a model whose first round is incomplete there."""

    run: str
    """The earlier run's name."""
    outcomes: Mapping[str, Outcomes]
    discount: float = 1.0
    pooled: int | None = None
    """The outcomes of a question are those of a whole group, and count as so many; None: they are its own."""
    spent: SpentBefore = NOTHING_SPENT
    """Cost of these outcomes to this run."""

    def covers(self, models: Sequence[str]) -> bool:
        """Each of these models was looked for."""
        return self.outcomes.keys() >= set(models)

    def counts(
        self, models: Sequence[str], questions: Sequence[str], most: NDArray[np.integer], categories: int
    ) -> CountArray:
        """(L, M, K): R0, with at most `most` (L, M) outcomes of each question."""
        counts = np.zeros((*most.shape, categories))
        for model, name in enumerate(models):
            taken = self.outcomes.get(name, {})
            for question, key in enumerate(questions):
                room, some = int(most[model, question]), list(taken.get(key, ()))
                if self.pooled is None:
                    counts[model, question] = np.bincount(some[:room], minlength=categories)
                elif some:
                    shares = np.bincount(some, minlength=categories) / len(some)
                    counts[model, question] = min(self.pooled, room) * shares
        whole = self.discount == 1.0 and self.pooled is None
        return counts.astype(np.int64) if whole else self.discount * counts

    def event(self, section: PriorEvidenceConfig) -> PriorTaken:
        """The event that stores the outcomes."""
        return PriorTaken(section.model_dump(mode="json"), self.run, self.outcomes)


@dataclass(frozen=True, slots=True, eq=False)
class EarlierRun:
    """The run that R0 is taken from."""

    name: str
    models: tuple[str, ...]
    questions: tuple[Question, ...]
    rubric: Rubric
    first: NDArray[np.int32]
    """(L, M): the trials that its first look had to have."""


def kept_prior(section: PriorEvidenceConfig | None, events: Sequence[Event]) -> PriorOutcomes | None:
    """The outcomes that a run has stored for this section; None if there are none."""
    if section is None:
        return None
    kept = [
        event
        for event in events_of_kind(events, PriorTaken)
        if _source_settings(event.section) == _source_settings(section)
    ]
    return taken_prior(kept[-1], section) if kept else None


def taken_prior(event: PriorTaken, section: PriorEvidenceConfig) -> PriorOutcomes:
    """Convert the stored event to outcomes, with their cost."""
    spent = SpentBefore(event.trials, stored_cost(event))
    return replace(_weighted_outcomes(event.run, event.outcomes, section), spent=spent)


def _source_settings(section: PriorEvidenceConfig | Json) -> Json:
    """Settings that decide which outcomes are taken; `discount` does not."""
    given = section.model_dump(mode="json") if isinstance(section, PriorEvidenceConfig) else section
    since_then = {"questions": {}, "groups": {}, "greedy": False}
    return since_then | {key: value for key, value in given.items() if key != "discount"}


def _weighted_outcomes(run: str, outcomes: Mapping[str, Outcomes], section: PriorEvidenceConfig) -> PriorOutcomes:
    """Outcomes with the weights of the section."""
    pooled = None
    if section.groups:
        pooled = max((len(some) for taken in outcomes.values() for some in taken.values()), default=0)
        pooled = pooled if section.depth is None else section.depth
    return PriorOutcomes(run, outcomes, section.discount, pooled)


def read_prior(
    section: PriorEvidenceConfig,
    prepared: PreparedRun,
    earlier: EarlierRun,
    reader: RunReader,
    kept: PriorOutcomes | None,
) -> PriorOutcomes:
    """R0 from an earlier run, for the models that `kept` does not have; `ConfigError` says why there is none."""
    if problem := next(_problems(section, prepared, earlier), None):
        raise ConfigError(f"prior_evidence: {section.run} {problem}")
    known = {} if kept is None else dict(kept.outcomes)
    sources = {name: section.models.get(name, name) for name in prepared.models if name not in known}
    depth = prepared.config.trials.min if section.depth is None else section.depth
    openings = first_outcomes(reader, earlier, set(sources.values()))
    comes_from = _source_questions(section, prepared.questions, earlier.questions)
    for name, source in sources.items():
        whole = openings.get(source, {})
        taken = {key: [one for old in olds for one in whole.get(old, [])[:depth]] for key, olds in comes_from.items()}
        known[name] = {key: some for key, some in taken.items() if some}
    if not any(known.values()):
        raise ConfigError(
            f"prior_evidence: {section.run} has no complete first round of any model of this run; its models are "
            f"{', '.join(earlier.models)}: name them under prior_evidence.models, as in {{new-name: old-name}}"
        )
    return _weighted_outcomes(earlier.name, known, section)


def _source_questions(
    section: PriorEvidenceConfig, ours: Sequence[Question], theirs: Sequence[Question]
) -> dict[str, tuple[str, ...]]:
    """The questions of the earlier run whose outcomes each question of this run takes."""
    there = {question.id for question in theirs}
    if section.groups:
        members: dict[str, list[str]] = defaultdict(list)
        for question in theirs:
            members[str(question.cluster)].append(question.id)
        grouped = {question.id: section.groups.get(str(question.cluster)) for question in ours}
        return {key: tuple(members[group]) for key, group in grouped.items() if group is not None}
    named = section.questions or {question.id: question.id for question in ours}
    return {question.id: (named[question.id],) for question in ours if named.get(question.id) in there}


def _problems(section: PriorEvidenceConfig, prepared: PreparedRun, earlier: EarlierRun) -> Iterator[str]:
    """Reasons why outcomes of the earlier run mean something else here."""
    yield from rubric_problems(prepared.rubric, earlier.rubric)
    for name, source in section.models.items():
        if name not in prepared.models:
            yield f"cannot serve {name!r}, which is no model of this run; they are {', '.join(prepared.models)}"
        if source not in earlier.models:
            yield f"has no model {source!r}; its models are {', '.join(earlier.models)}"
    if section.questions or section.groups:
        yield from _map_problems(section, prepared.questions, earlier.questions)
        return
    theirs_by_id = {question.id: question for question in earlier.questions}
    common = [(question, theirs_by_id[question.id]) for question in prepared.questions if question.id in theirs_by_id]
    if not common:
        yield "has none of the questions of this run; they are matched by their ids"
    for ours_one, theirs_one in common:
        if asks_otherwise(ours_one, theirs_one):
            yield f"asked something else as question {ours_one.id!r}; R0 needs outcomes of the same questions"


def rubric_problems(ours: Rubric, theirs: Rubric) -> Iterator[str]:
    """Reasons why categories of an earlier run mean something else under our rubric."""
    if theirs.names != ours.names or theirs.weights != ours.weights:
        there, here = (", ".join(one.names) for one in (theirs, ours))
        yield f"was graded by another rubric ({there}, not {here}); `adaptive-eval regrade` it with this one"
        return
    fitted = (
        one.lacks or one.medians or (isinstance(one, SchemaRubric) and one.schema.thresholds) for one in (ours, theirs)
    )
    if ours != theirs and any(fitted):
        yield (
            "was graded with other thresholds, so that its categories mean something else; take them from it, with "
            "`rubric: {fit: {run: ...}}`"
        )


def _map_problems(section: PriorEvidenceConfig, ours: Sequence[Question], theirs: Sequence[Question]) -> Iterator[str]:
    """Names in a map that neither run has."""
    for what, named, mine, old in (
        ("question", section.questions, {one.id for one in ours}, {one.id for one in theirs}),
        ("group", section.groups, {one.cluster for one in ours}, {one.cluster for one in theirs}),
    ):
        for key, source in named.items():
            if key not in mine:
                yield f"cannot serve the {what} {key!r}, which this run does not have"
            if source not in old:
                yield f"has no {what} {source!r}"


def asks_otherwise(one: Question, other: Question) -> bool:
    """The prompts of two questions are both known, and differ."""
    known = bool(one.prompt and other.prompt)
    return known and (one.prompt, one.choices) != (other.prompt, other.choices)


def first_outcomes(reader: RunReader, earlier: EarlierRun, models: set[str]) -> dict[str, dict[str, list[int]]]:
    """Categories of each model's trials before its first look, in their order; without models that lack some."""
    size = {
        (model, question.id): int(earlier.first[row, column])
        for row, model in enumerate(earlier.models)
        for column, question in enumerate(earlier.questions)
        if model in models
    }
    found: dict[str, dict[str, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
    for one in reader.outcomes():
        if one.trial < size.get((one.model, one.question), 0) and one.category is not None:
            found[one.model][one.question][one.trial] = one.category
    short = {model for (model, key), trials in size.items() if len(found[model][key]) < trials}
    return {
        model: {key: [trials[at] for at in sorted(trials)] for key, trials in by_question.items()}
        for model, by_question in found.items()
        if model not in short
    }
