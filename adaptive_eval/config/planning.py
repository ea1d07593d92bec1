"""Converts the configuration, which uses names, to the plan of the decision core, which uses indices."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.base.sections import Price
from adaptive_eval.config.benchmarks import weigh_questions
from adaptive_eval.config.decisions import LEAST_UNDER_CAPS, BudgetConfig, Decisions, TrialsConfig
from adaptive_eval.config.pace import make_pace
from adaptive_eval.config.plug_ins import load_plug_in
from adaptive_eval.config.run import ModelConfig, RunConfig, ServingGroup
from adaptive_eval.core.entries import Entry
from adaptive_eval.core.judge import FUTILITY, Judging
from adaptive_eval.core.objectives import PLACE, Gate, Objective
from adaptive_eval.core.plan import Plan, affordable_opening
from adaptive_eval.core.policies import Policy
from adaptive_eval.core.registry import OBJECTIVES, POLICIES, RULES, make
from adaptive_eval.core.rules import Rule
from adaptive_eval.core.settings import Bench, Budget, Margin, RecordedTrials, Trials
from adaptive_eval.core.stages import StageBefore
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.endpoints import settings
from adaptive_eval.endpoints.batching import BATCH_PRICE, came_by_batch
from adaptive_eval.endpoints.types import MAX_BYTES_PER_TOKEN, TEMPLATE_TOKENS, Answer, Prompt, gpu_share
from adaptive_eval.graders.by_benchmark import benchmark_questions, graders_that_ask
from adaptive_eval.graders.rubric import open_rubric, says_nothing, unsure_grades
from adaptive_eval.graders.types import SampleAnswer
from adaptive_eval.launch.types import GRACE_SECONDS
from adaptive_eval.questions.types import Question
from scorio.moments import CountArray, FloatArray

ENDING_SECONDS = GRACE_SECONDS + 1.0
"""Seconds for the run to notice that a server must end, and for the server to end."""
GUESSED_START_SECONDS = 120.0
"""Seconds until a model's server is ready, or the next model's at a place that models share."""
MIN_GPU_SECONDS = 1e-9
SAMPLE_MARGIN = 2
"""Factor on an Inspect sample's token limit for caps: its last call may exceed it, and its scorer may call models."""
WORST_TO_MEAN = 3.0
"""The least that the worst cost of an answer usually is beside the mean: a budget for less may end within the first
round, and with more a first round of usual size decides more than a small one (benchmarks/limits.md)."""


class PriorKnowledge(NamedTuple):
    """Outcomes of a run's models from other runs."""

    counts: CountArray | None = None
    """(L, M, K): R0, and all outcomes of recorded models."""
    recorded: RecordedTrials | None = None
    """Outcomes of recorded models, one by one."""
    unsure: NDArray[np.int64] | None = None
    """(L, M, K): the part of `counts` with uncertain grades, since the answers are incomplete."""


class RunFacts(NamedTuple):
    """Facts about a run that its plan needs, besides questions and decisions."""

    first: NDArray[np.integer] | None = None
    """(L, M): stored trials."""
    before: StageBefore | None = None
    """The state of the run when its settings were changed."""
    capped_opening: bool | None = None
    """As in `Plan`."""
    batched: bool = False
    """Whether any model uses a batch service."""
    budget: Budget | None = None
    """The caps, if they differ from the configured ones because the run launches servers."""
    coupled: bool = False
    """As in `Plan`."""


NO_FACTS = RunFacts()
NOTHING_KNOWN = PriorKnowledge()


def make_plan(
    config: RunConfig,
    questions: Sequence[Question],
    worst: Sequence[Cost],
    facts: RunFacts = NO_FACTS,
    prior: PriorKnowledge = NOTHING_KNOWN,
) -> Plan:
    """The plan of a configuration for these questions; `worst` bounds the cost of a trial of each model.

    `facts` are about the stored run, and `prior` has outcomes of earlier runs.
    """
    weighing = weigh_questions(config.benchmarks, [question.id for question in questions])
    bench = Bench(
        models=len(config.models),
        questions=len(questions),
        weights=np.array(open_rubric(config.rubric).weights, dtype=float),
        worst_cost=tuple(worst),
        together=tuple(model.concurrency.samples_per_request for model in config.models),
        prior_counts=prior.counts,
        clusters=clusters(questions),
        **({} if weighing is None else weighing._asdict()),
        recorded=config.recorded,
        recorded_trials=prior.recorded,
        prior_unsure=prior.unsure,
    )
    facts = facts._replace(
        batched=config.batched,
        budget=core_caps(config.budget, config.models, config.serving_groups),
        coupled=config.trials.seeds == "coupled",
    )
    return plan_on(bench, config, [model.name for model in config.models], facts)


