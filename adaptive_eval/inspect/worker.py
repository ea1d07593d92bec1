"""The process of Inspect: it lists the samples of a task, or runs requested samples.

Requests arrive on standard input and results leave on the original standard output, as lines of JSON. When the input
ends, perhaps because the run was killed, the evaluation ends, and Inspect closes its logs and sandboxes.
"""

import asyncio
import copy
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from io import FileIO
from pathlib import Path
from typing import Any

from inspect_ai import Epochs, SampleSource, Task, enqueue_sample, eval_async, task_with
from inspect_ai._eval.loader import load_tasks, resolve_task_sandbox, solver_from_spec
from inspect_ai._util.error import PrerequisiteError
from inspect_ai._util.log_layout import eval_log_name
from inspect_ai._util.registry import registry_find, registry_info, registry_unqualified_name
from inspect_ai.dataset import Sample
from inspect_ai.event import ModelEvent
from inspect_ai.hooks import BeforeModelGenerate, Hooks, ModelRetry, RunStart, TaskStart, hooks
from inspect_ai.log import EvalSample
from inspect_ai.model import ChatMessage, GenerateConfig, Model, ModelUsage, get_model
from inspect_ai.scorer import Scorer
from inspect_ai.scorer._scorer import scorer_metrics
from inspect_ai.solver import SolverSpec, generate
from inspect_ai.solver._task_state import sample_state
from inspect_ai.util._sandbox.registry import registry_find_sandboxenv
from pydantic import TypeAdapter
from rich.markup import render

from adaptive_eval.endpoints.answers import estimated_tokens
from adaptive_eval.endpoints.redaction import Redactor, cannot_be_word
from adaptive_eval.inspect.own_logs import redact_loggers, redact_own_logs
from adaptive_eval.inspect.types import InspectModel, Place, SampleRequest, Setup
from adaptive_eval.questions.benchmark import ADAPTIVE, ADAPTIVE_NOTE, BENCHMARK_OF_RUN, MODEL_OF_RUN

MAX_TEXT_CHARACTERS = 1_000_000
"""Characters of an answer sent to the run; the log has all of it."""
MAX_REQUEST_BYTES = 2**20
LOG_BUFFER_SAMPLES = 10
"""Samples per write to Inspect's log; its default depends on the number of samples known at the start, 0 here."""


# -- the task ------------------------------------------------------------------------------------------------------


def load_task(task: Mapping[str, Any]) -> Task:
    """Load the task that the configuration names; raises `ValueError`."""
    require_file(task["inspect"])
    tasks = load_tasks([task["inspect"]], dict(task["args"]))
    if len(tasks) != 1:
        if not tasks:
            raise ValueError("there is no task of this name; write package/task or file.py@task")
        names = ", ".join(loaded.name for loaded in tasks)
        raise ValueError(f"several tasks have this name: {names}; write file.py@task")
    if tasks[0].sample_source is not None:
        raise ValueError("its samples come from a sample source, so its questions cannot be listed")
    if task["sandbox"] is not None:
        require_sandbox(task["sandbox"].partition(":")[0])
    return tasks[0]


def require_file(name: str) -> None:
    """Raise `ValueError` if a task is named by a file that does not exist."""
    file, separator, _ = name.partition("@")
    if (separator or file.endswith(".py")) and not Path(file).is_file():
        raise ValueError(f"there is no file {file} in {Path.cwd()}, the folder of the configuration")


def require_sandbox(kind: str) -> None:
    """Raise `ValueError` if Inspect has no such sandbox."""
    try:
        registry_find_sandboxenv(kind)
    except ValueError as error:
        sandboxes = registry_find(lambda info: info.type == "sandboxenv")
        names = sorted(registry_unqualified_name(registry_info(sandbox)) for sandbox in sandboxes)
        raise ValueError(f"sandbox: {str(error).rstrip('.')}; available are {', '.join(names)}") from None


def samples_by_id(task: Task) -> dict[str, Sample]:
    """Samples by id; samples without ids are numbered from 1, as in Inspect."""
    samples: dict[str, Sample] = {}
    for number, sample in enumerate(task.dataset, start=1):
        name = str(number if sample.id is None else sample.id)
        if name in samples:
            raise ValueError(f"two of its samples have the id {name}")
        samples[name] = sample
    return samples


def list_samples(task: Task) -> dict[str, Any]:
    """Samples as rows of questions, names of the scores, epochs and reducers of a task."""
    rows = [
        {**_plain(sample.metadata or {}), **question_row(name, sample)} for name, sample in samples_by_id(task).items()
    ]
    return {
        "rows": rows,
        "scorers": [name for scorer in task.scorer or () for name in score_names(scorer)],
        "epochs": task.epochs or 1,
        "reducers": [registry_unqualified_name(reducer) for reducer in task.epochs_reducer or ()],
    }


