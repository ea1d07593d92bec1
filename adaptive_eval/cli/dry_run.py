"""`adaptive-eval run --dry-run`: check that the servers answer and everything else that a run needs."""

import asyncio
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import typer

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.base.lists import first_few
from adaptive_eval.base.numbers import plain_number
from adaptive_eval.cli.shared import MAX_LINE
from adaptive_eval.config.first_round import is_in_vain
from adaptive_eval.config.planning import SAMPLE_MARGIN
from adaptive_eval.config.prepare import PreparedRun, asked_by_inspect
from adaptive_eval.core import Plan
from adaptive_eval.core.answer_alarms import MAX_INCOMPLETE_SHARE
from adaptive_eval.core.answer_kinds import INCOMPLETE, PHRASES, AnswerKind
from adaptive_eval.endpoints.types import TEMPLATE_TOKENS, Answer, Health
from adaptive_eval.graders.rubric import Rubric
from adaptive_eval.graders.types import Grade
from adaptive_eval.notes import events_of_kind
from adaptive_eval.notes.beginnings import PriorTaken
from adaptive_eval.questions import repeated_questions
from adaptive_eval.report.lines import Scale, count, duration, safe_line, safe_name, several
from adaptive_eval.report.warnings import remedies, sampling_sentences
from adaptive_eval.report.words import optimizing_in_words, promise_of, run_in_words
from adaptive_eval.running.answer_keys import check_keys
from adaptive_eval.running.beginning import load_starting_point
from adaptive_eval.running.chosen import ChosenRun
from adaptive_eval.running.health import check_endpoints, check_graders, check_without_starting
from adaptive_eval.running.imported_grades import require_agreement
from adaptive_eval.running.rehearsal import TriedAnswer, keep_answers, try_answers
from adaptive_eval.show.text import NEXT, dollars

QUESTION = "Do the models answer? The dry run asks every model, and grades what it answers."
MAX_CHARACTERS = 80
"""Characters shown of a question, and of the beginning and end of an answer."""
MIN_ALIKE = 4
"""Answers of which a warning says that all are graded as the worst."""
MAX_NAMED_MODELS = 3
"""Models with incomplete answers that a warning names."""


def rehearse(
    chosen: ChosenRun,
    command: str,
    forecast: str,
    *,
    on_cluster: bool,
    start_servers: bool,
) -> ExitCode:
    """Check the endpoints and the start of the run, and print what would run and its maximum cost.

    `command` starts the run, and the command `forecast` estimates its cost. With `on_cluster` its servers would be
    started on a cluster. With `start_servers` each of them is started, asked, and stopped.

    Raises `ConfigError` or `StoreError` if the run could not begin or resume.
    """
    prepared, directory = chosen.prepared, chosen.directory
    grader_chosen = asyncio.run(require_agreement(prepared, directory)) is not None
    prepared, stored_trials, events = load_starting_point(prepared, directory, grader_chosen=grader_chosen)
    prior = next(iter(events_of_kind(events, PriorTaken)), None)
    keys = asyncio.run(check_keys(prepared))
    typer.echo(QUESTION)
    if start_servers:
        health = asyncio.run(check_endpoints(prepared.config))
    else:
        health = asyncio.run(check_without_starting(prepared.config, on_cluster=on_cluster))
    health |= asyncio.run(check_graders(prepared.config))
    healthy = show_health(health)
    answering = {model.name for model in prepared.config.asked if model.launch is None and health[model.name].ok}
    tried = asyncio.run(try_answers(prepared, answering))
    healthy &= show_answers(tried, prepared)
    has_grades = show_grades(tried, prepared.rubric)
    saved_answers = keep_answers(prepared, directory, tried) if stored_trials is None else 0
    first_round = chosen.first_round_problems
    place = "a new run" if stored_trials is None else f"resumes with {count(stored_trials)} trials"
    repeated = repeated_questions(prepared.questions)
    for line in (
        *_plan_lines(prepared),
        *([f"forecast  {forecast}"] if stored_trials is None else []),
        *(f"warn      {problem}" for problem in first_round),
        f"keys      {keys.summary}",
        *([] if repeated is None else [f"warn      {safe_line(repeated, MAX_LINE)}"]),
        *([f"warn      {sentence}" for sentence in sampling_sentences(prior)] if prior is not None else []),
        f"directory {safe_line(str(directory), 200)} ({place})",
        *([f"saved     {several(saved_answers, 'answer')}; the run and `plan` use them"] if saved_answers else []),
        *_next_step(command, healthy=healthy and has_grades, in_vain=is_in_vain(first_round)),
    ):
        typer.echo(line)
    return ExitCode.REACHED if healthy else ExitCode.ENDPOINTS


