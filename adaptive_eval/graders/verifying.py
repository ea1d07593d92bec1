"""Grading by a verifier: one request without content for the baseline, then the label probabilities of each answer."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from adaptive_eval.base.errors import ConfigError, GraderError, JudgeFailed, Unavailable
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.endpoints.types import Again, Answer, Sampling
from adaptive_eval.graders.asked import NO_REPLY
from adaptive_eval.graders.asking import AskingPool
from adaptive_eval.graders.pool import GradingPool, make_grade
from adaptive_eval.graders.rubric import Rubric
from adaptive_eval.graders.types import Grade
from adaptive_eval.graders.verifier import (
    INVALID,
    LABELS,
    TOP_TOKENS,
    LabelScores,
    Verifier,
    label_scores,
    verifier_opinion,
)
from adaptive_eval.questions.types import Question

BASELINE_SEED = 0


@dataclass(frozen=True, slots=True)
class VerifierBaseline:
    """The label scores of a request without content, and its cost."""

    asked_as: str
    """Digest of the settings that determine the scores."""
    scores: LabelScores
    cost: Cost


class VerifierPool(AskingPool):
    """Grades answers with a verifier."""

    def __init__(
        self, verifier: Verifier, rubric: Rubric, *, folder: Path, keys: Mapping[str, str], lost: Cost = NO_COST
    ) -> None:
        """`lost` bounds the cost of verifying an answer."""
        super().__init__(verifier, rubric, folder=folder, keys=keys, lost=lost)
        self._verifier = verifier
        self._keyed = None
        if verifier.keyed is not None:
            self._keyed = GradingPool(verifier.keyed, rubric, folder=folder, keys=keys)
        self.asked_as = verifier.asked_as
        self.scores: LabelScores | None = None
        """Scores of the request without content; requested on first use if they are not set."""
        self._asking = asyncio.Lock()

    async def close(self) -> None:
        """Close all connections, and end the workers of `key_grader`."""
        await super().close()
        if self._keyed is not None:
            await self._keyed.close()

    async def grade(self, answer: Answer, question: Question, retry_gate: Again | None = None) -> Grade:
        """Grade an answer; raises `JudgeFailed` with the reason and the cost if there is no grade."""
        keyed = None if self._keyed is None else await self._keyed.marks(answer.text, question)
        if not answer.text.strip():
            marks = self._verifier.marks(INVALID, keyed, NO_COST, NO_REPLY)
            return make_grade(answer, marks, self.rubric, question.id)
        baseline = await self._known_baseline()
        sent = self._verifier.transcript(question, answer.text)
        reply = await self._ask(sent.prompt, answer.seed, retry_gate)
        lost = NO_COST if retry_gate is None else self.lost_with(answer.text, question)
        used, usage = self._replies_cost([reply], lost)
        try:
            opinion = verifier_opinion(_reply_scores(reply.answer, reply.error), baseline)
        except GraderError as error:
            raise JudgeFailed(str(error), used) from None
        marks = self._verifier.marks(opinion, keyed, used, usage)
        return replace(make_grade(answer, marks, self.rubric, question.id), cost=used)

    async def _known_baseline(self) -> LabelScores:
        async with self._asking:
            if self.scores is None:
                self.scores = (await self.ask_baseline()).scores
            return self.scores

    async def ask_baseline(self, retry_gate: Again | None = None) -> VerifierBaseline:
        """Send the request without content; it is the first request, so that an unsuitable server is noticed at once.

        `retry_gate` is called before a lost reply is requested again, and counts its cost.

        Raises `ConfigError` if the server returns no log-probabilities, or none for the labels.
        """
        reply = await self._ask(self._verifier.content_free.prompt, BASELINE_SEED, retry_gate)
        if reply.answer is None:
            raise Unavailable(str(reply.error))
        name = self._verifier.host.model
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
        used, _ = self._replies_cost([reply], NO_COST)
        return VerifierBaseline(self.asked_as, scores, used)

    def _sampling(self, *, structured: bool) -> Sampling:
        return self._verifier.seats[0].slot_sampling


def _reply_scores(reply: Answer | None, error: GraderError | None) -> LabelScores:
    if reply is None:
        raise error or GraderError("the verifier gave no reply")
    if "timed_out" in reply.signals:
        raise GraderError("the verifier's reply timed out")
    return label_scores(reply.slot, LABELS)
