"""Loads the questions of a run, and the sampling settings that a task of lm-evaluation-harness brings.

The settings are for models whose own `sampling` leaves them open. A run of one task sends them; in a run of several
benchmarks models have one sampling for all, so that a warning names them. Greedy answers are the same at every trial:
a task that wants these (`do_sample: false`, `temperature: 0`) does not set how tokens are drawn.

The stop sequences of a task (`until`) are sent to models that complete a text. Models that chat may think first, and
would be stopped in the middle of that; what follows a stop sequence is never graded.
"""

import json
from collections.abc import Mapping
from contextlib import chdir
from typing import Any, NamedTuple
from warnings import warn

from pydantic import ValidationError

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.config.normalise import LM_EVAL_ROWS
from adaptive_eval.config.other_answers import load_run_questions
from adaptive_eval.config.run import ModelConfig, RunConfig
from adaptive_eval.endpoints.types import Sampling
from adaptive_eval.questions import Question
from adaptive_eval.questions.benchmark import LM_EVAL_SAMPLING

DRAWING = ("temperature", "top_p", "top_k", "min_p")
MAX_STOPS = 4
"""Most stop sequences that OpenAI's servers accept; of more, the harness sends the first ones, too."""
GREEDY = "since greedy answers are the same at every trial: set sampling.temperature"
SHARED = "since models have one sampling for all benchmarks"
UNKNOWN = "which no setting of sampling stands for"


class LoadedRun(NamedTuple):
    """A configuration with its questions, and with the sampling settings that came with these."""

    config: RunConfig
    questions: tuple[Question, ...]


def load_run(config: RunConfig) -> LoadedRun:
    """Load the questions of a run; a warning says which settings of a task are sent, and which are not used."""
    questions = load_run_questions(config)
    several = config.questions.benchmarks
    for section in several.values() if several else [config.questions]:
        if section.function == LM_EVAL_ROWS:
            config = _with_settings(config, dict(section.options), several=bool(several))
    return LoadedRun(config, questions)


def _with_settings(config: RunConfig, options: dict[str, Any], *, several: bool) -> RunConfig:
    """The configuration with the sampling settings of a task."""
    # imported here: an extra
    from adaptive_eval.lm_eval.tasks import generation_settings

    options.pop("limit", None)
    with chdir(config.folder):
        settings = generation_settings(**options)
    asked = [model for model in config.models if model.recorded is None and model.inspect is None]
    wanted = _mapped(settings)
    greedy = settings.get("do_sample") is False or wanted.get("temperature") == 0
    drawn = [name for name in ("do_sample", *DRAWING) if name in settings] if greedy else []
    wanted = {key: value for key, value in wanted.items() if key not in drawn}
    filled = {} if several else {model.name: _left_open(model, wanted) for model in asked}
    sent = {key: value for own in filled.values() for key, value in own.items()}
    told = [f"sent where `sampling` does not say otherwise: {_listed(sent)}"] if sent else []
    unused = dict[str, Mapping[str, object]]()
    if any("temperature" not in model.sampling.model_fields_set for model in asked):
        unused[GREEDY] = {name: settings[name] for name in drawn}
    if several:
        unused[SHARED] = {key: value for model in asked for key, value in _left_open(model, wanted).items()}
    known = {"until", "do_sample", *LM_EVAL_SAMPLING}
    unused[UNKNOWN] = {name: value for name, value in settings.items() if name not in known}
    told += [f"not used: {_listed(values)}, {why}" for why, values in unused.items() if values]
    if told:
        warn(f"lm_eval: of the generation_kwargs of task {options['task']}, {'; '.join(told)}", stacklevel=2)
    models = tuple(_with_sampling(model, filled.get(model.name, {}), options["task"]) for model in config.models)
    return config.model_copy(update={"models": models})


def _mapped(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings by our names; stop sequences only if there are some."""
    mapped = {ours: settings[theirs] for theirs, ours in LM_EVAL_SAMPLING.items() if settings.get(theirs) is not None}
    until = settings.get("until")
    if stops := [one for one in ([until] if isinstance(until, str) else until or ()) if one]:
        mapped["stop"] = stops[:MAX_STOPS]
    return mapped


def _left_open(model: ModelConfig, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The wanted settings that a model's own sampling does not give, not even as null."""
    given = model.sampling.model_fields_set | (set() if model.api == "completions" else {"stop"})
    return {key: value for key, value in wanted.items() if key not in given}


def _with_sampling(model: ModelConfig, more: Mapping[str, Any], task: str) -> ModelConfig:
    """The model with further sampling settings."""
    if not more:
        return model
    own = model.sampling
    try:
        checked = Sampling.model_validate_json(json.dumps(more), strict=True)
    except (TypeError, ValidationError) as error:
        raise ConfigError(f"lm_eval: the generation_kwargs of task {task} cannot be sent: {error}") from error
    sampling = own.model_copy(update={key: getattr(checked, key) for key in more})
    return model.model_copy(update={"sampling": sampling})


def _listed(settings: Mapping[str, object]) -> str:
    return ", ".join(f"{name}: {json.dumps(value, default=str)}" for name, value in settings.items())
