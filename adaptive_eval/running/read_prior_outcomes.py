"""Read R0, and outcomes of recorded models, from earlier runs, if they mean the same here (`prior_outcomes`)."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import numpy as np

from adaptive_eval.base.errors import NEW_RUN, ConfigError
from adaptive_eval.base.lists import first_few
from adaptive_eval.config.fingerprint import differences
from adaptive_eval.config.prepare import PreparedRun
from adaptive_eval.config.run import ModelConfig, PriorConfig, RunConfig
from adaptive_eval.graders.rubric import Rubric, SchemaRubric
from adaptive_eval.machine.trial import Trial
from adaptive_eval.notes import (
    Json,
    OutcomesRecorded,
    PriorTaken,
    TrialsImported,
    TrialsRegraded,
    events_of_kind,
)
from adaptive_eval.notes.event import Change
from adaptive_eval.questions import Question
from adaptive_eval.questions.prompts import render
from adaptive_eval.report.alarms import alarmed_models, alarms_by_model
from adaptive_eval.report.needs import void_models
from adaptive_eval.report.results import Results
from adaptive_eval.report.stored import StoredRun, open_run
from adaptive_eval.report.warnings import LOGS
from adaptive_eval.running.prior_outcomes import (
    Recorded,
    imported_cells,
    outcomes_digest,
    stored_outcomes,
)
from adaptive_eval.store.database import has_tables

PRIOR_HINT = "R0 needs outcomes of the same questions, asked with the same prompt"


@contextmanager
def _open_earlier(run: Path, directory: Path, what: str) -> Iterator[StoredRun]:
    """Open an earlier run than that in `directory`; raises `ConfigError` if there is none."""
    if run.resolve() == directory.resolve():
        raise ConfigError(f"{what}: {run} is the run itself; name an earlier run")
    if not has_tables(run):
        raise ConfigError(f"{what}: {run} has no run; name a run directory")
    with open_run(run) as earlier:
        yield earlier


def take_prior(section: PriorConfig, prepared: PreparedRun, directory: Path, stored: PriorTaken | None) -> PriorTaken:
    """Take R0 from the other run for the models that `stored` lacks; raises `ConfigError` if that is impossible."""
    with _open_earlier(section.run, directory, "prior") as earlier:
        sources = {name: section.models.get(name, name) for name in prepared.models}
        if problem := next(_prior_problems(section, prepared, earlier, sources), None):
            raise ConfigError(f"prior: {section.run} {problem}")
        outcomes, kinds = ({}, {}) if stored is None else (dict(stored.outcomes), dict(stored.kinds or {}))
        missing = {name: source for name, source in sources.items() if name not in outcomes}
        if problem := next(_alarm_problems(earlier, missing), None):
            raise ConfigError(f"prior: {section.run} {problem}")
        first = _first_trials(earlier, {*missing.values()})
        for name, source in missing.items():
            rows = {
                question.id: [trial for trial in trials if trial.category is not None]
                for question in prepared.questions
                if question.id in first.get(source, {})
                for trials in [first[source][question.id][: prepared.config.trials.min]]
            }
            outcomes[name] = {key: [trial.category or 0 for trial in trials] for key, trials in rows.items()}
            if of_model := _kinds_of(rows):
                kinds[name] = of_model
        if not any(outcomes.values()):
            raise ConfigError(
                f"prior: {section.run} has no complete first round of any model of this run; its models are "
                f"{', '.join(earlier.setup.roster.models)}: name them under prior.models, as in {{new-name: old-name}}"
            )
        changes = tuple(map(str, sampling_changes(prepared, earlier, sources)))
        results = _results(earlier)
        labelled, alarms = (frozenset(), {}) if results is None else (results.corrected, alarms_by_model(results))
        corrected = [name for name, source in sources.items() if source in labelled] or None
        counted = {} if stored is None else dict(stored.alarms or {})
        counted |= {name: alarms[source] for name, source in missing.items() if source in alarms}
        same_seeds = stored is not None and bool(stored.same_seeds)
        same_seeds |= not changes and _has_same_seeds(prepared, earlier, missing)
        name = earlier.setup.config.name
    return PriorTaken(
        section.model_dump(mode="json"),
        name,
        outcomes,
        changes,
        kinds or None,
        corrected,
        counted or None,
        same_seeds or None,
    )


def _has_same_seeds(prepared: PreparedRun, earlier: StoredRun, sources: Mapping[str, str]) -> bool:
    """Whether a model has the seeds in this run that it had in the earlier one."""
    ours, theirs = prepared.config, earlier.setup.config
    is_same = (ours.seed, ours.trials.seeds) == (theirs.seed, theirs.trials.seeds)
    has_seeds = all(event.seeds_match for event in events_of_kind(earlier.events, TrialsImported))
    return is_same and has_seeds and any(name == source for name, source in sources.items())


def _results(earlier: StoredRun) -> Results | None:
    """The newest results of an earlier run, without what they say of each question."""
    return earlier.results(running=False, rows=False, sums=False)


def _alarm_problems(earlier: StoredRun, sources: Mapping[str, str], *, all_may_count: bool = False) -> Iterator[str]:
    """Alarms about models whose outcomes would be taken: their answers say more about a server. With `all_may_count`,
    those about incomplete answers are no problem where the earlier run lets all answers count."""
    results = _results(earlier)
    alarmed = {} if results is None else alarmed_models(results, earlier.events)
    if results is not None and all_may_count and results.setting("stopping", "on_alarm") == "never":
        alarmed = {}
    rows = {} if results is None else {row.model: row for row in results.alarms}
    for name, source in sources.items():
        if source in alarmed:
            row = rows.get(source)
            can_ask = results is not None and source in void_models(results)
            can_ask = can_ask or (row is not None and row.since is not None)
            go_on = "let it go on with --ask-again once the server is fixed, " if can_ask else ""
            fine = ""
            if row is None or not row.is_incomplete:
                fine = "; if nothing is wrong with them, let that run go on with --set stopping.on_alarm=never"
            yield (
                f"has an alarm about {source}: {alarmed[source]}. Such answers must not count here: {go_on}name "
                f"another run, or leave {name} out of this one{fine}"
            )


def _prior_problems(
    section: PriorConfig, prepared: PreparedRun, earlier: StoredRun, sources: Mapping[str, str]
) -> Iterator[str]:
    """Reasons why outcomes of the other run mean something else here."""
    theirs = earlier.setup.roster.models
    yield from rubric_problems(prepared.rubric, earlier.rubric)
    for name, source in section.models.items():
        if name not in prepared.models:
            yield f"cannot serve {name!r}, which is not a model of this run; they are {', '.join(prepared.models)}"
        if source not in theirs:
            yield f"has no model {source!r}; its models are {', '.join(theirs)}"
    their_questions = earlier.setup.roster.questions
    if not any(question.id in their_questions for question in prepared.questions):
        yield "has none of the questions of this run; they are matched by their ids"
    yield from prompt_problems(prepared, earlier, sources, PRIOR_HINT)
    yield from grading_problems(prepared, earlier)


def _first_trials(earlier: StoredRun, models: Collection[str]) -> dict[str, dict[str, list[Trial]]]:
    """Each model's trials before its first look by question, in order; a model that lacks some is left out."""
    roster, min_trials = earlier.setup.roster, earlier.setup.config.trials.min
    first = imported_cells(roster, earlier.reader)
    size = {
        (model, question): min_trials if first is None else int(first[roster.cell(model, question)])
        for model in roster.models
        for question in roster.questions
        if model in models
    }
    trials: dict[str, dict[str, list[Trial]]] = defaultdict(lambda: defaultdict(list))
    for model, question, trial in earlier.reader.graded_trials():
        if trial.number < size.get((model, question), 0) and trial.category is not None:
            trials[model][question].append(trial)
    short = {model for (model, key), number in size.items() if len(trials[model][key]) < number}
    return {
        model: {key: sorted(rows, key=attrgetter("number")) for key, rows in by_question.items() if rows}
        for model, by_question in trials.items()
        if model not in short
    }


