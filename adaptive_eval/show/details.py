"""What a report says of the scores beyond the ranking, of how they came about and of their cost, in paragraphs and
tables."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, cast

from adaptive_eval.base.numbers import plain_number
from adaptive_eval.core.result import TWO_SIDED_95
from adaptive_eval.endpoints.types import Sampling
from adaptive_eval.questions.benchmark import INSPECT_LOGS
from adaptive_eval.report.choice import part_in_words
from adaptive_eval.report.costs import SECONDS_PER_HOUR, allowed_in_words, unstored_answers, wasted_words
from adaptive_eval.report.finding import (
    comparison_state,
    difference_text,
    has_tiers,
    letters_tell_more,
    state_word,
)
from adaptive_eval.report.gate import gate_terms
from adaptive_eval.report.glossary import GLOSSARY
from adaptive_eval.report.lines import Scale, amount, count, duration, minute, several
from adaptive_eval.report.needs import UNDECIDED, needed_in_words, trials_needed
from adaptive_eval.report.other_costs import summarize_other_costs
from adaptive_eval.report.records import ReplicaTraffic
from adaptive_eval.report.report_rows import BENCHMARK
from adaptive_eval.report.results import (
    FrontierRow,
    GradingCost,
    GroupRow,
    MetricRow,
    ModelRow,
    OtherCostRow,
    PairRow,
    Results,
    RunCost,
    WastedCost,
)
from adaptive_eval.report.view import EventView, RunView
from adaptive_eval.report.words import compares_bayes, draws_questions
from adaptive_eval.show.text import Block, Table, dollars, number_or_dash

COLUMN_MEANINGS = {
    "z now": "z now: over all trials; positive z favours the model named first.",
    "ρ": "ρ: Φ(|z|).",
    "boundary now": "boundary now: the |z| needed for a decision.",
    "decided at": "decided at: the look of the decision, with |z| and the boundary then; a tie has none.",
    "ties within": "Ties within: the smallest delta at which the remaining trials could still show a tie.",
}
PERCENT = Scale(0.0, 1.0)
MAX_EVENTS = 300
UNSENT: Sequence[object] = (None, [], {})
"""Values of sampling settings that are not in requests."""


def score_blocks(results: Results) -> Iterator[Block]:
    """Standard errors and Bayes@N, scores without outcomes of another run, by group of questions, and metrics."""
    yield _score_table(results)
    yield _column_notes(results)
    yield from _prior_effect(results)
    yield from _groups(results)
    yield from _metrics(results)


def _score_table(results: Results) -> Table:
    scale, alike = Scale.of(results.weights), letters_tell_more(results.models)
    drawn = draws_questions(results.decisions)
    rows = (
        [
            row.name,
            row.letters if alike else "",
            scale.score(row.score),
            scale.width(row.sigma),
            "" if drawn else scale.width(row.sampled_sigma),
            "" if drawn else number_or_dash(row.bayes, 4),
            "" if drawn else number_or_dash(row.bayes_sigma, 4),
        ]
        for row in results.models
    )
    head = ["model", "alike", "avg@N", "σ here", "σ like these", "Bayes@N mu", "Bayes@N σ"]
    return Table.of("Scores with their standard errors", head, rows)


def _column_notes(results: Results) -> str:
    drawn = draws_questions(results.decisions)
    weighted = ", weighted by benchmark" if any(row.by == BENCHMARK for row in results.groups) else ""
    notes = (
        "avg@N: the average over all questions, estimated from the questions that were asked."
        if drawn
        else f"avg@N: the mean over questions of each question's mean{weighted}. σ here: its standard error on these "
        "questions. σ like these: its standard error on other questions of this kind. Bayes@N starts each question "
        "with one imagined answer of every category, which pulls it to the middle of the scale, more so with fewer "
        f"trials. Decisions use {'Bayes@N' if compares_bayes(results.decisions) else 'avg@N'}."
    )
    if has_tiers(results):
        notes += (
            " A new tier begins where neighbours are shown to differ, so the first and last model of a tier may differ."
        )
    if letters_tell_more(results.models):
        notes += " Two models that share no letter (alike) differ; all pairs are compared."
    return notes


def _prior_effect(results: Results) -> Iterator[Block]:
    if any(row.prior_depth for row in results.models):
        scale = Scale.of(results.weights)
        rows = (
            [
                row.name,
                plain_number(row.prior_depth, 3),
                str(row.rank),
                scale.score(row.score),
                "-" if row.rank_without_prior is None else str(row.rank_without_prior),
                scale.score(row.score_without_prior),
            ]
            for row in results.models
        )
        head = ["model", "R0", "rank", "avg@N", "rank without R0", "avg@N without R0"]
        yield Table.of("Scores with and without outcomes of another run (R0: its trials per question)", head, rows)


def _groups(results: Results) -> Iterator[Block]:
    """A table per grouping of the questions."""
    for by in dict.fromkeys(row.by for row in results.groups):
        yield group_table(results, by)
        decides = "" if any(row.gate for row in results.groups if row.by == by) else " No decision uses them alone."
        how = "Corrected by labels where the model's score is" if by == BENCHMARK else "By the grades, without labels"
        yield f"Each with a 95% interval on these questions.{decides}{f' {how}.' if results.corrected else ''}"


def group_table(results: Results, by: str) -> Table:
    """Scores on groups of questions, with a row per model."""
    rows, scale = {(row.group, row.model): row for row in results.groups if row.by == by}, Scale.of(results.weights)
    of_groups = {row.group: row for row in rows.values()}
    head = ["model", *(f"{group} ({several(row.questions, 'question')})" for group, row in of_groups.items())]
    shares = ["of the score", *(f"{row.share:.0%}" for row in of_groups.values())]
    cells = ([row.name, *(_interval(rows[group, row.name], scale) for group in of_groups)] for row in results.models)
    return Table.of(f"Scores by {by}", head, [shares, *cells])


def _metrics(results: Results) -> Iterator[Block]:
    values = {(row.metric, row.model): row for row in results.metrics}
    if values:
        names = list(dict.fromkeys(metric for metric, _ in values))
        cells = (
            [row.name, *(_interval(values.get((name, row.name)), PERCENT) for name in names)] for row in results.models
        )
        yield Table("Metrics over several trials", ("model", *names), tuple(map(tuple, cells)))
        yield (
            "Each is the mean over all subsets of that many trials per question, with a 95% interval on these "
            "questions. No decision uses them."
        )


def _interval(row: GroupRow | MetricRow | None, scale: Scale) -> str:
    if row is None:
        return "-"
    value, gate = (row.value, None) if isinstance(row, MetricRow) else (row.score, row.gate)
    shown = f"{scale.score(value)} ({scale.interval(row.lo, row.hi)})"
    return "-" if value is None else shown if gate is None else f"{shown} {gate}"


def frontier_blocks(results: Results) -> Iterator[Block]:
    """Score against cost, for the choice of the cheapest."""
    if results.frontier:
        models, scale = {row.name: row for row in results.models}, Scale.of(results.weights)
        rows = []
        for row in results.frontier:
            model, (words, names) = models[row.model], part_in_words(results, row)
            cells = (row.model, _cost_of_answer(row), scale.score(model.score), scale.interval(model.lo, model.hi))
            rows.append((*cells, " ".join([words, *names])))
        head = ("model", "cost", "score", "95% interval", "choice")
        yield Table("From the cheapest to the dearest", head, tuple(rows), last=True)
        yield "Costs are those of an answer in the first round, in which all models answer the same questions."


def _cost_of_answer(row: FrontierRow) -> str:
    """With half of its 95% interval, if that is known."""
    if row.usd is None:
        return "-"
    half = TWO_SIDED_95 * (row.usd_sigma or 0.0)
    return f"{dollars(row.usd, [half])} ± {dollars(half, [row.usd])}" if half else dollars(row.usd)


def comparison_blocks(results: Results) -> Iterator[Block]:
    """Every comparison of the objective."""
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
    title = "Comparisons" if results.compares else "How precise the scores are"
    table = Table.of(title, head, (_comparison_cells(results, pair) for pair in results.pairs))
    yield table
    yield " ".join(meanings[column] for column in table.head if column in meanings)


def _comparison_cells(results: Results, pair: PairRow) -> list[str]:
    open_, scale = pair.verdict in UNDECIDED, Scale.of(results.weights)
    needed = trials_needed(results, pair)
    gate = next((row for row in results.gate if row.model in (pair.first, pair.second)), None)
    model, over, other = (pair.first, "over", pair.second) if gate is None else (gate.model, "against", gate.baseline)
    return [
        model if other is None else f"{model} {over} {other}",
        state_word(comparison_state(results, pair)),
        difference_text(results, pair, model) if results.compares else "",
        number_or_dash(pair.signed_z(model)),
        number_or_dash(pair.boundary) if open_ else "",
        number_or_dash(pair.rho, 4) if gate is None else "",
        _call_text(pair),
        "" if needed is None else needed_in_words(results, needed)[0],
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


def request_blocks(view: RunView) -> Iterator[Block]:
    """Answers worth a note, answers by server, pending batches, and events."""
    if view.results is not None:
        yield _noted_answers(view.results.models)
    yield from _traffic(view.traffic)
    yield from batch_blocks(view)
    yield from _events([event for event in view.events if event.text is not None])


def _noted_answers(models: Sequence[ModelRow]) -> Block:
    """Answers with a signal, without a grade or repeated, by model."""
    signals = sorted({signal for row in models for signal in row.signals})
    head = ["model", "answers", *(signal.replace("_", " ") for signal in signals), "no grade", "repeated word for word"]
    numbers = [[*(row.signals.get(signal, 0) for signal in signals), row.ungraded, row.repeats] for row in models]
    rows = [
        [row.name, count(row.stored_trials), *(_share(number, row.stored_trials) for number in noted)]
        for row, noted in zip(models, numbers, strict=True)
        if any(noted)
    ]
    if not rows:
        return "No answer was truncated, empty, refused, repeated or left ungraded."
    return Table.of("Answers worth a note", head, rows)


def _share(number: int, trials: int) -> str:
    return f"{count(number)} ({number / max(1, trials):.1%})" if number else ""


def _traffic(traffic: Sequence[ReplicaTraffic]) -> Iterator[Block]:
    has_logs = any(row.replica.startswith(f"{INSPECT_LOGS}/") for row in traffic)
    if has_logs:
        yield (
            "Inspect has the transcripts, in a log of each model for each start of the run: inspect view --log-dir "
            f"{INSPECT_LOGS} in the run's directory shows them."
        )
    rows = (
        [
            *(row.model, row.replica, count(row.trials), count(row.retries), count(row.prompt_tokens)),
            *(count(row.cached_tokens) if row.cached_tokens else "", count(row.completion_tokens)),
            *(_latency(row.latency), _latency(row.ttft)),
        ]
        for row in traffic
    )
    place = "log of Inspect" if has_logs else "server"
    head = ["model", place, "answers", "retries", "prompt tokens", "from a cache", "completion tokens"]
    yield Table.of(f"Answers by model and {place}", [*head, "mean latency", "time to first token"], rows, texts=2)


def _latency(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{1000 * seconds:.0f} ms" if seconds < 1.0 else duration(seconds)


def batch_blocks(view: RunView) -> Iterator[Block]:
    """Batches that are pending at batch services."""
    if view.batches:
        rows = (
            [row.model, row.batch or "being submitted", f"{minute(row.since)} UTC", count(row.requests)]
            for row in view.batches
        )
        yield Table.of("Pending at batch services", ["model", "batch", "since", "requests"], rows, texts=3)
        yield (
            "The same command collects their results. Batches of a model that the run no longer has stay there: add "
            "the model again to collect them, or cancel them at the provider."
        )


OTHER_SAMPLING = {
    "recorded": "For recorded models see the reports of their runs.",
    "inspect": "Inspect samples as its task and the models in the configuration say.",
    "command": "Commands sample as they choose.",
}
"""Where the settings of models are that are not sent those of `sampling`, by the key that such a model has."""


def _events(events: Sequence[EventView]) -> Iterator[Block]:
    """The events that displays show."""
    rows = (
        (f"{datetime.fromtimestamp(event.at, UTC):%F %T} UTC", event.kind.replace("_", " "), event.text or "")
        for event in events[: -MAX_EVENTS - 1 : -1]
    )
    yield Table("Events, the latest first", ("time", "event", "details"), tuple(rows), texts=3)
    if (earlier := len(events) - MAX_EVENTS) > 0:
        yield f"and {several(earlier, 'earlier event')}"


def recipe_blocks(view: RunView) -> Iterator[Block]:
    """The rubric, how answers were sampled, and the servers that the run has started; models that were asked alike
    share a row."""
    rubric = ([name, plain_number(weight)] for name, weight in zip(view.categories, view.weights, strict=True))
    yield Table("Rubric", ("category", "weight"), tuple(map(tuple, rubric)))
    keys = [key for key in Sampling.model_fields if key != "timeout"]
    alike: dict[tuple[str, ...], list[str]] = {}
    models = cast(Sequence[Mapping[str, Any]], view.configuration["models"])
    others = {source: note for source, note in OTHER_SAMPLING.items() if any(model.get(source) for model in models)}
    for model in models:
        if not any(map(model.get, others)):
            values = (model["sampling"][key] for key in keys)
            alike.setdefault(tuple("" if value in UNSENT else str(value) for value in values), []).append(model["name"])
    everyone = f"all {len(models)} models" if len(models) > 1 else models[0]["name"]
    rows = ([everyone if len(names) == len(models) else ", ".join(names), *values] for values, names in alike.items())
    yield Table.of("Sampling", ["model", *(key.replace("_", " ") for key in keys)], rows)
    unsent = ["Empty settings were not sent: the server's defaults applied."] if alike else []
    yield " ".join([*unsent, *others.values()])
    servers = () if view.results is None else view.results.servers
    started = ((row.model, " ".join(row.command), row.version or "-", count(row.starts)) for row in servers)
    yield Table("Servers that the run has started", ("model", "command", "version", "starts"), tuple(started), texts=3)


# -- costs -------------------------------------------------------------------------------------------------------------


def cost_blocks(view: RunView, results: Results) -> Iterator[Block]:
    """A row per model and kind of other spending, their sum, and explanations."""
    retries, cost, others = Counter[str](), results.cost, summarize_other_costs(results.cost.beside)
    for row in view.traffic:
        retries[row.model] += row.retries
    spent: list[ModelRow | OtherCostRow] = [*results.models, *others]
    usd = partial(amount, among=[row.usd for row in spent])
    hours = partial(amount, among=[row.gpu_seconds / SECONDS_PER_HOUR for row in spent])

    def used(row: CostRow) -> list[str]:
        """Tokens, dollars, GPU hours of requests, and the time of servers if it is paid for."""
        requests = [_or_dash(row.tokens, count), _or_dash(row.usd, usd)]
        requests.append(_or_dash(row.gpu_seconds / SECONDS_PER_HOUR, hours))
        if isinstance(row, GradingCost | WastedCost) or row.server_seconds is None or not results.server_time_is_paid:
            return [*requests, "-", "-"]
        held = _or_dash((row.server_gpu_seconds or 0.0) / SECONDS_PER_HOUR, hours)
        return [*requests, duration(row.server_seconds), held]

    head = ["model", "answers", "tokens", "USD", "GPU hours of requests", "server time", "GPU hours held"]
    head += ["truncated", "no grade", "retries"]
    yield Table.of("Cost by model", head, _cost_rows(results, others, retries, used))
    unstored = "".join(f", and {answers}" for answers in unstored_answers(cost.beside))
    notes = (
        f"Trials: {count(cost.trials)}{unstored}; {allowed_in_words(cost)}. Looks: {len(view.looks)}. "
        f"Duration: {duration(view.elapsed)}."
    )
    is_known = results.server_time_is_paid and cost.server_seconds is not None
    yield notes + (f" Server time: {GLOSSARY['server_time'].text}" if is_known else "")


CostRow = ModelRow | OtherCostRow | RunCost | GradingCost | WastedCost


def _cost_rows(
    results: Results, others: Sequence[OtherCostRow], retries: Counter[str], used: Callable[[CostRow], list[str]]
) -> Iterator[list[str]]:
    cost, nothing = results.cost, ["-"] * 3
    for row in results.models:
        share = row.signals.get("truncated", 0) / row.stored_trials if row.stored_trials else 0.0
        if row.recorded is not None:
            yield [row.name, f"recorded: {row.recorded}", *["-"] * 5, *nothing]
        else:
            noted = [f"{share:.1%}", count(row.ungraded), count(retries[row.name])]
            yield [row.name, count(row.stored_trials), *used(row), *noted]
    if (grading := cost.grading) is not None:
        yield [f"of these the grades of {count(grading.answers)} answers", "-", *used(grading), *nothing]
        if (wasted := grading.in_vain) is not None:
            yield [f"of these {wasted_words(wasted).removeprefix('for ')}", "-", *used(wasted), *nothing]
    for other in others:
        lost = f" ({count(other.answers)} of them lost)" if other.trials and other.answers else ""
        yield [other.what + lost, _or_dash(other.trials + other.answers, count), *used(other), *nothing]
    tokens, usd, gpu_seconds = (cost.in_all(of) for of in ("tokens", "usd", "gpu_seconds"))
    total = replace(cost, tokens=int(tokens), usd=usd, gpu_seconds=gpu_seconds)
    yield ["all", count(cost.asked), *used(total), "", "", count(sum(retries.values()))]


def _or_dash(value: float, shown: Callable[[float], str]) -> str:
    return shown(value) if value else "-"