def plan_on(bench: Bench, config: Decisions, names: Sequence[str], facts: RunFacts = NO_FACTS) -> Plan:
    """The plan for these models and questions."""
    first = facts.first
    budget = core_caps(config.budget) if facts.budget is None else facts.budget
    trials, pace = (
        Trials(min=config.trials.min, max=config.trials.max),
        make_pace(config.trials, questions=bench.questions, batched=facts.batched),
    )
    capped = facts.capped_opening if first is None else None
    opening = affordable_opening(bench, trials, pace, budget, capped)
    start = first_information(bench, config.trials, opening, first)
    if bench.gates and not config.objective.gate:  # in a replay without a gate of a run that had one
        bench = replace(bench, gates=())
    objective, stopping = _objective(config, names, bench), config.stopping
    policy: Policy = _chosen_part(config, "trials.policy", POLICIES, Policy, config.trials.options, {})
    context = {"confidence": stopping.confidence, "start": start, "delta": stopping.delta}
    rule: Rule = _chosen_part(config, "stopping.rule", RULES, Rule, stopping.options, context)
    rubric = open_rubric(config.rubric)
    judged_by = RULES.get(str(stopping.rule)) if objective.rule is None else None
    latch = judged_by is None or judged_by.latching
    tests_delta = objective.margin is not None or (judged_by is not None and judged_by.lenient)
    with _explain_misfit(config):
        return Plan(
            bench=bench,
            objective=objective,
            rule=rule,
            policy=policy,
            judging=Judging(
                delta=0.0 if tests_delta else stopping.delta,
                futility=FUTILITY if latch else None,
                familywise=stopping.familywise == "holm",
                latch=latch,
            ),
            prior=stopping.prior,
            trials=trials,
            pace=pace,
            budget=budget,
            first=first,
            estimator="average" if judged_by is None else judged_by.estimator,
            before=facts.before,
            capped_opening=capped,
            coupled=facts.coupled,
            unsure=unsure_grades(rubric, in_gate=config.objective.gate),
            says_nothing=int(says_nothing(rubric)),
            stops_on_alarm=stopping.on_alarm != "never",
            drawn=_block_size(config.trials, bench.questions, first),
        )


def asked_first(plan: Plan) -> NDArray[np.integer]:
    """(L, M): the trials that the first round asks for."""
    return np.maximum(plan.opening - (0 if plan.first is None else plan.first), 0)


def bounded_costs(plan: Plan) -> FloatArray:
    """(L, 4): the most that a trial of each model may cost in each currency of a budget; 0 USD if nothing bounds it."""
    costs = (cost._replace(usd=0.0) if cost.is_unbounded else cost for cost in plan.bench.worst_cost)
    return np.array([(1.0, *cost) for cost in costs])


def _caps_probably_cover_first_round(plan: Plan) -> bool:
    """Whether the caps cover the first round if its answers cost a third of the worst case on average. How long they
    take is unknown: a request's time limit says little about it."""
    trials, tokens, usd, _ = asked_first(plan).sum(axis=1) @ bounded_costs(plan)
    return not plan.budget.short_of((trials, tokens / WORST_TO_MEAN, usd / WORST_TO_MEAN, 0.0))


def affordable_trials(trials: TrialsConfig, plan: Plan) -> TrialsConfig:
    """These settings, with the default of `trials.min` for a budget that may not cover the first round of `plan`."""
    if "min" in trials.model_fields_set or trials.min <= LEAST_UNDER_CAPS or _caps_probably_cover_first_round(plan):
        return trials
    affordable = trials.model_copy(update={"min": LEAST_UNDER_CAPS})
    affordable.model_fields_set.discard("min")
    return affordable


def _block_size(trials: TrialsConfig, questions: int, first: NDArray[np.integer] | None) -> int:
    """Number of questions per block; 0 if questions are not drawn."""
    if trials.draw is not None and first is not None:
        raise ConfigError(
            "trials.draw begins with questions that no model was asked, and there are trials already; remove it"
        )
    if trials.draw is not None and trials.draw > questions:
        hint = f"there are {questions} questions; lower it, or remove it, so that all of them are asked at once"
        raise ConfigError(f"trials.draw is {trials.draw}, but {hint}")
    return trials.draw or 0


@contextmanager
def _explain_misfit(config: Decisions) -> Iterator[None]:
    """Convert a `ValueError` due to incompatible parts of a plan to a `ConfigError` that names the plug-ins."""
    try:
        yield
    except ValueError as error:
        named = ", ".join(f"{key}: {name}" for key, name in config.plug_ins.items())
        parts = f"plug-ins are incompatible ({named})" if named else "settings are incompatible"
        raise ConfigError(f"the {parts}: {error}") from error


