"""Take outcomes of recorded models from earlier runs, if they mean the same here."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from adaptive_eval.config.prepare import PreparedRun
from adaptive_eval.config.run import ModelConfig
from adaptive_eval.errors import ConfigError
from adaptive_eval.record.lines import first_few
from adaptive_eval.record.recorded import LOGS, Recorded, outcomes_digest, stored_outcomes
from adaptive_eval.record.restore import StoredRun, open_run
from adaptive_eval.record.same_outcomes import grading_problems, is_graded_by_logs, prompt_problems, rubric_problems
from adaptive_eval.store import Json, OutcomesRecorded
from adaptive_eval.store.whereabouts import is_run

SHOWN_QUESTIONS = 3
MEND = (
    "a recorded model needs outcomes of the same questions: take those of that run, give it the `prompt` that it had "
    "there, or ask it anew"
)


def take_outcomes(prepared: PreparedRun, directory: Path, kept: Recorded) -> list[OutcomesRecorded]:
    """Take outcomes of recorded models that are not `kept` in `directory`; raises `ConfigError` if it cannot."""
    wanted: dict[Path, list[ModelConfig]] = {}
    for model in prepared.config.models:
        if model.recorded is not None and (model.name not in kept or kept[model.name].directory != str(model.recorded)):
            wanted.setdefault(model.recorded, []).append(model)
    found = [event for run, models in wanted.items() for event in _take_from_run(prepared, directory, run, models)]
    for event in found:
        if event.model in kept and kept[event.model].digest != event.digest:
            raise ConfigError(
                f"recorded model {event.model}: the run has taken its outcomes from {kept[event.model].directory}, and "
                f"{event.directory} has others; name that one again, or begin another run with --fresh"
            )
    return [event for event in found if event.model not in kept]


def _take_from_run(
    prepared: PreparedRun, directory: Path, run: Path, models: Sequence[ModelConfig]
) -> Iterator[OutcomesRecorded]:
    names = ", ".join(model.name for model in models)
    if run.resolve() == directory.resolve():
        raise ConfigError(f"recorded models {names}: {run} is the run itself; name an earlier one")
    if not is_run(run):
        raise ConfigError(f"recorded models {names}: {run} holds no run; name the directory of one")
    with open_run(run) as stored:
        if problem := next(_problems(prepared, stored, models), None):
            raise ConfigError(f"recorded models {names}: {run} {problem}")
        outcomes = _EarlierOutcomes(stored, prepared)
        for model in models:
            yield outcomes.take(model, run)


def _problems(prepared: PreparedRun, stored: StoredRun, models: Sequence[ModelConfig]) -> Iterator[str]:
    """Reasons why outcomes of the earlier run mean something else here, or are missing."""
    yield from rubric_problems(prepared.rubric, stored.rubric)
    there = stored.setup.roster.questions
    missing = [question.id for question in prepared.questions if question.id not in there]
    if missing:
        yield (
            f"did not ask {first_few(missing, SHOWN_QUESTIONS)}, and a recorded model needs outcomes of every "
            "question: ask only those that it has, or ask the models anew"
        )
    yield from grading_problems(prepared, stored)
    yield from prompt_problems(prepared, stored, {model.name: model.model for model in models}, MEND)


GO_ON = "let that run go on first"


class _EarlierOutcomes:
    """Outcomes of an earlier run, by its names of models."""

    def __init__(self, stored: StoredRun, prepared: PreparedRun) -> None:
        self._stored, self._prepared = stored, prepared
        self._before = stored_outcomes(stored.setup.config, stored.events)
        """Outcomes of models that were already recorded in the earlier run."""

    def take(self, model: ModelConfig, run: Path) -> OutcomesRecorded:
        """Take all outcomes of one model; raises `ConfigError` if some question has none."""
        called, roster = model.model, self._stored.setup.roster
        if called not in roster.models:
            raise ConfigError(
                f"recorded model {model.name}: {run} has no model {called!r}; its models are "
                f"{', '.join(roster.models)}: name one under `model`"
            )
        if (before := self._before.get(called)) is not None:
            return self._taken_before(before, model, run)
        counts, ungraded = self._counts(called), self._ungraded(called)
        if lacking := [key for key, each in counts.items() if not any(each)]:
            drawn = self._stored.setup.config.trials.draw is not None
            mend = "that run asked some questions only (trials.draw): record one without" if drawn else GO_ON
            raise ConfigError(
                f"recorded model {model.name}: {run} has no graded answer of it to question {lacking[0]} in a complete "
                f"round; {mend}"
            )
        meaning = self._meaning(called)
        return OutcomesRecorded(
            model.name,
            str(run),
            self._stored.setup.config.name,
            called,
            counts,
            ungraded,
            meaning,
            outcomes_digest(counts, ungraded, meaning),
        )

    def _taken_before(self, before: OutcomesRecorded, model: ModelConfig, run: Path) -> OutcomesRecorded:
        """Outcomes, on the questions of this run, that the earlier run itself took from another."""
        counts = {question.id: list(before.counts[question.id]) for question in self._prepared.questions}
        ungraded = {key: number for key, number in before.ungraded.items() if key in counts}
        digest = outcomes_digest(counts, ungraded, before.meaning)
        return OutcomesRecorded(
            model.name, str(run), before.run, before.called, counts, ungraded, before.meaning, digest
        )

    def _counts(self, called: str) -> Mapping[str, Sequence[int]]:
        judged = self._stored.counts()
        own = (judged.cells - judged.before)[judged.roster.models.position(called)]
        at = judged.roster.questions.position
        return {question.id: own[at(question.id)].tolist() for question in self._prepared.questions}

    def _ungraded(self, called: str) -> Mapping[str, int]:
        wanted = {question.id for question in self._prepared.questions}
        found: dict[str, int] = {}
        for one in self._stored.reader.outcomes():
            if one.model == called and one.category is None and one.question in wanted:
                found[one.question] = found.get(one.question, 0) + 1
        return found

    def _meaning(self, called: str) -> Json:
        header = self._stored.reader.header()
        asked = header.models.get(called, {})
        graded = {key: header.meaning[key] for key in ("grader", "rubric")}
        return {"model": asked, **graded} | ({"grader": LOGS} if is_graded_by_logs(self._stored) else {})