def _next_step(command: str, *, healthy: bool, in_vain: bool) -> Iterator[str]:
    if not healthy:
        yield f"{NEXT}fix what failed above, then repeat this command"
    elif not in_vain:
        yield f"{NEXT}{command}"


def show_health(health_by_model: Mapping[str, Health]) -> bool:
    """Print the health of every replica, and each notice once with its models; True if all are healthy."""
    noticed: dict[str, list[str]] = {}
    for name, health in health_by_model.items():
        for replica in health.replicas:
            state = "ok  " if replica.healthy else "FAIL"
            took = "" if replica.latency is None else f" ({replica.latency:.2f} s)"
            typer.echo(
                f"{state}  {safe_name(name, 40)}  {safe_line(replica.url, 80)}  {safe_line(replica.detail, 400)}{took}"
            )
            for notice in replica.notices:
                noticed.setdefault(notice.text, []).append(safe_name(name, 40))
    for text, names in noticed.items():
        typer.echo(f"warn  {', '.join(dict.fromkeys(names))}  {safe_line(text, 400)}")
    return all(health.ok for health in health_by_model.values())


def show_answers(tried: Sequence[TriedAnswer], prepared: PreparedRun) -> bool:
    """Print the models' answers with their grades; True if all have answered."""
    for attempt in tried:
        head = f"answer  {safe_name(attempt.model, 40)}  {safe_name(attempt.question.id, 40)}"
        typer.echo(f"{head}  {safe_line(attempt.question.prompt, MAX_CHARACTERS)!r}")
        for line in _answer_lines(attempt, prepared.rubric):
            typer.echo(f"        {line}")
    for kind in INCOMPLETE & prepared.plan.unsure.kinds:
        for line in _incomplete_lines(tried, kind):
            typer.echo(line)
    return all(isinstance(attempt.answer, Answer) for attempt in tried)


def show_grades(tried: Sequence[TriedAnswer], rubric: Rubric) -> bool:
    """Warn of grades that are all alike; False if no answer has one."""
    grades = [attempt.grade for attempt in tried if isinstance(attempt.answer, Answer)]
    given = [grade for grade in grades if isinstance(grade, Grade)]
    if grades and not given:
        typer.echo("warn  the grader fails on all of these answers; fix it before the run")
        return False
    if given and all(grade.signals.get("has_answer") is False for grade in given):
        typer.echo("warn  the grader finds nothing in any of these answers: check the prompt, server and grader")
    elif len(given) >= MIN_ALIKE and all(rubric.weights[grade.category] == min(rubric.weights) for grade in given):
        typer.echo("warn  all of these answers are in the worst category: see above whether they are graded rightly")
    return True


def _answer_lines(tried: TriedAnswer, rubric: Rubric) -> Iterator[str]:
    if not isinstance(tried.answer, Answer):
        yield f"no answer: {safe_line(str(tried.answer), 400)}"
        return
    details = ", ".join([several(tried.answer.completion_tokens, "token"), *sorted(tried.answer.signals)])
    yield f"response {safe_line(_cut_middle(tried.answer.text), 2 * MAX_CHARACTERS + 3)!r} ({details})"
    if not isinstance(tried.grade, Grade):
        yield f"no grade: {safe_line(str(tried.grade), 400)}"
        return
    category = tried.grade.category
    graded_as = f"{safe_line(rubric.names[category])} ({plain_number(rubric.weights[category])})"
    score = tried.grade.signals.get("score")
    if isinstance(score, float) and tried.grade.extracted is None:
        yield f"score {plain_number(score)}: {graded_as}"
        return
    extracted = "nothing" if tried.grade.extracted is None else repr(safe_line(tried.grade.extracted, MAX_CHARACTERS))
    key = repr(safe_line(tried.question.answer, MAX_CHARACTERS))
    yield f"parsed {extracted}, expected {key}: {graded_as}"


