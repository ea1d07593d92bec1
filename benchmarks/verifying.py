"""Whether a verifier's probabilities are those that its scores give, over HTTP.

    python benchmarks/verifying.py [--quick] [--json PATH] [--markdown PATH]

A simulated server gives log-probabilities at the answer slot of a verifier whose scores are known: it is sure of what
it thinks, thinks the wrong thing of 10% of right answers and of 15% of wrong ones, leans to A without content, and has
noise of a standard deviation of 1. 600 answers (--quick: 120) are verified with 20, 5 and 3 of the likeliest tokens
shown; the true probability is the softmax of its scores without what it leans to. A label that is not shown has a
bound: the difference to the truth must be within what the bound says, and where that is too much there is no grade.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tables import Check, arguments, conclude, markdown

from adaptive_eval.base.errors import GraderError
from adaptive_eval.endpoints.types import Answer, EndpointConfig
from adaptive_eval.graders.rubric import RubricConfig, open_rubric
from adaptive_eval.graders.verifier import LABELS, Verifier
from adaptive_eval.graders.verifying import VerifierPool
from adaptive_eval.questions.types import Question
from adaptive_eval.simulate.answering import Respondent, question_rows
from adaptive_eval.simulate.judging import SimulatedVerifier
from adaptive_eval.simulate.server import SimulatedServer, serving
from adaptive_eval.simulate.worlds import Latency, World, beta_profile, binary

Found = NDArray[np.float64]
ERRS = (0.1, 0.15)
LEANING = (1.5, 0.0, -1.0)
SURE = 4.0
TALKS = 5.5
"""A word that may stand in the place of a label, so that a label is out of sight where few tokens are shown."""
SHOWN = (20, 5, 3)
CLOSE = 1e-6


def world() -> World:
    """Three models on twelve questions."""
    rng = np.random.default_rng(1)
    p = binary(np.array([beta_profile(mean, 12, 4.0, rng) for mean in (0.65, 0.5, 0.35)]))
    return World("verified", p, latency=Latency(median=0.001))


def answers(number: int) -> Iterator[tuple[Question, Answer]]:
    """Some of the first model's."""
    made, respondent = world(), Respondent(world())
    questions = [Question(row["id"], row["prompt"], row["answer"]) for row in question_rows(made)]
    for seed in range(number):
        question = questions[seed % len(questions)]
        drawn = respondent.answer(made.models[0], question.id, seed)
        yield question, Answer(drawn.text, "stop", seed, "replica", 0.1)


def softmax(scores: Found) -> Found:
    """By hand, beside the library's."""
    raised = np.exp(scores - scores.max())
    return np.asarray(raised / raised.sum())


async def verified(url: str, simulated: SimulatedVerifier, number: int, shown: int, calibrated: bool) -> Found:
    """Of each answer: the largest difference of a probability to the truth, and what it may be; NaN without a grade."""
    server = EndpointConfig(base_url=url, model="verifier")
    told = {"server": server, "sampling": {"top_logprobs": shown}, "calibrated": calibrated}
    verifier = Verifier.model_validate(told)
    pool = VerifierPool(verifier, open_rubric(RubricConfig()), folder=Path(), keys={})

    async def one(question: Question, answer: Answer) -> tuple[float, float]:
        sent = verifier.transcript(question, answer.text)
        scores = np.array(simulated.scores(f"{sent.system}\n{sent.user}")) - LEANING
        try:
            grade = await pool.grade(answer, question)
        except GraderError:
            return np.nan, np.nan
        signals = grade.signals
        found = np.array([float(signals[f"verifier_{label.lower()}"]) for label in LABELS])
        return float(np.abs(found - softmax(scores)).max()), float(signals["verifier_open"])

    try:
        return np.array(await asyncio.gather(*(one(*pair) for pair in answers(number))))
    finally:
        await pool.close()


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    number = 120 if options.quick else 600
    rows, checks = [], []
    noisy = SimulatedVerifier(SURE, LEANING, noise=1.0, errs=ERRS, talks=TALKS)
    with serving(SimulatedServer(world(), verifier=noisy)) as url:
        for shown in SHOWN:
            for calibrated in (True, False):
                found = asyncio.run(verified(url, noisy, number, shown, calibrated))
                graded = found[~np.isnan(found[:, 0])]
                within = float(np.mean(graded[:, 0] <= graded[:, 1] + CLOSE))
                rows.append(
                    (
                        f"{shown} tokens{'' if calibrated else ', b left out'}",
                        len(found) - len(graded),
                        float(np.mean(graded[:, 1] > 0)),
                        f"{graded[:, 0].mean():.6f}",
                        f"{graded[:, 0].max():.6f}",
                    )
                )
                if calibrated:
                    told = f"{shown} tokens shown: probabilities that are within their bound of the truth"
                    checks.append(Check(told, round(within, 3), "1.000", within == 1.0))
    head = ("shown", "without a grade", "share with a label out of sight", "mean difference", "largest difference")
    conclude(options, "A verifier's probabilities", __doc__, f"{number} answers", markdown(head, rows), checks)


if __name__ == "__main__":
    main()
