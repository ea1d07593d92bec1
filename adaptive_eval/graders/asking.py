"""Grading by requests to the servers of judges and verifiers; a verifier's first one has no content, for the baseline.

If there is no reply (the server is down, or refuses the request), or the replies do not decide, that is a grader error:
the answer is stored without a grade, and the next start of the run retries.

The first request shows whether a server can enforce the format of replies. If it refuses `response_format` but replies
without, later requests omit it, and a notice says so. A refusal costs nothing.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property, partial, reduce
from itertools import chain
from pathlib import Path

from adaptive_eval.base.errors import ConfigError, EndpointError, GraderError, JudgeFailed, Unavailable
from adaptive_eval.base.seeds import SEED_SPAN
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.endpoints import settings
from adaptive_eval.endpoints.endpoint import open_endpoint
from adaptive_eval.endpoints.failures import OPTION_REFUSAL_STATUSES, Refusal
from adaptive_eval.endpoints.types import Answer, Endpoint, EndpointStats, Limits, Notice, RetryGate, summed_stats
from adaptive_eval.graders.asked import AskedGrader, GraderReply, Vote, usage_signals
from adaptive_eval.graders.by_benchmark import graders_that_ask
from adaptive_eval.graders.pool import Grading, GradingPool, make_grade
from adaptive_eval.graders.rubric import Rubric
from adaptive_eval.graders.transcript import Transcript, visible
from adaptive_eval.graders.types import Grade, GraderOptions, Marks, SignalValue
from adaptive_eval.graders.verifier import LABELS, TOP_TOKENS, LabelScores, Verifier, label_scores
from adaptive_eval.questions.load import benchmark_named
from adaptive_eval.questions.types import Question

UNSTRUCTURED = "the judge's server refuses response_format, so the replies of {} are read line by line ({})"
Transcripts = Callable[[bool], Sequence[Transcript]]
"""Returns the transcripts for one vote, given whether the server enforces the format of the reply."""


class GraderClient:
    """Sends the requests of a grader to one of its servers."""

    def __init__(
        self, grader: AskedGrader, notices: list[Notice], limits: Limits, *, folder: Path, keys: Mapping[str, str]
    ) -> None:
        """`grader` has this server only; `notices` is extended; `limits` are the run's."""
        self.grader = grader
        self.at_once = grader.concurrency.in_flight * len(grader.host.replicas)
        self._slots = asyncio.Semaphore(self.at_once)
        self._limits = limits.with_limits(grader.concurrency)
        self._open = partial(open_endpoint, grader.host, keys=keys, folder=folder)
        self._endpoints: dict[bool, Endpoint] = {}
        """Endpoints, keyed by whether the server enforces the format of replies."""
        self._structured = grader.may_be_structured
        self._notices, self._counted_lost = notices, 0

    @property
    def stats(self) -> EndpointStats:
        """The traffic so far."""
        return summed_stats([endpoint.stats for endpoint in self._endpoints.values()])

    async def votes(self, transcripts: Transcripts, first_seed: int, retry_gate: RetryGate | None) -> Sequence[Vote]:
        """Request all votes on an answer, each with its own seed."""
        seeds = range(first_seed, first_seed + self.grader.votes)
        orders = range(len(self.grader.form.answers))
        votes = ([self._reply(transcripts, order, seed, retry_gate) for order in orders] for seed in seeds)
        return await asyncio.gather(*(asyncio.gather(*replies) for replies in votes))

    async def request(self, sent: Transcript, retry_gate: RetryGate | None) -> GraderReply:
        """Request one reply, whose format is not enforced."""
        return await self._reply(lambda structured: (sent,), 0, 0, retry_gate)

    async def close(self) -> None:
        """Close all connections."""
        await asyncio.gather(*(endpoint.close() for endpoint in self._endpoints.values()))

    async def _reply(
        self, transcripts: Transcripts, order: int, seed: int, retry_gate: RetryGate | None
    ) -> GraderReply:
        async with self._slots:
            structured = self._structured
            reply = await self._sample(transcripts(structured)[order], seed, retry_gate, structured=structured)
            if structured and reply.refused:
                refusal = reply.error
                reply = await self._sample(transcripts(False)[order], seed, retry_gate, structured=False)
                if reply.answer is not None and self._structured:
                    self._structured = False
                    notice = UNSTRUCTURED.format(self.grader.host.model, refusal)
                    self._notices.append(Notice("judge_unstructured", notice))
            return reply

    async def _sample(
        self, sent: Transcript, seed: int, retry_gate: RetryGate | None, *, structured: bool
    ) -> GraderReply:
        seed %= SEED_SPAN
        may_retry = None if retry_gate is None else partial(self._may_retry, retry_gate)
        reply, kind = GraderReply(sent, structured), self.grader.kind
        try:
            (answer,) = await self._endpoint(structured=structured).sample(
                sent.prompt, range(seed, seed + 1), may_retry
            )
        except EndpointError as error:
            refused = isinstance(error, Refusal) and error.status in OPTION_REFUSAL_STATUSES
            failure = f"the {kind} did not reply: {error}"
            return reply._replace(error=failure, lost=self._has_lost_reply(), refused=refused)
        if "unanswered" in answer.signals:
            failure = f"the {kind} fails on this request every time: {answer.finish_reason}"
            return reply._replace(error=failure, lost=self._has_lost_reply())
        return reply._replace(answer=answer, lost="timed_out" in answer.signals and self._has_lost_reply())

    async def _may_retry(self, retry_gate: RetryGate) -> bool:
        return not self._has_lost_reply() or await retry_gate()

    def _has_lost_reply(self) -> bool:
        """Whether a reply was lost that no retry has counted yet."""
        lost = sum(endpoint.stats.lost for endpoint in self._endpoints.values()) > self._counted_lost
        self._counted_lost += lost
        return lost

    def _endpoint(self, *, structured: bool) -> Endpoint:
        """The endpoint for this format of replies, opened on first use."""
        if structured not in self._endpoints:
            sampling = self.grader.reply_sampling(structured=structured)
            self._endpoints[structured] = self._open(sampling, self._limits)
        return self._endpoints[structured]


