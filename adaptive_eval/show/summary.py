"""Findings as lines of a terminal or a mail: headline, ranking, needs, cost, warnings, and what to do next."""

import re
import shlex
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from textwrap import shorten

from adaptive_eval.questions.benchmark import INSPECT_LOGS
from adaptive_eval.report.ending import Ended
from adaptive_eval.report.finding import has_tiers
from adaptive_eval.report.findings import Findings, find, findings_of_end
from adaptive_eval.report.lines import Scale, count, duration, safe_line, safe_name, several
from adaptive_eval.report.next_steps import Advice, has_settled_gate
from adaptive_eval.report.results import BatchRow, Caution, Results
from adaptive_eval.report.results_file import RESULTS_FILE
from adaptive_eval.report.status import Used, standings
from adaptive_eval.show.ranking import MAX_NAME_WIDTH, ranking_text
from adaptive_eval.show.text import wrap_lines

UNASKED = "requests  this start asked no model"
ANSWERS_SHARE = re.compile(r"^[\d.]+% of its [\d,]+ stored answers ")
"""Begins a warning that several models may share."""
SHOWN_MODELS = 30
SHOWN_WARNINGS = 5
MAX_REASON = 1000
MAX_WARNING = 400


def last_screen(ended: Ended, width: int | None = None) -> str:
    """The last screen as plain text, wrapped at the width of a terminal."""
    directory, results = shlex.quote(str(ended.directory)), ended.results
    found, pending = findings_of_end(ended), pending_in_short(ended.status.batches)
    lines = ["", *screen(found, results, width)]
    if results is not None and ended.trials and (ended.directory / INSPECT_LOGS).is_dir():
        lines.append(f"logs      inspect view --log-dir {shlex.quote(str(ended.directory / INSPECT_LOGS))}")
    if (
        results is not None
        and ended.reason is not None
        and ended.trials
        and not (ended.asked or has_settled_gate(ended))
    ):
        lines.append(UNASKED)
    lines += [] if pending is None else [f"pending   {pending}", *_batches_that_stay(ended)]
    further = [read_answers(directory), Advice("write a report:", f"adaptive-eval report {directory}")]
    lines += step_lines([*found.steps, *(further if results is not None and ended.trials else [])])
    if ended.servers_up:
        lines.append(f"stopping  {several(ended.servers_up, 'server')} (at once with Ctrl-C)")
    text = "\n".join(lines)
    return text if width is None else wrap_lines(text, width)


def untimed_findings(results: Results, directory: Path | None) -> Iterator[str]:
    """The findings of a run without a duration, such as an import or a replay."""
    yield from screen(find(results, Used(), None), results)
    if directory is not None and results.cost.trials:
        yield from step_lines([read_answers(shlex.quote(str(directory)))])


def screen(found: Findings, results: Results | None, width: int | None = None) -> Iterator[str]:
    """What a run has found in lines, without what to do next."""
    yield from found.headline
    if found.ended is not None:
        yield safe_line(found.ended, MAX_REASON)
    if results is not None:
        yield from _ranking_lines(results, width)
    yield from found.needs
    yield from filter(None, [found.counted])
    labelled = [("promise", found.promise), ("cost", found.cost), *found.costs]
    yield from (f"{label:<10}{text}" for label, text in labelled if text)
    yield from () if results is None else _warnings(results)


def _ranking_lines(results: Results, width: int | None) -> Iterator[str]:
    if all(row.score is None for row in results.models):
        return
    shown = standings(results)[:SHOWN_MODELS]
    ranking = ranking_text(shown, Scale.of(results.weights), width, without_tiers=not has_tiers(results))
    yield from (ranking.head, *(f"{before}{verdict}".rstrip() for before, verdict in ranking.lines))
    if len(results.models) > SHOWN_MODELS:
        yield f"      and {len(results.models) - SHOWN_MODELS} more"
    if ranking.per_answer:
        yield from ("", *ranking.per_answer)
    yield ""


def read_answers(place: str) -> Advice:
    """How to read the answers of the run."""
    return Advice("read the answers:", f"adaptive-eval monitor {place} --web")


def step_lines(steps: Iterable[Advice]) -> Iterator[str]:
    """Steps as text, each command on a line of its own."""
    for at, step in enumerate(steps):
        yield f"{'' if at else 'to do':<10}{step.text}"
        if step.command is not None:
            yield f"          {step.command}"


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


def _batches_that_stay(ended: Ended) -> Iterator[str]:
    """What may become of pending batches of models that the run no longer has."""
    present = set() if ended.results is None else {model.name for model in ended.results.models}
    gone = dict.fromkeys(
        safe_name(row.model, MAX_NAME_WIDTH) for row in ended.status.batches if row.model not in present
    )
    if present and gone:
        yield f"          those of {', '.join(gone)}, no longer in the run, stay at the service, and are paid for: add"
        yield "          the model again to collect them, or cancel them at the provider"


def pending_in_short(rows: Sequence[BatchRow]) -> str | None:
    """Number of pending batches and requests, and age of the oldest; None if there are none."""
    if not rows:
        return None
    requests, oldest = sum(row.requests for row in rows), max(0.0, time.time() - min(row.since for row in rows))
    batches = f"{len(rows)} batch{'es' if len(rows) > 1 else ''}"
    return f"{batches} pending ({count(requests)} requests, the oldest for {duration(oldest)})"
