"""The configuration of an imported run: models and questions from its logs, and defaults for all else.

It is written into the run directory. With the addresses of the models filled in, `adaptive-eval run RUN/config.yaml
--run-dir RUN` continues the run. Rubric, grader and questions come from a given configuration, or from the logs.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.base.seeds import hashed_base
from adaptive_eval.config.decisions import LEAST_TRIALS, TrialsConfig
from adaptive_eval.config.document import escape_variables
from adaptive_eval.config.run import RunConfig
from adaptive_eval.config.settings_text import yaml_text
from adaptive_eval.config.task_sampling import load_run
from adaptive_eval.exchange.gather import RecordGatherer
from adaptive_eval.exchange.samples import LoggedSettings
from adaptive_eval.graders.registry import GRADERS
from adaptive_eval.graders.rubric import Rubric, RubricConfig, open_rubric
from adaptive_eval.graders.types import GraderOptions
from adaptive_eval.notes import ThresholdsFrozen
from adaptive_eval.questions import Question
from adaptive_eval.report.thresholds import thresholds_from_event, thresholds_from_run

CONFIG_FILE, QUESTIONS_FILE = "config.yaml", "questions.jsonl"
DEFAULT_GRADER = "exact"
UNKNOWN_URL = "http://fill-in.invalid/v1"
"""Placeholder in the stored configuration for an unknown address; no such host can exist."""
MIN_TRIALS, MAX_TRIALS = LEAST_TRIALS, TrialsConfig.model_fields["max"].default
"""Default trials per question before the first look, and at the horizon."""
NO_GRADER = (
    "# No grader is set, since the grader that the logs name, or `exact`, does not reproduce their grades. Add a",
    "# `grader:` that does, or grade everything by another one: adaptive-eval regrade RUN --config THIS_FILE",
)
HALF_WIDTH = 0.02
"""Half width of the interval of a single model, which cannot be ranked, as a share of the score range."""


def config_tree(
    gathering: RecordGatherer,
    questions: Sequence[Question],
    request: "ImportRequest",
    grader: GraderOptions | None,
    name: str,
) -> dict[str, Any]:
    """The configuration of the logs as plain values, without addresses; `grader` reproduces their grades."""
    trials, weights = gathering.trials, request.weights
    min_trials = min(MIN_TRIALS, *trials.values())
    by_model: Counter[str] = Counter()
    for (model, _), number in trials.items():
        by_model[model] += max(number, min_trials)
    max_trials = math.ceil(max(by_model.values()) / len(questions))
    fields = ("id", "prompt", "answer", *(["cluster"] if any(question.cluster for question in questions) else ()))
    tree: dict[str, Any] = {
        "name": name,
        "seed": hashed_base(sum(trials.values()), name, "import"),  # unlikely in the logs
        "questions": {"path": QUESTIONS_FILE, "fields": dict(zip(fields, fields, strict=True))},
        "models": [_model(name, settings) for name, settings in gathering.models.items()],
        **({} if grader is None else {"grader": {"kind": getattr(grader, "kind", None)}}),
        "rubric": rubric_tree(weights),
        "trials": {"min": min_trials, "max": max_trials if request.finished else max(MAX_TRIALS, max_trials)},
    }
    if len(gathering.models) == 1:
        low, high = (min(weights), max(weights)) if weights else (0.0, 1.0)
        tree["objective"] = {"kind": "precision", "half_width": HALF_WIDTH * (high - low)}
    return tree


def rubric_tree(weights: Sequence[float] | None) -> dict[str, Any]:
    """A rubric with a category for each score, as plain values."""
    if weights is None:
        return {"name": "binary"}
    lowest, *higher = sorted(weights)
    conditions = [{"name": f"score {value:g}", "weight": value, "when": {"score": value}} for value in higher]
    return {"categories": [{"name": f"score {lowest:g}", "weight": lowest}, *conditions], "name": "scores"}


def config_text(tree: Mapping[str, Any], runnable: bool) -> str:
    """The configuration as YAML, with variables to be filled in."""
    written = json.loads(escape_variables(json.dumps(tree)))
    variables = _make_distinct(_variable(model["name"]) for model in tree["models"])
    for model, variable in zip(written["models"], variables, strict=True):
        model["base_url"] = f"${{{variable}}}"
    return "\n".join([*_heading(runnable), *(() if "grader" in tree else NO_GRADER), yaml_text(written)])


def _make_distinct(names: Iterable[str]) -> list[str]:
    """The names, with a number appended to those that equal an earlier one."""
    distinct = dict[str, None]()
    for plain in names:
        name, number = plain, 2
        while name in distinct:
            name, number = f"{plain}_{number}", number + 1
        distinct[name] = None
    return list(distinct)


def question_lines(questions: Sequence[Question]) -> Iterator[str]:
    """The questions as JSON lines."""
    clustered = any(question.cluster is not None for question in questions)
    for question in questions:
        row: dict[str, object] = {"id": question.id, "prompt": question.prompt, "answer": question.answer}
        if question.choices:
            row["choices"] = list(question.choices)
        if clustered:
            row["cluster"] = question.cluster or ""
        yield json.dumps(row, ensure_ascii=True)


def run_name(path: Path) -> str:
    """Derive a valid run name from a directory."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", path.name).lstrip("._-")[:100] or "imported"


