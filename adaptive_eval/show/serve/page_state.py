"""A run as its page shows it: the view as JSON, and the progress since.

Progress has totals, and says when there is a newer view. Both are built when they are fetched, so a page that nobody
watches costs nothing. Reading takes at most `MAX_READ_SHARE` of the time: of a large run, or on a busy machine, it
takes longer and is done less often. For use by one thread at a time.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, is_dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from adaptive_eval.config.planning import core_caps
from adaptive_eval.config.prepare import StoredSetup
from adaptive_eval.endpoints.types import AnswerLogprobs
from adaptive_eval.graders.rubric import open_rubric
from adaptive_eval.report.question_rows import as_json
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.records import Spending, TrialRecord
from adaptive_eval.report.status import Cap, used_caps
from adaptive_eval.show.page.sent import page_view
from adaptive_eval.show.serve.feed import Feed
from adaptive_eval.show.text import Rates
from adaptive_eval.store.packing import valid_text


def to_json(value: object) -> bytes:
    """Serialize a value to JSON in UTF-8; lone surrogates, which UTF-8 does not have, become question marks."""
    try:
        return orjson.dumps(value, default=as_json)
    except TypeError:
        plain = asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
        return orjson.dumps(_replace_surrogates(plain), default=as_json)


def _replace_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return valid_text(value)
    if isinstance(value, Mapping):
        return {valid_text(str(key)): _replace_surrogates(item) for key, item in value.items()}
    return [_replace_surrogates(item) for item in value] if isinstance(value, list | tuple) else value


MAX_TRIALS = 20
MAX_TOKENS, MAX_TOKEN_CHARACTERS = 500, 64
"""Tokens of an answer shown with log-probabilities, and characters of each; exports have all."""
MAX_CHARACTERS = 1_000_000
"""Limit for all texts of a page together. The first answer is always included, with each of its two texts cut here."""


@dataclass(frozen=True, slots=True)
class TrialView:
    """One answer as the page shows it."""

    trial: int
    seed: int
    category: int | None
    """None: the grader failed."""
    value: float | None
    signals: Mapping[str, object]
    extracted: str | None
    grader_error: str | None
    finish_reason: str | None
    completion_tokens: int
    latency: float
    replica: str
    attempts: int
    text: str
    reasoning: str | None
    completion_bpt: float | None
    tokens: Sequence[tuple[str, float | None]]
    """Its first tokens with their log-probabilities, if these are stored."""


@dataclass(frozen=True, slots=True)
class AnswersPage:
    """A page of answers."""

    trials: tuple[TrialView, ...]
    more: bool


def answers_page(directory: Path, stored: StoredSetup, question: int, model: int, after: int) -> AnswersPage:
    """Read a page of trials after number `after`, and whether there are more."""
    cell = stored.config.models[model].name, stored.questions[question].id
    weights = open_rubric(stored.config.rubric).weights
    trials: list[TrialView] = []
    characters, more = 0, False
    with closing(RunReader.open(directory)) as reader:
        for record in reader.cell(*cell, after):
            characters += len(record.answer.text) + len(record.answer.reasoning or "")
            if trials and (len(trials) == MAX_TRIALS or characters > MAX_CHARACTERS):
                more = True
                break
            trials.append(_trial_view(record, weights))
    return AnswersPage(tuple(trials), more)


def _trial_view(record: TrialRecord, weights: tuple[float, ...]) -> TrialView:
    answer = record.answer
    return TrialView(
        trial=record.trial,
        seed=answer.seed,
        category=record.category,
        value=None if record.category is None else weights[record.category],
        signals={**{str(signal): True for signal in sorted(answer.signals)}, **record.signals},
        extracted=record.extracted,
        grader_error=record.grader_error,
        finish_reason=answer.finish_reason,
        completion_tokens=answer.completion_tokens,
        latency=answer.latency,
        replica=answer.replica,
        attempts=answer.attempts,
        text=_truncate(answer.text),
        reasoning=None if answer.reasoning is None else _truncate(answer.reasoning),
        completion_bpt=answer.completion_bpt,
        tokens=_tokens(answer.token_logprobs),
    )


def _tokens(logprobs: AnswerLogprobs | None) -> Sequence[tuple[str, float | None]]:
    if logprobs is None:
        return ()
    return [(token[:MAX_TOKEN_CHARACTERS], value) for token, value in islice(zip(*logprobs, strict=True), MAX_TOKENS)]


def _truncate(text: str) -> str:
    missing = len(text) - MAX_CHARACTERS
    return text if missing <= 0 else f"{text[:MAX_CHARACTERS]}\n[{missing:,} more characters are stored]"


MIN_STEP_SECONDS = 1.0
"""Shortest time between two readings for progress."""
MAX_READ_SHARE = 0.03


@dataclass(frozen=True, slots=True)
class RunProgress:
    """Totals now."""

    edition: str
    """A new value means that the view should be fetched again."""
    running: bool
    per_second: float
    elapsed: float
    spending: Spending
    caps: tuple[Cap, ...]
    eta_seconds: float | None


class PageState:
    """The latest view of one run, and its progress."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._rates = Rates()
        self._begun = time.time_ns()
        self._published: tuple[bytes, str] | None = None
        self._latest: RunProgress | None = None
        self._next_step = self._next_view = 0.0

    def view(self) -> tuple[bytes, str]:
        """The current view as JSON, and its ETag."""
        self._feed.poll()
        edition = self._edition
        if self._published is None or self._published[1] != edition:
            began = time.monotonic()
            self._published = to_json(page_view(self._feed.view())), edition
            self._next_view = began + (time.monotonic() - began) / MAX_READ_SHARE
        return self._published

    @property
    def _edition(self) -> str:
        """Changes with each look, event, answer and grade; while a run goes on, not before another view is due."""
        if self._published is not None and self._feed.running and time.monotonic() < self._next_view:
            return self._published[1]
        used = self._feed.used
        return f'"{self._begun:x}-{self._feed.edition}-{used.spent.trials}-{used.ungraded}"'

    def answers(self, question: int, model: int, after: int) -> bytes | None:
        """A page of one model's answers to one question; None if there is no such question or model."""
        self._feed.poll()
        if not (0 <= question < len(self._feed.stored.questions) and 0 <= model < len(self._feed.models)):
            return None
        return to_json(answers_page(self._feed.directory, self._feed.stored, question, model, after))

    def progress(self) -> bytes:
        """The progress as JSON."""
        if self._latest is None or time.monotonic() >= self._next_step:
            began = time.monotonic()
            self._feed.poll()
            self._latest = self._take_step(self._latest)
            self._next_step = began + max(MIN_STEP_SECONDS, (time.monotonic() - began) / MAX_READ_SHARE)
        return to_json(self._latest)

    def _take_step(self, before: RunProgress | None) -> RunProgress:
        feed, elapsed, spent = self._feed, self._feed.sums.elapsed, self._feed.used.spent
        if before is None or spent != before.spending:
            self._rates.add(elapsed, spent.trials, spent.tokens)
        to_go = None if feed.results is None else feed.results.trials_to_go
        return RunProgress(
            edition=self._edition,
            running=feed.running,
            per_second=self._rates.trials,
            elapsed=elapsed,
            spending=spent,
            caps=used_caps(core_caps(feed.stored.config.budget), feed.used, elapsed),
            eta_seconds=self._rates.eta(to_go) if feed.running else None,
        )
