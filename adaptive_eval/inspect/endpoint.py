"""A model asked by Inspect: each trial is a sample, whose answer comes with its score."""

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any, NamedTuple

from adaptive_eval.base.errors import ConfigError, Rejected, RetryNotAllowed, Unavailable
from adaptive_eval.endpoints.answers import NO_USAGE, text_signals
from adaptive_eval.endpoints.traffic import FIRST_ATTEMPTS, FirstAnswers, Traffic
from adaptive_eval.endpoints.types import Answer, EndpointStats, Message, Notice, Prompt, RetryGate, Signal
from adaptive_eval.graders.types import INSPECT_LETTERS, NEEDS_RUBRIC, Marks, SampleAnswer
from adaptive_eval.inspect.process import InspectProcess
from adaptive_eval.inspect.types import SampleRequest
from adaptive_eval.questions.benchmark import INSPECT_LOGS, BenchmarkConfig, sample_name
from adaptive_eval.questions.load import benchmark_named

CONTEXT: Signal = "context_length"
FINISH_REASONS = {"stop": "stop", "max_tokens": "length", "model_length": CONTEXT, "content_filter": "content_filter"}
"""Our finish reasons by Inspect's stop reasons."""
UNSCORED = "its scorer gave it no score"
NO_OUTPUT: Mapping[str, Any] = {"text": "", "reasoning": "", "used_tools": False, "stop": None, "limit": None}
"""The output of a lost sample."""
MAX_ANSWER_CHARACTERS = 1000
"""Stored characters of an extracted answer; Inspect's log has all of it."""


class _TriedSample(NamedTuple):
    """A sample after its attempts."""

    answer: Answer | None
    attempts: int
    error: str = ""
    """The last one."""
    is_refused: bool = False
    """Whether the provider refused the last attempt."""


