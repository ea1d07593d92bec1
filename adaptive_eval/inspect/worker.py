"""The process of Inspect: it lists the samples of a task, or runs requested ones.

It speaks lines of JSON: requests arrive on standard input, results leave on the original standard output. When its
input ends, also because the run was killed, the evaluation ends, and Inspect closes its logs and sandboxes.
"""

import asyncio
import copy
import json
import math
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import Context, copy_context
from io import FileIO
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

from inspect_ai import Epochs, SampleSource, Task, enqueue_sample, eval_async, task_with
from inspect_ai._eval.loader import load_tasks, resolve_task_sandbox, solver_from_spec
from inspect_ai._util.error import PrerequisiteError
from inspect_ai._util.log_layout import eval_log_name
from inspect_ai._util.registry import registry_find, registry_info, registry_unqualified_name
from inspect_ai.dataset import Sample
from inspect_ai.event import Event, ModelEvent
from inspect_ai.hooks import BeforeModelGenerate, Hooks, ModelRetry, RunStart, TaskStart, hooks
from inspect_ai.log import EvalSample
from inspect_ai.model import ChatMessage, GenerateConfig, Model, get_model
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
from adaptive_eval.questions.benchmark import ADAPTIVE, ADAPTIVE_NOTE, BENCHMARK_OF_RUN, MODEL_OF_RUN, near_names

MAX_TEXT = 1_000_000
"""Most characters of an answer that are passed on; the log has all of it."""
REQUEST_LIMIT = 2**20
PROBE_SECONDS = 3.0
"""Time for a host with data to accept a connection."""
LOG_BUFFER = 10
"""Samples per write to Inspect's log; its default depends on the number known beforehand, which is 0 here."""


# -- the task ------------------------------------------------------------------------------------------------------


def load_task(task: Mapping[str, Any]) -> Task:
    """Load the one task that the configuration names; raises `ValueError`."""
    require_file(task["inspect"])
    with refuse_unreachable_hosts():
        found = load_tasks([task["inspect"]], dict(task["args"]))
    if len(found) != 1:
        if not found:
            raise ValueError("there is no task of this name; write package/task or file.py@task")
        names = ", ".join(one.name for one in found)
        raise ValueError(f"there must be one task of this name, but found: {names}; write file.py@task")
    if found[0].sample_source is not None:
        raise ValueError("its samples come from a source of its own, so that no list of questions is known beforehand")
    if task["sandbox"] is not None:
        require_sandbox(task["sandbox"].partition(":")[0])
    return found[0]


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
        known = sorted(registry_unqualified_name(registry_info(one)) for one in sandboxes)
        near = near_names(kind, known) or f"; known are {', '.join(known)}"
        raise ValueError(f"sandbox: {str(error).rstrip('.')}{near}") from None


