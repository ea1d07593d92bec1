"""Tasks of lm-evaluation-harness as sources of questions and graders.

The harness writes the prompts, with few-shot examples, and grades answers by the task's filters and `process_results`;
requests, retries and decisions are ours. A question stores its document, so that later changes of the data set do not
affect grading.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from adaptive_eval.base.errors import ConfigError, GraderError
from adaptive_eval.base.imports import load_extra
from adaptive_eval.graders.answer_text import final_text
from adaptive_eval.graders.rubric import DeclaredRubric, Rubric, SignalBounds
from adaptive_eval.graders.types import score_signals
from adaptive_eval.questions.readers import use_cache_without_hub
from adaptive_eval.questions.types import Question

FEW_SHOT_SEED = 1234
"""The harness's default, so that prompts have its examples."""
DOCUMENT = "doc"
"""The field of a question with the task's document, as JSON."""
GENERATES = "generate_until"
FILE_KINDS = {"json", "csv", "parquet", "text"}
"""Values of `dataset_path` for local files; others name a data set."""


@cache
def load_task(task: str, num_fewshot: int | None, include_path: str | None) -> Any:
    """The harness's task of this name; raises `ConfigError` if it cannot be loaded or generates no text."""
    harness = load_extra("lm_eval.tasks", "lm-eval", "tasks of lm-evaluation-harness")
    manager = _manager(harness, task, include_path)
    if task not in manager.all_subtasks:
        raise ConfigError(f"lm_eval: there is no task {task!r}{_name_hint(manager, task)}")
    settings = manager.task_index[task].cfg
    _require_text(task, settings.get("output_type") or GENERATES)
    hub_hint = "" if settings.get("dataset_path") in FILE_KINDS else use_cache_without_hub()
    try:
        loaded = manager.load([task])["tasks"][task]
    except Exception as error:  # data sets, templates and code of tasks raise errors of many libraries
        raise ConfigError(f"lm_eval: task {task} could not be loaded: {error}{hub_hint}") from error
    _require_text(task, loaded.OUTPUT_TYPE)
    if getattr(loaded, "UNSAFE_CODE", False):
        raise ConfigError(f"lm_eval: task {task} runs code that models write. Run it in a sandbox instead")
    if getattr(loaded, "MULTIMODAL", False):
        raise ConfigError(f"lm_eval: task {task} has images or audio; only text is supported. Choose a text task")
    loaded.set_config("num_fewshot", num_fewshot if num_fewshot is not None else loaded.config.num_fewshot or 0)
    return loaded


def _require_text(task: str, kind: str) -> None:
    if kind != GENERATES:
        raise ConfigError(
            f"lm_eval: task {task} compares log-likelihoods ({kind}), which are the same in every trial, so "
            f"repeated trials add nothing. Choose a task that generates text ({GENERATES})"
        )


def _manager(harness: Any, task: str, include_path: str | None) -> Any:
    """The tasks of the folder if the task is among them; otherwise also those of the harness, which takes seconds."""
    if include_path is not None:
        folder = str(Path(include_path).absolute())
        in_folder = harness.TaskManager(include_path=folder, include_defaults=False)
        return in_folder if task in in_folder.all_subtasks else harness.TaskManager(include_path=folder)
    return harness.TaskManager()


def _name_hint(manager: Any, name: str) -> str:
    """A hint on how to find the name of a task."""
    if name in manager.all_groups or name in manager.all_tags:
        return ", but a group of that name; choose one of its tasks"
    return "; `lm_eval ls tasks` lists the tasks, and include_path adds a folder of your own"


def rows(
    task: str, num_fewshot: int | None = None, include_path: str | None = None, limit: int | None = None
) -> Iterator[Mapping[str, Any]]:
    """The task's documents in order, each with the prompt that the harness makes of it."""
    loaded = load_task(task, num_fewshot, include_path)
    loaded.set_fewshot_seed(FEW_SHOT_SEED)
    for number, document in loaded.doc_iterator(rank=0, limit=limit, world_size=1):
        prompt = loaded.fewshot_context(
            document, num_fewshot=loaded.config.num_fewshot, gen_prefix=loaded.doc_to_prefix(document)
        )
        try:
            document_json = json.dumps(document, ensure_ascii=False)
        except TypeError as error:
            raise ConfigError(f"lm_eval: document {number} of task {task} is not plain data: {error}") from error
        yield {"id": str(number), "prompt": prompt, "answer": _target(loaded, document), DOCUMENT: document_json}


