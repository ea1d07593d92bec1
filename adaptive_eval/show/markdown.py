"""A run as Markdown, for a paper's appendix or a pull request: findings, method, and how to reproduce them."""

import platform
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from textwrap import shorten

import numpy as np
import scipy

from adaptive_eval import __version__
from adaptive_eval.core.result import TWO_SIDED_95
from adaptive_eval.core.types import Reason
from adaptive_eval.exchange.tables.writer import csv_text
from adaptive_eval.questions.benchmark import INSPECT_LOGS
from adaptive_eval.report.choice import part_in_words
from adaptive_eval.report.finding import (
    comparison_state,
    counted_sentence,
    difference_text,
    finding,
    has_tiers,
    letters_tell_more,
    model_verdicts,
    state_word,
)
from adaptive_eval.report.gate import gate_terms
from adaptive_eval.report.lines import Scale, count, minute, safe_line, several
from adaptive_eval.report.next_steps import Advice
from adaptive_eval.report.published import published_configuration, stored_configuration, to_yaml
from adaptive_eval.report.results import FrontierRow, GroupRow, MetricRow, ModelRow, PairRow, Results
from adaptive_eval.report.spending import stored_cost
from adaptive_eval.report.undecided import ENDED_BY, UNDECIDED, needed_in_words
from adaptive_eval.report.view import RunView
from adaptive_eval.report.words import compares_bayes, draws_questions, promise_line
from adaptive_eval.show.labelled import label_sections
from adaptive_eval.show.markdown_costs import cost_section
from adaptive_eval.show.ranking import model_remark, ranking_table
from adaptive_eval.show.repeatable import published_version, questions_digest
from adaptive_eval.show.summary import (
    allowed_in_words,
    batch_state,
    cost_line,
    decided_text,
    findings,
    pending_since,
    unstored_answers,
    usage_parts,
)
from adaptive_eval.show.text import (
    dollars,
    fenced_block,
    informative_columns,
    markdown_cell,
    markdown_table,
    number_or_dash,
)

MAPPING_FIELDS = ("signals", "sampling")
"""Fields that are mappings; their keys become columns."""


def ranking_csv(view: RunView) -> str:
    """Write everything about the models in results.json as CSV."""
    models = () if view.results is None else view.results.models
    columns = [field.name for field in fields(ModelRow) if field.name not in MAPPING_FIELDS]
    signals = sorted({signal for row in models for signal in row.signals})
    settings = list(dict.fromkeys(setting for row in models for setting in row.sampling))
    rows = (
        [
            *(getattr(row, name) for name in columns),
            *(row.signals.get(signal, 0) for signal in signals),
            *map(row.sampling.get, settings),
        ]
        for row in models
    )
    return csv_text([*columns, *signals, *settings], rows)


SHOWN_EVENTS = 30
COLUMN_MEANINGS = {
    "z now": "z now: over all trials; positive z favours the model named first.",
    "ρ": "ρ: Φ(|z|).",
    "boundary now": "boundary now: the |z| needed for a decision.",
    "decided at": "decided at: the look of the decision, with |z| and the boundary then; a tie has none.",
    "ties within": "Ties within: the smallest delta at which the remaining trials could still show a tie.",
}
MAX_PULL_REQUEST_MODELS = 6
"""Rows of the ranking in a comment on a pull request."""
SAMPLING_COLUMNS = ("name", "model", "temperature", "top_p", "top_k", "min_p", "max_tokens", "reasoning_effort")


def summary(view: RunView) -> str:
    """Render findings and costs as plain text for an email."""
    if (results := view.results) is None:
        lines = [safe_line(view.name), "", *_unjudged_lines(view), *_step_lines(list(_steps(view))[:-1])]
        return "\n".join(lines) + "\n"
    heading = (
        [] if results.gate else [*finding(results), *([] if view.ended is None else [safe_line(view.ended, 1000)]), ""]
    )
    lines = [safe_line(view.name), "", *heading, *findings(results, view.elapsed, None), *_step_lines(_steps(view))]
    return "\n".join(lines) + "\n"


def _step_lines(steps: Iterable[Advice]) -> Iterator[str]:
    """Each step as plain text, with its command on a line of its own."""
    for step in steps:
        yield step.text
        if step.command is not None:
            yield f"  {step.command}"


