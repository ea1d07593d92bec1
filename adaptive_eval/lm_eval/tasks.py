"""Tasks of lm-evaluation-harness as sources of questions and graders.

The harness writes the prompts, few-shot examples included, and grades answers by the task's filters and its
`process_results`; requests, retries and decisions are ours. A question keeps its document, so that an answer is graded
as when it was asked, whatever becomes of the data set.

Which tasks there are is read from the harness's files: to ask the harness takes ten seconds.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from adaptive_eval.base.errors import ConfigError, GraderError
from adaptive_eval.base.imports import load_extra
from adaptive_eval.graders.answer_text import final_text
from adaptive_eval.graders.rubric import DeclaredRubric, Rubric, SignalBounds
from adaptive_eval.graders.types import score_signals
from adaptive_eval.questions.benchmark import NamedBenchmark, near_names, read_licence
from adaptive_eval.questions.readers import use_cache_without_hub
from adaptive_eval.questions.types import Question

FEW_SHOT_SEED = 1234
"""The harness's own default, so that prompts have its examples."""
DOCUMENT = "doc"
"""The field of a question that keeps the task's document, as JSON."""
GENERATES = "generate_until"
KEYS = "task|output_type|include|dataset_path|dataset_name|unsafe_code|metric_list"
_KEY = re.compile(rf"^({KEYS}):[ \t]*([^\n#]*)", re.MULTILINE)
_METRIC = re.compile(r"^[ \t]*(?:-[ \t]+)?metric:[ \t]*([^\s#]+)", re.MULTILINE)
_TITLE = re.compile(r"^#+[ \t]*(.+?)[ \t]*$", re.MULTILINE)
LOCAL = {"json", "csv", "parquet", "text"}
"""Kinds of files, where other tasks name a data set."""
NO_TITLE = "Task-name"
"""Of a README that nobody has filled in."""
DEEPEST = 10
"""Files that include each other."""


@cache
def load_task(task: str, num_fewshot: int | None, include_path: str | None) -> Any:
    """The harness's task of this name; raises `ConfigError` if it cannot be loaded or generates no text."""
    harness = load_extra("lm_eval.tasks", "lm-eval", "tasks of lm-evaluation-harness")
    manager = _manager(harness, task, include_path)
    if task not in manager.all_subtasks:
        raise ConfigError(f"lm_eval: there is no task {task!r}{_name_hint(manager, task)}")
    told = manager.task_index[task].cfg
    _require_text(task, told.get("output_type") or GENERATES)
    away = "" if told.get("dataset_path") in LOCAL else use_cache_without_hub()
    try:
        found = manager.load([task])["tasks"][task]
    except Exception as error:  # data sets, templates and code of tasks raise errors of many libraries
        raise ConfigError(f"lm_eval: task {task} could not be loaded: {error}{away}") from error
    _require_text(task, found.OUTPUT_TYPE)
    if getattr(found, "UNSAFE_CODE", False):
        raise ConfigError(f"lm_eval: task {task} runs code that models write. Run it in a sandbox instead")
    if getattr(found, "MULTIMODAL", False):
        raise ConfigError(f"lm_eval: task {task} has images or sounds, and only text can be asked. Choose a text task")
    found.set_config("num_fewshot", num_fewshot if num_fewshot is not None else found.config.num_fewshot or 0)
    return found


def _require_text(task: str, kind: str) -> None:
    if kind != GENERATES:
        raise ConfigError(
            f"lm_eval: task {task} compares log-likelihoods ({kind}), which are the same at every trial: "
            f"there is no sampling error to decide by. Choose a task that generates text ({GENERATES})"
        )


def _manager(harness: Any, task: str, include_path: str | None) -> Any:
    """The tasks of the folder, where the task is among them; else all of the harness as well, which takes seconds."""
    if include_path is not None:
        folder = str(Path(include_path).absolute())
        own = harness.TaskManager(include_path=folder, include_defaults=False)
        return own if task in own.all_subtasks else harness.TaskManager(include_path=folder)
    return harness.TaskManager()