def generation_settings(
    task: str, num_fewshot: int | None = None, include_path: str | None = None
) -> Mapping[str, Any]:
    """The task's `generation_kwargs`: the sampling settings that the harness would use."""
    return dict(load_task(task, num_fewshot, include_path).config.generation_kwargs or {})


def _target(task: Any, document: Mapping[str, Any]) -> str:
    """The answer key as text, for readers; grading uses the document."""
    target = task.doc_to_target(document)
    if isinstance(target, int) and task.config.doc_to_choice is not None:
        target = task.doc_to_choice(document)[target]
    return target if isinstance(target, str) else json.dumps(target, ensure_ascii=False, default=str)


def grade(
    text: str,
    question: Question,
    *,
    task: str,
    num_fewshot: int | None = None,
    include_path: str | None = None,
    metric: str | None = None,
) -> dict[str, Any]:
    """The task's grade of an answer, as signals; `metric` is written as in the harness, `exact_match,none`.

    `score` is the metric's value. Values other than 0 and 1 are neither right nor wrong: the rubric must weight them.
    """
    loaded = load_task(task, num_fewshot, include_path)
    values = _values(loaded, json.loads(str(question.metadata[DOCUMENT])), text)
    name, metric_value = _chosen_value(loaded, values, metric)
    higher = _is_higher_better(loaded, name)
    return {
        **score_signals(_number(loaded, name, metric_value.value), higher_is_better=higher),
        "has_answer": bool(str(metric_value.filtered).strip()) and metric_value.filtered != "[invalid]",
        "extracted": str(metric_value.filtered),
    }


class MetricValue(NamedTuple):
    """A metric's value for an answer, and the text that it was computed from."""

    value: object
    filtered: object


def _values(task: Any, document: Mapping[str, Any], text: str) -> Mapping[str, MetricValue]:
    """The values of all metrics for an answer, by metric and filter, `exact_match,none`."""
    answer = task.construct_requests(doc=document, ctx="", metadata=(_name(task), 0, 1))
    answer.resps = [_cut_at_stop(final_text(text), (task.config.generation_kwargs or {}).get("until"))]
    task._instances = [answer]
    task.apply_filters()
    return {
        f"{name},{key}": MetricValue(value, filtered)
        for key, filtered in answer.filtered_resps.items()
        for name, value in task.process_results(document, [filtered]).items()
    }


def prepare(
    task: str, num_fewshot: int | None = None, include_path: str | None = None, metric: str | None = None
) -> None:
    """Load the task before the first answer, whose time limit is for grading alone; raises `ConfigError` if its metric
    cannot grade single answers."""
    loaded = load_task(task, num_fewshot, include_path)
    document = next((document for _, document in loaded.doc_iterator(rank=0, limit=1, world_size=1)), None)
    if document is None:
        return
    try:
        values = _values(loaded, document, _target(loaded, document))
    except Exception:  # code of a task may not expect this answer; real answers report its errors
        name = next(iter(loaded.aggregation()), "") if metric is None else metric
        _require_mean(loaded, name)
        return
    name, metric_value = _chosen_value(loaded, values, metric)
    _number(loaded, name, metric_value.value)


grade.prepare = prepare  # type: ignore[attr-defined]


def _name(task: Any) -> str:
    return str(task.config.task or type(task).__name__)


def _cut_at_stop(text: str, stops: str | list[str] | None) -> str:
    """The text up to the task's first stop sequence, for servers that were not told to stop there."""
    for stop in [stops] if isinstance(stops, str) else stops or ():
        text = text.partition(stop)[0] if stop else text
    return text


def _chosen_value(task: Any, values: Mapping[str, MetricValue], metric: str | None) -> tuple[str, MetricValue]:
    """The requested metric, or the task's first; raises `ConfigError` if it cannot grade single answers."""
    names = [metric] if metric is not None else [*task.aggregation(), *values]
    keys = (key for name in names for key in values if name in (key, key.partition(",")[0]))
    if (name := next(keys, None)) is None:
        raise ConfigError(f"lm_eval: task {_name(task)} has no metric {metric!r}; its metrics are {', '.join(values)}")
    _require_mean(task, name)
    return name, values[name]