def _steps(view: RunView) -> Iterator[Advice]:
    """The next steps, and the command that shows the answers."""
    yield from (replace(step, text=f"{'' if at else 'Next: '}{step.text}") for at, step in enumerate(view.next_steps))
    yield Advice("To read the answers:", f"adaptive-eval monitor {view.place} --web")


def _step_paragraphs(steps: Iterable[Advice]) -> Iterator[str]:
    """Render each step, with its command as code."""
    for step in steps:
        yield markdown_cell(step.text, 1000)
        if step.command is not None:
            yield fenced_block(step.command, "sh")


def pull_request(view: RunView) -> str:
    """Render verdict, scores and cost in a few lines, for a comment on a pull request."""
    if (results := view.results) is None:
        return f"**{markdown_cell(view.name)}**: " + "\n\n".join(_unjudged_paragraphs(view)) + "\n"
    paragraphs, steps = list(_verdicts(results)), list(_steps(view))[:-1]
    if view.ended is not None and results.run.reason is None and not view.ended.startswith(finding(results)):
        paragraphs += [markdown_cell(view.ended, 1000), *_step_paragraphs(steps)]
    shown = replace(results, models=results.models[:MAX_PULL_REQUEST_MODELS])
    further = len(results.models) - len(shown.models)
    more = f" {several(further, 'more model')} in the report." if further > 0 else ""
    cost, counted = cost_line(results, view.elapsed), " ".join(["", *filter(None, [counted_sentence(results)])])
    if any(row.gate for row in results.groups):
        paragraphs += [text for text in _groups(shown) if text.startswith("|")]
    paragraphs += [_ranking(shown), f"{decided_text(results)}.{more} Cost: {markdown_cell(cost, 1000)}.{counted}"]
    if results.run.reason and any(pair.verdict in UNDECIDED for pair in results.pairs):
        paragraphs += _step_paragraphs(steps)
    if (promised := promise_line(results)) is not None:
        paragraphs.append(f"Promise: {promised}.")
    if results.warnings:
        first = results.warnings[0]
        text = shorten(first.text if first.model is None else f"{first.model}: {first.text}", 400, placeholder=" …")
        paragraphs.append(
            f"{several(len(results.warnings), 'warning')} in the report, the first: {markdown_cell(text, 400)}"
        )
    return "\n\n".join(paragraphs) + "\n"


def markdown(view: RunView) -> str:
    """Render the whole report."""
    parts = [f"# {markdown_cell(view.name)}", *_findings(view), *_graders(view), *_how(view), *_repeat(view)]
    return "\n\n".join(parts) + "\n"


# -- findings --------------------------------------------------------------------------------------------------------


def _findings(view: RunView) -> Iterator[str]:
    results = view.results
    if results is None:
        yield from _unjudged_paragraphs(view)
        return
    yield from _verdicts(results)
    if view.stopped is not None:
        yield f"The run was {markdown_cell(view.stopped, 1000)}"
    yield _ranking(results)
    yield from _frontier(results)
    yield _headline(results)
    if (counted := counted_sentence(results)) is not None:
        yield counted
    if (promised := promise_line(results)) is not None:
        yield f"Promise: {promised}."
    yield from _step_paragraphs(_steps(view))
    yield from _warnings(results)
    yield "## Cost"
    yield cost_section(view, results)
    if view.batches:
        yield "Pending at batch services; the same command collects their results:"
        rows = (
            [markdown_cell(row.model), markdown_cell(batch_state(row)), pending_since(row), count(row.requests)]
            for row in view.batches
        )
        yield markdown_table(["model", "batch", "since", "requests"], rows, left_columns=3)
    yield "## Details"
    yield _score_details(results)
    yield _column_notes(results)
    yield from _groups(results)
    yield from _metrics(results)
    yield from _comparisons(results)


def _verdicts(results: Results) -> Iterator[str]:
    return (f"**{markdown_cell(sentence, 1000)}**" for sentence in finding(results))


def _unjudged_paragraphs(view: RunView) -> Iterator[str]:
    """State of a run before its first look, and how to go on."""
    yield from (markdown_cell(line, 1000) for line in _unjudged_lines(view))
    yield from _step_paragraphs(list(_steps(view))[:-1])


def _unjudged_lines(view: RunView) -> Iterator[str]:
    """How a run without a look has ended, and what it has; an error of several models is one line."""
    if view.ended is not None:
        yield safe_line(view.ended.replace("\n", "; "), 1000)
    used = [
        f", for {usage}" for spending in view.spending[-1:] if (usage := ", ".join(usage_parts(*stored_cost(spending))))
    ]
    yield f"There is no look yet: {count(sum(map(sum, view.trials)))} trials are graded{''.join(used)}."