def score_names(scorer: Scorer) -> list[str]:
    """Names of a scorer's scores: its own name, or one for each key if it declares several values."""
    name, metrics = registry_unqualified_name(scorer), scorer_metrics(scorer)
    return [f"{name}.{key}" for key in metrics] if isinstance(metrics, dict) and "*" not in "".join(metrics) else [name]


def question_row(name: str, sample: Sample) -> dict[str, Any]:
    """Convert a sample to a question."""
    asked = (
        sample.input
        if isinstance(sample.input, str)
        else "\n\n".join(f"{message.role}: {_content_text(message)}" for message in sample.input)
    )
    target = sample.target if isinstance(sample.target, str) else ", ".join(sample.target)
    return {"id": name, "prompt": asked or "(empty)", "answer": target, "choices": sample.choices or []}


def _content_text(message: ChatMessage) -> str:
    if isinstance(message.content, str):
        return message.content
    return " ".join(str(getattr(part, "text", None) or f"[{part.type}]") for part in message.content)


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=str))


# -- running samples -----------------------------------------------------------------------------------------------


class RequestedSamples(SampleSource):
    """Supplies the requested samples of one model."""

    def __init__(self, place: Place, model: Model, samples: Mapping[str, Sample]) -> None:
        self._place, self._model, self._samples = place, str(model), samples
        self.key_variables: Sequence[str] = getattr(model.api, "api_key_vars", ())
        self._waiting: list[Sample] = []
        self._idle: asyncio.Future[None] | None = None
        self._context: Context | None = None
        """Context of the running task, in which samples must be added."""
        self._ending = False
        self.seeds: dict[str, int] = {}
        self.log = ""

    def ask(self, request: SampleRequest) -> None:
        """Add a sample to the task."""
        if request["prompt"]:
            sample = Sample(input=_messages.validate_python(request["prompt"]))
        else:
            sample = copy.deepcopy(self._samples[request["sample"]])
        sample.id = request["id"]
        self.seeds[request["id"]] = request["seed"]
        if self._context is not None and self._idle is None:
            self._context.run(enqueue_sample, sample)
            return
        self._waiting.append(sample)
        self._wake()

    def end(self) -> None:
        """End the task when no sample is in flight."""
        self._ending = True
        self._wake()

    @property
    def in_flight(self) -> int:
        """Number of requested samples without a result."""
        return len(self.seeds)

    async def next_samples(self) -> list[Sample] | None:
        if self._context is None and (feeder := asyncio.current_task()) is not None:
            feeder.add_done_callback(self._report_end)
        self._context = copy_context()
        if not self._waiting and not self._ending:
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle
        samples, self._waiting = self._waiting, []
        return samples or None

    async def sample_complete(self, sample: EvalSample) -> None:
        self.seeds.pop(str(sample.id), None)
        self.send(log=self.log, **sample_result(sample, self._model))

    async def sample_abandoned(self, sample: Sample, epoch: int) -> None:
        self.seeds.pop(str(sample.id), None)
        self.send(id=str(sample.id), error="it was cancelled before it began")

    def send(self, **fields: Any) -> None:
        """Send a line about this model in this benchmark."""
        benchmark, model = self._place
        send_line({"benchmark": benchmark, "model": model, **fields})

    def _report_end(self, feeder: asyncio.Task[Any]) -> None:
        """Report why the task has ended, since Inspect has no hook for tasks that fail."""
        error = None if feeder.cancelled() else feeder.exception()
        self.send(ended="its task ended" if error is None else error_text(error))

    def _wake(self) -> None:
        if self._idle is not None and not self._idle.done():  # otherwise its task has failed
            self._idle.set_result(None)
            self._idle = None