def _incomplete_lines(tried: Sequence[TriedAnswer], kind: AnswerKind) -> Iterator[str]:
    """Warn of models with incomplete answers of this kind, the worst first."""
    answers, incomplete = Counter[str](), Counter[str]()
    for attempt in tried:
        if isinstance(attempt.answer, Answer):
            answers[attempt.model] += 1
            incomplete[attempt.model] += kind.signal in attempt.answer.signals
    worst = [name for name, number in incomplete.most_common() if number]
    shares = [f"{incomplete[name]} of {answers[name]} answers of {safe_name(name, 40)}" for name in worst]
    if shares:
        yield (
            f"warn  {first_few(shares, MAX_NAMED_MODELS)} {PHRASES[kind]}, and a run stops if more than "
            f"{MAX_INCOMPLETE_SHARE:.0%} of a model's answers are incomplete: use {remedies(kind)}, or add a category "
            f"`when: {{{kind.signal}: true}}` to the rubric"
        )


def _cut_middle(text: str) -> str:
    """Cut a long text in the middle, since the answer is at its end."""
    if len(text) <= 2 * MAX_CHARACTERS:
        return text
    return f"{text[:MAX_CHARACTERS]} … {text[-MAX_CHARACTERS:]}"


def _plan_lines(prepared: PreparedRun) -> Iterator[str]:
    config, plan = prepared.config, prepared.plan
    bench = plan.bench
    yield f"{config.name}: {run_in_words(prepared)}"
    categories = zip(prepared.rubric.names, bench.weights, strict=True)
    yield f"rubric    {', '.join(f'{safe_line(name)} {plain_number(weight)}' for name, weight in categories)}"
    stopping = config.stopping
    delta = Scale.of(prepared.rubric.weights).points(stopping.delta)
    yield f"stopping  {stopping.rule} at confidence {plain_number(stopping.confidence)}, delta {delta}"
    if (promised := promise_of(config)) is not None:
        yield f"promise   {promised}"
    yield f"policy    {config.trials.policy}"
    yield f"optimize  {safe_line(optimizing_in_words(config), 400)}"
    yield f"at most   {', '.join(_maximum_costs(plan))}"
    bounded = [model for model in config.asked if model.sampling.max_tokens is not None]
    if any(model.inspect is None for model in bounded):
        worst = f"every answer at max_tokens, one token per byte of the prompt, and {TEMPLATE_TOKENS} more"
        yield f"          (the budget, or the worst case: {worst})"
    if any(model.inspect is not None for model in bounded):
        yield f"          (the budget, or for models asked by Inspect the worst case: {SAMPLE_MARGIN} times max_tokens)"
    prompt, question = prepared.prompts[0][0], prepared.questions[0]
    first = prompt.text if prompt.text is not None else (prompt.messages or ())[-1].content
    first = question.prompt if asked_by_inspect(config, question) else first
    yield f"prompt    {safe_line(first, 160)}"


def _maximum_costs(plan: Plan) -> Iterator[str]:
    """Maximum of each cost: the horizon for every model, or the cap if that is lower."""
    budget, bench = plan.budget, plan.bench
    trials_per_model = plan.trials.max * bench.questions
    full_design = trials_per_model * int(bench.asked.sum())
    trials = min(full_design, budget.trials or full_design)
    yield f"{count(trials)} trials"
    for name, cap in (("tokens", budget.tokens), ("usd", budget.usd)):
        worst, remaining = 0.0, trials
        for worst_per_trial in sorted((getattr(cost, name) for cost in bench.worst_cost), reverse=True):
            worst += min(trials_per_model, remaining) * worst_per_trial  # the dearest models first
            remaining -= min(trials_per_model, remaining)
        maximum = min(worst or math.inf, cap or math.inf)
        if maximum < math.inf:
            yield dollars(maximum) if name == "usd" else f"{count(maximum)} {name}"
    if budget.gpu_seconds is not None:
        yield f"{plain_number(budget.gpu_seconds / 3600)} GPU hours"
    if budget.wall_seconds is not None:
        yield duration(budget.wall_seconds)
