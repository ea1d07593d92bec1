"""`adaptive-eval run --dry-run`: check everything that a run needs, and say what it would do."""

import asyncio
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import typer

from adaptive_eval.base.errors import ExitCode, GraderError
from adaptive_eval.cli.shared import LONGEST_LINE
from adaptive_eval.config.first_round import first_round_problems
from adaptive_eval.config.prepare import PreparedRun, asked_by_inspect
from adaptive_eval.core import Plan
from adaptive_eval.core.answer_alarms import MOST_CUT
from adaptive_eval.endpoints.types import Answer, Health
from adaptive_eval.graders.rubric import Rubric, grades_cut_answers
from adaptive_eval.graders.types import Grade
from adaptive_eval.questions import repeated_questions
from adaptive_eval.record.history import stored_trial_count
from adaptive_eval.record.lines import Scale, count, duration, first_few, safe_line, safe_name, several
from adaptive_eval.record.starting_point import load_starting_point
from adaptive_eval.record.warnings import sampling_sentence
from adaptive_eval.record.words import pace_in_words, promise_in_short, run_in_words
from adaptive_eval.running.answer_keys import check_keys
from adaptive_eval.running.health import check_endpoints, check_graders, check_without_starting
from adaptive_eval.running.imported_grades import require_agreement
from adaptive_eval.running.rehearsal import TriedAnswer, keep_answers, try_answers
from adaptive_eval.show.forecast import dollars
from adaptive_eval.show.text import NEXT

SHOWN_CHARACTERS = 80
"""Characters shown of a question, and of each end of an answer."""
CUT_OFF_SHARE = 0.9
"""Share of max_tokens below which a truncated answer was cut off by its server; servers count tokens differently."""
SHOWN_CUT = 3
"""Models that are named whose answers were cut off."""


def rehearse(
    prepared: PreparedRun,
    directory: Path,
    command: str,
    forecast: str | None,
    *,
    on_cluster: bool,
    start_servers: bool,
) -> ExitCode:
    """Check the start of the run and the endpoints, and print what would run and its maximum cost.

    `command` begins the run, and the command `forecast` estimates its cost; with `on_cluster` its servers would be
    started on the nodes of a cluster; with `start_servers` each of them is started, asked, and stopped.

    Raises `ConfigError` or `StoreError` if the run could not begin or go on.
    """
    chosen = asyncio.run(require_agreement(prepared, directory)) is not None
    there = stored_trial_count(prepared, directory, grader_chosen=chosen)
    prepared, prior, *_ = load_starting_point(prepared, directory)
    keys = asyncio.run(check_keys(prepared))
    if start_servers:
        found = asyncio.run(check_endpoints(prepared.config))
    else:
        found = asyncio.run(check_without_starting(prepared.config, on_cluster=on_cluster))
    healthy = show_health(found | asyncio.run(check_graders(prepared.config)))
    up = {model.name for model in prepared.config.asked if model.launch is None and found[model.name].ok}
    tried = asyncio.run(try_answers(prepared, up))
    healthy &= show_answers(tried, prepared)
    kept = keep_answers(prepared, directory, tried) if there is None else 0
    place = "a new run" if there is None else f"resumes with {count(there)} trials"
    repeated = repeated_questions(prepared.questions)
    for line in (
        *_plan_lines(prepared),
        *([f"forecast  {forecast}"] if there is None and forecast is not None else []),
        *(f"warn      {problem}" for problem in first_round_problems(prepared) if not there),
        f"keys      {keys.summary}",
        *([] if repeated is None else [f"warn      {safe_line(repeated, LONGEST_LINE)}"]),
        *([f"warn      {sampling_sentence(prior)}"] if prior is not None and prior.sampled_otherwise else []),
        f"directory {safe_line(str(directory), 200)} ({place})",
        *([f"kept      {several(kept, 'answer')}, with which the run begins; plan uses them, too"] if kept else []),
        _next_step(command, healthy=healthy),
    ):
        typer.echo(line)
    return ExitCode.REACHED if healthy else ExitCode.ENDPOINTS


def _next_step(command: str, *, healthy: bool) -> str:
    return f"{NEXT}{command}" if healthy else f"{NEXT}fix what has failed above, then run the same command again"


def show_health(found: Mapping[str, Health]) -> bool:
    """Print the health of every replica, and each notice once with its models; True if all are healthy."""
    noticed: dict[str, list[str]] = {}
    for name, health in found.items():
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
    return all(health.ok for health in found.values())


def show_answers(tried: Sequence[TriedAnswer], prepared: PreparedRun) -> bool:
    """Print the models' answers with their grades; True if all have answered."""
    longest = {model.name: model.sampling.max_tokens for model in prepared.config.asked}
    for one in tried:
        head = f"answer  {safe_name(one.model, 40)}  {safe_name(one.question.id, 40)}"
        typer.echo(f"{head}  {safe_line(one.question.prompt, SHOWN_CHARACTERS)!r}")
        for line in _answer_lines(one, prepared.rubric, longest.get(one.model)):
            typer.echo(f"        {line}")
    if not grades_cut_answers(prepared.rubric):
        for line in _cut_lines(tried):
            typer.echo(line)
    grades = [one.grade for one in tried if isinstance(one.answer, Answer)]
    if grades and all(isinstance(one, GraderError) for one in grades):
        typer.echo("warn  the grader fails on all of these answers, and a run needs grades: fix the grader")
    if grades and all(isinstance(one, Grade) and one.signals.get("has_answer") is False for one in grades):
        typer.echo("warn  the grader finds nothing in any of these answers: check the prompt, server and grader")
    return all(isinstance(one.answer, Answer) for one in tried)