def sample_result(sample: EvalSample, model: str) -> dict[str, Any]:
    """Result of a sample; with an error it has no scores, even if its log has some."""
    calls = [event for event in sample.events if isinstance(event, ModelEvent)]
    usage = {name: _usage(used) for name, used in sample.model_usage.items()}
    result: dict[str, Any] = {
        "id": str(sample.id),
        "no_usage": _add_estimated_usage(usage, calls),
        "own": usage.pop(model, [*NO_TOKENS, None])[:-1],
        "others": usage,
        "seconds": sample.total_time or 0.0,
    }
    if sample.error is not None:
        # refused by its provider in a request that Inspect did not retry; its usage is known if every one was answered
        result["refused"] = bool(calls) and calls[-1].error is not None and sample.uuid not in RETRIED_SAMPLES
        result["is_known"] = bool(calls) and all(call.error is None and not call.pending for call in calls)
        cause, has_cause, _ = sample.error.traceback.partition("\n\nThe above exception was the direct cause")
        return {**result, "error": sample.error.message + (f"; {cause.splitlines()[-1]}" if has_cause else "")}
    scores = sample.scores or {}
    return {
        **result,
        "scores": {name: {"value": _plain(score.value), "answer": score.answer} for name, score in scores.items()},
        "text": sample.output.completion[:MAX_TEXT_CHARACTERS],
        "reasoning": _reasoning(sample)[:MAX_TEXT_CHARACTERS],
        "used_tools": any(getattr(message, "tool_calls", None) for message in sample.messages),
        "stop": None if sample.output.empty else sample.output.stop_reason,
        "limit": None if sample.limit is None else sample.limit.type,
    }


NO_TOKENS = (0, 0, 0)


def _usage(used: ModelUsage) -> list[Any]:
    """Tokens read, tokens written, those read from a cache, and USD if Inspect knows the price."""
    tokens_read = max(used.total_tokens - used.output_tokens, 0)
    cached = min(max(used.input_tokens_cache_read or 0, 0), tokens_read)
    return [tokens_read, used.output_tokens, cached, used.total_cost]


def _reasoning(sample: EvalSample) -> str:
    """The reasoning of the last message, if the log has it."""
    content = [] if sample.output.empty else sample.output.message.content
    return "\n".join(getattr(part, "reasoning", "") for part in content if not isinstance(part, str))


def _add_estimated_usage(usage: dict[str, list[Any]], calls: Sequence[ModelEvent]) -> bool:
    """Add an estimate for each reply without usage; returns whether there is such a reply."""
    made = [call for call in calls if call.cache != "read"]
    without_usage = [call for call in made if call.output.choices and call.output.usage is None]
    for reply in without_usage:
        tokens = usage.setdefault(reply.model, [*NO_TOKENS, None])
        tokens[0] += sum(_tokens(message) for message in reply.input)
        tokens[1] += sum(_tokens(choice.message) for choice in reply.output.choices)
    return bool(without_usage)


def _tokens(message: ChatMessage) -> int:
    """Estimated tokens of a message: its text, reasoning and tool calls."""
    parts = [message.text, *(getattr(part, "reasoning", "") for part in message.content)]
    parts += [json.dumps(call.arguments) for call in getattr(message, "tool_calls", None) or ()]
    return estimated_tokens(sum(len(part.encode("utf-8", "replace")) for part in parts))


SOURCES: dict[Place, RequestedSamples] = {}
RETRIED_SAMPLES: set[str | None] = set()
"""Samples, by Inspect's ids, with a request that Inspect retried."""
REDACTOR = Redactor()
"""Removes the secrets of the run from what this process writes."""
_messages = TypeAdapter(list[ChatMessage])


@hooks(name="adaptive_eval_trials", description="Gives each sample the seed of its trial.")
class TrialHooks(Hooks):
    """Sets the seeds of samples, and reports logs and retries."""

    def __init__(self) -> None:
        self._sources: dict[str, RequestedSamples] = {}

    async def on_run_start(self, data: RunStart) -> None:
        redact_loggers(REDACTOR)

    async def on_task_start(self, data: TaskStart) -> None:
        spec, metadata = data.spec, data.spec.metadata or {}
        source = self._sources[data.eval_id] = SOURCES[metadata[BENCHMARK_OF_RUN], metadata[MODEL_OF_RUN]]
        name = eval_log_name(task=spec.task, task_id=spec.task_id, created=spec.created, model=spec.model)
        source.log = f"{name}.eval"

    async def on_before_model_generate(self, data: BeforeModelGenerate) -> None:
        source, state = self._sources.get(data.eval_id or ""), sample_state()
        if source is not None and state is not None and data.config.seed is None:
            data.config.seed = source.seeds.get(str(state.sample_id))

    async def on_model_retry(self, data: ModelRetry) -> None:
        RETRIED_SAMPLES.add(data.sample_id)
        if (source := self._sources.get(data.eval_id or "")) is not None:
            status = "" if data.status_code is None else f" (HTTP {data.status_code})"
            source.send(repeats=f"{data.model_name}: {data.exception_type or 'an error'}{status}")


def _redact_model_keys() -> set[str]:
    """Redact the keys of the models' providers from now on; returns the names of their variables."""
    names = {name for source in SOURCES.values() for name in source.key_variables if name in os.environ}
    REDACTOR.add(filter(cannot_be_word, (os.environ[name].strip() for name in names)))
    return names