SHOWN_QUESTIONS = 3
RECORDED_HINT = (
    "a recorded model needs outcomes of the same questions: use the questions of that run, give the model the `prompt` "
    "that it had there, or remove `recorded`"
)


def take_outcomes(prepared: PreparedRun, directory: Path, stored: Recorded) -> list[OutcomesRecorded]:
    """Take outcomes of recorded models that are not `stored` in `directory`; raises `ConfigError` if it cannot."""
    models_by_run: dict[Path, list[ModelConfig]] = {}
    for model in prepared.config.models:
        if model.recorded is not None and (
            model.name not in stored or stored[model.name].directory != str(model.recorded)
        ):
            models_by_run.setdefault(model.recorded, []).append(model)
    events = [
        event for run, models in models_by_run.items() for event in _take_from_run(prepared, directory, run, models)
    ]
    for event in events:
        if event.model in stored and stored[event.model].digest != event.digest:
            raise ConfigError(
                f"recorded model {event.model}: the run uses its outcomes from {stored[event.model].directory}, and "
                f"{event.directory} has others; name the first again, or {NEW_RUN}"
            )
    return [event for event in events if event.model not in stored]


def _take_from_run(
    prepared: PreparedRun, directory: Path, run: Path, models: Sequence[ModelConfig]
) -> Iterator[OutcomesRecorded]:
    names = ", ".join(model.name for model in models)
    with _open_earlier(run, directory, f"recorded models {names}") as stored:
        if problem := next(_recorded_problems(prepared, stored, models), None):
            raise ConfigError(f"recorded models {names}: {run} {problem}")
        before = stored_outcomes(stored.setup.config, stored.events)
        results = _results(stored)
        labelled, alarms = (frozenset(), {}) if results is None else (results.corrected, alarms_by_model(results))
        for model in models:
            earlier = before.get(model.model)
            corrected, alarm = True if model.model in labelled else None, alarms.get(model.model)
            if earlier is not None:  # they are known of the run that asked it
                corrected, alarm = earlier.corrected, earlier.alarm
            yield replace(_take_model(prepared, stored, earlier, model, run), corrected=corrected, alarm=alarm)


