"""Take R0 from an earlier run, if its outcomes mean the same here (`prior`)."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from adaptive_eval.config.prepare import PreparedRun
from adaptive_eval.config.run import PriorEvidenceConfig
from adaptive_eval.errors import ConfigError
from adaptive_eval.questions import Question
from adaptive_eval.record.history import imported_cells
from adaptive_eval.record.prior import Outcomes, PriorOutcomes
from adaptive_eval.record.restore import StoredRun, open_run
from adaptive_eval.record.same_outcomes import grading_problems, prompt_problems, rubric_problems, sampling_changes
from adaptive_eval.store import PriorTaken
from adaptive_eval.store.whereabouts import is_run

MEND = (
    "R0 needs outcomes of the same questions; name them under prior_evidence.questions to use them as those of a "
    "related data set"
)


def take_prior(
    section: PriorEvidenceConfig, run: Path, prepared: PreparedRun, directory: Path, kept: PriorOutcomes | None
) -> PriorTaken:
    """Take R0 from the earlier run for the models that `kept` lacks; raises `ConfigError` if that is impossible."""
    if is_run(directory) and run.resolve() == directory.resolve():
        raise ConfigError("prior_evidence.run names the run itself; name an earlier one, or remove the section")
    if not is_run(run):
        raise ConfigError(f"prior_evidence.run: {run} holds no run; name the directory of one")
    with open_run(run) as earlier:
        sources = {name: section.models.get(name, name) for name in prepared.models}
        if problem := next(_problems(section, prepared, earlier, sources), None):
            raise ConfigError(f"prior_evidence: {run} {problem}")
        outcomes = _outcomes(section, prepared, earlier, sources, {} if kept is None else kept.outcomes)
        changes = tuple(map(str, sampling_changes(prepared, earlier, sources)))
    return PriorTaken(section.model_dump(mode="json"), earlier.setup.config.name, outcomes, sampled_otherwise=changes)


def _outcomes(
    section: PriorEvidenceConfig,
    prepared: PreparedRun,
    earlier: StoredRun,
    sources: Mapping[str, str],
    known: Mapping[str, Outcomes],
) -> Mapping[str, Outcomes]:
    """Outcomes by model: the `known` ones, and those of the earlier run for the other models."""
    found, theirs = dict(known), earlier.setup.roster.models
    depth = prepared.config.trials.min if section.depth is None else section.depth
    openings = first_outcomes(earlier, {source for name, source in sources.items() if name not in known})
    comes_from = _source_questions(section, prepared.questions, earlier.setup.questions)
    for name in [name for name in sources if name not in known]:
        whole = openings.get(sources[name], {})
        taken = {key: [one for old in olds for one in whole.get(old, [])[:depth]] for key, olds in comes_from.items()}
        found[name] = {key: some for key, some in taken.items() if some}
    if not any(found.values()):
        raise ConfigError(
            f"prior_evidence: {section.run} has no complete first round of any model of this run; its models are "
            f"{', '.join(theirs)}: name them under prior_evidence.models, as in {{new-name: old-name}}"
        )
    return found


def _source_questions(
    section: PriorEvidenceConfig, ours: Sequence[Question], theirs: Sequence[Question]
) -> dict[str, tuple[str, ...]]:
    """Questions of the earlier run whose outcomes each question of this run takes."""
    there = {question.id for question in theirs}
    if section.groups:
        members: dict[str, list[str]] = defaultdict(list)
        for question in theirs:
            members[str(question.cluster)].append(question.id)
        grouped = {question.id: section.groups.get(str(question.cluster)) for question in ours}
        return {key: tuple(members[group]) for key, group in grouped.items() if group is not None}
    named = section.questions or {question.id: question.id for question in ours}
    return {question.id: (named[question.id],) for question in ours if named.get(question.id) in there}


def _problems(
    section: PriorEvidenceConfig, prepared: PreparedRun, earlier: StoredRun, sources: Mapping[str, str]
) -> Iterator[str]:
    """Reasons why outcomes of the earlier run mean something else here."""
    theirs = earlier.setup.roster.models
    yield from rubric_problems(prepared.rubric, earlier.rubric)
    for name, source in section.models.items():
        if name not in prepared.models:
            yield f"cannot serve {name!r}, which is not a model of this run; they are {', '.join(prepared.models)}"
        if source not in theirs:
            yield f"has no model {source!r}; its models are {', '.join(theirs)}"
    if section.questions or section.groups:
        yield from _map_problems(section, prepared.questions, earlier.setup.questions)
        return
    there = earlier.setup.roster.questions
    if not any(question.id in there for question in prepared.questions):
        yield "has none of the questions of this run; they are matched by their ids"
    yield from prompt_problems(prepared, earlier, sources, MEND)
    yield from grading_problems(prepared, earlier)


def _map_problems(section: PriorEvidenceConfig, ours: Sequence[Question], theirs: Sequence[Question]) -> Iterator[str]:
    """Names in a map of questions or groups that the runs do not have."""
    for what, named, mine, old in (
        ("question", section.questions, {one.id for one in ours}, {one.id for one in theirs}),
        ("group", section.groups, {one.cluster for one in ours}, {one.cluster for one in theirs}),
    ):
        for key, source in named.items():
            if key not in mine:
                yield f"cannot serve the {what} {key!r}, which this run does not have"
            if source not in old:
                yield f"has no {what} {source!r}"


def first_outcomes(earlier: StoredRun, models: Collection[str]) -> dict[str, dict[str, list[int]]]:
    """Categories of each model's trials before its first look, in order; incomplete models are left out."""
    roster, least = earlier.setup.roster, earlier.setup.config.trials.min
    first = imported_cells(roster, earlier.reader, earlier.events)
    size = {
        (model, question): least if first is None else int(first[roster.cell(model, question)])
        for model in roster.models
        for question in roster.questions
        if model in models
    }
    found: dict[str, dict[str, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
    for one in earlier.reader.outcomes():
        if one.trial < size.get((one.model, one.question), 0) and one.category is not None:
            found[one.model][one.question][one.trial] = one.category
    short = {model for (model, key), trials in size.items() if len(found[model][key]) < trials}
    return {
        model: {key: [trials[at] for at in sorted(trials)] for key, trials in by_question.items()}
        for model, by_question in found.items()
        if model not in short
    }
