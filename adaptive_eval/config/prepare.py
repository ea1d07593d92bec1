"""Prepares everything of a run that needs no server: questions, prompts, plan, costs, and the run's fingerprint.

The fingerprint is the part of the configuration that a resume must not change, including the source files of a user's
grading function and of commands. Everything else may change and is recorded: servers, concurrency, timeouts, objective,
stopping, the choice of trials, budget, and the source files of the user's own rules and policies. A resume repeats the
looks.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, cast

import orjson
from pydantic import TypeAdapter, ValidationError

from adaptive_eval.base.errors import ConfigError, DamagedValue, first_lines
from adaptive_eval.base.imports import DIGITS, MAX_DESCRIPTION, docstring_summary, fingerprints
from adaptive_eval.base.roster import Roster
from adaptive_eval.base.seeds import SHARED, hashed_base
from adaptive_eval.config.commands import command_problems, command_sources
from adaptive_eval.config.pace import choose_optimize
from adaptive_eval.config.planning import affordable_trials, longest_prompts, make_plan, worst_costs
from adaptive_eval.config.run import SOURCES, ModelConfig, RunConfig
from adaptive_eval.config.task_sampling import load_run
from adaptive_eval.core import Plan
from adaptive_eval.endpoints.types import Prompt, Sampling
from adaptive_eval.graders.asked import AskedGrader
from adaptive_eval.graders.by_benchmark import ByBenchmark
from adaptive_eval.graders.registry import Logged
from adaptive_eval.graders.rubric import Rubric, open_rubric
from adaptive_eval.launch.command import missing_program, server_command, server_environment
from adaptive_eval.notes import Json, Override
from adaptive_eval.questions.benchmark import BenchmarkConfig
from adaptive_eval.questions.load import benchmark_named
from adaptive_eval.questions.prompts import render
from adaptive_eval.questions.types import Question
from adaptive_eval.store.header import RunHeader


def missing_programs(config: RunConfig, environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The names of launched models and commands that cannot be started here, with the problems."""
    for model in config.asked:
        yield from ((model.name, problem) for problem in command_problems(model, environment, config.folder))
        if model.launch is not None:
            program_environment = server_environment(model.launch, model.model, "", environment)
            problem = missing_program(server_command(model.launch, model.model), program_environment, config.folder)
            if problem is not None:
                yield model.name, problem


SERVER_NOT_IN_FINGERPRINT = {
    "base_url",
    "api_key_env",
    "client",
    "stream",
    "headers",
    "finish_reasons",
    "auth",
}
GRADER_NOT_IN_FINGERPRINT: dict[str, Any] = {
    **dict.fromkeys(("key_is_answer", "concurrency"), True),
    "server": {"__all__": {*SERVER_NOT_IN_FINGERPRINT, "price", "gpus"}},
}
"""Settings of graders that do not change grades."""

MODEL_NOT_IN_FINGERPRINT = {
    *("name", "concurrency", "price", "gpus", "prompt_logprobs"),
    *("timeout", "env"),
    *(key for key, source in SOURCES.items() if not source.changes_answers),
}
"""Settings of models that do not change answers; all other keys are part of the fingerprint, except those above."""
SAMPLING_NOT_IN_FINGERPRINT = {"timeout"}

PLUG_INS = "plug_ins"
"""Key of a stored configuration for facts about plug-ins, which readers of the run do not load."""
OWN_RULE = "objective.rule"
"""Key in `PLUG_INS` for the rule that a user's objective defines."""


def run_header(config: RunConfig, questions: tuple[Question, ...]) -> RunHeader:
    """The header to store; its fingerprint omits defaults, so that a new option does not change existing runs."""
    return RunHeader(
        name=config.name,
        configuration=with_pace(config).model_dump(mode="json") | _plug_ins(config),
        meaning={
            "seed": config.seed,
            "seeds": config.trials.seeds,
            "grader": _grader_fingerprint(config.grader) | _sources(config),
            "rubric": config.rubric.model_dump(mode="json", exclude_defaults=True),
            **_task_fingerprint(config.benchmark, config.folder),
            **_benchmarks_fingerprint(config),
        },
        models={model.name: _model_fingerprint(model, config) for model in config.models},
        questions={question.id: _question_body(question) for question in questions},
    )


def with_pace(config: RunConfig) -> RunConfig:
    """The configuration with an unresolved `auto` replaced by its pace (`pace.make_pace`), as for imports."""
    return with_trials(config, {"optimize": "cost"}) if config.trials.optimize == "auto" else config


