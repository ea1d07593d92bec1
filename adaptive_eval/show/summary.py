"""The last screen: the best models, why the run stopped, the ranking, undecided pairs, cost, and what to do next."""

import math
import re
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import shorten

from adaptive_eval.core.types import Reason
from adaptive_eval.questions.benchmark import INSPECT_LOGS
from adaptive_eval.report.ending import Ended
from adaptive_eval.report.finding import counted_sentence, finding, has_tiers
from adaptive_eval.report.lines import Scale, count, duration, safe_line, safe_name, several
from adaptive_eval.report.needs import UNDECIDED
from adaptive_eval.report.next_steps import Advice, next_steps
from adaptive_eval.report.other_costs import summarize_other_costs
from adaptive_eval.report.results import BatchRow, Caution, GradingCost, OtherCostRow, Results, RunCost, WastedCost
from adaptive_eval.report.results_file import RESULTS_FILE
from adaptive_eval.report.status import Status, standings
from adaptive_eval.report.undecided import pair_names, pair_need, undecided_pair
from adaptive_eval.report.words import draws_questions, promise_line
from adaptive_eval.show.ranking import MAX_NAME_WIDTH, ranking_text
from adaptive_eval.show.text import SECONDS_PER_HOUR, amount, wrap_lines

UNASKED = "requests  this start sent none"
ANSWERS_SHARE = re.compile(r"^[\d.]+% of its [\d,]+ stored answers ")
"""Begins a warning that several models may share."""
SHOWN_MODELS = 30
SHOWN_PAIRS = 2
SHOWN_WARNINGS = 5
MAX_REASON = 1000
MAX_WARNING = 400


def last_screen(ended: Ended, width: int | None = None) -> str:
    """The last screen as plain text, wrapped at the width of a terminal."""
    pending = pending_in_short(ended.status.batches)
    steps = [*([] if pending is None else [f"pending   {pending}"]), *_next_steps(ended)]
    why = safe_line(ended.why, MAX_REASON)
    if (results := ended.results) is None:
        lines = ["", why, "", *_cost_without_results(ended.status), *steps]
    else:
        sentences = finding(results)
        above = [] if ended.gate and why.startswith(sentences) else [why]
        is_repeated = ended.reason is not None and ended.trials and not (ended.asked or ended.gated)
        below = [UNASKED] if is_repeated else []
        shown = filter(None, findings(results, ended.status.elapsed, ended.directory, width))
        lines = ["", *(() if ended.gate else sentences), *above, *shown, *below, *steps]
    text = "\n".join(lines)
    return text if width is None else wrap_lines(text, width)


def untimed_findings(results: Results, directory: Path | None) -> Iterator[str]:
    """Headline and findings of a run without a duration, such as an import or a replay."""
    yield from () if results.gate else finding(results)
    yield from findings(results, None, directory)
    if directory is not None and results.cost.trials:
        yield from _step_lines([_read_answers(directory)])


def findings(
    results: Results, elapsed: float | None, directory: Path | None, width: int | None = None
) -> Iterator[str]:
    """The findings in lines. `elapsed` is None if there is no time to show, `directory` for readers elsewhere."""
    if results.gate:
        yield from [*finding(results), ""]
    if any(row.score is not None for row in results.models):
        shown = standings(results)[:SHOWN_MODELS]
        ranking = ranking_text(shown, Scale.of(results.weights), width, without_tiers=not has_tiers(results))
        yield from (ranking.head, *(f"{before}{verdict}".rstrip() for before, verdict in ranking.lines))
        if len(results.models) > SHOWN_MODELS:
            yield f"      and {len(results.models) - SHOWN_MODELS} more"
        if ranking.per_answer:
            yield from ("", *ranking.per_answer)
        yield ""
        if results.run.reason != Reason.ALARM:
            yield from _need_lines(results, ranking.names)
        if (counted := counted_sentence(results)) is not None:
            yield counted
        if (promised := promise_line(results)) is not None:
            yield f"promise   {promised}"
    if draws_questions(results.decisions):
        low, high = (count(extreme(row.trials for row in results.models)) for extreme in (min, max))
        asked = high if low == high else f"{low} to {high}"
        total = count(results.max_trials_per_model)
        yield f"drawn     {asked} of {total} questions per model; scores are for all of them"
    yield f"cost      {cost_line(results, elapsed)}"
    yield from (f"{label:<10}{text}" for label, text in further_costs(results.cost.grading, results.cost.beside))
    yield from _warnings(results)
    if directory is not None and results.cost.trials and (directory / INSPECT_LOGS).is_dir():
        yield f"logs      inspect view --log-dir {shlex.quote(str(directory / INSPECT_LOGS))}"