def _answer_lines(one: TriedAnswer, rubric: Rubric, max_tokens: int | None) -> Iterator[str]:
    if not isinstance(one.answer, Answer):
        yield f"no answer: {safe_line(str(one.answer), 400)}"
        return
    more = ", ".join([several(one.answer.completion_tokens, "token"), *sorted(one.answer.signals)])
    yield f"wrote {safe_line(_cut_middle(one.answer.text), 2 * SHOWN_CHARACTERS + 3)!r} ({more})"
    if "truncated" in one.answer.signals:
        yield _cut_off_at(one.answer.completion_tokens, max_tokens)
    if not isinstance(one.grade, Grade):
        yield f"no grade: {safe_line(str(one.grade), 400)}"
        return
    extracted = "nothing" if one.grade.extracted is None else repr(safe_line(one.grade.extracted, SHOWN_CHARACTERS))
    category = one.grade.category
    key = repr(safe_line(one.question.answer, SHOWN_CHARACTERS))
    yield f"found {extracted}, key {key}: {safe_line(rubric.names[category])} ({rubric.weights[category]:g})"


def _cut_off_at(tokens: int, max_tokens: int | None) -> str:
    """Say which limit has cut off an answer of so many tokens."""
    if max_tokens is None:
        return "cut off at a limit of the server or the task: sampling.max_tokens is not set"
    if 0 < tokens < CUT_OFF_SHARE * max_tokens:
        return f"cut off by its server before max_tokens ({max_tokens}): is the server's context too small?"
    return f"cut off at sampling.max_tokens ({max_tokens})"


def _cut_lines(tried: Sequence[TriedAnswer]) -> Iterator[str]:
    """Warn of models whose answers were cut off, the worst first."""
    answers, cut = Counter[str](), Counter[str]()
    for one in tried:
        if isinstance(one.answer, Answer):
            answers[one.model] += 1
            cut[one.model] += "truncated" in one.answer.signals
    worst = [name for name, number in cut.most_common() if number]
    told = [f"{cut[name]} of {answers[name]} answers of {safe_name(name, 40)}" for name in worst]
    if told:
        yield (
            f"warn  {first_few(told, SHOWN_CUT)} were cut off: raise sampling.max_tokens, since a run stops if more "
            f"than {MOST_CUT:.0%} of a model's answers are, or say in the rubric how to grade them (a category with "
            "`when: {truncated: true}`)"
        )


def _cut_middle(text: str) -> str:
    """Cut a long text in the middle, since its end has the answer."""
    if len(text) <= 2 * SHOWN_CHARACTERS:
        return text
    return f"{text[:SHOWN_CHARACTERS]} … {text[-SHOWN_CHARACTERS:]}"


def _plan_lines(prepared: PreparedRun) -> Iterator[str]:
    config, plan = prepared.config, prepared.plan
    bench = plan.bench
    yield f"{config.name}: {run_in_words(config, plan)}"
    categories = zip(prepared.rubric.names, bench.weights, strict=True)
    yield f"rubric    {', '.join(f'{safe_line(name)} {weight:g}' for name, weight in categories)}"
    stopping = config.stopping
    delta = Scale.of(prepared.rubric.weights).points(stopping.delta)
    yield f"stopping  {stopping.rule} at confidence {stopping.confidence:g}, delta {delta}"
    if (promised := promise_in_short(config.stated())) is not None:
        yield f"promise   {promised}"
    yield f"policy    {config.trials.policy}"
    yield f"pace      {safe_line(pace_in_words(config), 400)}"
    yield f"at most   {', '.join(_maximum_costs(plan))}"
    yield "          (the most trials that are allowed, every answer at its longest: what caps reserve)"
    prompt, question = prepared.prompts[0][0], prepared.questions[0]
    first = prompt.text if prompt.text is not None else (prompt.messages or ())[-1].content
    first = question.prompt if asked_by_inspect(config, question) else first
    yield f"first     {safe_line(first, 160)}"


def _maximum_costs(plan: Plan) -> Iterator[str]:
    """Maximum of each cost: the horizon for every model, or the cap if that is lower."""
    budget, bench = plan.budget, plan.bench
    each = plan.trials.max * bench.questions
    everyone = each * int(bench.asked.sum())
    trials = min(everyone, budget.trials or everyone)
    yield f"{count(trials)} trials"
    for name, cap in (("tokens", budget.tokens), ("usd", budget.usd)):
        worst, left = 0.0, trials
        for most in sorted((getattr(cost, name) for cost in bench.worst_cost), reverse=True):
            worst += min(each, left) * most  # the dearest models first
            left -= min(each, left)
        least = min(worst or math.inf, cap or math.inf)
        if least < math.inf:
            yield dollars(least) if name == "usd" else f"{count(least)} {name}"
    if budget.gpu_seconds is not None:
        yield f"{budget.gpu_seconds / 3600:g} GPU hours"
    if budget.wall_seconds is not None:
        yield duration(budget.wall_seconds)
