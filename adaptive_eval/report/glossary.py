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
        "Neighbours in the order that are not shown to differ. Walking down the order, a new tier begins where a model "
        "is shown to be worse than the one above it. The first and the last model of a long tier may well "
        "differ; the letters of the column Alike say which models do. A rank is the place by score alone.",
    ),
    "letters": Term(
        "Alike",
        "Same letter: no difference shown. No letter in common: a difference is shown. The letters come from the "
        "comparisons of all pairs. A tier goes from neighbour to neighbour, and so cannot say that.",
    ),
    "score": Term(
        "Score, avg@N",
        "The average grade of a model's trials, first within each question and then over the questions, with a 95% "
        "interval. Nothing is added to what was observed, so models with unequal numbers of trials compare fairly.",
    ),
    "bayes": Term(
        "Bayes@N, μ ± σ",
        "The posterior mean of the score when each question begins with one imagined answer of every category. That "
        "pulls it towards the middle of the scale, more so the fewer trials a question has: it may differ from avg@N "
        "by several points. Decisions are made by avg@N, except under the rule `published`.",
    ),
    "corrected": Term(
        "Corrected",
        "Stopping early biases scores slightly: a run ends when a difference looks large, or too small to be decided. "
        "This is the score without that. How far to correct is found by playing the run again, with models that answer "
        "as its own trials say. Verdicts and intervals are of the score itself.",
    ),
    "sigma_here": Term(
        "σ here",
        "The standard error of the score on exactly these questions: how far it could move if they were asked many "
        "more times.",
    ),
    "sigma_like_these": Term(
        "σ like these",
        "The standard error of the score where these questions are taken as a sample of all questions like them. It "
        "comes from how much the questions differ, so more trials hardly make it smaller. It is never below σ here: "
        "where all questions look the same, for example because all answers are wrong, the larger value is used.",
    ),
    "trials": Term(
        "Trials",
        "Sampled answers: one answer is one trial, and each has its own seed. Only rounds that are complete are "
        "counted.",
    ),
    "prior_trials": Term(
        "R0",
        "Outcomes of another run that are counted in the score, as trials for each question.",
    ),
    "z": Term(
        "z",
        "The difference of two scores divided by its standard error, positive where the first model is ahead. The "
        "further from 0, the less likely it is that the difference is chance. Under a gate, delta is first added "
        "to the score of the model that is judged.",
    ),
    "boundary": Term(
        "Boundary",
        "A call is made at the first look at which |z| reaches this value. It is larger than for a single look, "
        "because looking often gives chance more opportunities, and lower again by delta under `near_best`. What was "
        "called stays called, even if z comes back later. The rule `published` has one constant value, and "
        "judges anew at every look.",
    ),
    "rho": Term(
        "ρ, order confidence",
        "Φ(|z|): how probable it is, from this look alone, that the model with the better score is the better model. A "
        "gate, which decides about a margin, has none.",
    ),
    "resolved": Term(
        "Resolved",
        "It is decided which of the two models is better. Later looks do not undo it, except under the rule "
        "`published`. Under `near_best` it says less: the model ahead is less than delta behind the other.",
    ),
    "tied": Term(
        "Tied",
        "It is decided that the two are equal within delta: they differ by no more than that, with the confidence that "
        "was asked for.",
    ),
    "open": Term(
        "Open", "Neither resolved nor tied yet. The two models get more trials, for as long as the run goes on."
    ),
    "out_of_reach": Term(
        "Out of reach",
        "Given up for now: the trials that are still allowed would probably not decide it (see the chance to be "
        "settled), so it gets no more of them. It does not say that the two are equal.",
    ),
    "blocked": Term(
        "Blocked",
        "It cannot be decided: one of the two models was set aside, answers that were cut off or have no grade could "
        "decide it, or the run was ended by an alarm about answers that are all empty, identical, unreadable or wrong.",
    ),
    "undecided_by_labels": Term(
        "Undecided by labels",
        "The grades decide it, but people's labels show errors of the grader: the scores corrected for them are too "
        "uncertain, or too close, to decide it. More labels may.",
    ),
    "delta": Term(
        "δ, delta", "The difference that does not matter to you: two models closer than this may be called tied."
    ),
    "certifiable_delta": Term(
        "Certifiable δ", "The smallest delta for which the trials allowed could still show that the two are tied."
    ),
    "information": Term(
        "Information",
        "How much is known of this difference, as a share of what would be known after all the trials allowed. It "
        "grows with trials, and fastest on the questions where answers vary.",
    ),
    "power": Term(
        "Chance to be settled",
        "How probable it is, as things stand, that the comparison is resolved or tied by the last trial allowed.",
    ),
    "trials_needed": Term(
        "Trials a question it would need",
        "About how many trials for each question it would take to call a winner, or to certify a tie within delta "
        "where that is sooner, if today's difference stays as it is.",
    ),
    "questions_needed": Term(
        "Questions it would need",
        "About how many questions that are drawn at random, one trial of each, it would take to call a winner, or to "
        "certify a tie within delta, if today's difference stays as it is: perhaps more than there are.",
    ),
    "adjusted_p": Term(
        "Adjusted p",
        "How easily chance alone would put the model of this row that far ahead, when all pairs are compared at once "
        "(Holm's adjustment). A pair may be resolved by itself and yet not pass this stricter test.",
    ),
    "look": Term(
        "Look", "One evaluation of the stopping rule, on complete rounds only. Nothing is decided between two looks."
    ),
    "not_judged": Term(
        "Not judged",
        "These trials have been graded, but no look has used them: while their round is not complete, short answers "
        "come first and are more often right, and would mislead. A finished run may have some, asked ahead of its "
        "last look.",
    ),
    "posterior": Term(
        "Posterior",
        "What the answers to a question say of the model's score on it: the mean and a 95% interval, starting from "
        "one imagined answer of every category. 4 right of 6 give (4 + 1) / (6 + 2) = 62.5%.",
    ),
    "per_answer": Term(
        "Per answer",
        "What one answer of a model costs on average: its price without the cost of grading it, its completion tokens, "
        "and the seconds from sending the request to the complete answer at the load of this run (through a batch "
        "service: until the results of the batch came). What is not known is left out.",
    ),
    "server_time": Term(
        "Server time",
        "For how long servers were held, busy or not. A server that the run has started counts from its start "
        "until it was stopped; any other from the first to the last request of each start of the run. GPU hours of "
        "requests are the part of it in which answers were in the making.",
    ),
    "set_aside": Term(
        "Set aside", "It gets no more trials: they could not be obtained, or there is an alarm about its answers."
    ),
    "gate": Term(
        "Gate",
        "PASS: the model is not worse than the baseline by more than delta. FAIL: it is. UNDECIDED: neither is shown, "
        "or it could be due to answers that timed out, were cut off, are empty or have no grade. With delta 0 a model "
        "must be better to pass.",
    ),
}
"""Terms by the key that page and documents use."""