def _column_notes(results: Results) -> str:
    drawn = draws_questions(results.decisions)
    notes = (
        "avg@N: the average over all questions, estimated from the questions that were asked."
        if drawn
        else "avg@N: the mean over questions of each question's mean. σ here: its standard error on these questions. "
        "σ like these: its standard error on other questions of this kind. Bayes@N starts each question with one "
        "imagined answer of every category, which pulls it to the middle of the scale, more so with fewer trials. "
        f"Decisions use {'Bayes@N' if compares_bayes(results.decisions) else 'avg@N'}."
    )
    if has_tiers(results):
        notes += (
            " A new tier begins where neighbours are shown to differ, so the first and last model of a tier may differ."
        )
    if letters_tell_more(results.models):
        notes += " Two models that share no letter (alike) differ; all pairs are compared."
    return notes


def _headline(results: Results) -> str:
    run, cost = results.run, results.cost
    why = run.status if run.reason in (None, Reason.SETTLED) else f"{run.status}: {run.reason.replace('_', ' ')}"
    if run.reason in ENDED_BY:
        why = f"stopped by {ENDED_BY[Reason(run.reason)]}"
    in_vain = "".join(f", and {answers}" for answers in unstored_answers(cost.beside))
    return (
        f"{decided_text(results)} with {count(cost.trials)} trials{in_vain}; {allowed_in_words(cost)} ("
        f"{markdown_cell(f'{why}; adaptive-eval {run.version}, {run.updated}')})."
    )


def _ranking(results: Results) -> str:
    scale, without_tiers = Scale.of(results.weights), not has_tiers(results)
    verdicts = zip(results.models, model_verdicts(results), strict=True)
    rows = (
        (row, markdown_cell(row.name) + model_remark(row), markdown_cell(verdict, 500)) for row, verdict in verdicts
    )
    head, *lines = ranking_table(rows, scale, without_tiers=without_tiers)
    return markdown_table(head, lines, left_columns=2 - without_tiers, last=True)


def _frontier(results: Results) -> Iterator[str]:
    """Score against cost, for the choice of the cheapest."""
    if not results.frontier:
        return
    models, scale = {row.name: row for row in results.models}, Scale.of(results.weights)
    rows = (
        [
            markdown_cell(row.model),
            _cost_of_answer(row),
            scale.score(models[row.model].score),
            scale.interval(models[row.model].lo, models[row.model].hi),
            markdown_cell(" ".join([words, *names]), 500),
        ]
        for row, (words, names) in ((row, part_in_words(results, row)) for row in results.frontier)
    )
    yield "From the cheapest to the dearest, by the cost of an answer in the first round, with 95% intervals:"
    yield markdown_table(["model", "cost", "score", "95% interval", "choice"], rows, left_columns=1, last=True)


def _cost_of_answer(row: FrontierRow) -> str:
    """With half of its 95% interval, if that is known."""
    if row.usd is None:
        return "-"
    half = TWO_SIDED_95 * (row.usd_sigma or 0.0)
    return f"{dollars(row.usd, [half])} ± {dollars(half, [row.usd])}" if half else dollars(row.usd)


def _score_details(results: Results) -> str:
    scale, alike = Scale.of(results.weights), letters_tell_more(results.models)
    rows = (
        [
            markdown_cell(row.name),
            scale.score(row.score),
            scale.width(row.sigma),
            "" if draws_questions(results.decisions) else scale.width(row.sampled_sigma),
            number_or_dash(row.bayes, 4),
            number_or_dash(row.bayes_sigma, 4),
            markdown_cell(row.letters) if alike else "",
        ]
        for row in results.models
    )
    head = ["model", "avg@N", "σ here", "σ like these", "Bayes@N mu", "Bayes@N σ", "alike"]
    return markdown_table(*informative_columns(head, rows))


def _metrics(results: Results) -> Iterator[str]:
    names = list(dict.fromkeys(row.metric for row in results.metrics))
    if not names:
        return
    values = {(row.metric, row.model): row for row in results.metrics}
    percent = Scale.of((0.0, 1.0))
    yield "## Metrics over several trials"
    cells = (
        [markdown_cell(row.name), *(_metric_cell(values[name, row.name], percent) for name in names)]
        for row in results.models
    )
    yield markdown_table(["model", *names], cells)
    yield (
        "Each is the mean over all subsets of that many trials per question, with a 95% interval on these questions. "
        "No decision uses them."
    )