def _cost_without_results(status: Status) -> Iterator[str]:
    """The cost of a run that ended before its first look; empty if it asked nothing."""
    if status.trials or status.beside:
        used = [*unstored_answers(status.beside), *usage_parts(*status.usage, " of requests")]
        held = _server_time(status.held.seconds, status.held.gpu_seconds) if status.held.gpu_seconds else ()
        yield f"cost      {', '.join([f'{count(status.trials)} trials', *used, *held, duration(status.elapsed)])}"
        yield from (f"{label:<10}{text}" for label, text in further_costs(status.grading, status.beside))


def _next_steps(ended: Ended) -> Iterator[str]:
    """Next steps in one list: those of this ending, then reading the answers and the report."""
    directory = shlex.quote(str(ended.directory))
    steps = list(next_steps(ended, directory))
    if ended.results is not None and ended.trials:
        steps += [_read_answers(ended.directory), Advice("write a report:", f"adaptive-eval report {directory}")]
    yield from _step_lines(steps)
    if ended.servers_up:
        yield f"stopping  {ended.servers_up} server{'s' if ended.servers_up > 1 else ''} (at once with Ctrl-C)"


def _read_answers(directory: Path) -> Advice:
    return Advice("read the answers:", f"adaptive-eval monitor {shlex.quote(str(directory))} --web")


def _step_lines(steps: Iterable[Advice]) -> Iterator[str]:
    for at, step in enumerate(steps):
        yield f"{'' if at else 'to do':<10}{step.text}"
        if step.command is not None:
            yield f"          {step.command}"


def decided_text(results: Results) -> str:
    """Number of decided comparisons in words."""
    done = sum(pair.verdict not in UNDECIDED for pair in results.pairs)
    what = "comparisons decided" if results.compares else "scores as precise as required"
    return f"{done} of {len(results.pairs):,} {what}"


def _need_lines(results: Results, names: Mapping[str, str]) -> Iterator[str]:
    """Needs of the undecided pairs that the headline does not name, the nearest to a decision first."""
    named = undecided_pair(results)
    undecided = sorted(
        (pair for pair in results.pairs if pair.verdict in UNDECIDED and pair is not named),
        key=lambda pair: math.inf if pair.trials_needed is None else pair.trials_needed,
    )
    for pair in undecided[:SHOWN_PAIRS]:
        yield f"{pair_names(pair.first, pair.second, names)} {pair_need(results, pair)}."
    if undecided or named is not None:
        further = len(undecided) - SHOWN_PAIRS
        yield f"{f'and {further} more: see the report; ' if further > 0 else ''}{decided_text(results)}."


def cost_line(results: Results, elapsed: float | None) -> str:
    """Trials, how many were allowed, and their cost."""
    cost = results.cost
    parts = [f"{count(cost.trials)} trials ({allowed_in_words(cost)})"]
    parts += unstored_answers(cost.beside)
    parts += usage_parts(cost.tokens, cost.usd, cost.gpu_seconds, " of requests")
    if cost.server_seconds is not None and results.server_time_is_paid:
        parts += _server_time(cost.server_seconds, cost.server_gpu_seconds)
    parts += [] if elapsed is None else [duration(elapsed)]
    return ", ".join(parts)


def allowed_in_words(cost: RunCost) -> str:
    """How many trials were allowed; earlier starts may have allowed more than now."""
    allowed = count(cost.allowed_trials)
    return f"at most {allowed} were allowed" if cost.trials <= cost.allowed_trials else f"{allowed} are allowed now"