def _recorded_problems(prepared: PreparedRun, stored: StoredRun, models: Sequence[ModelConfig]) -> Iterator[str]:
    """Reasons why outcomes of the earlier run mean something else here, or are missing."""
    yield from rubric_problems(prepared.rubric, stored.rubric)
    their_questions = stored.setup.roster.questions
    missing = [question.id for question in prepared.questions if question.id not in their_questions]
    if missing:
        yield (
            f"did not ask {first_few(missing, SHOWN_QUESTIONS)}, and a recorded model needs outcomes of every "
            "question: remove the other questions, or remove `recorded`"
        )
    sources = {model.name: model.model for model in models}
    yield from grading_problems(prepared, stored)
    yield from prompt_problems(prepared, stored, sources, RECORDED_HINT)
    yield from _alarm_problems(stored, sources, all_may_count=True)


def _take_model(
    prepared: PreparedRun, stored: StoredRun, before: OutcomesRecorded | None, model: ModelConfig, run: Path
) -> OutcomesRecorded:
    """Take all outcomes of one model; raises `ConfigError` if some question has none.

    `before` are those that the earlier run itself has taken from another.
    """
    called, roster, keys = model.model, stored.setup.roster, [question.id for question in prepared.questions]
    if called not in roster.models:
        raise ConfigError(
            f"recorded model {model.name}: {run} has no model {called!r}; its models are "
            f"{', '.join(roster.models)}: name one under `model`"
        )
    if before is not None:
        outcomes: dict[str, Sequence[int | None]] = {key: before.outcomes[key] for key in keys}
        kinds = {key: of_answers for key, of_answers in (before.kinds or {}).items() if key in outcomes}
        source, called, meaning, seed = before.run, before.called, before.meaning, before.shared_seed
    else:
        rows = _judged_trials(stored, called, keys)
        outcomes = {key: [trial.category for trial in trials] for key, trials in rows.items()}
        kinds = _kinds_of(rows)
        source, meaning, seed = stored.setup.config.name, _meaning(stored, called), _shared_seed(stored, rows)
    if lacking := [key for key, categories in outcomes.items() if all(category is None for category in categories)]:
        drawn = stored.setup.config.trials.draw is not None
        hint = "that run asked some questions only (trials.draw): record one without"
        raise ConfigError(
            f"recorded model {model.name}: {run} has no graded answer of it to question {lacking[0]} in a complete "
            f"round; {hint if drawn else 'let that run go on first'}"
        )
    if problem := _seed_problem(prepared.config, seed):
        raise ConfigError(f"recorded model {model.name}: {run} {problem}")
    digest = outcomes_digest(outcomes, kinds, meaning)
    return OutcomesRecorded(model.name, str(run), source, called, outcomes, meaning, digest, kinds or None, seed)


