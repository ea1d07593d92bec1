"""Loads the questions of a run, and the sampling settings of a task of lm-evaluation-harness.

The settings apply to models that do not set them in `sampling`. A run of a single task sends them. With several
benchmarks each model has one sampling for all, so they are only reported in a warning. Greedy answers are the same at
every trial, so a greedy task (`do_sample: false`, `temperature: 0`) does not set how tokens are drawn.

The stop sequences of a task (`until`) are sent to completion models only. They could stop a chat model in the middle of
its reasoning; text after a stop sequence is never graded.
"""

import json
from collections.abc import Mapping
from contextlib import chdir
from typing import Any
from warnings import warn

from pydantic import ValidationError

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.config.document import read_environment
from adaptive_eval.config.normalise import LM_EVAL_ROWS
from adaptive_eval.config.run import ModelConfig, RunConfig
from adaptive_eval.endpoints.types import Sampling
from adaptive_eval.graders.by_benchmark import graders_by_benchmark
from adaptive_eval.questions import Question, load_questions
from adaptive_eval.questions.benchmark import LM_EVAL_SAMPLING, BenchmarkConfig
from adaptive_eval.questions.readers import FileRow
from adaptive_eval.questions.types import QuestionsConfig

DRAWING = ("temperature", "top_p", "top_k", "min_p")
MAX_STOPS = 4
"""Maximum number of stop sequences for OpenAI's servers; the harness sends the first ones, too."""
GREEDY = "since greedy answers are the same at every trial: set sampling.temperature"
SHARED = "since models have one sampling for all benchmarks"
UNKNOWN = "for which sampling has no setting"


def load_run(config: RunConfig) -> tuple[RunConfig, tuple[Question, ...]]:
    """The configuration with the sampling settings of its task, and its questions. A warning tells which settings are
    sent or not used."""
    questions = _load_questions(config)
    benchmarks = config.questions.benchmarks
    for section in benchmarks.values() if benchmarks else [config.questions]:
        if section.function == LM_EVAL_ROWS:
            config = _with_settings(config, dict(section.options), has_several=bool(benchmarks))
    return config, questions


def _load_questions(config: RunConfig) -> tuple[Question, ...]:
    """Load the questions of a run, those of Inspect tasks too."""
    sections, rows = dict(config.questions.benchmarks) or {"": config.questions}, dict[str, list[FileRow]]()
    for name, task in config.inspect_tasks.items():
        if task is not None:
            sections[name], rows[name] = _samples(name, sections[name], task, config)
    section = sections.get("") or config.questions.model_copy(update={"benchmarks": sections})
    keyless = [name for name, part in graders_by_benchmark(config.grader).items() if part.comes_with_answer]
    return load_questions(section, folder=config.folder, seed=config.seed, rows=rows, keyless=keyless)


def _samples(
    name: str, section: QuestionsConfig, task: BenchmarkConfig, config: RunConfig
) -> tuple[QuestionsConfig, list[FileRow]]:
    """The samples of an Inspect task as rows of questions; if any lacks a target, none has an answer key."""
    # imported here: only Inspect tasks need it
    from adaptive_eval.inspect.process import list_task

    listed = list_task(name, task, config.folder, read_environment(config.folder))
    if not all(str(row["answer"]).strip() for row in listed):
        section = section.model_copy(update={"fields": section.fields.model_copy(update={"answer": None})})
    return section, [FileRow(f"sample {number}", row) for number, row in enumerate(listed, start=1)]


def _with_settings(config: RunConfig, options: dict[str, Any], *, has_several: bool) -> RunConfig:
    """The configuration with the sampling settings of a task."""
    # imported here: it needs an extra
    from adaptive_eval.lm_eval.tasks import generation_settings

    options.pop("limit", None)
    with chdir(config.folder):
        settings = generation_settings(**options)
    asked = [model for model in config.models if model.gets_sampling]
    task_settings = _mapped(settings)
    greedy = settings.get("do_sample") is False or task_settings.get("temperature") == 0
    drawn = [name for name in ("do_sample", *DRAWING) if name in settings] if greedy else []
    task_settings = {key: value for key, value in task_settings.items() if key not in drawn}
    filled = {} if has_several else {model.name: _left_open(model, task_settings) for model in asked}
    sent = {key: value for settings_of_model in filled.values() for key, value in settings_of_model.items()}
    messages = [f"sent unless `sampling` overrides them: {_listed(sent)}"] if sent else []
    unused = dict[str, Mapping[str, object]]()
    if any("temperature" not in model.sampling.model_fields_set for model in asked):
        unused[GREEDY] = {name: settings[name] for name in drawn}
    if has_several:
        unused[SHARED] = {key: value for model in asked for key, value in _left_open(model, task_settings).items()}
    used_keys = {"until", "do_sample", *LM_EVAL_SAMPLING}
    unused[UNKNOWN] = {name: value for name, value in settings.items() if name not in used_keys}
    messages += [f"not used: {_listed(values)}, {why}" for why, values in unused.items() if values]
    if messages:
        warn(f"lm_eval: of the generation_kwargs of task {options['task']}, {'; '.join(messages)}", stacklevel=2)
    models = tuple(_with_sampling(model, filled.get(model.name, {}), options["task"]) for model in config.models)
    return config.model_copy(update={"models": models})


def _mapped(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings under our names, with stop sequences if there are any."""
    mapped = {ours: settings[theirs] for theirs, ours in LM_EVAL_SAMPLING.items() if settings.get(theirs) is not None}
    until = settings.get("until")
    if stops := [sequence for sequence in ([until] if isinstance(until, str) else until or ()) if sequence]:
        mapped["stop"] = stops[:MAX_STOPS]
    return mapped


def _left_open(model: ModelConfig, task_settings: Mapping[str, Any]) -> dict[str, Any]:
    """The task's settings that a model's sampling does not set, not even to null."""
    chosen = model.sampling.model_fields_set | (set() if model.api == "completions" else {"stop"})
    return {key: value for key, value in task_settings.items() if key not in chosen}


def _with_sampling(model: ModelConfig, task_settings: Mapping[str, Any], task: str) -> ModelConfig:
    """The model with the task's sampling settings."""
    if not task_settings:
        return model
    current = model.sampling
    try:
        checked = Sampling.model_validate_json(json.dumps(task_settings), strict=True)
    except (TypeError, ValidationError) as error:
        raise ConfigError(f"lm_eval: the generation_kwargs of task {task} cannot be sent: {error}") from error
    sampling = current.model_copy(update={key: getattr(checked, key) for key in task_settings})
    return model.model_copy(update={"sampling": sampling})


def _listed(settings: Mapping[str, object]) -> str:
    return ", ".join(f"{name}: {json.dumps(value, default=str)}" for name, value in settings.items())