def unstored_answers(rows: Sequence[OtherCostRow]) -> list[str]:
    """Requested answers that never came, and those that were discarded, of all models that the run had. Neither count
    in `budget.trials`; empty if all came and are stored."""
    numbers = {
        kind: sum(row.answers for row in rows if (row.what == "discarded") is (kind == "discarded"))
        for kind in ("lost", "discarded")
    }
    return [several(number, f"{kind} answer") for kind, number in numbers.items() if number]


def _server_time(seconds: float, gpu_seconds: float | None) -> list[str]:
    hours = f" ({amount(gpu_seconds / SECONDS_PER_HOUR, ())} GPU hours)" if gpu_seconds else ""
    return [f"servers held for {duration(seconds)} in total{hours}"]


def _warnings(results: Results) -> Iterator[str]:
    """Lines of the warnings; equal ones of several models share a line."""
    alike: dict[tuple[str, str], list[Caution]] = {}
    for warning in results.warnings:
        same = ANSWERS_SHARE.sub("", warning.text)
        same = same if same != warning.text else f"{warning.model}: {warning.text}"
        alike.setdefault((warning.kind, same), []).append(warning)
    for warning, *others in list(alike.values())[:SHOWN_WARNINGS]:
        subject = "" if warning.model is None else f"{safe_name(warning.model, MAX_NAME_WIDTH)}: "
        text = f"{subject}{safe_line(warning.text, MAX_REASON)}"
        alike_too = f" (also {several(len(others), 'more model')}: see the report)" if others else ""
        yield f"warning   {shorten(text, MAX_WARNING, placeholder=' …')}{alike_too}"
    if (further := len(alike) - SHOWN_WARNINGS) > 0:
        yield f"          and {several(further, 'more warning')} in {RESULTS_FILE}"


# -- costs and pending batches, for every display ---------------------------------------------------------------------


def further_costs(grading: GradingCost | None, rows: Sequence[OtherCostRow]) -> Iterator[tuple[str, str]]:
    """The cost of grades, and other spending that caps count, each in one line after a label."""
    if grading is not None:
        of_answers = f"{_usage(grading)} of it for the grades of {several(grading.answers, 'answer')}"
        parts = [of_answers] if grading.answers else []
        wasted = grading.in_vain
        parts += [] if wasted is None else [f"{_usage(wasted)} {wasted_words(wasted)}"]
        yield "grading", ", ".join(parts)
    trials, *used = (sum(getattr(row, of) for row in rows) for of in ("trials", "tokens", "usd", "counted_gpu_seconds"))
    if parts := [f"{count(trials)} trials"] * (trials > 0) + usage_parts(*used):
        yield "also", f"{', '.join(parts)} on {'; '.join(row.what for row in summarize_other_costs(rows))}"


def wasted_words(row: WastedCost) -> str:
    """Describe unreadable and replaced verdicts."""
    verdicts = f" ({count(row.verdicts)})" if row.verdicts else ""
    return f"for unreadable or replaced verdicts{verdicts}"


def _usage(row: GradingCost | WastedCost) -> str:
    return ", ".join(usage_parts(row.tokens, row.usd, row.gpu_seconds)) or "0 tokens"


def usage_parts(tokens: int, usd: float, gpu_seconds: float, gpu_hours_of: str = "") -> list[str]:
    """Tokens, dollars and GPU hours, without those that are zero."""
    parts = [f"{count(tokens)} tokens"] * (tokens > 0) + [f"${amount(usd, ())}"] * (usd > 0.0)
    return parts + [f"{amount(gpu_seconds / SECONDS_PER_HOUR, ())} GPU hours{gpu_hours_of}"] * (gpu_seconds > 0.0)


def pending_in_short(rows: Sequence[BatchRow]) -> str | None:
    """Number of pending batches and requests, and age of the oldest; None if there are none."""
    if not rows:
        return None
    requests, oldest = sum(row.requests for row in rows), max(0.0, time.time() - min(row.since for row in rows))
    batches = f"{len(rows)} batch{'es' if len(rows) > 1 else ''}"
    return f"{batches} pending ({count(requests)} requests, the oldest for {duration(oldest)})"
