"""A run as Markdown, fit for a paper's appendix or a pull request: what was found, how surely, and how to repeat it.

What a reader needs to repeat a run.

The ranking as CSV, one line a model.
"""

import csv
import hashlib
import io
import json
import math
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import partial
from itertools import starmap
from typing import Any

import numpy as np
import scipy
import yaml
from scipy.special import ndtr

from adaptive_eval import __version__
from adaptive_eval.config.run import RunConfig
from adaptive_eval.exchange.tables.writer import harmless
from adaptive_eval.record.results import Cost, ModelRow, PairRow, Results
from adaptive_eval.record.scale import Scale
from adaptive_eval.record.view import RunView
from adaptive_eval.record.words import promise_in_short
from adaptive_eval.show.events import sentence
from adaptive_eval.show.summary import UNDECIDED, decided
from adaptive_eval.show.text import SECONDS_AN_HOUR, amount, cell, count, duration, fenced, number, table, telling
from adaptive_eval.store import RunBegun, event_of, only

SPREAD = ("signals", "sampling")
"""Mappings, which become columns of their own."""


def ranking_csv(view: RunView) -> str:
    """Everything in results.json about the models."""
    models = () if view.results is None else view.results.models
    columns = [one.name for one in fields(ModelRow) if one.name not in SPREAD]
    signals = sorted({signal for row in models for signal in row.signals})
    settings = list(dict.fromkeys(setting for row in models for setting in row.sampling))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(harmless, [*columns, *signals, *settings]))
    for row in models:
        values = [getattr(row, name) for name in columns]
        values += [row.signals.get(signal, 0) for signal in signals]
        values += [row.sampling.get(setting) for setting in settings]
        writer.writerow(map(harmless, values))
    return text.getvalue()


PLACES = {"folder", "store"}
"""Sections that say where things lie on the machine of the run."""
SHARED = ("sampling", "prompt", "concurrency")
"""Sections that a model has from the run where it does not change them."""


@dataclass(frozen=True, slots=True)
class Repeatable:
    """The configuration and the questions, and what happened on the way."""

    version: str
    """Of adaptive-eval, which has the defaults: of the latest start."""
    configuration: Mapping[str, object]
    """Without what is at its default, and without where the run lay."""
    models: tuple[Mapping[str, object], ...]
    """Each model's name, its served name, and how its answers were drawn."""
    digest: str
    """SHA-256 of the questions."""
    events: tuple[tuple[str, str], ...]
    """When, and what, where that is worth a line."""


def repeatable(view: RunView) -> Repeatable:
    """What to publish for those who want to repeat it."""
    config = RunConfig.model_validate_json(json.dumps(view.configuration))
    events = [event_of(one.kind, one.body, one.at) for one in view.events]
    told = ((event.at, sentence(event)) for event in events)
    return Repeatable(
        version=next((begun.version or "" for begun in reversed(only(events, RunBegun))), ""),
        configuration=_configuration(config),
        models=tuple({"name": one.name, "model": one.model} | one.sampling.model_dump() for one in config.models),
        digest=questions_digest(view),
        events=tuple((_minute(at), text) for at, text in told if text is not None),
    )


def questions_digest(view: RunView) -> str:
    """A fingerprint of what was asked and what counts as right, whatever the order of the questions."""
    rows = sorted([one.id, one.prompt, one.answer, list(one.choices)] for one in view.questions)
    return hashlib.sha256(json.dumps(rows, separators=(",", ":")).encode()).hexdigest()


def _configuration(config: RunConfig) -> dict[str, object]:
    whole: dict[str, Any] = config.model_dump(mode="json", exclude_defaults=True, exclude=PLACES)
    for model in whole["models"]:
        for section in SHARED:
            if model.get(section) == whole.get(section):
                model.pop(section, None)
        if model.get("simulate"):
            del model["base_url"]
    whole["grader"] = {"kind": config.grader.kind} | whole.get("grader", {})
    first = ("name", "seed", "questions", "models", "prompt", "sampling", "grader")
    order = [*first, *(key for key in whole if key not in first)]
    return {key: whole[key] for key in order if key in whole}


