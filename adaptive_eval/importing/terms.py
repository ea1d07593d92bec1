"""What an import judges by: rubric, grader and questions, of a configuration or of the logs themselves."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from adaptive_eval.config.run import RunConfig
from adaptive_eval.errors import ConfigError
from adaptive_eval.graders.registry import GRADERS
from adaptive_eval.graders.rubric import Rubric, RubricConfig, open_rubric
from adaptive_eval.graders.types import GraderOptions
from adaptive_eval.importing.configure import rubric_tree
from adaptive_eval.questions import Question, load_questions


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be imported, and as what."""

    files: Sequence[str]
    to: Path
    config: RunConfig | None = None
    """Whose models, questions, grader and rubric it has; None: those that the logs say."""
    grader: str | None = None
    """Grades every text, whatever its log says."""
    weights: Sequence[float] | None = None
    """The scores there may be; None: 0 and 1."""
    scorer: str | None = None
    """Which of a log's scores counts, where it has several."""
    left_out: Sequence[str] = ()
    """Models and questions that are passed over."""
    further: bool = False
    """The trials of each file come on top of those of the files before."""
    finished: bool = False
    """No more will be asked for, so that the one look may spend all of the error."""


@dataclass(frozen=True, slots=True)
class Terms:
    """A request, worked out."""

    request: Request
    rubric: Rubric
    grader: GraderOptions | None
    """Grades texts; None: the logs have grades."""
    questions: tuple[Question, ...] | None
    """Those of the configuration, where there is one."""


def terms_of(request: Request) -> Terms:
    """Raises `ConfigError` where the request contradicts itself, or its configuration has no questions."""
    config = request.config
    if config is not None:
        given = (("--grader", request.grader), ("--weights", request.weights), ("--finished", request.finished or None))
        for option, value in given:
            if value is not None:
                raise ConfigError(f"{option} stands against --config, which says that itself; give one of the two")
        questions = load_questions(config.questions, folder=config.folder, seed=config.seed)
        return Terms(request, open_rubric(config.rubric), config.grader, questions)
    rubric = _rubric(request.weights)
    return Terms(request, rubric, None if request.grader is None else _grader(request.grader), None)


def _rubric(weights: Sequence[float] | None) -> Rubric:
    tree: Mapping[str, object] = rubric_tree(weights)
    try:
        return open_rubric(RubricConfig.model_validate_json(json.dumps(tree)))
    except ValidationError as error:
        raise ConfigError(
            f"--weights must be two or more different numbers, as in 0,0.5,1, but got {weights}"
        ) from error


def _grader(kind: str) -> GraderOptions:
    if kind not in GRADERS:
        raise ConfigError(f"--grader must be one of {', '.join(GRADERS)}, but got {kind!r}")
    try:
        return GRADERS[kind].model_validate({"kind": kind})
    except ValidationError as error:
        raise ConfigError(f"the grader {kind} has options that must be given; give --config with a grader") from error