def _model(name: str, settings: LoggedSettings) -> dict[str, Any]:
    model: dict[str, Any] = {"name": name, "model": settings.served or name, "api": settings.api}
    if settings.sampling:
        model["sampling"] = dict(settings.sampling)
    if settings.system is not None:
        model["prompt"] = {"system": settings.system}
    return model


def _heading(runnable: bool) -> Iterator[str]:
    yield "# Written by `adaptive-eval import`: settings from the logs, and defaults for all others."
    if runnable:
        yield "# To continue the run, set the variables below to the addresses of the models, or write these here:"
        yield "#   adaptive-eval run THIS_FILE --run-dir ITS_FOLDER"
    else:
        yield "# The run cannot be continued with this file: the logs lack the prompt or answer key of a question,"
        yield "# or sampling differs between tasks. To request more trials, import them again with --config CONFIG."


def _variable(name: str) -> str:
    """The name of a variable for a model's address."""
    plain = re.sub(r"[^A-Z0-9]+", "_", name.upper()).strip("_") or "MODEL"
    return f"{plain}_URL" if plain[0].isalpha() else f"MODEL_{plain}_URL"


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """Options of an import."""

    files: Sequence[str]
    to: Path
    config: RunConfig | None = None
    """The configuration with models, questions, grader and rubric; None to take them from the logs."""
    grader: str | None = None
    """The grader of all texts, whatever their grades in the logs."""
    weights: Sequence[float] | None = None
    """The possible scores; None for 0 and 1."""
    scorer: str | None = None
    """The score to use if a log has several."""
    left_out: Sequence[str] = ()
    """Models and questions to ignore."""
    further: bool = False
    """Whether each file adds trials to those of earlier files."""
    repeats_are_samples: bool = False
    """Whether answers that repeat another one word for word count as trials."""
    finished: bool = False
    """Whether the run will not be continued, so that its only look may spend the whole error."""
    arguments: tuple[str, ...] | None = None
    """The arguments of `adaptive-eval run` that continue the run."""


@dataclass(frozen=True, slots=True)
class ImportTerms:
    """An import request with its rubric, grader and questions resolved."""

    request: ImportRequest
    rubric: Rubric
    grader: GraderOptions | None
    """Grades the texts; None to keep the grades of the logs."""
    questions: tuple[Question, ...] | None
    """The questions of the configuration, if there is one."""
    thresholds: ThresholdsFrozen | None = None
    """The thresholds that its rubric takes from an earlier run."""


def make_terms(request: ImportRequest) -> ImportTerms:
    """Resolve rubric, grader and questions; raises `ConfigError` if options contradict each other."""
    config = request.config
    if config is not None:
        excluded = (
            ("--grader", request.grader),
            ("--weights", request.weights),
            ("--finished", request.finished or None),
        )
        for option, value in excluded:
            if value is not None:
                raise ConfigError(f"{option} cannot be used with --config, which sets it; remove one of them")
        if config.recorded:
            names = ", ".join(config.models[at].name for at in sorted(config.recorded))
            raise ConfigError(
                f"answers of logs cannot be imported for a run with recorded models ({names}); remove `recorded`, and "
                "import the answers of these models too"
            )
        config, questions = load_run(config)
        request = replace(request, config=config)
        thresholds = thresholds_from_run(config.rubric, [question.id for question in questions])
        rubric = open_rubric(config.rubric, thresholds_from_event(thresholds))
        return ImportTerms(request, rubric, config.grader, questions, thresholds)
    if request.grader is not None and request.grader not in GRADERS:
        raise ConfigError(f"--grader must be one of {', '.join(GRADERS)}, but got {request.grader!r}")
    try:
        rubric = open_rubric(RubricConfig.model_validate_json(json.dumps(rubric_tree(request.weights))))
    except ValidationError as error:
        rule = f"--weights must be two or more different numbers, as in 0,0.5,1, but got {request.weights}"
        raise ConfigError(rule) from error
    try:
        grader = None if request.grader is None else _default_grader(request.grader)
    except ValidationError as error:
        rule = f"the grader {request.grader} has required options; give --config with a grader"
        raise ConfigError(rule) from error
    return ImportTerms(request, rubric, grader, None)


def likely_grader(models: Iterable[LoggedSettings]) -> GraderOptions:
    """The grader closest to that of the logs, if they name one, or the default."""
    return _default_grader(
        next((settings.grader for settings in models if settings.grader is not None), DEFAULT_GRADER)
    )


def _default_grader(kind: str) -> GraderOptions:
    return GRADERS[kind].model_validate({"kind": kind})