def _minute(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")


SHOWN_EVENTS = 30
MEANINGS = {
    "trials a question needed": "Trials a question needed: at which it would be called if nothing else changed.",
    "ties within": "Ties within: the smallest delta that the trials which are left could certify.",
}
SAMPLED = ("name", "model", "temperature", "top_p", "top_k", "min_p", "max_tokens", "reasoning_effort")


def markdown(view: RunView) -> str:
    """The whole report."""
    parts = [f"# {cell(view.name)}", *_found(view), *_how(view), *_repeat(view)]
    return "\n\n".join(parts) + "\n"


# -- what was found --------------------------------------------------------------------------------------------------


def _found(view: RunView) -> Iterator[str]:
    results = view.results
    if results is None:
        yield f"No look was taken yet: {count(sum(map(sum, view.trials)))} trials are graded."
        yield from _mishap(view)
        return
    yield _headline(results)
    yield from _mishap(view)
    yield _ranking(view, results)
    yield (
        "avg@N: the average over questions of each question's average, with its standard error and 95% credible "
        "interval on these questions; like these: its standard error on questions like these, of which these are a "
        "sample. z and rho = Phi(z) compare a model with the one below it, on these. A new tier begins where "
        "neighbours are told apart, so that the ends of a tier may be; models that share a letter (alike) are not told "
        "apart, by all pairs. Bayes@N is on another scale: each question begins with one imagined answer of every "
        "category, which pulls it to the middle, more so with fewer trials; avg@N is what decides."
    )
    yield from _promise(results)
    yield from _comparisons(results)
    yield from _warnings(results)
    yield "## Cost"
    yield _cost(view, results)


def _promise(results: Results) -> Iterator[str]:
    """What the gate says, and what a call is worth."""
    if results.gate:
        yield "## Gate"
        rows = ([cell(row.model), row.outcome, cell(row.why)] for row in results.gate)
        yield table(["model", "outcome", "why"], rows, left=3)
    if (promised := promise_in_short(results.decisions)) is not None:
        yield f"What a call is worth: {promised}."


def _mishap(view: RunView) -> Iterator[str]:
    if view.error is not None:
        yield f"The run was stopped by an error: {cell(view.error, 1000)}"


def _headline(results: Results) -> str:
    run, cost = results.run, results.cost
    why = run.status if run.reason is None else f"{run.status}: {run.reason.replace('_', ' ')}"
    return (
        f"{decided(results)} with {count(cost.trials)} trials, "
        f"{cost.trials / cost.fixed_trials:.0%} of the {count(cost.fixed_trials)} of a fixed design ({why}; "
        f"adaptive-eval {run.version}, {run.updated})."
    )


def _ranking(view: RunView, results: Results) -> str:
    scale = Scale.of(results.weights)
    verdicts = {(pair.better, pair.worse): pair.verdict for pair in results.pairs}
    below = [row.name for row in results.models[1:]]
    rows = []
    for place, (row, other) in enumerate(zip(results.models, [*below, None], strict=True)):
        z = None if other is None else view.z[place][place + 1]
        verdict = "" if other is None else verdicts.get((row.name, other), "")
        rows.append(_ranked(row, z, verdict, scale))
    head = ["tier", "alike", "model", "avg@N", "sigma", "95% interval", "like these", "z", "rho", "verdict"]
    return table(*telling([*head, "Bayes@N mu", "sigma", "trials"], rows), left=3)


def _ranked(row: ModelRow, z: float | None, verdict: str, scale: Scale) -> list[str]:
    return [
        "-" if row.score is None else str(row.tier),
        row.letters,
        cell(row.name) + (" (set aside)" if row.set_aside is not None else ""),
        scale.score(row.score),
        scale.width(row.sigma),
        scale.interval(row.lo, row.hi),
        scale.width(row.sampled_sigma),
        number(z),
        number(None if z is None else float(ndtr(z)), 4),
        verdict.replace("_", " "),
        number(row.bayes, 4),
        number(row.bayes_sigma, 4),
        f"{row.trials:,}",
    ]


def _comparisons(results: Results) -> Iterator[str]:
    """All comparisons where the objective has others than neighbours; else those that are not decided."""
    ranked = [row.name for row in results.models]
    neighbours = set(zip(ranked, ranked[1:], strict=False))
    told = [pair for pair in results.pairs if (pair.better, pair.worse) not in neighbours or pair.verdict in UNDECIDED]
    if told:
        scale = Scale.of(results.weights)
        yield "## Comparisons" if results.compares else "## Scores that are wanted"
        what = "comparison" if results.compares else "score"
        head = [what, "verdict", "difference", "z", "boundary", "trials a question needed", "ties within"]
        head, rows = telling(head, (_compared(pair, scale) for pair in told))
        yield table(head, rows)
        if explained := [meaning for column, meaning in MEANINGS.items() if column in head]:
            yield " ".join(explained)
    turned = [f"- {cell(better)} over {_other(worse)}" for better, worse in results.reversals]
    if turned:
        yield "## Called before, and the other way round today"
        yield "\n".join(turned)


def _compared(pair: PairRow, scale: Scale) -> list[str]:
    open_ = pair.verdict in UNDECIDED
    return [
        cell(pair.better) if pair.worse is None else f"{cell(pair.better)} over {cell(pair.worse)}",
        pair.verdict.replace("_", " "),
        scale.width(pair.difference),
        number(pair.z),
        number(pair.boundary),
        count(math.ceil(pair.trials_needed)) if open_ and pair.trials_needed is not None else "",
        scale.width(pair.certifiable_delta) if open_ else "",
    ]


def _other(name: str | None) -> str:
    return "the reference" if name is None else cell(name)


def _warnings(results: Results) -> Iterator[str]:
    if results.warnings:
        yield "## Warnings"
        lines = ((one.model, one.text) for one in results.warnings)
        yield "\n".join(f"- {'' if model is None else cell(model) + ': '}{cell(text, 1000)}" for model, text in lines)


def _fixed_cost(cost: Cost) -> Iterator[str]:
    """What it would have been, as far as trials cost anything."""
    yield f"{count(cost.fixed_trials)} trials"
    if cost.fixed_tokens:
        yield f"about {count(cost.fixed_tokens)} tokens"
    if cost.fixed_usd:
        yield f"about {amount(cost.fixed_usd, [cost.fixed_usd])} USD"
    if cost.fixed_gpu_seconds:
        hours = cost.fixed_gpu_seconds / SECONDS_AN_HOUR
        yield f"about {amount(hours, [hours])} GPU hours"


def _cost(view: RunView, results: Results) -> str:
    retries: dict[str, int] = {}
    for one in view.traffic:
        retries[one.model] = retries.get(one.model, 0) + one.retries
    cost = results.cost
    usd = partial(amount, among=[row.usd for row in results.models])
    hours = partial(amount, among=[row.gpu_seconds / SECONDS_AN_HOUR for row in results.models])
    rows = [_cost_row(row, retries.get(row.name, 0), usd, hours) for row in results.models]
    total = ["**all**", count(cost.trials), _some(cost.tokens, count), _some(cost.usd, usd)]
    rows.append([*total, _some(cost.gpu_seconds / SECONDS_AN_HOUR, hours), "", "", count(sum(retries.values()))])
    head = ["model", "trials", "tokens", "USD", "GPU hours", "truncated", "no grade", "retries"]
    fixed = ", ".join(_fixed_cost(cost))
    told = f"A fixed design of the same horizon: {fixed}. Active for {duration(view.elapsed)}."
    return f"{table(*telling(head, rows))}\n\n{told}"


def _cost_row(row: ModelRow, retries: int, usd: Callable[[float], str], hours: Callable[[float], str]) -> list[str]:
    share = row.signals.get("truncated", 0) / row.stored_trials if row.stored_trials else 0.0
    return [
        cell(row.name),
        count(row.stored_trials),
        _some(row.tokens, count),
        _some(row.usd, usd),
        _some(row.gpu_seconds / SECONDS_AN_HOUR, hours),
        f"{share:.1%}",
        count(row.ungraded),
        count(retries),
    ]


def _some(value: float, shown: Callable[[float], str]) -> str:
    """A cost; a dash where there was none, so that a column of nothing else is left out."""
    return shown(value) if value else "-"


# -- how it was found ------------------------------------------------------------------------------------------------


def _how(view: RunView) -> Iterator[str]:
    words = view.words
    yield "## How"
    said = [words.objective, words.rule, words.promise, words.allocation, words.prior, words.seeds]
    yield "\n".join(f"- {sentence}" for sentence in (*said, _depth(view)))
    yield f"Looks: {len(view.looks)}."
    rubric = ([cell(name), f"{weight:g}"] for name, weight in zip(view.categories, view.weights, strict=True))
    yield table(["category", "weight"], rubric)


def _depth(view: RunView) -> str:
    """D, the outcomes of each question that were known beforehand."""
    models = () if view.results is None else view.results.models
    depths = [f"{cell(row.name)} {row.prior_depth:.3g}" for row in models if row.prior_depth]
    if not depths:
        return "Outcomes that were known beforehand (R0): none, D = 0."
    return f"Outcomes of an earlier run count as trials (R0), D of each question: {', '.join(depths)}."


# -- how to repeat it ------------------------------------------------------------------------------------------------


def _repeat(view: RunView) -> Iterator[str]:
    again = repeatable(view)
    yield "## To repeat it"
    yield _sampling(again.models)
    yield "What is empty was not sent: the server's default held."
    yield (
        f"{len(view.questions)} questions, SHA-256 of ids, prompts and answers `{again.digest}`. This report was "
        f"written by adaptive-eval {__version__}, Python {platform.python_version()}, numpy {np.__version__}, scipy "
        f"{scipy.__version__}. The configuration, but for what is left at the defaults of adaptive-eval "
        f"{again.version}:"
    )
    text = yaml.safe_dump(again.configuration, sort_keys=False, allow_unicode=False, width=100)
    yield fenced(text, "yaml")
    if again.events:
        yield "What happened:"
        yield "\n".join(starmap(_event, again.events[-SHOWN_EVENTS:]))


def _sampling(models: Sequence[Mapping[str, object]]) -> str:
    rows = ([cell("" if one[key] is None else str(one[key])) for key in SAMPLED] for one in models)
    return table([key.replace("_", " ") for key in SAMPLED], rows, left=2)


def _event(at: str, text: str) -> str:
    return f"- {at} {cell(text, 500)}"
