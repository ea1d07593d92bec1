"""The configuration of a run, with all its sections."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from unicodedata import normalize

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)

from adaptive_eval.base.sections import (
    Price,
    Section,
    config_error,
)
from adaptive_eval.base.seeds import SEED_SPAN
from adaptive_eval.config.benchmarks import BenchmarkPart, PlainName
from adaptive_eval.config.commands import CommandKeys
from adaptive_eval.config.decisions import Decisions
from adaptive_eval.config.reports import ReportConfig
from adaptive_eval.endpoints.batching import UNKNOWN_TO_MESSAGES, BatchKind
from adaptive_eval.endpoints.types import EndpointConfig, Limits, ModelLimits, Sampling
from adaptive_eval.graders.by_benchmark import ByBenchmark, find_rubric, grader_that_asks, graders_that_ask
from adaptive_eval.graders.registry import GraderConfig
from adaptive_eval.graders.types import GradingLimits, WorkerSettings
from adaptive_eval.launch.types import LaunchConfig, Pool, place_names
from adaptive_eval.machine.repeats import Sampled
from adaptive_eval.questions.benchmark import BenchmarkConfig
from adaptive_eval.questions.load import benchmark_named
from adaptive_eval.questions.prompts import PromptConfig, TemplateConfig
from adaptive_eval.questions.types import Question, QuestionsConfig

MODEL_NAME = r"^[^\s\x00-\x1f\x7f]([^\x00-\x1f\x7f]*[^\s\x00-\x1f\x7f])?$"
"""One line of text without control characters and outer white space, which no report shows and imports leave out."""
MAX_MODEL_NAME = 200
ModelName = Annotated[str, StringConstraints(pattern=MODEL_NAME, max_length=MAX_MODEL_NAME)]


def _check_inspect_name(given: str | Mapping[str, Any]) -> str | Mapping[str, Any]:
    name, args = (given.get("model"), given.get("args", {})) if isinstance(given, Mapping) else (given, {})
    if not isinstance(name, str) or not 0 < len(name) <= 500 or not isinstance(args, Mapping):
        hint = "write it like openai/gpt-x, or {model: openai/gpt-x, temperature: 0.6, args: {base_url: ...}}"
        raise config_error("must have the model's name in Inspect, and `args` as a mapping", hint)
    return given


class ModelConfig(EndpointConfig, CommandKeys):
    """A model to rank: its server, and the settings of requests; or a command.

    By default, `model` is `name`, and `base_url` is the variable OPENAI_BASE_URL.
    `sampling`, `prompt` and `concurrency` override single keys of the run's sections.
    """

    model_config = ConfigDict(strict=True)

    name: ModelName
    """Unique name of the model in results; a resume identifies the model's trials by it."""
    sampling: Sampling = Sampling()
    prompt: TemplateConfig = TemplateConfig()
    concurrency: ModelLimits = ModelLimits()
    price: Price | None = None
    gpus: float | None = Field(None, ge=0, le=1e6)
    """Number of GPUs that serve this model, for all replicas together; 0 if they cost nothing."""
    simulate: bool = False
    """Use the simulator; the model must be in the world of `questions.world`. No `base_url` is needed."""
    launch: LaunchConfig | None = None
    """Start a server for the model, and stop it at the end; no `base_url` is needed."""
    recorded: Path | None = None
    """Directory of an earlier run, relative to the current directory. The model's outcomes there are copied into this
    run, and the model is never asked. `model` is its name in that run; no `base_url` is needed."""
    inspect: Annotated[str | Mapping[str, Any], AfterValidator(_check_inspect_name)] | None = None
    """The model's name in Inspect, such as openai/gpt-x, for Inspect tasks; no `base_url` is needed. It may come with
    options (`GenerateConfig`) and model arguments, as with -M: {model: openai/gpt-x, temperature: 0.6, args: {...}}.
    `sampling.max_tokens` then limits all tokens of a sample (Inspect's `token_limit`)."""
    batch: BatchKind | None = None
    """Use the provider's batch service, at half of `price`: openai (files of requests) or anthropic (message
    batches)."""

    @field_validator("batch")
    @classmethod
    def _check_batch(cls, batch: BatchKind | None, info: ValidationInfo) -> BatchKind | None:
        """Refuse settings that the batch service does not support."""
        if batch is None:
            return None
        if info.data.get("launch") is not None or info.data.get("gpus"):
            raise config_error(
                "is for models of providers, and this one has servers of its own", "remove launch and gpus"
            )
        if info.data.get("concurrency", ModelLimits()).samples_per_request > 1:
            raise config_error("asks for one answer in each request", "remove concurrency.samples_per_request")
        if batch == "anthropic":
            _require_messages(info.data)
        return batch

    @model_validator(mode="after")
    def _batch_without_tier(self) -> "ModelConfig":
        """A batch service has one price: a service tier is for models that are asked directly."""
        if self.batch is None or "service_tier" not in self.sampling.extra_body:
            return self
        body = {key: value for key, value in self.sampling.extra_body.items() if key != "service_tier"}
        return self.model_copy(update={"sampling": self.sampling.model_copy(update={"extra_body": body})})

    @property
    def title(self) -> str:
        return self.name

    @property
    def inspect_name(self) -> str:
        """The model's name in Inspect; empty if Inspect does not ask it."""
        return str(self.inspect["model"]) if isinstance(self.inspect, Mapping) else self.inspect or ""

    @property
    def inspect_args(self) -> dict[str, Any]:
        """The arguments of the model in Inspect."""
        return dict(self.inspect.get("args", {})) if isinstance(self.inspect, Mapping) else {}

    @property
    def inspect_options(self) -> dict[str, Any]:
        """Inspect's options for requests to the model (`GenerateConfig`)."""
        given = self.inspect if isinstance(self.inspect, Mapping) else {}
        return {name: value for name, value in given.items() if name not in ("model", "args")}

    @property
    def shared_addresses(self) -> tuple[str, ...]:
        """Addresses of external servers, which may also serve other models; empty if there are none."""
        return () if self.simulate or any(getattr(self, key) is not None for key in SOURCES) else self.replicas

    @property
    def has_address(self) -> bool:
        """Whether it is asked at `base_url`."""
        return not any(source.hint is not None and getattr(self, key) is not None for key, source in SOURCES.items())

    @property
    def gets_sampling(self) -> bool:
        """Whether its requests have the settings of `sampling`."""
        return self.recorded is None and self.inspect is None and self.command is None

    @property
    def sampled(self) -> Sampled | None:
        """How its answers are sampled; None if equal ones are normal, as of a command."""
        return None if self.command is not None else Sampled.how(self.temperature, self.concurrency.samples_per_request)

    @property
    def temperature(self) -> float | None:
        """The temperature of its answers, if one is set."""
        if self.inspect is None:
            return self.sampling.temperature
        temperature = self.inspect_options.get("temperature")
        return float(temperature) if isinstance(temperature, int | float) else None

    @property
    def longest_answer(self) -> float:
        """Seconds that one attempt at an answer may take."""
        return self.sampling.timeout if self.command is None else self.timeout