def _judged_trials(stored: StoredRun, called: str, keys: Sequence[str]) -> dict[str, list[Trial]]:
    """The trials of a model's complete rounds by question, in the order of their numbers: as many graded ones as the
    newest report counts, and those without a grade among them."""
    rows: dict[str, list[Trial]] = {key: [] for key in keys}
    for row in stored.reader.graded_trials():
        if row.model == called and row.question in rows:
            rows[row.question].append(row.trial)
    judged = stored.counts()
    counts = judged.own[judged.roster.models.position(called)].sum(axis=-1)
    for key, trials in rows.items():
        trials.sort(key=attrgetter("number"))
        graded = np.cumsum([trial.category is not None for trial in trials])
        del trials[int(np.sum(graded <= counts[judged.roster.questions.position(key)])) :]
    return rows


def _kinds_of(rows: Mapping[str, Sequence[Trial]]) -> dict[str, Sequence[int]]:
    """By question, the kinds of answers, where one is not plain text."""
    return {
        key: [trial.kinds for trial in trials] for key, trials in rows.items() if any(trial.kinds for trial in trials)
    }


def _shared_seed(stored: StoredRun, rows: Mapping[str, Sequence[Trial]]) -> int | None:
    """The seed of the earlier run if its trials have the same seeds for all models, and none is missing."""
    config = stored.setup.config
    in_place = all(trial.number == place for trials in rows.values() for place, trial in enumerate(trials))
    imported = imported_cells(stored.setup.roster, stored.reader) is not None
    return config.seed if config.trials.seeds == "coupled" and in_place and not imported else None


def _seed_problem(config: RunConfig, seed: int | None) -> str | None:
    """Why recorded trials cannot be compared with those of this run one by one; None if they can, or if they need not
    be."""
    if config.trials.seeds != "coupled" or seed == config.seed:
        return None
    if seed is None:
        return (
            "lacks trials with the seeds that this run shares (trials.seeds: coupled): record it again with "
            f"`trials: {{seeds: coupled}}` and `seed: {config.seed}`, or remove trials.seeds here"
        )
    return f"asked with the seed {seed}, and the seed of this run is {config.seed}: set `seed: {seed}` here"


def _meaning(stored: StoredRun, called: str) -> Json:
    """Settings by which the outcomes of a model of the earlier run were asked and graded."""
    header = stored.reader.header()
    graded = {key: header.meaning[key] for key in ("grader", "rubric")}
    if is_graded_by_logs(stored):
        graded["grader"] = LOGS
    return {"model": header.models.get(called, {}), **graded}


REGRADE = (
    "put the grader and answer keys of this configuration into that of the other run, and grade that run again "
    "(`adaptive-eval regrade RUN --config ITS_CONFIG`)"
)
"""This configuration has models that the other run has not asked."""