def _is_higher_better(task: Any, name: str) -> bool:
    """Whether larger values of a metric are better; the harness assumes so for metrics without a declaration."""
    return task.higher_is_better().get(name.partition(",")[0]) is not False


# -- metrics of single answers -------------------------------------------------------------------------------------

GRADE_SIGNALS = {"score", "is_correct", "has_answer"}
"""Signals of every graded answer."""
STEP = 1e-6
PROBES = ((1.0,), (0.0, 0.0, 1.0), (0.25, 1.0, 0.5, 0.75))
"""Values of answers that show whether an aggregation is a mean, or a multiple of one."""


def _require_mean(task: Any, name: str) -> None:
    """Raise `ConfigError` for a metric that is computed over all answers together, such as a corpus BLEU."""
    metric = name.partition(",")[0]
    aggregation = task.aggregation().get(metric)
    if aggregation is not None and not _is_mean(aggregation):
        raise ConfigError(_whole_corpus(task, metric))


def _whole_corpus(task: Any, metric: str) -> str:
    others = [name for name, aggregation in task.aggregation().items() if name != metric and _is_mean(aggregation)]
    hint = f"choose another as benchmark.metric: {', '.join(others)}" if others else "choose another task"
    return (
        f"lm_eval: {metric} of task {_name(task)} is computed over all answers together, so single answers have "
        f"no score; {hint}"
    )


@cache
def _is_mean(aggregation: Callable[[Sequence[float]], float]) -> bool:
    """Whether an aggregation is the mean of the values of single answers, or a positive multiple of it."""
    try:
        results = [float(aggregation(list(probe))) for probe in PROBES]
    except Exception:  # code of a task for values other than numbers
        return False
    scale, means = results[0], [sum(probe) / len(probe) for probe in PROBES]
    return scale > 0 and all(math.isclose(value, scale * mean) for value, mean in zip(results, means, strict=True))


def _number(task: Any, name: str, value: object) -> float:
    """A metric's value for an answer as a number; raises `ConfigError` if single answers have none."""
    try:
        number = float(value) if not isinstance(value, str) else None  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = None
    if number is None:
        raise ConfigError(_whole_corpus(task, name.partition(",")[0]))
    if not math.isfinite(number):
        raise GraderError(f"lm_eval: {name} of task {_name(task)} has no value for this answer")
    return number


def require_direction(
    rubric: Rubric,
    *,
    task: str,
    num_fewshot: int | None = None,
    include_path: str | None = None,
    metric: str | None = None,
) -> None:
    """Raise `ConfigError` if a rubric gives larger weights to the worse values of a metric."""
    loaded = load_task(task, num_fewshot, include_path)
    name = metric or next(iter(loaded.aggregation()), "")
    higher = _is_higher_better(loaded, name)
    weights = _weights_by_score(rubric, best=float(higher))
    steps = {(after > before) == higher for before, after in pairwise(weights) if after != before}
    if steps == {False}:
        better, worse = ("higher", "lower") if higher else ("lower", "higher")
        raise ConfigError(
            f"rubric: {better} values of {name} of task {task} are better, but {worse} scores get larger weights; "
            f"give {better} scores the larger weights"
        )


def _weights_by_score(rubric: Rubric, best: float) -> list[float]:
    """The weights of scores near the limits of a rubric, in ascending order; empty if other signals count, too."""
    if not isinstance(rubric, DeclaredRubric) or not {"score"} <= rubric.needs <= GRADE_SIGNALS or rubric.lacks:
        return []
    conditions = [category.when["score"] for category in rubric.categories if "score" in category.when]
    bounds = [condition for condition in conditions if isinstance(condition, SignalBounds)]
    limits = {limit for bound in bounds for limit in bound.model_dump().values()}
    numbers = {0.0, 1.0, *(limit for limit in limits if limit is not None)}
    around = {number + step for number in limits if number is not None for step in (-STEP, STEP)}
    numbers |= around | {float(condition) for condition in conditions if isinstance(condition, bool | int | float)}
    facts = ({"score": score, "is_correct": score == best, "has_answer": True} for score in sorted(numbers))
    return [rubric.weights[rubric.category(signals)] for signals in facts]
