"""What the words of a report mean, in a sentence or two: one text for the page, the reports and the guide."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Term:
    """One word, and what it says to someone who meets it for the first time."""

    name: str
    text: str


GLOSSARY: Mapping[str, Term] = {
    "tier": Term(
        "Tier",
        "Models that share a rank: walking down the order, a new tier begins where neighbours are resolved, as in the "
        "paper. The two ends of a long tier may well be told apart; the letters beside it say which models are.",
    ),
    "letters": Term(
        "Alike",
        "Two models that share a letter are not told apart, by the calls that exist for all pairs; two that share none "
        "are. Letters say it truly where a tier, which goes from neighbour to neighbour, does not.",
    ),
    "score": Term(
        "Score, avg@N",
        "The average grade of a model's trials, first within each question and then over the questions, with a 95% "
        "interval. Nothing is added to what was observed, so models with unequal numbers of trials compare fairly.",
    ),
    "bayes": Term(
        "Bayes@N, μ ± σ",
        "The posterior mean of the score when each question begins with one imagined answer of every category. That"
        " pulls it towards the middle of the scale, more so the fewer trials a question has: it may differ from "
        "avg@N by several points, and avg@N is what decides, but under the rule `published`.",
    ),
    "sigma_here": Term(
        "σ here",
        "The standard error of the score on exactly these questions: how far it could move if they were asked many "
        "more times.",
    ),
    "sigma_like_these": Term(
        "σ like these",
        "The standard error of the score where these questions are a sample of all questions like them. It comes "
        "from how much the questions differ, and more trials make it little smaller. It is never below σ here: "
        "where the questions seem to agree, as where all answers are wrong, it is that of the posterior.",
    ),
    "trials": Term(
        "Trials",
        "Sampled answers, each with its own seed, in rounds that are complete. One answer is one trial.",
    ),
    "prior_trials": Term(
        "R0",
        "Outcomes of an earlier run that the score is made of too, as trials a question.",
    ),
    "z": Term(
        "z",
        "The difference of two scores in units of its standard error, positive where the first is ahead. The "
        "further from 0, the less the difference can be chance.",
    ),
    "boundary": Term(
        "Boundary",
        "The comparison is called at the first look at which z lies beyond it. It is further out than for a single "
        "look, because looking often gives chance more openings. A call stands, though z may come back later; the "
        "rule `published` has one constant, and judges anew at every look.",
    ),
    "rho": Term(
        "ρ, order confidence",
        "Φ(|z|): how probable it is, for this look taken by itself, that the better score belongs to the better model.",
    ),
    "resolved": Term(
        "Resolved",
        "It is called who is better, and later looks do not undo it, but under the rule `published`.",
    ),
    "tied": Term(
        "Tied",
        "The two are called as good as equal: they differ by no more than delta, as surely as was asked.",
    ),
    "open": Term(
        "Open",
        "Not decided yet; more trials go to it.",
    ),
    "out_of_reach": Term(
        "Out of reach",
        "Given up for now: within the trials that are left it would hardly be decided (see the chance to be "
        "settled), so it gets no more of them. It does not say that the two are equal.",
    ),
    "blocked": Term(
        "Blocked",
        "It cannot be decided, because a model of it was set aside.",
    ),
    "delta": Term(
        "δ, delta",
        "The difference that does not matter to you: two models closer than this may be called tied.",
    ),
    "certifiable_delta": Term(
        "Certifiable δ",
        "The smallest delta for which the trials allowed could still show that the two are tied.",
    ),
    "information": Term(
        "Information",
        "How much of what all allowed trials would tell of this difference is known already. It grows with trials, "
        "and fastest on the questions where answers vary.",
    ),
    "power": Term(
        "Chance to be settled",
        "How probable it is, as things stand, that the comparison is resolved or tied by the last trial allowed.",
    ),
    "trials_needed": Term(
        "Trials a question it would need",
        "About this many trials a question would be needed to call the difference of today, if it stays as it is.",
    ),
    "adjusted_p": Term(
        "Adjusted p",
        "How easily chance alone would put the row this far ahead, allowing for the fact that all pairs are asked "
        "at once (Holm's adjustment). A pair may be called by itself and yet not stand among all of them.",
    ),
    "look": Term(
        "Look",
        "One evaluation of the stopping rule, on complete rounds only. Nothing is decided between two looks.",
    ),
    "not_judged": Term(
        "Not judged yet",
        "These trials have been graded, but their round is not complete, so that no look has used them: short "
        "answers come first and are more often right.",
    ),
    "posterior": Term(
        "Posterior",
        "What the answers to a question say of the model's score on it: the mean and a 95% interval, starting from "
        "one imagined answer of every category. 4 right of 6 give (4 + 1) / (6 + 2) = 62.5%.",
    ),
    "fixed_design": Term(
        "Fixed design",
        "The plain alternative: the maximum of trials for every model on every question.",
    ),
    "server_time": Term(
        "Server time",
        "For how long servers were held, busy or not: those that the run has started from when they were ready until "
        "they were stopped, others in each start of the run from the first to the last request that was wanted of "
        "them. GPU hours of requests are the part of it in which they were asked.",
    ),
    "agreement": Term(
        "Agreement τ",
        "Kendall's τ of the order at a look with the latest order: 1 where every pair stands the same way, −1 where"
        " every pair is turned.",
    ),
    "set_aside": Term(
        "Set aside",
        "The run went on without the model, because no more of its trials could be obtained.",
    ),
    "gate": Term(
        "Gate",
        "PASS: the model is less than delta worse than the baseline, or better. FAIL: it is worse by more than delta. "
        "UNDECIDED: neither is shown, or answers that timed out, are empty or have no grade could explain it. With "
        "delta 0 a model must be better to pass.",
    ),
}
"""By the key that the page and the documents use."""