def _grader_fingerprint(grader: Any) -> dict[str, object]:
    """The options of a grader that affect its grades, by benchmark if there are several."""
    if isinstance(grader, AskedGrader):
        grader = grader.model_copy(update={"sampling": _without_queue_keys(grader.sampling)})
    options: dict[str, object] = grader.model_dump(
        mode="json", exclude=GRADER_NOT_IN_FINGERPRINT, exclude_defaults=True
    )
    if isinstance(grader, ByBenchmark):
        options["graders"] = {
            name: _grader_fingerprint(benchmark_grader) for name, benchmark_grader in grader.graders.items()
        }
    return options | {"kind": grader.kind}


def _sources(config: RunConfig) -> dict[str, object]:
    """Digests of the source files of a user's grading functions."""
    functions = config.grader.functions
    digests = {file: digest for name in functions for file, digest in fingerprints(name, config.folder).items()}
    return {"sources": digests} if functions else {}


def _task_fingerprint(task: BenchmarkConfig | None, folder: Path) -> dict[str, object]:
    """The settings of an Inspect task, with the digest of its file, if any."""
    if task is None:
        return {}
    settings = task.model_dump(mode="json", exclude={"prices"}, exclude_defaults=True)
    file = folder / task.inspect.partition("@")[0]
    digest = sha256(file.read_bytes()).hexdigest()[:DIGITS] if file.is_file() else None
    return {"benchmark": settings if digest is None else {**settings, "digest": digest}}


def _benchmarks_fingerprint(config: RunConfig) -> dict[str, object]:
    """The weight and the prompt of each benchmark, if there are several."""
    excluded = {"name", "gate", "benchmark"}
    settings = {
        part.name: part.model_dump(mode="json", exclude=excluded, exclude_defaults=True)
        | _task_fingerprint(part.benchmark, config.folder)
        for part in config.benchmarks
    }
    return {"benchmarks": settings} if settings else {}


def _plug_ins(config: RunConfig) -> dict[str, object]:
    """Facts about each plug-in: its name, its description, and digests of its source files."""
    facts = {
        key: {
            "name": name,
            "description": docstring_summary(name, config.folder),
            "sources": fingerprints(name, config.folder),
        }
        for key, name in config.plug_ins.items()
    }
    return {PLUG_INS: facts} if facts else {}


def _model_fingerprint(model: ModelConfig, config: RunConfig) -> dict[str, object]:
    if model.recorded is not None:
        return {"recorded": True, "model": model.model}
    excluded = {*SERVER_NOT_IN_FINGERPRINT, *MODEL_NOT_IN_FINGERPRINT, "api", "simulate", "prompt", "sampling"}
    settings = model.model_dump(mode="json", exclude=excluded, exclude_defaults=True)
    if model.inspect is not None:
        limit = model.sampling.max_tokens
        return settings if limit is None else {**settings, "sampling": {"max_tokens": limit}}
    if sources := command_sources(model, config.folder):
        settings["sources"] = sources
    return {
        **settings,
        "api": model.api,
        "simulate": model.simulate,
        "prompt": config.prompt.with_template(model.prompt).model_dump(mode="json", exclude_defaults=True),
        "sampling": _without_queue_keys(model.sampling).model_dump(
            mode="json", exclude=SAMPLING_NOT_IN_FINGERPRINT, exclude_defaults=True
        ),
    }


def _without_queue_keys(sampling: Sampling) -> Sampling:
    """The settings on which answers depend, whenever they come."""
    return sampling.model_copy(update={"extra_body": sampling.answer_body})


def _question_body(question: Question) -> dict[str, object]:
    body = asdict(question) | {"choices": list(question.choices)}
    del body["id"]
    return body


def stored_config(header: RunHeader) -> RunConfig:
    """The configuration of a run's last start; raises `DamagedValue` if it cannot be read."""
    stored = {name: section for name, section in header.configuration.items() if name != PLUG_INS}
    try:
        # not as Python's JSON: NaN, which passes every limit check, becomes null, and huge numbers are errors
        return RunConfig.model_validate_json(orjson.dumps(stored), strict=True)
    except (ValueError, orjson.JSONEncodeError) as error:
        place = ".".join(map(str, error.errors()[0]["loc"])) if isinstance(error, ValidationError) else str(error)
        what = f"the stored configuration is damaged or of another version (see {place!a:.80})"
        raise DamagedValue(what) from error


