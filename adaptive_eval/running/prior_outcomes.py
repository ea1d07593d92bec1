"""Outcomes of earlier runs that a run has stored: R0, and those of recorded models.

R0 counts as trials of this run (paper, 2.8). It has trials that the earlier run had before its first look, in order:
those of its first round, or imported ones. Every question got them regardless of the answers, while later trials went
to open comparisons. So R0 is not selected by outcomes. No question has more of it than this run has at its own first
look, so it never outweighs new trials. Incomplete answers count as in a run: no verdict stands that they could
undo. Without them R0 would be selected, since hard questions have more of them.

Of a recorded model all outcomes of complete rounds are taken once, when the run begins, and stored with how they were
asked and graded. The earlier run may go on, change or be deleted: this run keeps its copy. It may have stopped because
of its outcomes, which does little harm: a model is asked until its comparisons are decided,
which moves its score by a small part of its standard error. Outcomes of the opening alone would have no such bias, but
are too few to place most models.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b

import numpy as np
import orjson
from numpy.typing import NDArray

from adaptive_eval.base.roster import Roster
from adaptive_eval.config.planning import PriorKnowledge
from adaptive_eval.config.run import PriorConfig, RunConfig
from adaptive_eval.core.rounds import MISSING, UNGRADED
from adaptive_eval.core.settings import RecordedTrials
from adaptive_eval.graders.rubric import Rubric, open_rubric, unsure_grades
from adaptive_eval.notes import Event, Json, OutcomesRecorded, PriorTaken, events_of_kind
from adaptive_eval.notes.beginnings import TrialsImported
from adaptive_eval.report.reader import RunReader


def stored_prior(section: PriorConfig | None, events: Sequence[Event]) -> PriorTaken | None:
    """Outcomes that a run has stored for this section; None if there are none."""
    if section is None:
        return None
    wanted = section.model_dump(mode="json")
    return next((event for event in reversed(events_of_kind(events, PriorTaken)) if event.section == wanted), None)


def prior_counts(
    prior: PriorTaken,
    models: Sequence[str],
    questions: Sequence[str],
    limits: NDArray[np.integer],
    rubric: Rubric,
    *,
    in_gate: bool = False,
) -> PriorKnowledge:
    """R0 as counts (L, M, K), with at most `limits` (L, M) outcomes of each question."""
    categories, rule = len(rubric.weights), unsure_grades(rubric, in_gate=in_gate)
    counts = np.zeros((*limits.shape, categories), dtype=np.int64)
    unsure = np.zeros_like(counts)
    for model, name in enumerate(models):
        by_question, kinds = prior.outcomes.get(name, {}), (prior.kinds or {}).get(name, {})
        for question, key in enumerate(questions):
            outcomes = np.array(by_question.get(key, ()), dtype=np.uint8)[: limits[model, question]]
            uncertain = outcomes[rule.mask(_kinds_in(kinds, key, len(outcomes)), outcomes)]
            counts[model, question] = np.bincount(outcomes, minlength=categories)
            unsure[model, question] = np.bincount(uncertain, minlength=categories)
    return PriorKnowledge(counts, unsure=unsure if unsure.any() else None)


def _kinds_in(kinds: Mapping[str, Sequence[int]], question: str, answers: int) -> NDArray[np.uint8]:
    """The kinds of so many answers to a question."""
    stored = np.array(kinds.get(question, ()), dtype=np.int64)[:answers].astype(np.uint8)
    return np.concatenate([stored, np.zeros(answers - len(stored), dtype=np.uint8)])


Recorded = Mapping[str, OutcomesRecorded]
"""Recorded outcomes by model of this run."""


def stored_outcomes(config: RunConfig, events: Sequence[Event]) -> Recorded:
    """Stored outcomes of the configuration's recorded models."""
    named = {config.models[number].name for number in config.recorded}
    return {event.model: event for event in events_of_kind(events, OutcomesRecorded) if event.model in named}


def recorded_counts(recorded: Recorded, roster: Roster, rubric: Rubric, *, in_gate: bool) -> PriorKnowledge:
    """All outcomes, as counts and one by one."""
    categories, rule = len(rubric.weights), unsure_grades(rubric, in_gate=in_gate)
    longest = max(len(row) for event in recorded.values() for row in event.outcomes.values())
    trials = np.full((len(roster.models), len(roster.questions), longest), MISSING, dtype=np.uint8)
    is_unsure = np.zeros(trials.shape, dtype=bool)
    for name, event in recorded.items():
        model = roster.models.position(name)
        for question, key in enumerate(roster.questions):
            outcomes = [UNGRADED if category is None else category for category in event.outcomes[key]]
            row = np.array(outcomes, dtype=np.uint8)
            trials[model, question, : len(row)] = row
            is_unsure[model, question, : len(row)] = rule.mask(_kinds_in(event.kinds or {}, key, len(row)), row)
    counts, unsure = (
        np.stack([((trials == category) & mask).sum(axis=-1) for category in range(categories)], axis=-1)
        for mask in (True, is_unsure)
    )
    return PriorKnowledge(counts, RecordedTrials(trials, is_unsure), unsure if unsure.any() else None)


def outcomes_digest(
    outcomes: Mapping[str, Sequence[int | None]], kinds: Mapping[str, Sequence[int]], meaning: Json
) -> str:
    """Digest of outcomes and their meaning."""
    data = orjson.dumps([outcomes, kinds, meaning], option=orjson.OPT_SORT_KEYS)
    return blake2b(data, digest_size=16).hexdigest()


Cells = NDArray[np.int32]
"""Trials (L, M) of models and questions."""


def make_prior_knowledge(
    config: RunConfig, roster: Roster, imported: Cells | None, prior: PriorTaken | None, recorded: Recorded
) -> PriorKnowledge:
    """All outcomes of recorded models, or else R0: per question no more than was imported or the first round asks."""
    rubric = open_rubric(config.rubric)
    if recorded:
        return recorded_counts(recorded, roster, rubric, in_gate=config.objective.gate)
    if prior is None:
        return PriorKnowledge()
    imported_counts = np.zeros((len(roster.models), len(roster.questions)), np.int32) if imported is None else imported
    limits = np.maximum(imported_counts, config.trials.min)
    models, questions = tuple(roster.models), tuple(roster.questions)
    return prior_counts(prior, models, questions, limits, rubric, in_gate=config.objective.gate)


def imported_cells(roster: Roster, reader: RunReader) -> Cells | None:
    """Imported trials (L, M) whose seeds are not those of the configuration, with gaps before the highest number; None
    if there are none."""
    notes = reader.log.notes()
    ends = [seq for seq, note in notes if note.kind == TrialsImported.KIND and not note.body.get("seeds_match")]
    return stored_cells(roster, reader, ends[-1]) if ends else None


def stored_cells(roster: Roster, reader: RunReader, until: int, *, first_round: bool = False) -> Cells:
    """(L, M): one more than the highest trial number up to a place in the log; 0 without a trial."""
    cells = np.zeros((len(roster.models), len(roster.questions)), dtype=np.int32)
    for extent in reader.cells(until, first_round=first_round):
        if (extent.model, extent.question) in roster:
            cells[roster.cell(extent.model, extent.question)] = extent.extent
    return cells