class InspectEndpoint:
    """One model of a run with a task of Inspect; it also asks the questions of other benchmarks."""

    def __init__(
        self,
        number: int,
        process: InspectProcess,
        asked_as: str,
        tasks: Mapping[str, BenchmarkConfig | None],
        attempts: int,
        *,
        only_right_and_wrong: bool,
        counts_usd: bool,
        has_answered: bool = False,
    ) -> None:
        """`asked_as`: the model's name in Inspect. `tasks`: those of the process. `counts_usd`: a cap on USD needs the
        price of every model. `has_answered`: the model answered at an earlier start."""
        self._number, self._process, self._asked_as, self._tasks = number, process, asked_as, tasks
        self._attempts = attempts
        self._only_right_and_wrong, self._counts_usd = only_right_and_wrong, counts_usd
        self._traffic = Traffic(has_answered=has_answered)
        self._progress = {name: FirstAnswers(self._traffic) for name in tasks}
        self._notices: tuple[Notice, ...] = ()
        process.on_repeat[number] = partial(self._count_failure, "request_error")

    async def answer(self, prompt: Prompt, trial: int, seed: int, again: RetryGate | None) -> Answer:
        """Run the sample of a trial.

        If all attempts fail, it gets no answer if other samples of its benchmark have one; else the model is
        unavailable.
        """
        question = prompt.question or ""
        benchmark = "" if "" in self._tasks else benchmark_named(question)
        progress = self._progress[benchmark]
        with progress.trial():
            tried = await self._try_sample(benchmark, prompt, trial, seed, again)
        if tried.answer is not None:
            progress.answered = True
            return tried.answer
        progress.refused += tried.is_refused
        times = "once" if tried.attempts == 1 else f"{tried.attempts} times"
        why = f"sample {question}#{trial} failed {times}; the last error: {tried.error}"
        if await progress.is_any_answered():
            flags: frozenset[Signal] = frozenset({"unanswered"})
            return Answer("", why, seed, INSPECT_LOGS, 0.0, attempts=tried.attempts, signals=flags)
        if tried.is_refused and progress.refused == progress.failed:
            raise Rejected(f"its provider refuses requests: {tried.error}{self._hint(tried.error)}")
        raise Unavailable(f"no sample{f' of benchmark {benchmark}' if benchmark else ''} is answered: {why}")

    async def _try_sample(
        self, benchmark: str, prompt: Prompt, trial: int, seed: int, again: RetryGate | None
    ) -> _TriedSample:
        """Run a sample with a limited number of attempts."""
        question, task, sent = prompt.question or "", self._tasks[benchmark], list[dict[str, str]]()
        if task is None:
            sent = [asdict(message) for message in prompt.messages or (Message("user", prompt.text or ""),)]
        for attempt in range(1, self._attempts + 1):
            request = SampleRequest(
                benchmark=benchmark,
                model=self._number,
                sample=question[len(benchmark) + 1 :] if benchmark else question,
                prompt=sent,
                id=sample_name(question, trial, attempt),
                seed=seed,
            )
            if attempt > 1 and again is not None and not await again():
                raise RetryNotAllowed("a sample was lost, and the budget does not allow a retry")
            self._traffic.requests += 1
            result = await self._process.run(request)
            if (answer := self._parse(task, result, seed, attempt)) is not None:
                return _TriedSample(answer, attempt)
            error, is_refused = self._traffic.last_error, bool(result.get("refused"))
            is_paid = not is_refused and self._count_lost(task, result, seed, attempt)
            is_first = not self._progress[benchmark].is_known_to_answer
            if is_first and (is_refused or (is_paid and attempt >= FIRST_ATTEMPTS)):
                break
        return _TriedSample(None, attempt, error, is_refused)

    def _count_lost(self, task: BenchmarkConfig | None, result: Mapping[str, Any], seed: int, attempt: int) -> bool:
        """Count a lost sample; returns whether its usage is known."""
        self._traffic.lost += 1
        is_known = bool(result.get("is_known", "error" not in result))
        if is_known:
            self._traffic.in_vain.append(self._build_answer(task, {**result, **NO_OUTPUT}, seed, attempt))
        return is_known

    def _hint(self, error: str) -> str:
        """A hint for servers that lack the API that Inspect's provider `openai` uses."""
        name = self._asked_as.removeprefix("openai/")
        if name == self._asked_as or "404" not in error:
            return ""
        return (
            "\n  Inspect's provider `openai` asks /v1/responses. For a server with only /v1/chat/completions, set "
            f"`args: {{responses_api: false}}`, or name the model openai-api/SERVICE/{name}"
        )

    def _count_failure(self, kind: str, error: str) -> None:
        self._traffic.retries += 1
        self._traffic.on_failure(kind, error[:1000])

    def _parse(self, task: BenchmarkConfig | None, result: Mapping[str, Any], seed: int, attempt: int) -> Answer | None:
        """Convert the result of a sample to an answer; None if it failed."""
        marks, is_lost = None, "error" in result
        try:
            if task is not None and not is_lost:
                right_and_wrong = self._only_right_and_wrong
                marks = marks_from_scores(result["scores"], task.scorer, only_right_and_wrong=right_and_wrong)
                is_lost = marks is None
        except ConfigError:
            self._count_lost(task, result, seed, attempt)
            raise
        if is_lost:
            self._count_failure("sample_error" if "error" in result else "unscored", str(result.get("error", UNSCORED)))
            return None
        answer = self._build_answer(task, result, seed, attempt)
        self._notices = (NO_USAGE,) if result["no_usage"] else self._notices
        self._traffic.prompt_tokens += answer.prompt_tokens
        self._traffic.completion_tokens += answer.completion_tokens
        return replace(answer, marks=marks) if isinstance(answer, SampleAnswer) else answer

    def _build_answer(self, task: BenchmarkConfig | None, result: Mapping[str, Any], seed: int, attempt: int) -> Answer:
        """The answer of a sample, with the usage of all its models."""
        own = tuple(result["own"])
        others = [tuple(usage[:-1]) for usage in result["others"].values()]
        tokens_read, tokens_written, cached_tokens = map(sum, zip(own, *others, strict=True))
        finish = FINISH_REASONS.get(result["stop"] or "", "stop") if result["limit"] is None else "length"
        signals = text_signals(result["text"], finish, result["reasoning"], used_tools=result["used_tools"])
        answer: dict[str, Any] = dict(
            text=result["text"],
            finish_reason=finish,
            seed=seed,
            replica=f"{INSPECT_LOGS}/{result['log']}",
            latency=float(result["seconds"]),
            prompt_tokens=tokens_read,
            completion_tokens=tokens_written,
            cached_tokens=cached_tokens,
            attempts=attempt,
            signals=frozenset({CONTEXT}) if finish == CONTEXT else signals,
        )
        if task is None:
            return Answer(**answer)
        usd = self._usd_of_others(task, result["others"])
        return SampleAnswer(**answer, own_tokens=own, usd_of_others=usd)

    def _usd_of_others(self, task: BenchmarkConfig, others: Mapping[str, Any]) -> float:
        """Cost of the other models of a sample, by configured prices or else by Inspect's."""
        total = 0.0
        for name, (*tokens, reported_usd) in others.items():
            price = task.prices.get(name)
            if price is None and reported_usd is None and self._counts_usd:
                raise ConfigError(
                    f"budget.usd: a sample called {name}, whose price is unknown; add it to benchmark.prices"
                )
            total += price.usd(*tokens) if price is not None else reported_usd or 0.0
        return total

    @property
    def stats(self) -> EndpointStats:
        """Traffic of the samples so far."""
        return replace(self._traffic.stats(), notices=self._notices)