class AskingPool(Grading):
    """Grades answers by the judges of a run, and with several benchmarks also by graders without a server."""

    lasting = True

    def __init__(
        self,
        grader: GraderOptions,
        rubric: Rubric,
        *,
        folder: Path,
        keys: Mapping[str, str],
        limits: Limits = Limits(),  # noqa: B008 - a value
        lost: Cost = NO_COST,
        others: GradingPool | None = None,
    ) -> None:
        """`limits` are the run's, with its retries; `lost` bounds the cost of grading an answer.

        `others` grades without requests, and is closed with this.
        """
        self.rubric, self.lost, self.others = rubric, lost, others
        self._notices: list[Notice] = []
        self._graders = graders_that_ask(grader)
        self._clients = {
            name: [GraderClient(seat, self._notices, limits, folder=folder, keys=keys) for seat in asked.seats]
            for name, asked in self._graders.items()
        }
        self.at_once = sum(client.at_once for client in chain.from_iterable(self._clients.values()))

    @property
    def notices(self) -> Sequence[Notice]:
        return self._notices

    @property
    def stats(self) -> Mapping[str, EndpointStats]:
        return {
            _judge_name(benchmark, number, client, len(clients)): client.stats
            for benchmark, clients in self._clients.items()
            for number, client in enumerate(clients, 1)
        }

    async def close(self) -> None:
        for client in chain.from_iterable(self._clients.values()):
            await client.close()
        if self.others is not None:
            await self.others.close()

    def _name(self, question: Question) -> str:
        """The name of the grader of a question: its benchmark if there are several."""
        return "" if "" in self._graders else benchmark_named(question.id)

    def asks(self, question: Question) -> bool:
        return self._name(question) in self._graders

    def lost_with(self, answer: str, question: Question) -> Cost:
        if (grader := self._graders.get(self._name(question))) is None:
            return NO_COST
        worst = grader.worst_cost((question,), len(visible(answer).encode()))
        return worst if worst.tokens < self.lost.tokens else self.lost

    def lost_vote(self, lost: Cost) -> Cost:
        costs = [_lost_reply(grader, lost) for grader in self._graders.values()]
        return Cost(*(max(values) for values in zip(*costs, strict=True)))

    async def grade(self, answer: Answer, question: Question, retry_gate: RetryGate | None = None) -> Grade:
        """Grade an answer; raises `JudgeFailed` with the reason and the cost if there is no grade.

        `retry_gate` is called before a lost reply is requested again, and counts its cost. The cost of a lost reply
        that is not retried is included here.
        """
        if not self.asks(question) and self.others is not None:
            return await self.others.grade(answer, question)
        marks, cost = await self.ask(answer, question, retry_gate)
        return make_grade(answer, marks, self.rubric, question.id)._replace(cost=cost)

    async def ask(self, answer: Answer, question: Question, retry_gate: RetryGate | None) -> tuple[Marks, Cost]:
        """The marks and the cost of an answer, by requests if it needs any."""
        name = self._name(question)
        grader, clients, replies = self._graders[name], self._clients[name], list[GraderReply]()
        cost = NO_COST
        if (marks := grader.decided(question, answer.text)) is None:

            @cache
            def transcripts(structured: bool) -> Sequence[Transcript]:
                return grader.transcripts(question, answer.text, structured=structured)

            baseline = await self.baseline()
            votes = await asyncio.gather(*(client.votes(transcripts, answer.seed, retry_gate) for client in clients))
            lost = NO_COST if retry_gate is None else self.lost_with(answer.text, question)
            for client, server_votes in zip(clients, votes, strict=True):
                server_replies = [*chain.from_iterable(server_votes)]
                cost = cost.plus(replies_cost(client.grader, server_replies, lost))
                replies += server_replies
            try:
                marks = grader.decide(votes, baseline)
            except GraderError as error:
                raise JudgeFailed(str(error), cost, _usage(cost, replies)) from None
        return marks._replace(signals={**marks.signals, **_usage(cost, replies)}), cost

    async def baseline(self) -> Sequence[float]:
        """The scores of a verifier's request without content."""
        return ()