def _name_hint(manager: Any, name: str) -> str:
    """A hint on how to find the name of a task."""
    if name in manager.all_groups or name in manager.all_tags:
        return ", but a group of that name: name one of its tasks"
    near = near_names(name, [one.name.removeprefix("lm_eval/") for one in installed_tasks()])
    return f"{near}; `adaptive-eval benchmarks WORD` lists them, and include_path names a folder of your own"


def rows(
    task: str, num_fewshot: int | None = None, include_path: str | None = None, limit: int | None = None
) -> Iterator[Mapping[str, Any]]:
    """The task's documents in its order, each with the prompt that the harness makes of it."""
    found = load_task(task, num_fewshot, include_path)
    found.set_fewshot_seed(FEW_SHOT_SEED)
    for number, document in found.doc_iterator(rank=0, limit=limit, world_size=1):
        prompt = found.fewshot_context(
            document, num_fewshot=found.config.num_fewshot, gen_prefix=found.doc_to_prefix(document)
        )
        try:
            kept = json.dumps(document, ensure_ascii=False)
        except TypeError as error:
            raise ConfigError(f"lm_eval: document {number} of task {task} is not plain data: {error}") from error
        yield {"id": str(number), "prompt": prompt, "answer": _target(found, document), DOCUMENT: kept}


def generation_settings(
    task: str, num_fewshot: int | None = None, include_path: str | None = None
) -> Mapping[str, Any]:
    """The task's `generation_kwargs`: how the harness would have answers generated."""
    return dict(load_task(task, num_fewshot, include_path).config.generation_kwargs or {})


def _target(task: Any, document: Mapping[str, Any]) -> str:
    """The answer key as text, for readers: grading goes by the document."""
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
    """The task's own grade of an answer, as signals; `metric` is written as the harness does, `exact_match,none`.

    `score` is the metric's value. Values other than 0 and 1 are neither right nor wrong: the rubric must place them.
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
    answer.resps = [_until(final_text(text), (task.config.generation_kwargs or {}).get("until"))]
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
    except Exception:  # code of a task, which may not expect every answer; its errors are told for real ones
        name = next(iter(loaded.aggregation()), "") if metric is None else metric
        _require_mean(loaded, name)
        return
    name, metric_value = _chosen_value(loaded, values, metric)
    _number(loaded, name, metric_value.value)


grade.prepare = prepare  # type: ignore[attr-defined]


def _name(task: Any) -> str:
    return str(task.config.task or type(task).__name__)


def _until(text: str, stops: str | list[str] | None) -> str:
    """The text up to the first of the task's stop sequences, for servers that were not asked to stop there."""
    for stop in [stops] if isinstance(stops, str) else stops or ():
        text = text.partition(stop)[0] if stop else text
    return text


def _chosen_value(task: Any, values: Mapping[str, MetricValue], metric: str | None) -> tuple[str, MetricValue]:
    """The metric that was asked for, or the task's first; raises `ConfigError` if it cannot grade single answers."""
    wanted = [metric] if metric is not None else [*task.aggregation(), *values]
    found = (key for name in wanted for key in values if name in (key, key.partition(",")[0]))
    if (name := next(found, None)) is None:
        raise ConfigError(f"lm_eval: task {_name(task)} has no metric {metric!r}; its metrics are {', '.join(values)}")
    _require_mean(task, name)
    return name, values[name]


def _is_higher_better(task: Any, name: str) -> bool:
    """Whether larger values of a metric are better; the harness takes this to be so of metrics without a statement."""
    return task.higher_is_better().get(name.partition(",")[0]) is not False


# -- metrics of single answers -------------------------------------------------------------------------------------

GIVEN = {"score", "is_correct", "has_answer"}
"""Signals of every graded answer."""
NEAR = 1e-6
PROBES = ((1.0,), (0.0, 0.0, 1.0), (0.25, 1.0, 0.5, 0.75))
"""Values of answers from which one sees whether an aggregation is a mean, or a multiple of one."""


def _require_mean(task: Any, name: str) -> None:
    """Raise `ConfigError` for a metric that is computed over all answers together, such as a corpus BLEU."""
    metric = name.partition(",")[0]
    aggregation = task.aggregation().get(metric)
    if aggregation is not None and not _is_mean(aggregation):
        raise ConfigError(_whole_corpus(task, metric))


