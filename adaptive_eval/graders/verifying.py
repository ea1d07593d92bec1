"""Grading by a verifier: one request without content for the baseline, then the label probabilities of each answer."""

import asyncio
from collections.abc import Sequence
from functools import cached_property

from adaptive_eval.base.errors import ConfigError, GraderError, Unavailable
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.endpoints.types import Answer, RetryGate
from adaptive_eval.graders.asking import AskingPool, replies_cost
from adaptive_eval.graders.types import Marks
from adaptive_eval.graders.verifier import LABELS, TOP_TOKENS, LabelScores, Verifier, label_scores
from adaptive_eval.questions.types import Question

BASELINE_SEED = 0


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
        reply = await client.request(self.verifier.content_free, BASELINE_SEED, retry_gate)
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