def marks_from_scores(scores: Mapping[str, Any], scorer: str | None, *, only_right_and_wrong: bool) -> Marks | None:
    """Signals of a sample; None if its scorer gave no score (nan).

    Raises `ConfigError` if the score is not a number, or with `only_right_and_wrong` neither 0 nor 1.
    """
    name, value, answer = _chosen_score(scores, scorer)
    number = _score_number(value, name)
    if math.isnan(number):
        return None
    if only_right_and_wrong and number not in (0.0, 1.0):
        raise ConfigError(f"scorer {name} gave {value!r}, {NEEDS_RUBRIC}")
    signals = {"score": number, "is_correct": number == 1.0, "has_answer": value != "N"}
    return Marks(signals, answer if answer is None else str(answer)[:MAX_ANSWER_CHARACTERS])


def _chosen_score(scores: Mapping[str, Any], scorer: str | None) -> tuple[str, Any, Any]:
    """Name, value and answer of the chosen score."""
    name = scorer if scorer is not None else next(iter(scores), "")
    if name in scores:
        return name, scores[name]["value"], scores[name]["answer"]
    name, _, key = name.partition(".")
    values = scores[name]["value"] if name in scores else None
    if not isinstance(values, Mapping) or key not in values:
        names = ", ".join(values) if isinstance(values, Mapping) else ", ".join(scores) or "no score"
        raise ConfigError(f"benchmark.scorer: a sample has no score {scorer or name}; it has {names}")
    return f"{name}.{key}", values[key], scores[name]["answer"]


def _score_number(value: object, scorer: str) -> float:
    if isinstance(value, str) and value in INSPECT_LETTERS:
        return INSPECT_LETTERS[value]
    if isinstance(value, bool | int | float):
        return float(value)
    if isinstance(value, Mapping):
        raise ConfigError(
            f"scorer {scorer} gives several values ({', '.join(map(str, value))}); choose one, as in "
            f"--set benchmark.scorer={scorer}.{next(iter(value), 'KEY')}"
        )
    raise ConfigError(
        f"scorer {scorer} gave {value!r:.80}, but a score must be a number, true or false, or C, P, I or N; "
        "choose another scorer as benchmark.scorer"
    )