class VerifierPool(AskingPool):
    """Grades answers with a verifier, and in addition with its `key_grader`, whose pool is `others`."""

    scores: LabelScores | None = None
    """Scores of the request without content; requested on first use if they are not set."""

    @cached_property
    def verifier(self) -> Verifier:
        """The verifier, which is the only grader that asks."""
        (grader,) = self._graders.values()
        assert isinstance(grader, Verifier)
        return grader

    @cached_property
    def _asking(self) -> asyncio.Lock:
        return asyncio.Lock()

    async def ask(self, answer: Answer, question: Question, retry_gate: RetryGate | None) -> tuple[Marks, Cost]:
        keyed = None if self.others is None else await self.others.marks(answer.text, question)
        marks, cost = await super().ask(answer, question, retry_gate)
        return marks if keyed is None else Marks({**marks.signals, **keyed.signals}, keyed.extracted), cost

    async def baseline(self) -> Sequence[float]:
        async with self._asking:
            if self.scores is None:
                self.scores, _ = await self.ask_baseline()
            return self.scores.values

    async def ask_baseline(self, retry_gate: RetryGate | None = None) -> tuple[LabelScores, Cost]:
        """The label scores of the request without content, and its cost; it is the first request, so that an unsuitable
        server is noticed at once.

        `retry_gate` is called before a lost reply is requested again, and counts its cost.

        Raises `ConfigError` if the server returns no log-probabilities, or none for the labels.
        """
        (client,) = self._clients[""]
        reply = await client.request(self.verifier.content_free, retry_gate)
        if reply.answer is None:
            raise Unavailable(reply.error)
        name = self.verifier.host.model
        if not reply.answer.slot:
            raise ConfigError(
                f"grader.server: {name!r} returns no log-probabilities, which a verifier needs; use another server, "
                "such as vLLM, SGLang or llama-server, or grader.kind: judge"
            )
        try:
            scores = label_scores(reply.answer.slot, LABELS)
        except GraderError as error:
            raise ConfigError(f"grader.server: {error} (request without content)") from None
        if scores.unseen:
            unseen = ", ".join(LABELS[at] for at in sorted(scores.unseen))
            raise ConfigError(
                f"grader.server: for a request without content, the most likely tokens of {name!r} do not include "
                f"{unseen}, so verdicts cannot be calibrated; use a server that shows up to {TOP_TOKENS} tokens"
            )
        return scores, replies_cost(self.verifier, [reply], NO_COST)


def replies_cost(grader: AskedGrader, replies: Sequence[GraderReply], lost: Cost) -> Cost:
    """The cost of replies, counting lost ones by the worst-case cost `lost` of a grade."""
    costs = [
        grader.cost(answer.prompt_tokens, answer.completion_tokens, answer.latency, answer.cached_tokens)
        for answer in (reply.answer for reply in replies)
        if answer is not None
    ]
    return reduce(Cost.plus, costs, NO_COST).plus(_lost_reply(grader, lost).times(sum(reply.lost for reply in replies)))


def _usage(cost: Cost, replies: Sequence[GraderReply]) -> dict[str, SignalValue]:
    received = [reply.answer for reply in replies if reply.answer is not None]
    prompt_tokens = sum(answer.prompt_tokens for answer in received)
    return usage_signals(cost, prompt_tokens, sum(answer.latency for answer in received))


def _judge_name(benchmark: str, number: int, client: GraderClient, judges: int) -> str:
    """A judge's name in messages: judges of a panel may have the same name on their servers."""
    parts = (benchmark, client.grader.host.model, f"({number} of {judges})" if judges > 1 else "")
    return " ".join(filter(None, parts))


def _lost_reply(grader: AskedGrader, lost: Cost) -> Cost:
    """Upper bound on the cost of one lost reply, if all requests for the grade may cost `lost`."""
    replies, attempts = grader.replies, settings.DEFAULT.attempts
    return Cost(-(-lost.tokens // replies), lost.usd / replies, lost.gpu_seconds / replies / attempts)