def rubric_problems(ours: Rubric, theirs: Rubric) -> Iterator[str]:
    """Reasons why categories of an earlier run mean something else under our rubric."""
    if theirs.names != ours.names or theirs.weights != ours.weights:
        their_names, our_names = (", ".join(rubric.names) for rubric in (theirs, ours))
        yield f"was graded by another rubric ({their_names}, not {our_names}); `adaptive-eval regrade` it with this one"
        return
    fitted = (
        rubric.lacks or rubric.medians or (isinstance(rubric, SchemaRubric) and rubric.schema.thresholds)
        for rubric in (ours, theirs)
    )
    if ours != theirs and any(fitted):
        yield (
            "was graded with other thresholds, so its categories have another meaning; use its thresholds, as in "
            "`rubric: {thresholds: {from: RUN}}`"
        )


def grading_problems(prepared: PreparedRun, earlier: StoredRun) -> Iterator[str]:
    """Reasons why the same answers might have other grades here."""
    theirs, ours = earlier.reader.header().meaning["grader"], prepared.header.meaning["grader"]
    if theirs != ours and not any(event.graded_by is None for event in _imports(earlier)):
        yield f"was graded by another grader, or with other settings; {REGRADE}"
    for question, other in _common_questions(prepared, earlier):
        if question.answer and other.answer and question.answer != other.answer:
            yield f"was graded by another answer key to question {question.id!r}; {REGRADE}"


def prompt_problems(prepared: PreparedRun, earlier: StoredRun, sources: Mapping[str, str], hint: str) -> Iterator[str]:
    """Questions that the earlier run asked in other words; `sources` maps names of models here to those there."""
    ours, theirs = (
        {model.name: model for model in config.models} for config in (prepared.config, earlier.setup.config)
    )
    common, imported = _common_questions(prepared, earlier), bool(events_of_kind(earlier.events, TrialsImported))
    for name, source in sources.items():
        for question, other in common if source in theirs else ():
            asked = _question_as_sent(earlier.setup.config, theirs[source], other)
            sent = _question_as_sent(prepared.config, ours[name], question)
            if _prompts_differ(sent, asked) and (not imported or _prompts_differ(question, other)):
                yield f"asked {source} another text as question {question.id!r}; {hint}"


def sampling_changes(prepared: PreparedRun, earlier: StoredRun, sources: Mapping[str, str]) -> Iterator[Change]:
    """Sampling settings that differ in the earlier run; imported logs need not have any."""
    theirs, ours = earlier.reader.header().models, prepared.header.models
    imported = bool(events_of_kind(earlier.events, TrialsImported))
    for name, source in sources.items():
        before, now = theirs.get(source, {}).get("sampling", {}), ours[name].get("sampling", {})
        if source in theirs and (before or not imported):
            yield from differences(before, now, name)


def _common_questions(prepared: PreparedRun, earlier: StoredRun) -> list[tuple[Question, Question]]:
    by_id = {question.id: question for question in earlier.setup.questions}
    return [(question, by_id[question.id]) for question in prepared.questions if question.id in by_id]


def _question_as_sent(config: RunConfig, model: ModelConfig, question: Question) -> Question:
    """The question with the rendered prompt that the model is sent, if the prompt is known."""
    sent = render(config.prompt_of(model, question), question, "completions").text
    return replace(question, prompt=sent or "") if question.prompt else question


def _prompts_differ(question: Question, other: Question) -> bool:
    """Whether the prompts of two questions are both known and differ."""
    both_known = bool(question.prompt and other.prompt)
    return both_known and (question.prompt, question.choices) != (other.prompt, other.choices)


def is_graded_by_logs(earlier: StoredRun) -> bool:
    """Whether grades come from imported logs: results then warn that the grader may differ."""
    return any(event.graded_by is None or event.has_unchecked_grades for event in _imports(earlier))


def _imports(earlier: StoredRun) -> list[TrialsImported]:
    """The imports of an earlier run, unless it has graded all answers itself since."""
    regraded = any(event.answers is not None for event in events_of_kind(earlier.events, TrialsRegraded))
    return [] if regraded else events_of_kind(earlier.events, TrialsImported)