@contextmanager
def refuse_unreachable_hosts() -> Iterator[None]:
    """Raise `RuntimeError` when a host that did not answer is asked again: libraries retry other errors for long.

    This excludes this machine, where a server may be starting, and the Hugging Face hub, which has its own cache.
    """
    look_up, silent = socket.getaddrinfo, dict[str, OSError]()
    hub = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co")).hostname

    def look_up_answering(host: Any, port: Any, *args: Any, **options: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else str(host)
        if name in silent:
            raise RuntimeError(f"{name} cannot be reached: {silent[name]}")
        try:
            found = look_up(host, port, *args, **options)
            family, *_, address = found[0]
            if port and name != hub and address[0] not in ("127.0.0.1", "::1"):
                with socket.socket(family) as probe:
                    probe.settimeout(PROBE_SECONDS)
                    probe.connect(address)
        except OSError as error:
            silent.update({} if name == hub else {name: error})
            raise
        return found

    with patch.object(socket, "getaddrinfo", look_up_answering):
        yield


def samples_by_id(task: Task) -> dict[str, Sample]:
    """Samples by id; as in Inspect, samples without ids are numbered from 1."""
    found: dict[str, Sample] = {}
    for number, sample in enumerate(task.dataset, start=1):
        name = str(number if sample.id is None else sample.id)
        if name in found:
            raise ValueError(f"two of its samples have the id {name}")
        found[name] = sample
    return found


def list_samples(task: Task) -> dict[str, Any]:
    """List the samples as rows of questions, the names of the scores, and how the task repeats samples."""
    rows = [{**_plain(sample.metadata or {}), **as_row(name, sample)} for name, sample in samples_by_id(task).items()]
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


def as_row(name: str, sample: Sample) -> dict[str, Any]:
    """Convert a sample to a question."""
    asked = (
        sample.input
        if isinstance(sample.input, str)
        else "\n\n".join(f"{one.role}: {_content_text(one)}" for one in sample.input)
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
    """Supplies the samples of one model that the run has requested."""

    def __init__(self, place: Place, model: Model, samples: Mapping[str, Sample]) -> None:
        self._place, self._model, self._samples = place, str(model), samples
        self.key_variables: Sequence[str] = getattr(model.api, "api_key_vars", ())
        self._waiting: list[Sample] = []
        self._idle: asyncio.Future[None] | None = None
        self._context: Context | None = None
        """Context of the running task, in which samples have to be added to it."""
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
        """Let the task end when no sample is in flight."""
        self._ending = True
        self._wake()

    @property
    def in_flight(self) -> int:
        """Number of requested samples without a result."""
        return len(self.seeds)

    async def next_samples(self) -> list[Sample] | None:
        if self._context is None and (feeder := asyncio.current_task()) is not None:
            feeder.add_done_callback(self._tell_end)
        self._context = copy_context()
        if not self._waiting and not self._ending:
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle
        samples, self._waiting = self._waiting, []
        return samples or None

    async def sample_complete(self, sample: EvalSample) -> None:
        self.seeds.pop(str(sample.id), None)
        self.tell(log=self.log, **sample_result(sample, self._model))

    async def sample_abandoned(self, sample: Sample, epoch: int) -> None:
        self.seeds.pop(str(sample.id), None)
        self.tell(id=str(sample.id), error="it was cancelled before it began")

    def tell(self, **told: Any) -> None:
        """Send a line about this model in this benchmark."""
        benchmark, model = self._place
        send_line({"benchmark": benchmark, "model": model, **told})

    def _tell_end(self, feeder: asyncio.Task[Any]) -> None:
        """Report why the task has ended, since Inspect has no hook for tasks that fail."""
        error = None if feeder.cancelled() else feeder.exception()
        self.tell(ended="its task ended" if error is None else error_text(error))

    def _wake(self) -> None:
        if self._idle is not None and not self._idle.done():  # else its task has failed
            self._idle.set_result(None)
            self._idle = None


def sample_result(sample: EvalSample, own: str) -> dict[str, Any]:
    """Result of a sample; one with an error has no scores, even if its log has some."""
    usage: dict[str, list[Any]] = {  # tokens read, tokens written, and USD where Inspect knows them
        name: [max(one.total_tokens - one.output_tokens, 0), one.output_tokens, one.total_cost]
        for name, one in sample.model_usage.items()
    }
    told: dict[str, Any] = {
        "id": str(sample.id),
        "no_usage": _add_unsaid(usage, sample.events),
        "own": usage.pop(own, [0, 0, None])[:2],
        "others": usage,
        "seconds": sample.total_time or 0.0,
    }
    if sample.error is not None:
        told |= {"refused": is_refused(sample), "is_known": _is_usage_known(sample)}
        cause, has_cause, _ = sample.error.traceback.partition("\n\nThe above exception was the direct cause")
        return {**told, "error": sample.error.message + (f"; {cause.splitlines()[-1]}" if has_cause else "")}
    scores = {name: {"value": _plain(one.value), "answer": one.answer} for name, one in (sample.scores or {}).items()}
    return {
        **told,
        "scores": scores,
        "text": sample.output.completion[:MAX_TEXT],
        "reasoning": _reasoning(sample)[:MAX_TEXT],
        "used_tools": any(getattr(message, "tool_calls", None) for message in sample.messages),
        "stop": None if sample.output.empty else sample.output.stop_reason,
        "limit": None if sample.limit is None else sample.limit.type,
    }


def _reasoning(sample: EvalSample) -> str:
    """What the model thought before its last message, where the log shows it."""
    content = [] if sample.output.empty else sample.output.message.content
    return "\n".join(getattr(part, "reasoning", "") for part in content if not isinstance(part, str))


def is_refused(sample: EvalSample) -> bool:
    """Whether the sample ended because its provider refused a request, and Inspect saw no use in repeating it."""
    calls = [event for event in sample.events if isinstance(event, ModelEvent)]
    return bool(calls) and calls[-1].error is not None and sample.uuid not in REPEATED


def _is_usage_known(sample: EvalSample) -> bool:
    """Whether every request of the sample was answered, so that its usage is all that it has cost."""
    calls = [event for event in sample.events if isinstance(event, ModelEvent)]
    return bool(calls) and all(event.error is None and not event.pending for event in calls)


def _add_unsaid(usage: dict[str, list[Any]], events: Sequence[Event]) -> bool:
    """Add an estimate for each reply whose provider says no usage; returns whether there is one."""
    replies = [one for one in events if isinstance(one, ModelEvent) and one.output.choices and one.cache != "read"]
    unsaid = [one for one in replies if one.output.usage is None]
    for one in unsaid:
        tokens = usage.setdefault(one.model, [0, 0, None])
        tokens[0] += sum(_tokens(message) for message in one.input)
        tokens[1] += sum(_tokens(choice.message) for choice in one.output.choices)
    return bool(unsaid)


def _tokens(message: ChatMessage) -> int:
    """An estimate by the text of a message, its reasoning and its calls of tools."""
    parts = [message.text, *(getattr(part, "reasoning", "") for part in message.content)]
    parts += [json.dumps(call.arguments) for call in getattr(message, "tool_calls", None) or ()]
    return estimated_tokens(sum(len(part.encode("utf-8", "replace")) for part in parts))


SOURCES: dict[Place, RequestedSamples] = {}
REPEATED: set[str | None] = set()
"""Samples, by Inspect's own ids, of which Inspect has repeated a request."""
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
        spec, told = data.spec, data.spec.metadata or {}
        source = self._sources[data.eval_id] = SOURCES[told[BENCHMARK_OF_RUN], told[MODEL_OF_RUN]]
        name = eval_log_name(task=spec.task, task_id=spec.task_id, created=spec.created, model=spec.model)
        source.log = f"{name}.eval"

    async def on_before_model_generate(self, data: BeforeModelGenerate) -> None:
        source, state = self._sources.get(data.eval_id or ""), sample_state()
        if source is not None and state is not None and data.config.seed is None:
            data.config.seed = source.seeds.get(str(state.sample_id))

    async def on_model_retry(self, data: ModelRetry) -> None:
        REPEATED.add(data.sample_id)
        if (source := self._sources.get(data.eval_id or "")) is not None:
            status = "" if data.status_code is None else f" (HTTP {data.status_code})"
            source.tell(repeats=f"{data.model_name}: {data.exception_type or 'an error'}{status}")


def _learn_keys() -> set[str]:
    """The variables from which the providers of the models read keys, whose values are removed from now on."""
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
    send_line({"ready": True, "keys": sorted(_learn_keys())})
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
            log_buffer=LOG_BUFFER,
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
    """Prepare the task of one model with its requested samples; loaded anew, since a task may have state."""
    loaded = Task(name=benchmark, solver=generate()) if task is None else load_task(task)
    config = GenerateConfig(**{"adaptive_connections": model["slots"], **model["config"]})
    asked = get_model(model["inspect"], config=config, memoize=False, **model["args"])
    source = SOURCES[benchmark, number] = RequestedSamples((benchmark, number), asked, samples_by_id(loaded))
    other: dict[str, Any] = {} if model["token_limit"] is None else {"token_limit": model["token_limit"]}
    if task is not None:
        other |= {name: math.ceil(limit) for name, limit in task["limits"].items()}
    if task is not None and task["solver"] is not None:
        solver = {"name": task["solver"]} if isinstance(task["solver"], str) else dict(task["solver"])
        other["solver"] = solver_from_spec(SolverSpec(solver=solver.pop("name"), args_passed=solver))
    if task is not None and task["sandbox"] is not None:
        other["sandbox"] = resolve_task_sandbox(loaded, task["sandbox"])
    if task is not None and task["roles"]:
        other["model_roles"] = {**(loaded.model_roles or {}), **task["roles"]}
    metadata = {
        **(loaded.metadata or {}),
        BENCHMARK_OF_RUN: benchmark,
        MODEL_OF_RUN: number,
        "model": model["name"],
        ADAPTIVE: ADAPTIVE_NOTE,
    }
    return task_with(
        loaded, dataset=source, model=asked, epochs=Epochs(1), early_stopping=None, metadata=metadata, **other
    )


async def _read_requests() -> None:
    """Read requests until the input ends."""
    reader = asyncio.StreamReader(limit=REQUEST_LIMIT)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        request: SampleRequest = json.loads(line)
        SOURCES[request["benchmark"], request["model"]].ask(request)


# -- the process ---------------------------------------------------------------------------------------------------


def main() -> None:
    """Carry out the first line of input; output of tasks goes to standard error."""
    global _out
    _out = os.dup(1)
    os.dup2(2, 1)
    told: Any = json.loads(FileIO(0, closefd=False).readline())
    REDACTOR.add(told["secrets"])
    redact_own_logs(REDACTOR)
    try:
        if told["models"]:
            asyncio.run(run_samples(told))
        else:
            send_line({name: list_samples(load_task(task)) for name, task in told["tasks"].items()})
    except Exception as error:  # the user's task may raise anything
        send_line({"problem": error_text(error)})
        raise


_out = -1


def error_text(error: BaseException) -> str:
    """Describe an exception and its cause."""
    causes = [error] if error.__cause__ is None else [error, error.__cause__]
    said = (render(str(one.message)) if isinstance(one, PrerequisiteError) else one for one in causes)  # with markup
    return "; ".join(f"{type(one).__name__}: {text}" for one, text in zip(causes, said, strict=True))


def send_line(message: Mapping[str, Any]) -> None:
    """Send a line to the run, unless the run is gone."""
    with suppress(BrokenPipeError):
        body = (json.dumps(message) + "\n").encode()
        while body:
            body = body[os.write(_out, body) :]
