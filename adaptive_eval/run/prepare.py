"""Everything of a run that can be known before anything is opened: questions, prompts, plan, costs, meaning."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from adaptive_eval.config.run import ModelConfig, RunConfig
from adaptive_eval.core import Plan
from adaptive_eval.endpoints.types import Endpoint, Prompt
from adaptive_eval.errors import ConfigError
from adaptive_eval.graders.rubric import Rubric, open_rubric
from adaptive_eval.planning import plan_of, trial_cost
from adaptive_eval.prompts import render
from adaptive_eval.questions import Question, load_questions
from adaptive_eval.run.meaning import run_header
from adaptive_eval.scheduler.types import Lane
from adaptive_eval.seeds import hashed_base
from adaptive_eval.store import RunHeader

SHOWN_PROBLEMS = 10
CACHED_BASES = 65_536


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run that could begin."""

    config: RunConfig
    questions: tuple[Question, ...]
    rubric: Rubric
    prompts: tuple[tuple[Prompt, ...], ...]
    """For each model, of each question; models that are asked alike share theirs."""
    plan: Plan
    header: RunHeader

    @property
    def models(self) -> tuple[str, ...]:
        """The models' names."""
        return tuple(model.name for model in self.config.models)


def prepare(config: RunConfig) -> Prepared:
    """Load the questions and work everything out; raises `ConfigError`."""
    questions = load_questions(config.questions, folder=config.folder, seed=config.seed)
    _require_gradable(config, questions)
    return prepared_with(config, questions, run_header(config, questions))


def prepared_with(config: RunConfig, questions: tuple[Question, ...], header: RunHeader) -> Prepared:
    """What these questions make of a configuration."""
    prompts = prompts_of(config, questions)
    return Prepared(
        config=config,
        questions=questions,
        rubric=open_rubric(config.rubric),
        prompts=prompts,
        plan=plan_of(config, questions, prompts),
        header=header,
    )


def make_lane(prepared: Prepared, number: int, endpoint: Endpoint) -> Lane:
    """One model as the scheduler sees it."""
    model, prompts = prepared.config.models[number], prepared.prompts[number]
    return Lane(
        name=model.name,
        endpoint=endpoint,
        prompt=prompts.__getitem__,
        seed_base=_seed_bases(prepared, model),
        slots=model.concurrency.concurrency * len(model.replicas),
        samples_per_request=model.concurrency.samples_per_request,
        cost=trial_cost(model),
    )


def _require_gradable(config: RunConfig, questions: tuple[Question, ...]) -> None:
    """An answer key that the grader cannot read would fail on every answer."""
    told = ((question.id, config.grader.key_problem(question)) for question in questions)
    problems = [f"  question {key}: {problem}" for key, problem in told if problem is not None]
    if problems:
        shown = problems[:SHOWN_PROBLEMS]
        more = [f"  and {len(problems) - len(shown)} more"] if len(problems) > len(shown) else []
        kind = config.grader.kind
        raise ConfigError("\n".join([f"the grader {kind} cannot use the answer key of some questions:", *shown, *more]))


def prompts_of(config: RunConfig, questions: tuple[Question, ...]) -> tuple[tuple[Prompt, ...], ...]:
    """For each model, the prompt of each question."""
    rendered: dict[str, tuple[Prompt, ...]] = {}
    for model in config.models:
        way = _way_of_asking(model)
        if way not in rendered:
            rendered[way] = tuple(render(model.prompt, question, model.api) for question in questions)
    return tuple(rendered[_way_of_asking(model)] for model in config.models)


def _way_of_asking(model: ModelConfig) -> str:
    return f"{model.api} {model.prompt.model_dump_json()}"


def _seed_bases(prepared: Prepared, model: ModelConfig) -> Callable[[int], int]:
    """The seed of each question's trial 0 (DESIGN 3.7)."""
    config, questions = prepared.config, prepared.questions
    if config.seeds == "consecutive":
        base = config.seed if model.sampling.seed is None else model.sampling.seed
        return lambda question: base

    @lru_cache(maxsize=CACHED_BASES)
    def hashed(question: int) -> int:
        return hashed_base(config.seed, model.name, questions[question].id)

    return hashed