def core_caps(config: BudgetConfig, models: Sequence[ModelConfig] = (), groups: Sequence[ServingGroup] = ()) -> Budget:
    """The caps in the core's units; `groups` has the models with launched servers.

    A launched server costs GPU time until it has ended, so it is stopped before the cap is reached.
    """
    held = None
    if config.gpu_hours is not None and groups:
        held = max(3600.0 * config.gpu_hours - ending_gpu_seconds(models, groups), MIN_GPU_SECONDS)
    return Budget(
        trials=config.trials,
        tokens=config.tokens,
        usd=config.usd,
        gpu_seconds=None if config.gpu_hours is None else 3600.0 * config.gpu_hours,
        wall_seconds=config.wall_time,
        held_gpu_seconds=held,
    )


def ending_gpu_seconds(models: Sequence[ModelConfig], groups: Sequence[ServingGroup]) -> float:
    """GPU seconds that a cap keeps back for the end of all servers that may be up at once: one at each place."""
    gpus = sum(max(models[index].gpus or 0.0 for index in group.models) * max(len(group.places), 1) for group in groups)
    return gpus * ENDING_SECONDS


def first_information(
    bench: Bench, trials: TrialsConfig, opening: int, first: NDArray[np.integer] | None = None
) -> float:
    """The minimum information at the first look with `opening` trials per question: opening/max, or more with earlier
    trials or R0.

    The information of a pair is a mean of (n_q + D_q) / (trials.max + D_q) over its questions, weighted by their shares
    of the uncertainty, so it is never below the minimum over questions. A sequential rule spends its error from that
    information on: a single look at a finished design is treated as one look.
    """
    if trials.draw is not None:
        return min(1.0, trials.draw / bench.questions)
    first_trials = np.asarray(opening) if first is None else np.maximum(first, opening)
    prior = np.asarray(0) if bench.prior_counts is None else bench.prior_counts.sum(axis=-1)
    horizon = np.full(bench.questions, trials.max, dtype=float)
    if bench.gates and bench.question_weights is not None:  # the horizon of a benchmark depends on its weight
        horizon = horizon * np.maximum(bench.question_weights, 1.0)
    information = np.broadcast_to((first_trials + prior) / (horizon + prior), (bench.models, bench.questions))
    return min(1.0, float(np.min(information[bench.asked])))


def clusters(questions: Sequence[Question]) -> NDArray[np.int64] | None:
    """Cluster labels 0..G-1; a question without a cluster is its own cluster. None if no question has a cluster."""
    if all(question.cluster is None for question in questions):
        return None
    keys = [question.cluster if question.cluster is not None else ("alone", question.id) for question in questions]
    label = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return np.array([label[key] for key in keys], dtype=np.int64)


def trial_cost(model: ModelConfig) -> Callable[[Answer], Cost]:
    """A function for the cost of this model's answers: tokens, USD, and the share of GPU seconds.

    The answers in flight at a replica share its GPUs; their number may be below the configured limit, depending on the
    server's load. An answer never costs more than was reserved for it.
    """

    def cost(answer: Answer) -> Cost:
        used = (answer.prompt_tokens, answer.completion_tokens, answer.latency)
        if isinstance(answer, SampleAnswer):  # it may include calls to other models with other prices
            return usage_cost(model, *used)._replace(usd=_usd(model, *answer.own_tokens) + answer.usd_of_others)
        batched = came_by_batch(answer.replica)
        return usage_cost(model, *used, answer.concurrent_answers, batched=batched, cached_tokens=answer.cached_tokens)

    return cost


def usage_cost(
    model: ModelConfig,
    prompt_tokens: float,
    completion_tokens: float,
    latency: float,
    concurrent_answers: int | None = None,
    *,
    batched: bool = True,
    cached_tokens: float = 0.0,
) -> Cost:
    """The cost of tokens and seconds; `concurrent_answers` is by default the configured concurrency.

    `batched` says whether the answer comes from the model's batch service, if it has one.
    """
    usd, gpu_seconds = _usd(model, prompt_tokens, completion_tokens, cached_tokens, batched=batched), 0.0
    if model.gpus:
        share = gpu_share(model.gpus, model, concurrent_answers or model.concurrency.in_flight)
        gpu_seconds = min(_most_gpu_seconds(model), latency * share)
    return Cost(round(prompt_tokens + completion_tokens), usd, gpu_seconds)


def worst_costs(config: RunConfig, questions: Sequence[Question], longest: Sequence[int]) -> tuple[Cost, ...]:
    """Upper bound on the cost of a trial per model, given the bytes of its longest prompt; hard caps reserve it."""
    verdict = worst_verdict(config, questions)
    return tuple(
        NO_COST if model.recorded is not None else _worst_cost(model, size, config.budget).plus(verdict)
        for model, size in zip(config.models, longest, strict=True)
    )