class ModelSource(NamedTuple):
    """A key of a model that says where its answers come from, if not from a server at `base_url` alone."""

    model: str
    """Such a model, for messages."""
    hint: str | None
    """How to mend a `base_url` beside it; None if it needs one."""
    changes_answers: bool = False
    """Whether answers depend on its value, so that a resume with another one is refused."""


SOURCES = {
    "recorded": ModelSource("a recorded model, which is never asked", "remove base_url, or recorded"),
    "inspect": ModelSource(
        "a model that Inspect asks", "write `inspect: {model: ..., args: {base_url: ...}}`", changes_answers=True
    ),
    "command": ModelSource("a command", "remove base_url, or command", changes_answers=True),
    "launch": ModelSource("a model whose server the run starts", "remove base_url, or launch"),
    "batch": ModelSource("a model of a batch service", None),
}
"""All of them, by key. `supplies/opening.py` has what asks the models."""


def _require_messages(model: Mapping[str, Any]) -> None:
    """Refuse settings that Anthropic's Messages API does not support."""
    sampling: Sampling = model.get("sampling", Sampling())
    if model.get("api") == "completions" or model.get("prompt_logprobs") is not None:
        raise config_error("of the kind anthropic only supports chat", "remove api: completions and prompt_logprobs")
    unknown = sorted(name for name in UNKNOWN_TO_MESSAGES if getattr(sampling, name) not in (None, False))
    if unknown:
        raise config_error(f"of the kind anthropic has no {', '.join(unknown)}", "remove it from sampling")
    if sampling.max_tokens is None and "max_tokens" not in sampling.extra_body:
        raise config_error("of the kind anthropic needs sampling.max_tokens", "set the maximum length of an answer")