def stored_words(header: RunHeader) -> dict[str, str]:
    """Stored descriptions of a run's plug-ins by key, read without loading the plug-ins."""
    section = header.configuration.get(PLUG_INS)
    entries = section.items() if isinstance(section, dict) else ()
    descriptions = {str(key): entry.get("description") for key, entry in entries if isinstance(entry, dict)}
    return {key: text for key, text in descriptions.items() if isinstance(text, str)}


_question_parser = cache(lambda: TypeAdapter(Question))
"""Creates the parser of stored questions on first use."""


def stored_questions(header: RunHeader) -> tuple[Question, ...]:
    """Restore the questions in a header; raises `DamagedValue` if one is not valid."""
    parser, questions = _question_parser(), list[Question]()
    for key, body in header.questions.items():
        try:
            questions.append(parser.validate_python({**body, "id": key}))
        except ValidationError as error:
            place = ".".join(map(str, error.errors()[0]["loc"]))
            raise DamagedValue(f"the stored question {key!a:.80} is not valid (see {place!a:.80})") from error
    return tuple(questions)


class StoredSetup(NamedTuple):
    """The latest configuration of a stored run, and its questions."""

    config: RunConfig
    questions: tuple[Question, ...]
    plug_ins: Mapping[str, str]
    """Descriptions of plug-ins by key."""
    roster: Roster


def stored_setup(header: RunHeader) -> StoredSetup:
    """The setup in a stored header, with models in the order of joining."""
    config, questions = in_order_of_joining(stored_config(header), header), stored_questions(header)
    return StoredSetup(config, questions, stored_words(header), make_roster(config, questions))


SHOWN_PROBLEMS = 10


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A run that is ready to start."""

    config: RunConfig
    questions: tuple[Question, ...]
    rubric: Rubric
    prompts: tuple[tuple[Prompt, ...], ...]
    """Prompts by model and question; models with equal prompts share them."""
    plan: Plan
    header: RunHeader
    roster: Roster
    why_optimized: str | None = None
    """Why `trials.optimize: auto` chose this pace; None if the pace was given."""
    arguments: tuple[str, ...] | None = None
    """The arguments of `adaptive-eval run` to resume the run; None if no command started it."""
    overrides: Mapping[str, Override] = field(default_factory=dict)
    """Stored settings that override those of the file, by key."""
    usual: Plan | None = None
    """The plan with the usual `trials.min`, if the budget made it smaller."""

    @property
    def models(self) -> tuple[str, ...]:
        """The models' names."""
        return tuple(self.roster.models)


def prepare(config: RunConfig) -> PreparedRun:
    """Load the questions and prepare the run; raises `ConfigError`."""
    if isinstance(config.grader, Logged):
        raise ConfigError("grader.kind: logged is a placeholder for imported logs; choose a grader for new answers")
    config, questions = load_run(config)
    _require_gradable(config, questions)
    return at_first_start(config, questions)


def at_first_start(config: RunConfig, questions: tuple[Question, ...]) -> PreparedRun:
    """A prepared run with the pace and `trials.min` that a run begins with if the configuration leaves them open."""
    why = None
    if config.trials.optimize == "auto":
        optimize, why = choose_optimize(config.asked, config.trials)
        config = with_trials(config, {"optimize": optimize})
    prepared = with_questions(config, questions)
    trials = affordable_trials(config.trials, prepared.plan)
    if trials is not config.trials:
        affordable = with_decisions(prepared, config.model_copy(update={"trials": trials}))
        prepared = replace(affordable, usual=prepared.plan)
    return replace(prepared, why_optimized=why)


def adopt_stored_trials(config: RunConfig, stored: RunConfig, *, at_any_pace: bool) -> RunConfig:
    """Take over `trials.min` of a stored run unless the configuration sets it, and `at_any_pace` its pace."""
    stored_trials, adopted = stored.trials, dict[str, object]()
    if at_any_pace:
        adopted["optimize"] = stored_trials.optimize
    if "min" not in config.trials.model_fields_set and stored_trials.min <= config.trials.max:
        adopted["min"] = stored_trials.min
    return with_trials(config, adopted)


def in_order_of_joining(config: RunConfig, stored: RunHeader) -> RunConfig:
    """The configuration with a stored run's models in the order of joining, followed by new models.

    So a pair of models keeps its sign, whatever their order in the file.
    """
    order = {name: number for number, name in enumerate(stored.models)}
    models = sorted(config.models, key=lambda model: order.get(model.name, len(order)))
    return config if models == list(config.models) else config.model_copy(update={"models": tuple(models)})


