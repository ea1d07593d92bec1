"""Glossary of the words of a report, for the page, the reports and the guide."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Term:
    """One word with its explanation for a newcomer."""

    name: str
    text: str


GLOSSARY: Mapping[str, Term] = {
    "tier": Term(
        "Tier",
        "A tier holds adjacent models with no proven difference. A new tier begins with a model that is worse than "
        "the model above it. Only neighbours are compared, so the first and last model of a long tier may differ. If "
        "so, the details table has a column `alike` with letters for each model: two models that share no letter "
        "differ.",
    ),
    "letters": Term(
        "Alike",
        "Two models that share no letter differ. Two that share one show no difference. Letters compare all pairs, "
        "tiers only neighbours.",
    ),
    "score": Term(
        "Score, avg@N",
        "The score is the mean grade of a model's trials, first per question and then over all questions, with a 95% "
        "interval. It has no prior and no smoothing, so models with different numbers of trials compare fairly.",
    ),
    "bayes": Term(
        "Bayes@N, posterior",
        "An estimate that starts each question with one imagined answer of every category, such as right and wrong: 4 "
        "right of 6 give (4 + 1) / (6 + 2) = 62.5%. With few trials this pulls it to the middle of the scale, by "
        "several points. Decisions use avg@N.",
    ),
    "sigma": Term(
        "σ here, σ like these",
        "A score has two standard errors. σ here: how far the score could move with more trials on exactly these "
        "questions. σ like these: how far it could move on other questions of this kind. More trials hardly reduce "
        "the second.",
    ),
    "set_aside": Term(
        "Set aside",
        "A model that gets no more trials: its servers failed for too long, or its answers were unusable or came back "
        "word for word. Its undecided comparisons are blocked.",
    ),
    "trials": Term(
        "Trials",
        "Sampled answers, each with its own seed. Looks judge complete rounds only, since short answers arrive first "
        "and are more often right. A finished run may have further trials, sent ahead.",
    ),
    "prior_trials": Term(
        "R0",
        "Outcomes of another run that count in the score, as trials per question.",
    ),
    "z": Term(
        "z",
        "z is the difference of two scores divided by its standard error, positive if the first model is ahead. ρ = "
        "Φ(|z|) expresses z as a confidence, from this look alone, that the leading model is better.",
    ),
    "boundary": Term(
        "Boundary",
        "The boundary is the value that |z| must reach for a decision. It is higher than for a single look, because "
        "every look is another chance to be fooled by noise. By default it falls as trials accumulate. A decision "
        "stands even if z falls later.",
    ),
    "resolved": Term(
        "Resolved",
        "One model is better than the other. For a pick (`best`, `top_k`): the other is not ahead by delta or more.",
    ),
    "tied": Term(
        "Tied",
        "The two models are equal within delta.",
    ),
    "open": Term(
        "Open",
        "Neither resolved nor tied yet. Both models get more trials while the run continues.",
    ),
    "out_of_reach": Term(
        "Out of reach",
        "`trials.max`, or the budget, is probably too small to tell, so no more trials are sent for this pair. It does "
        "not mean that the two are equal.",
    ),
    "blocked": Term(
        "Blocked",
        "No decision is possible. One of the models was set aside (it gets no more trials), an alarm ended the run, "
        "answers that are missing or incomplete (cut off, timed out, beyond the context) could change the verdict, or "
        "answers come back word for word.",
    ),
    "undecided_by_labels": Term(
        "Undecided by labels",
        "The grades decide it, but human labels show that the grader makes mistakes. Scores corrected for these leave "
        "it undecided. More labels may help.",
    ),
    "delta": Term(
        "δ, delta",
        "The largest difference that does not matter to you; closer models can be tied. Ties within: the smallest "
        "delta at which the remaining trials could still show a tie.",
    ),
    "information": Term(
        "Information",
        "How much the trials so far say about this difference, as a share of what `trials.max` allows.",
    ),
    "power": Term(
        "Chance to be settled",
        "The probability that the last allowed trial leaves this comparison resolved or tied, over all true "
        "differences that fit the answers. A run gives a pair up if this is too small to be worth the trials.",
    ),
    "trials_needed": Term(
        "Trials per question needed",
        "About how many trials per question a decision would take if the current difference stays. With `trials.draw` "
        "it is a number of questions, which can exceed those that exist.",
    ),
    "look": Term(
        "Look",
        "A check of all comparisons after a round of trials.",
    ),
    "per_answer": Term(
        "Per answer",
        "The mean price (without grading, and with GPU time if `objective.gpu_hour` prices it), completion tokens and "
        "seconds of one answer, from the request to the complete answer or the results of its batch.",
    ),
    "server_time": Term(
        "Server time",
        "The time for which the run held servers, busy or not: from their start to their stop if the run started "
        "them, otherwise from the first to the last request of each start of the run. GPU hours of requests are the "
        "part that answers used.",
    ),
    "gate": Term(
        "Gate",
        "PASS: the score is at most delta below the baseline (or the given value). FAIL: it is further below. "
        "UNDECIDED: neither is shown, or answers without a sound grade could decide it. With delta 0 a model must be "
        "better to pass.",
    ),
}
"""Terms by the key that page and documents use."""