class ServingGroup(NamedTuple):
    """Models, by index, that share the places of their servers."""

    models: tuple[int, ...]
    places: tuple[str, ...] = ()
    """Places that serve one of the models at a time; empty if a single model has its own place."""

    @property
    def in_turn(self) -> bool:
        """Whether there are fewer places than models."""
        return len(self.models) > max(len(self.places), 1)


class PriorConfig(Section):
    """Outcomes of another run that count like trials of this run: R0 (paper, 2.8).

    They are its first `trials.min` trials per question, from before its first look. No question has more prior trials
    than new trials.
    """

    run: Path
    """Directory of the other run, relative to the current directory."""
    models: Mapping[ModelName, ModelName] = Field(default_factory=dict)
    """For models of this run, the other run's model, such as an older version; default: the model of the same name."""


class RunConfig(Decisions):
    """The validated configuration of a run."""

    name: PlainName
    """Name of the run; default: the file's name."""
    seed: int = Field(0, ge=0, lt=SEED_SPAN)
    """Seed of `questions.shuffle`, and with `trials.seeds` of every trial."""
    benchmark: BenchmarkConfig | None = None
    """A task of Inspect or lm_eval, instead of `questions` and `grader`."""
    benchmarks: tuple[BenchmarkPart, ...] = ()
    """Several benchmarks, instead of `questions`; the score is the weighted mean of their means. Each has its own
    `questions` and `grader` (default: the run's), or a `benchmark`, a task of Inspect or lm_eval. If any is a task of
    Inspect, all requests go through Inspect."""
    questions: QuestionsConfig
    prompt: PromptConfig = PromptConfig()
    sampling: Sampling = Sampling()
    models: tuple[ModelConfig, ...] = Field(min_length=1)
    pool: Pool | None = None
    """Places for the servers of all models with a `launch` section; each serves one model with pending requests at a
    time, several the same one if fewer models are left. Names of GPUs of this machine, such as [0, 1, 2, 3],
    or ["0,1", "2,3"] if a model takes two: other runs of the same user wait for a place of the same name until this run
    has ended. With `--ray` a number: at most so many places at a time, on the cluster's nodes as they become free."""
    grader: GraderConfig
    grading: GradingLimits = GradingLimits()
    prior: PriorConfig | None = None
    store: Path = Path("runs")
    """Folder of all runs, relative to the current directory, with a directory for each run."""
    concurrency: Limits = Limits()
    notify: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """A program with its arguments to call when the run has ended; it gets the outcome as a line on standard input. It
    runs in the folder of the configuration, without API keys in its environment."""
    report: ReportConfig = ReportConfig()

    @property
    def inspect_tasks(self) -> Mapping[str, BenchmarkConfig | None]:
        """Inspect tasks by benchmark (with an empty name if there is one benchmark), None for other benchmarks.

        Empty if there is no Inspect task.
        """
        tasks = {part.name: part.benchmark for part in self.benchmarks} or {"": self.benchmark}
        return tasks if any(tasks.values()) else {}

    def prompt_of(self, model: ModelConfig, question: Question) -> PromptConfig:
        """The prompt of a model for a question: its own, with the run's examples and the keys of its benchmark."""
        prompt, name = self.prompt.with_template(model.prompt), benchmark_named(question.id)
        part = next((part for part in self.benchmarks if part.name == name), None)
        return prompt if part is None else part.complete_prompt(prompt)

    @property
    def recorded(self) -> frozenset[int]:
        """Indices of recorded models, which are never asked."""
        return frozenset(number for number, model in enumerate(self.models) if model.recorded is not None)

    @property
    def launched(self) -> dict[int, LaunchConfig]:
        """`launch` sections by model index."""
        return {number: model.launch for number, model in enumerate(self.models) if model.launch is not None}

    @property
    def asked(self) -> tuple[ModelConfig, ...]:
        """All models except for recorded ones."""
        return tuple(model for model in self.models if model.recorded is None)

    def stated(self) -> dict[str, object]:
        """The sections of `Decisions`, and as `judged_by` the kind of a grader that is a model and may err."""
        asked = grader_that_asks(self.grader)
        kind = getattr(self.grader, "judged_by", None) if asked is None else asked.kind
        return super().stated() | ({} if kind is None else {"judged_by": kind})

    @property
    def worker_settings(self) -> WorkerSettings:
        """What the worker processes of graders work with."""
        return WorkerSettings(self.grading, self.folder, self.keys)

    @property
    def keys(self) -> frozenset[str]:
        """The names of environment variables with API keys."""
        return frozenset(name for server in self.servers if (name := server.key_variable) is not None)

    @property
    def servers(self) -> tuple[EndpointConfig, ...]:
        """The models that are asked, and the servers of judges and verifiers."""
        graders = graders_that_ask(self.grader).values()
        return (*self.asked, *(server for grader in graders for server in grader.server))

    @model_validator(mode="after")
    def _adopt_judge_rubric(self) -> "RunConfig":
        rubric = find_rubric(self.grader, self.rubric)
        return self if rubric is self.rubric else self.model_copy(update={"rubric": rubric})

    @model_validator(mode="after")
    def _check_benchmark_graders(self) -> "RunConfig":
        names = {part.name for part in self.benchmarks}
        if isinstance(self.grader, ByBenchmark) and not names == {*self.grader.graders} == {*self.questions.benchmarks}:
            raise config_error("grader: by_benchmark is filled in by `benchmarks`", "give a grader to each of them")
        return self

    @field_validator("models")
    @classmethod
    def _check_names_differ(cls, models: tuple[ModelConfig, ...]) -> tuple[ModelConfig, ...]:
        names = [model.name for model in models]
        composed = [normalize("NFC", name) for name in names]
        if repeated := sorted({name for name in composed if composed.count(name) > 1}):
            alike = "" if len({*names}) < len(names) else ", in two Unicode forms that look the same"
            raise config_error(
                f"must have different names, but {', '.join(repeated)} is there twice{alike}", "rename one of the two"
            )
        return models

    @property
    def serving_groups(self) -> list[ServingGroup]:
        """The launched models, grouped by the places they share."""
        if self.pool is None or not self.launched:
            return [ServingGroup((number,)) for number in self.launched]
        return [ServingGroup(tuple(self.launched), place_names(self.pool))]

    @property
    def batched(self) -> bool:
        """Whether any model uses a batch service."""
        return any(model.batch is not None for model in self.asked)

    @model_validator(mode="after")
    def _check_places(self) -> "RunConfig":
        launched = {model.name: model.launch for model in self.asked if model.launch is not None}
        if self.pool is not None and not launched:
            raise config_error("pool: no model is served there", "give models a `launch` section")
        for name, launch in launched.items():
            if launch.names_place and self.pool is None:
                raise config_error(f"{name}: launch has {{place}}, but no place", "give `pool`")
        return self