def _metric_cell(row: MetricRow, percent: Scale) -> str:
    return "-" if row.value is None else f"{percent.score(row.value)} ({percent.interval(row.lo, row.hi)})"


def _groups(results: Results) -> Iterator[str]:
    """Scores on groups of questions: a table per grouping, with a row per model."""
    scale = Scale.of(results.weights)
    for by in dict.fromkeys(row.by for row in results.groups):
        rows = {(row.group, row.model): row for row in results.groups if row.by == by}
        groups = list(dict.fromkeys(group for group, _ in rows))
        any_model = next(iter(rows.values())).model
        yield f"## Scores by {markdown_cell(by)}"
        head = [f"{markdown_cell(group)} ({several(rows[group, any_model].questions, 'question')})" for group in groups]
        shares = ["of the score", *(f"{rows[group, any_model].share:.0%}" for group in groups)]
        cells = (
            [markdown_cell(row.name), *(_group_cell(rows[group, row.name], scale) for group in groups)]
            for row in results.models
        )
        yield markdown_table(["model", *head], [shares, *cells])
        decides = "" if any(row.gate for row in rows.values()) else " No decision uses them alone."
        yield f"Each with a 95% interval on these questions.{decides}"


def _group_cell(row: GroupRow, scale: Scale) -> str:
    gate = "" if row.gate is None else f" {row.gate}"
    return "-" if row.score is None else f"{scale.score(row.score)} ({scale.interval(row.lo, row.hi)}){gate}"


def _comparisons(results: Results) -> Iterator[str]:
    if not results.pairs:
        return
    z, needed = "z now", f"{needed_in_words(results, 0.0)[1]} needed"
    meanings = COLUMN_MEANINGS | {needed: f"{needed.capitalize()}: for a decision if nothing else changed."}
    if (terms := gate_terms(results.decisions, results.weights)) is not None:
        z, of = f"z of (difference + {terms.scale.points(terms.delta)})", ""
        if any(row.gate for row in results.groups):
            z, of = "z of the gate", ", with its delta, of the one that decides or is nearest to failing"
        meanings = {z: f"{z}: over all trials{of}; positive speaks for a pass, negative for a fail."} | meanings
    head = ["comparison" if results.compares else "score", "verdict", "difference", z, "boundary now", "ρ"]
    head += ["decided at", needed, "ties within"]
    yield "## Comparisons" if results.compares else "## How precise the scores are"
    head, rows = informative_columns(head, (_comparison_cells(results, pair) for pair in results.pairs))
    yield markdown_table(head, rows)
    yield " ".join(meanings[column] for column in head if column in meanings)


def _comparison_cells(results: Results, pair: PairRow) -> list[str]:
    open_, scale = pair.verdict in UNDECIDED, Scale.of(results.weights)
    gate = next((row for row in results.gate if row.model in (pair.first, pair.second)), None)
    model, over, other = (pair.first, "over", pair.second) if gate is None else (gate.model, "against", gate.baseline)
    return [
        markdown_cell(model) if other is None else f"{markdown_cell(model)} {over} {markdown_cell(other)}",
        markdown_cell(state_word(comparison_state(results, pair))),
        difference_text(results, pair, model) if results.compares else "",
        number_or_dash(pair.signed_z(model)),
        number_or_dash(pair.boundary) if open_ else "",
        number_or_dash(pair.rho, 4) if gate is None else "",
        _call_text(pair),
        needed_in_words(results, pair.trials_needed)[0] if open_ and pair.trials_needed is not None else "",
        scale.rounded_points(pair.certifiable_delta) if gate is None and open_ and pair.certifiable_delta else "",
    ]


def _call_text(pair: PairRow) -> str:
    if pair.called is None:
        return ""
    if pair.verdict == "tied":  # by its own test, without a boundary for |z|
        return f"look {pair.called.look}"
    then = "" if pair.called.z is None else f": z {number_or_dash(pair.called.z)}"
    boundary = "" if pair.called.boundary is None else f", boundary {number_or_dash(pair.called.boundary)}"
    return f"look {pair.called.look}{then}{boundary}"


