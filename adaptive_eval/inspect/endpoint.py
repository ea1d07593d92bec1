"""A model that Inspect asks: each trial is one sample, whose score comes with its answer."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from adaptive_eval.endpoints.failures import signals_of_finish
from adaptive_eval.endpoints.traffic import Traffic
from adaptive_eval.endpoints.types import Again, Answer, EndpointStats, Health, Message, Prompt, Signal
from adaptive_eval.errors import ConfigError, NotAskedAgain, Unavailable
from adaptive_eval.graders.types import SampleAnswer
from adaptive_eval.inspect.process import InspectProcess
from adaptive_eval.inspect.scores import marks_of
from adaptive_eval.inspect.types import SampleRequest
from adaptive_eval.questions.benchmark import INSPECT_LOGS, BenchmarkConfig, sample_name
from adaptive_eval.questions.load import benchmark_named
from adaptive_eval.seeds import SEED_SPAN

CONTEXT: Signal = "context_length"
STOPS = {"stop": "stop", "max_tokens": "length", "model_length": CONTEXT, "content_filter": "content_filter"}
"""Inspect's stop reasons in this project's words."""
ENOUGH_FAIL = 8
"""Where so many samples of a benchmark fail always and none was answered, the others are not waited for."""
UNSCORED = "its scorer gave it no score"


@dataclass
class _Progress:
    """Samples of one benchmark since this start."""

    running: int = 0
    failed: int = 0
    """Those that failed always."""
    answered: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set whenever a sample is over."""

    async def others_are_answered(self, *, before: bool) -> bool:
        """Whether some sample is answered, as soon as one is or those that are left fail always, too.

        Where the model was answered `before` this start, a few may fail with no others beside them.
        """
        self.failed += 1
        self.changed.set()
        while not self.answered and self.running and self.failed < ENOUGH_FAIL:
            self.changed.clear()
            await self.changed.wait()
        return self.answered or (before and self.failed < ENOUGH_FAIL)


class InspectEndpoint:
    """One model of a run that has a task of Inspect, which asks the questions of other benchmarks, too."""

    def __init__(
        self,
        number: int,
        process: InspectProcess,
        tasks: Mapping[str, BenchmarkConfig | None],
        seed_base: Callable[[str], int],
        attempts: int,
        *,
        only_right_and_wrong: bool,
        counts_usd: bool,
        has_answered: bool = False,
    ) -> None:
        """`tasks` are those of the process; `seed_base` is the seed of a question's trial 0; `counts_usd`: a cap on USD
        needs every model's price; `has_answered`: the model did so at an earlier start."""
        self._number, self._process, self._tasks = number, process, tasks
        self._seed_base, self._attempts = seed_base, attempts
        self._only_right_and_wrong, self._counts_usd = only_right_and_wrong, counts_usd
        self._traffic, self._has_answered = Traffic(), has_answered
        self._progress = {name: _Progress() for name in tasks}
        process.on_repeat[number] = partial(self._count_failure, "request_error")

    async def sample(self, prompt: Prompt, seeds: range, again: Again | None = None) -> list[Answer]:
        """One sample for each seed."""
        return list(await asyncio.gather(*(self._answer(prompt, seed, again) for seed in seeds)))

    async def _answer(self, prompt: Prompt, seed: int, again: Again | None) -> Answer:
        """Run a sample. One that fails always has no answer where others of its benchmark are answered; else the model
        has none."""
        question = prompt.question or ""
        benchmark = "" if "" in self._tasks else benchmark_named(question)
        progress, trial = self._progress[benchmark], (seed - self._seed_base(question)) % SEED_SPAN
        progress.running += 1
        self._traffic.in_flight += 1
        try:
            answer = await self._attempted(benchmark, prompt, trial, seed, again)
        finally:
            progress.running -= 1
            self._traffic.in_flight -= 1
            progress.changed.set()
        if answer is not None:
            progress.answered = True
            return answer
        last = self._traffic.last_error
        why = f"sample {question}#{trial} ended in an error {self._attempts} times; the last one: {last}"
        if await progress.others_are_answered(before=self._has_answered):
            flags: frozenset[Signal] = frozenset({"unanswered"})
            return Answer("", why, seed, INSPECT_LOGS, 0.0, attempts=self._attempts, signals=flags)
        raise Unavailable(f"no sample{f' of benchmark {benchmark}' if benchmark else ''} is answered: {why}")

    async def _attempted(
        self, benchmark: str, prompt: Prompt, trial: int, seed: int, again: Again | None
    ) -> Answer | None:
        """The answer of a sample; one that ends in an error is lost, and run again at most so often."""
        question, task, sent = prompt.question or "", self._tasks[benchmark], list[dict[str, str]]()
        if task is None:
            sent = [asdict(one) for one in prompt.messages or (Message("user", prompt.text or ""),)]
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
                raise NotAskedAgain("a sample was lost, and the budget does not allow running it again")
            self._traffic.requests += 1
            told = await self._process.run(request)
            if (answer := self._read(task, told, seed, attempt)) is not None:
                return answer
            self._traffic.lost += 1
        return None

    def _count_failure(self, kind: str, error: str) -> None:
        self._traffic.retries += 1
        self._traffic.errors[kind] += 1
        self._traffic.last_error = error[:1000]

    def _read(self, task: BenchmarkConfig | None, told: Mapping[str, Any], seed: int, attempt: int) -> Answer | None:
        """The answer of a sample; None where it has none."""
        marks, lost = None, "error" in told
        if task is not None and not lost:
            right_and_wrong = self._only_right_and_wrong
            marks = marks_of(told["scores"], task.scorer, only_right_and_wrong=right_and_wrong)
            lost = marks is None
        if lost:
            self._count_failure("sample_error" if "error" in told else "unscored", str(told.get("error", UNSCORED)))
            return None
        read, written = told["own"]
        others = [tuple(one[:2]) for one in told["others"].values()]
        prompt, completion = read + sum(one[0] for one in others), written + sum(one[1] for one in others)
        self._traffic.prompt_tokens += prompt
        self._traffic.completion_tokens += completion
        finish = STOPS.get(told["stop"] or "", "stop") if told["limit"] is None else "length"
        answer: dict[str, Any] = dict(
            text=told["text"],
            finish_reason=finish,
            seed=seed,
            replica=f"{INSPECT_LOGS}/{told['log']}",
            latency=float(told["seconds"]),
            prompt_tokens=prompt,
            completion_tokens=completion,
            attempts=attempt,
            signals=frozenset({CONTEXT} if finish == CONTEXT else signals_of_finish(finish)),
        )
        if task is None:
            return Answer(**answer)
        usd = self._usd(task, told["others"])
        return SampleAnswer(**answer, marks=marks, own=(read, written), usd_of_others=usd)

    def _usd(self, task: BenchmarkConfig, others: Mapping[str, Any]) -> float:
        """What other models of a sample cost: by their prices here, else as Inspect knows it."""
        total = 0.0
        for name, (read, written, known) in others.items():
            price = task.prices.get(name)
            if price is None and known is None and self._counts_usd:
                raise ConfigError(
                    f"budget.usd: a sample called {name}, whose price is not known; add it under benchmark.prices"
                )
            total += price.usd(read, written) if price is not None else known or 0.0
        return total

    async def check(self) -> Health:
        """Nothing can be said before a sample is run: Inspect reaches the models."""
        return Health(())

    async def close(self) -> None:
        """The process of all models is closed by itself."""

    @property
    def stats(self) -> EndpointStats:
        """The samples so far."""
        return self._traffic.stats()