async def run_samples(setup: Setup) -> None:
    """Run requested samples until the input ends."""
    tasks = [
        _prepare_task(name, task, number, model)
        for name, task in setup["tasks"].items()
        for number, model in enumerate(setup["models"])
    ]
    send_line({"ready": True, "keys": sorted(_redact_model_keys())})
    evaluation = asyncio.create_task(
        eval_async(
            tasks,
            max_tasks=len(tasks),
            max_samples=max(model["slots"] for model in setup["models"]),
            fail_on_error=False,
            retry_on_error=0,
            max_retries=setup["max_retries"],
            log_dir=setup["log_dir"],
            log_format="eval",
            log_buffer=LOG_BUFFER_SAMPLES,
            log_realtime=False,
            tags=[ADAPTIVE],
            score_display=False,
            ctl_server=False,
        )
    )
    requests = asyncio.create_task(_read_requests())
    await asyncio.wait([evaluation, requests], return_when=asyncio.FIRST_COMPLETED)
    requests.cancel()
    if any(source.in_flight for source in SOURCES.values()):
        evaluation.cancel()
    for source in SOURCES.values():
        source.end()
    with suppress(asyncio.CancelledError):
        await evaluation


def _prepare_task(benchmark: str, task: Mapping[str, Any] | None, number: int, model: InspectModel) -> Task:
    """Prepare the task of one model with its requested samples; loaded for each model, since a task may have state."""
    loaded = Task(name=benchmark, solver=generate()) if task is None else load_task(task)
    config = GenerateConfig(**{"adaptive_connections": model["slots"], **model["config"]})
    asked = get_model(model["inspect"], config=config, memoize=False, **model["args"])
    source = SOURCES[benchmark, number] = RequestedSamples((benchmark, number), asked, samples_by_id(loaded))
    options: dict[str, Any] = {} if model["token_limit"] is None else {"token_limit": model["token_limit"]}
    if task is not None:
        options |= {name: math.ceil(limit) for name, limit in task["limits"].items()}
    if task is not None and task["solver"] is not None:
        solver = {"name": task["solver"]} if isinstance(task["solver"], str) else dict(task["solver"])
        options["solver"] = solver_from_spec(SolverSpec(solver=solver.pop("name"), args_passed=solver))
    if task is not None and task["sandbox"] is not None:
        options["sandbox"] = resolve_task_sandbox(loaded, task["sandbox"])
    if task is not None and task["roles"]:
        options["model_roles"] = {**(loaded.model_roles or {}), **task["roles"]}
    metadata = {
        **(loaded.metadata or {}),
        BENCHMARK_OF_RUN: benchmark,
        MODEL_OF_RUN: number,
        "model": model["name"],
        ADAPTIVE: ADAPTIVE_NOTE,
    }
    return task_with(
        loaded, dataset=source, model=asked, epochs=Epochs(1), early_stopping=None, metadata=metadata, **options
    )


async def _read_requests() -> None:
    """Read requests until the input ends."""
    reader = asyncio.StreamReader(limit=MAX_REQUEST_BYTES)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        request: SampleRequest = json.loads(line)
        SOURCES[request["benchmark"], request["model"]].ask(request)


# -- the process ---------------------------------------------------------------------------------------------------


def main() -> None:
    """Run the command on the first line of input; output of tasks goes to standard error."""
    global _out
    _out = os.dup(1)
    os.dup2(2, 1)
    setup: Any = json.loads(FileIO(0, closefd=False).readline())
    REDACTOR.add(setup["secrets"])
    redact_own_logs(REDACTOR)
    try:
        if setup["models"]:
            asyncio.run(run_samples(setup))
        else:
            send_line({name: list_samples(load_task(task)) for name, task in setup["tasks"].items()})
    except Exception as error:  # the user's task may raise anything
        send_line({"problem": error_text(error)})
        raise


_out = -1


def error_text(error: BaseException) -> str:
    """Describe an exception and its cause."""
    causes = [error] if error.__cause__ is None else [error, error.__cause__]
    # messages of PrerequisiteError have markup
    texts = (render(str(cause.message)) if isinstance(cause, PrerequisiteError) else cause for cause in causes)
    return "; ".join(f"{type(cause).__name__}: {text}" for cause, text in zip(causes, texts, strict=True))


def send_line(message: Mapping[str, Any]) -> None:
    """Send a line to the run, if it is still there."""
    with suppress(BrokenPipeError):
        body = (json.dumps(message) + "\n").encode()
        while body:
            body = body[os.write(_out, body) :]