def worst_verdict(config: RunConfig, questions: Sequence[Question]) -> Cost:
    """Upper bound on the cost of grading one answer of at most `max_tokens`."""
    # the tokens of an Inspect sample include those of other models, which may be more expensive
    tokens = SAMPLE_MARGIN * max(model.sampling.max_tokens or 0 for model in config.models)
    others = [price for task in config.inspect_tasks.values() if task is not None for price in task.prices.values()]
    dearest = Cost(0, max((_dearest(price, tokens) for price in others), default=0.0))
    limits = [model.sampling.max_tokens for model in config.asked]
    written = None if not limits or None in limits else MAX_BYTES_PER_TOKEN * max(limit or 0 for limit in limits)
    asked = graders_that_ask(config.grader).items()
    costs = [dearest, *(grader.worst_cost(benchmark_questions(name, questions), written) for name, grader in asked)]
    return Cost(*(max(values) for values in zip(*costs, strict=True)))


def longest_prompts(prompts: Sequence[Sequence[Prompt]]) -> tuple[int, ...]:
    """The length of each model's longest prompt in bytes."""
    different = {id(asked): asked for asked in prompts}  # models with equal prompts share the objects
    longest = {key: max(map(prompt_bytes, asked)) for key, asked in different.items()}
    return tuple(longest[id(asked)] for asked in prompts)


def prompt_bytes(prompt: Prompt) -> int:
    """The length of a prompt in bytes, which bounds its tokens."""
    return len((prompt.text or "").encode()) + sum(len(message.content.encode()) for message in prompt.messages or ())


def _worst_cost(model: ModelConfig, longest: int, budget: BudgetConfig) -> Cost:
    completion = model.sampling.max_tokens or 0
    # the GPU time of launched servers is measured while the run holds them, and a cap stops the run in time
    gpu_seconds = 0.0 if model.launch is not None else _most_gpu_seconds(model)
    pays = model.price is not None or model.command is not None or model.inspect is not None
    if not completion and (budget.tokens is not None or (budget.usd is not None and pays)):
        return Cost(0, math.inf, gpu_seconds)
    if model.inspect is not None:
        tokens = SAMPLE_MARGIN * completion
        return Cost(tokens, 0.0 if model.price is None else _dearest(model.price, tokens), gpu_seconds)
    prompt_tokens = longest + TEMPLATE_TOKENS if completion else 0
    usd = _usd(model, prompt_tokens, completion, batched=True)
    return Cost(prompt_tokens + completion, usd, gpu_seconds)


def _dearest(price: Price, tokens: int) -> float:
    """The cost of tokens at the higher of the two prices."""
    return max(price.usd(tokens, 0.0), price.usd(0.0, tokens))


def _usd(
    model: ModelConfig,
    prompt_tokens: float,
    completion_tokens: float,
    cached_tokens: float = 0.0,
    *,
    batched: bool = False,
) -> float:
    usd = 0.0 if model.price is None else model.price.usd(prompt_tokens, completion_tokens, cached_tokens)
    return usd * BATCH_PRICE if batched and model.batch is not None else usd


def _most_gpu_seconds(model: ModelConfig) -> float:
    """Upper bound on the GPU seconds of an answer over all attempts, if its servers are full."""
    share = gpu_share(model.gpus, model, model.concurrency.in_flight)
    return model.sampling.timeout * settings.DEFAULT.attempts * share if share else 0.0  # the timeout may be infinite


def _objective(config: Decisions, names: Sequence[str], bench: Bench) -> Objective:
    """The configured objective, with models by index."""
    chosen = config.objective
    if chosen.kind == PLACE.name and not bench.recorded:
        raise ConfigError("objective.kind: place needs recorded models, and there are none here; use ranking")
    context = {"models": tuple(names), "recorded": bench.recorded}
    objective: Objective = _chosen_part(config, "objective.kind", OBJECTIVES, Objective, chosen.arguments, context)
    if not chosen.gate:
        return objective
    baseline = chosen.arguments.get("baseline")
    number = len(names) if baseline is None else names.index(baseline)
    parts = tuple(delta for _, delta in bench.gates)
    return Gate(Margin(number, config.stopping.delta, parts), objective.reference)


def _chosen_part(
    config: Decisions,
    key: str,
    entries: Mapping[str, Entry[Any]],
    kind: type,
    options: Mapping[str, object],
    context: Mapping[str, object],
) -> Any:
    """The built-in or plug-in configured under a key."""
    chosen = config.chosen[key]
    if (entry := entries.get(chosen)) is not None:
        return make(entry.make, options, context)
    return load_plug_in(kind, key, chosen, options, config.folder, context)