def _whole_corpus(task: Any, metric: str) -> str:
    others = [name for name, how in task.aggregation().items() if name != metric and _is_mean(how)]
    hint = f"name another as benchmark.metric: {', '.join(others)}" if others else "choose another task"
    return (
        f"lm_eval: {metric} of task {_name(task)} is computed over all answers together, so that no single answer "
        f"has a score; {hint}"
    )


@cache
def _is_mean(aggregation: Callable[[Sequence[float]], float]) -> bool:
    """Whether an aggregation is the mean of the values of single answers, or a positive multiple of it."""
    try:
        found = [float(aggregation(list(probe))) for probe in PROBES]
    except Exception:  # code of a task, made for other values than numbers
        return False
    scale, means = found[0], [sum(probe) / len(probe) for probe in PROBES]
    return scale > 0 and all(math.isclose(value, scale * mean) for value, mean in zip(found, means, strict=True))


def _number(task: Any, name: str, value: object) -> float:
    """A metric's value for an answer as a number; raises `ConfigError` for one that only all answers together have."""
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
            f"rubric: of {name} of task {task} {better} values are better, but {worse} scores get larger weights here; "
            f"give {better} scores the larger weights"
        )


def _weights_by_score(rubric: Rubric, best: float) -> list[float]:
    """The weights of scores about the limits of a rubric, in ascending order; empty if more than the score counts."""
    if not isinstance(rubric, DeclaredRubric) or not {"score"} <= rubric.needs <= GIVEN or rubric.lacks:
        return []
    wanted = [category.when["score"] for category in rubric.categories if "score" in category.when]
    limits = {limit for one in wanted if isinstance(one, SignalBounds) for limit in one.model_dump().values()}
    numbers = {0.0, 1.0, *(limit for limit in limits if limit is not None)}
    around = {number + step for number in limits if number is not None for step in (-NEAR, NEAR)}
    numbers |= around | {float(one) for one in wanted if isinstance(one, bool | int | float)}
    facts = ({"score": score, "is_correct": score == best, "has_answer": True} for score in sorted(numbers))
    return [rubric.weights[rubric.category(one)] for one in facts]


# -- which tasks there are -----------------------------------------------------------------------------------------


def installed_tasks() -> Iterator[NamedBenchmark]:
    """The tasks that generate text, as `lm_eval/task`; none if the harness is not installed."""
    try:
        package, spec = distribution("lm_eval"), find_spec("lm_eval")
    except (PackageNotFoundError, ValueError):
        return
    source = f"lm_eval {package.version}"
    licence = read_licence(package)
    for place in [] if spec is None else spec.submodule_search_locations or ():
        root = Path(place) / "tasks"
        for file in sorted(root.rglob("*.yaml")):
            keys = _keys(file)
            name, kind = keys.get("task", ""), keys.get("output_type", GENERATES)
            if not name or name[0] in "[{" or kind != GENERATES or keys.get("unsafe_code", "").lower() == "true":
                continue
            data = " ".join(filter(None, (keys.get("dataset_path"), keys.get("dataset_name"))))
            yield NamedBenchmark(
                f"lm_eval/{name}",
                source,
                about=_title(file.parent, root) or name,
                description=f"Data: {data}." if data else "",
                licence=licence,
                scorers=tuple(filter(None, [keys.get("metric")])),
                sandbox="no",
                needs_hub=keys.get("dataset_path") not in LOCAL,
            )


@cache
def _keys(file: Path, depth: int = 0) -> Mapping[str, str]:
    """Settings on the first level of a file, and of those that it includes."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    found = {key: value.strip().strip("\"'") for key, value in _KEY.findall(text)}
    if metric := _METRIC.search(text):
        found["metric"] = metric[1]
    if depth < DEEPEST and (more := found.get("include")):
        return {**_keys(file.parent / more, depth + 1), **found}
    return found


@cache
def _title(folder: Path, root: Path) -> str | None:
    """The title of the README of a task's folder."""
    try:
        title = _TITLE.search((folder / "README.md").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        title = None
    if title is not None and title[1] != NO_TITLE:
        return title[1]
    return None if folder == root else _title(folder.parent, root)