def with_trials(config: RunConfig, changed: Mapping[str, object]) -> RunConfig:
    """The configuration with other settings of `trials`."""
    return config.model_copy(update={"trials": config.trials.model_copy(update=changed)})


def with_decisions(prepared: PreparedRun, config: RunConfig) -> PreparedRun:
    """The same questions and prompts with the decisions of another configuration."""
    plan = make_plan(config, prepared.questions, prepared.plan.bench.worst_cost)
    header = _with_own_rule(run_header(config, prepared.questions), config, plan)
    return replace(prepared, config=config, plan=plan, header=header, usual=None)


def _with_own_rule(header: RunHeader, config: RunConfig, plan: Plan) -> RunHeader:
    """Record the rule that a user's objective defines, for readers of the run."""
    name = config.plug_ins.get("objective.kind")
    if name is None or plan.objective.rule is None:
        return header
    docstring = inspect.getdoc(plan.objective.rule) or ""
    rule = {"name": name, "description": docstring.partition("\n")[0][:MAX_DESCRIPTION]}
    plug_ins = {**cast(Json, header.configuration[PLUG_INS]), OWN_RULE: rule}
    return replace(header, configuration={**header.configuration, PLUG_INS: plug_ins})


def with_questions(config: RunConfig, questions: tuple[Question, ...]) -> PreparedRun:
    """A prepared run with loaded questions, for a configuration whose pace is chosen."""
    prompts = render_prompts(config, questions)
    plan = make_plan(config, questions, worst_costs(config, questions, longest_prompts(prompts)))
    return PreparedRun(
        config=config,
        questions=questions,
        rubric=open_rubric(config.rubric),
        prompts=prompts,
        plan=plan,
        header=_with_own_rule(run_header(config, questions), config, plan),
        roster=make_roster(config, questions),
    )


def make_roster(config: RunConfig, questions: Sequence[Question]) -> Roster:
    """The names of the configuration's models and of the questions."""
    return Roster.of((model.name for model in config.models), (question.id for question in questions))


def _require_gradable(config: RunConfig, questions: tuple[Question, ...]) -> None:
    """Raise `ConfigError` if the grader cannot use an answer key, with which it would fail on every answer."""
    by_problem: dict[str, list[str]] = {}  # by problem without the answer
    for question in questions:
        if (problem := config.grader.key_problem(question)) is not None:
            examples = by_problem.setdefault(problem.replace(repr(question.answer), ""), [])
            examples.append(f"question {question.id}: {problem}")
    if by_problem:
        lines = [first + f" (and {len(others)} more)" * bool(others) for first, *others in by_problem.values()]
        headline = f"the grader {config.grader.kind} cannot use the answer key of some questions:"
        raise ConfigError("\n".join([headline, *first_lines(lines, SHOWN_PROBLEMS)]))


def render_prompts(config: RunConfig, questions: tuple[Question, ...]) -> tuple[tuple[Prompt, ...], ...]:
    """Prompts by model and question."""
    keys = [(model.api, model.prompt.model_dump_json()) for model in config.models]
    models = dict(zip(keys, config.models, strict=True))  # the last model of those with equal prompts
    rendered = {key: tuple(_prompt(model, question, config) for question in questions) for key, model in models.items()}
    return tuple(rendered[key] for key in keys)


def _prompt(model: ModelConfig, question: Question, config: RunConfig) -> Prompt:
    """The prompt of a model for a question; only the id if Inspect asks."""
    if asked_by_inspect(config, question):
        return Prompt(text=question.id, question=question.id)
    prompt = render(config.prompt_of(model, question), question, model.api)
    return replace(prompt, question=question.id) if config.inspect_tasks else prompt


def asked_by_inspect(config: RunConfig, question: Question) -> bool:
    """Whether the question belongs to an Inspect task, which has its own prompts."""
    tasks = config.inspect_tasks
    return bool(tasks) and tasks[benchmark_named(question.id) if config.benchmarks else ""] is not None


def seed_base(config: RunConfig, model: ModelConfig) -> Callable[[str], int]:
    """A function for the seed of trial 0, by the question's id."""
    if config.trials.seeds == "consecutive":
        return lambda question: config.seed
    return partial(hashed_base, config.seed, SHARED if config.trials.seeds == "coupled" else model.name)
