"""R0: outcomes of an earlier run that count as trials of this one (paper, 2.8).

What is taken are trials that the earlier run had before its first look, in their order: those of its first round, or
those that it had imported. Every question got them whatever was answered, while later ones went where the answers had
left something open. So R0 is selected by nothing, and since no question has more of it than this run has at its own
first look, it never outweighs what is asked anew.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.config.prepare import PreparedRun
from adaptive_eval.config.run import PriorEvidenceConfig
from adaptive_eval.errors import ConfigError
from adaptive_eval.graders.rubric import Rubric
from adaptive_eval.questions import Question
from adaptive_eval.store import Event, PriorTaken, RunReader, events_of_kind

Outcomes = Mapping[str, Sequence[int]]
"""The categories of a model's first trials, by question."""


@dataclass(frozen=True, slots=True)
class PriorOutcomes:
    """What was taken, by model of this run; nothing of a model that the earlier run does not have whole."""

    run: str
    """The earlier run's name."""
    outcomes: Mapping[str, Outcomes]

    def covers(self, models: Sequence[str]) -> bool:
        """Each of these models was looked for."""
        return self.outcomes.keys() >= set(models)

    def counts(
        self, models: Sequence[str], questions: Sequence[str], most: NDArray[np.integer], categories: int
    ) -> NDArray[np.int64]:
        """(L, M, K): R0, with at most `most` (L, M) outcomes of each question."""
        counts = np.zeros((*most.shape, categories), dtype=np.int64)
        for model, name in enumerate(models):
            taken = self.outcomes.get(name, {})
            for question, key in enumerate(questions):
                some = list(taken.get(key, ()))[: int(most[model, question])]
                counts[model, question] = np.bincount(some, minlength=categories)
        return counts

    def event(self, section: PriorEvidenceConfig) -> PriorTaken:
        """What the run keeps of it."""
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
    """What a run has kept for this section."""
    if section is None:
        return None
    wanted = section.model_dump(mode="json")
    kept = [event for event in events_of_kind(events, PriorTaken) if event.section == wanted]
    return PriorOutcomes(kept[-1].run, kept[-1].outcomes) if kept else None


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
    asked = {question.id for question in prepared.questions}
    depth = prepared.config.trials.min if section.depth is None else section.depth
    openings = _openings(reader, earlier, set(sources.values()))
    for name, source in sources.items():
        whole = openings.get(source, {})
        known[name] = {key: outcomes[:depth] for key, outcomes in whole.items() if key in asked}
    if not any(known.values()):
        raise ConfigError(
            f"prior_evidence: {section.run} has no complete first round of any model of this run; its models are "
            f"{', '.join(earlier.models)}: name them under prior_evidence.models, as in {{new-name: old-name}}"
        )
    return PriorOutcomes(earlier.name, known)


def _problems(section: PriorEvidenceConfig, prepared: PreparedRun, earlier: EarlierRun) -> Iterator[str]:
    """Why outcomes of the earlier run mean something else here."""
    if earlier.rubric.names != prepared.rubric.names or earlier.rubric.weights != prepared.rubric.weights:
        ours, theirs = (", ".join(one.rubric.names) for one in (prepared, earlier))
        yield f"was graded by another rubric ({theirs}, not {ours}); `adaptive-eval regrade` it with this one"
    for name, source in section.models.items():
        if name not in prepared.models:
            yield f"cannot serve {name!r}, which is no model of this run; they are {', '.join(prepared.models)}"
        if source not in earlier.models:
            yield f"has no model {source!r}; its models are {', '.join(earlier.models)}"
    theirs_by_id = {question.id: question for question in earlier.questions}
    common = [(question, theirs_by_id[question.id]) for question in prepared.questions if question.id in theirs_by_id]
    if not common:
        yield "has none of the questions of this run; they are matched by their ids"
    for ours_one, theirs_one in common:
        if _differ(ours_one, theirs_one):
            yield f"asked something else as question {ours_one.id!r}; R0 needs outcomes of the same questions"


def _differ(one: Question, other: Question) -> bool:
    """Both are known, and they are not the same."""
    known = bool(one.prompt and other.prompt)
    return known and (one.prompt, one.choices) != (other.prompt, other.choices)


def _openings(reader: RunReader, earlier: EarlierRun, models: set[str]) -> dict[str, dict[str, list[int]]]:
    """The categories of each model's trials before the first look, in their order; only where none is missing."""
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