def _warnings(results: Results) -> Iterator[str]:
    if results.warnings:
        yield "## Warnings"
        lines = ((warning.model, warning.text) for warning in results.warnings)
        yield "\n".join(
            f"- {'' if model is None else markdown_cell(model) + ': '}{markdown_cell(text, 1000)}"
            for model, text in lines
        )


def _graders(view: RunView) -> Iterator[str]:
    if view.orders is not None:
        yield "## Order of the two answers"
        yield view.orders
    if view.results is not None and view.results.labelled is not None:
        yield "## Labels"
        yield from label_sections(view.results)


# -- method ----------------------------------------------------------------------------------------------------------


def _how(view: RunView) -> Iterator[str]:
    words = view.words
    yield "## How"
    sentences = [
        words.objective,
        words.rule,
        words.promise,
        words.allocation,
        words.prior,
        words.seeds,
    ]
    sentences += [markdown_cell(sentence, 1000) for sentence in view.by_trial]
    if view.thresholds is not None:
        sentences.append(markdown_cell(view.thresholds))
    yield "\n".join(f"- {sentence}" for sentence in filter(None, sentences))
    yield from _prior_effect(view)
    rubric = ([markdown_cell(name), f"{weight:g}"] for name, weight in zip(view.categories, view.weights, strict=True))
    yield markdown_table(["category", "weight"], rubric)
    yield from _transcripts(view)


def _transcripts(view: RunView) -> Iterator[str]:
    """Table of Inspect's logs, one per model and start."""
    rows = [
        [markdown_cell(row.model), _log_link(row.replica), count(row.trials)]
        for row in view.traffic
        if row.replica.startswith(f"{INSPECT_LOGS}/")
    ]
    if rows:
        yield "## Transcripts"
        yield (
            "They are in Inspect's logs, one per model and start of the run. To view them, in the run's directory: "
            f"`inspect view --log-dir {INSPECT_LOGS}`."
        )
        yield markdown_table(["model", "log", "trials"], rows, left_columns=2)


def _log_link(log: str) -> str:
    plain = re.fullmatch(rf"{INSPECT_LOGS}/[\w.+-]+\.eval", log, re.ASCII)
    return markdown_cell(log) if plain is None else f"[{markdown_cell(log)}]({log})"


def _prior_effect(view: RunView) -> Iterator[str]:
    models = () if view.results is None else view.results.models
    if any(row.prior_depth for row in models):
        scale = Scale.of(view.weights)
        yield "Scores with and without outcomes of another run (R0), of which D count as trials per question:"
        head = ["model", "D", "rank", "avg@N", "rank without R0", "avg@N without R0"]
        rows = (
            [
                markdown_cell(row.name),
                f"{row.prior_depth:.3g}",
                str(row.rank),
                scale.score(row.score),
                "-" if row.rank_without_prior is None else str(row.rank_without_prior),
                scale.score(row.score_without_prior),
            ]
            for row in models
        )
        yield markdown_table(head, rows)


# -- reproduction ----------------------------------------------------------------------------------------------------


def _repeat(view: RunView) -> Iterator[str]:
    config = stored_configuration(view.configuration)
    yield "## Reproduce it"
    yield _sampling(
        [{"name": model.name, "model": model.model} | model.sampling.model_dump() for model in config.asked]
    )
    recorded = any(row.recorded for row in (view.results.models if view.results else ()))
    others = " For recorded models see the reports of their runs." * recorded
    yield f"Empty settings were not sent: the server's defaults applied.{others}"
    yield (
        f"{len(view.questions)} questions, SHA-256 of ids, prompts and answers `{questions_digest(view.questions)}`. "
        f"This report was written by adaptive-eval {__version__}, Python {platform.python_version()}, numpy "
        f"{np.__version__}, scipy {scipy.__version__}. The configuration, without settings at the defaults of "
        f"adaptive-eval {published_version(view)}:"
    )
    yield fenced_block(to_yaml(published_configuration(config)), "yaml")
    if events := [(minute(event.at), event.text) for event in view.events if event.text is not None]:
        yield "Events:"
        yield "\n".join(f"- {at} {markdown_cell(text, 500)}" for at, text in events[-SHOWN_EVENTS:])


def _sampling(models: Sequence[Mapping[str, object]]) -> str:
    rows = (
        [markdown_cell("" if model[key] is None else str(model[key])) for key in SAMPLING_COLUMNS] for model in models
    )
    return markdown_table([key.replace("_", " ") for key in SAMPLING_COLUMNS], rows, left_columns=2)
