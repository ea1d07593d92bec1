"""Tasks of lm-evaluation-harness as sources of questions and graders.

The harness writes the prompts, few-shot examples included, and grades answers by the task's filters and its
`process_results`; requests, retries and decisions are ours. A question keeps its document, so that an answer is graded
as when it was asked, whatever becomes of the data set.

Which tasks there are is read from the harness's files: to ask the harness takes ten seconds.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from adaptive_eval.base.errors import ConfigError, GraderError
from adaptive_eval.base.imports import load_extra
from adaptive_eval.graders.answer_text import final_text
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
    """The task's own grade of an answer, as signals; `metric` is written as the harness does, `exact_match,none`."""
    found = load_task(task, num_fewshot, include_path)
    document = json.loads(str(question.metadata[DOCUMENT]))
    answer = found.construct_requests(doc=document, ctx="", metadata=(task, 0, 1))
    answer.resps = [_until(final_text(text), found.config.generation_kwargs.get("until"))]
    found._instances = [answer]
    found.apply_filters()
    values = {
        f"{name},{key}": (value, filtered)
        for key, filtered in answer.filtered_resps.items()
        for name, value in found.process_results(document, [filtered]).items()
    }
    value, filtered = _chosen(values, metric, task)
    return {
        "is_correct": value >= 0.5,
        "score": value,
        "has_answer": bool(str(filtered).strip()) and filtered != "[invalid]",
        "extracted": str(filtered),
    }


def prepare(task: str, num_fewshot: int | None = None, include_path: str | None = None, **_: object) -> None:
    """Load the task before the first answer, whose time limit is for grading alone."""
    load_task(task, num_fewshot, include_path)


grade.prepare = prepare  # type: ignore[attr-defined]


def _until(text: str, stops: str | list[str] | None) -> str:
    """The text up to the first of the task's stop sequences, for servers that were not asked to stop there."""
    for stop in [stops] if isinstance(stops, str) else stops or ():
        text = text.partition(stop)[0] if stop else text
    return text


def _chosen(values: Mapping[str, tuple[Any, Any]], metric: str | None, task: str) -> tuple[float, Any]:
    """The metric that was asked for, or the first, with the text that it was computed from."""
    name = metric or next(iter(values), "")
    known = name if name in values else next((key for key in values if key.partition(",")[0] == name), None)
    if known is None:
        raise GraderError(f"lm_eval: task {task} has no metric {name!r}; its metrics are {', '.join(values)}")
    value, filtered = values[known]
    if not isinstance(value, int | float):
        raise GraderError(f"lm_eval: {known} of task {task} is computed over all answers, not for each; name another")
    return float(value), filtered


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
