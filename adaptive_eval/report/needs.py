"""The needs of undecided comparisons: what each lacks, and the sentences that say so."""

import math
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from adaptive_eval.base.lists import first_few
from adaptive_eval.core.types import Reason, Verdict
from adaptive_eval.machine.usage import AnswerFault
from adaptive_eval.report.labelled import MIN_LABELS
from adaptive_eval.report.lines import Scale, count, safe_name, several
from adaptive_eval.report.results import INCOMPLETE_PRIOR, PairRow, Results
from adaptive_eval.report.warnings import is_alarmed
from adaptive_eval.report.words import draws_questions, objective_view

UNDECIDED = (Verdict.UNDECIDED_BY_LABELS, Verdict.OPEN, Verdict.OUT_OF_REACH, Verdict.BLOCKED)
LONGEST_NAME = 40
MAX_NAMES = 3
"""Models that one sentence names; further ones are only counted."""


def some_models(names: Iterable[str]) -> str:
    """The first models in a list."""
    return first_few([safe_name(name, LONGEST_NAME) for name in names], MAX_NAMES)


class NeedKind(Enum):
    """What an undecided comparison lacks, as words that follow "need", in the order of the next steps."""

    USABLE_ANSWERS = "usable answers, since an alarm ended the run"
    COMPLETE_ANSWERS = "complete answers instead of incomplete ones of {models}"
    COMPLETE_PRIOR = "a prior run without incomplete answers of {models}"
    ANSWERS = "the answers of {models} that never came"
    INDEPENDENT_ANSWERS = "answers of {models} that do not come back word for word"
    GRADES = "grades for the ungraded answers of {models}"
    MODEL = "answers of {models} (set aside)"
    LABELS = f"more labels of answers of {{models}} (those of a model count once it has {MIN_LABELS})"
    BETTER_GRADES = "grades with fewer mistakes for answers of {models}, which all have labels"
    TRIALS = "{trials}"
    NEW_RUN = "more than this run can give: {trials}"
    """Its error is used up, or no plausible number of trials decides it, or only answers that cannot be asked here."""


OF_TRIALS = frozenset({NeedKind.TRIALS, NeedKind.NEW_RUN})
"""Needs of comparisons that are too close for the answers so far."""


class Need(NamedTuple):
    """The need of an undecided comparison."""

    kind: NeedKind
    models: tuple[str, ...] = ()
    """The models that lack something."""
    trials: float | None = None
    """Trials per question that it takes at the present difference, or under the `trials.max` that probably decides it;
    None if unknown."""

    def joined(self, earlier: "Need") -> "Need":
        """The need of both comparisons, of one kind: what the earlier one lacks comes first."""
        trials = max((each for each in (earlier.trials, self.trials) if each is not None), default=None)
        return Need(self.kind, tuple(dict.fromkeys((*earlier.models, *self.models))), trials)

    def missing(self, results: Results) -> str:
        """What is missing, as words that follow "need"."""
        if self.kind is NeedKind.NEW_RUN and self.trials is None:
            return "more than this run can give"
        return self.kind.value.format(models=some_models(self.models), trials=trials_in_words(results, self.trials))


def need_of(results: Results, pair: PairRow) -> Need:
    """The need of an undecided comparison."""
    if is_alarmed(results.decisions, results.warnings):
        return Need(NeedKind.USABLE_ANSWERS)
    if pair.verdict == Verdict.BLOCKED:
        return _need_of_blocked(results, pair)
    if _lacks_labels(results, pair) and (unlabelled := _unlabelled(results, pair)):
        return Need(NeedKind.LABELS, unlabelled)
    if pair.verdict == Verdict.UNDECIDED_BY_LABELS:
        return Need(NeedKind.BETTER_GRADES, tuple(name for name in (pair.first, pair.second) if name is not None))
    if not _is_decidable(results, pair):
        if _hinges_on_unknown(results, pair):
            return _need_of_blocked(results, pair)
        return Need(NeedKind.NEW_RUN, trials=pair.trials_needed)
    return Need(NeedKind.TRIALS, trials=_deciding_trials(results, pair))


def _deciding_trials(results: Results, pair: PairRow) -> float | None:
    """Trials per question that a pair needs. If `trials.max` is enough, a budget has ended it: the pair needs what its
    difference takes."""
    if pair.verdict == Verdict.OPEN or (pair.deciding_max or 0.0) <= results.setting("trials", "max"):
        return pair.trials_needed if pair.trials_needed is not None else pair.deciding_max
    return pair.deciding_max


def trials_needed(results: Results, pair: PairRow) -> float | None:
    """Trials per question that a pair needs; None if it is decided, needs anything else, or the number is unknown."""
    return need_of(results, pair).trials if pair.verdict in UNDECIDED else None


def ends_by_alarm(results: Results) -> bool:
    """Whether an alarm about answers ends the run, or has: no start of it asks for more then."""
    return results.run.reason == Reason.ALARM or is_alarmed(results.decisions, results.warnings)


def needs_of(results: Results) -> list[tuple[PairRow, Need]]:
    """The undecided comparisons with their needs."""
    return [(pair, need_of(results, pair)) for pair in results.pairs if pair.verdict in UNDECIDED]


def _need_of_blocked(results: Results, pair: PairRow) -> Need:
    rows, void = [row for row in results.models if row.name in (pair.first, pair.second)], void_models(results)
    aside, earlier = [row for row in rows if row.set_aside is not None], models_with(results, INCOMPLETE_PRIOR)
    lacking = {
        NeedKind.INDEPENDENT_ANSWERS: [row for row in rows if row.name in void],
        NeedKind.MODEL: [row for row in aside if not row.signals.get("unanswered")],
        NeedKind.COMPLETE_ANSWERS: [row for row in rows if row.unsure and not aside],
        NeedKind.ANSWERS: [row for row in rows if row.signals.get("unanswered")],
        NeedKind.GRADES: [row for row in rows if row.ungraded],
        NeedKind.COMPLETE_PRIOR: [row for row in rows if row.name in earlier],
    }
    kind, models = next(((kind, models) for kind, models in lacking.items() if models), (NeedKind.MODEL, rows))
    return Need(kind, tuple(row.name for row in models))


def models_with(results: Results, kind: str) -> list[str]:
    """Models with a warning of this kind: `AnswerFault.REPEATED`, if their answers certainly repeat word for word."""
    return [warning.model for warning in results.warnings if warning.kind == kind and warning.model is not None]


def void_models(results: Results) -> Mapping[str, str]:
    """The repeating models of which no comparison is decided, each with its warning: none where `on_alarm`, or an
    import whose repeats count as samples, lets such answers count."""
    repeats_count = any(warning.kind == "repeats_count" for warning in results.warnings)
    if repeats_count or results.setting("stopping", "on_alarm") == "never":
        return {}
    repeats = (warning for warning in results.warnings if warning.kind == AnswerFault.REPEATED)
    return {warning.model: warning.text for warning in repeats if warning.model is not None}


def _lacks_labels(results: Results, pair: PairRow) -> bool:
    """Whether labels are what an undecided pair lacks: they leave it undecided, or most of its variance is theirs, and
    the rest of it would let the difference be called, or tied."""
    if pair.verdict not in (Verdict.OPEN, Verdict.OUT_OF_REACH) or pair.sigma is None:
        return pair.verdict == Verdict.UNDECIDED_BY_LABELS
    rows = () if results.labelled is None else results.labelled.models
    shifts = sum((row.shift_sigma or 0.0) ** 2 for row in rows if row.name in (pair.first, pair.second))
    if pair.difference is None or pair.z is None or pair.boundary is None or 2.0 * shifts <= pair.sigma**2:
        return False
    reach = pair.boundary * math.sqrt(max(pair.sigma**2 - shifts, 0.0))
    delta = results.setting("stopping", "delta") or 0.0
    return abs(pair.z) * pair.sigma >= reach or abs(pair.difference) + reach <= delta


def _unlabelled(results: Results, pair: PairRow) -> tuple[str, ...]:
    """Models of a pair with answers that can still be labelled: those without a correction, or else all."""
    asked = [row for row in results.models if row.name in (pair.first, pair.second) and row.recorded is None]
    names = [row.name for row in asked if row.labels < row.stored_trials - row.ungraded]
    return tuple([name for name in names if name not in results.corrected] or names)


def _hinges_on_unknown(results: Results, pair: PairRow) -> bool:
    """Whether ungraded or incomplete answers could turn a pair round, and move it by more than its standard error."""
    rows = [row for row in results.models if row.name in (pair.first, pair.second)]
    ranges = [(row.lowest, row.highest) for row in rows if row.lowest is not None and row.highest is not None]
    if pair.difference is None or pair.sigma is None or len(ranges) < len(rows):
        return False
    return sum(highest - lowest for lowest, highest in ranges) > max(abs(pair.difference), pair.sigma)


def _is_decidable(results: Results, pair: PairRow) -> bool:
    """Whether further trials of this run can decide a pair."""
    if pair.verdict == Verdict.OPEN:
        return True
    largest = results.setting("trials", "max") or 1
    if pair.deciding_max is None and (pair.trials_needed or math.inf) > largest:  # else a budget has ended it
        return False
    per_question = results.max_trials_per_model / largest
    both = (pair.trials_needed or 0.0) * per_question if pair.by_trial else 0.0
    recorded = (row for row in results.models if row.recorded and row.name in (pair.first, pair.second))
    return all(row.trials >= both for row in recorded)


def round_up(value: float) -> float:
    """The next number of two digits."""
    step = 10.0 ** (math.floor(math.log10(max(value, 1e-6))) - 1)
    return float(f"{math.ceil(value / step - 1e-9) * step:.2g}")


def trials_in_words(results: Results, trials: float | None) -> str:
    """A need for so many trials per question, or for questions where each has one trial."""
    if trials is None:
        return "an unknown number of further trials"
    if draws_questions(results.decisions):
        return f"about {' '.join(needed_in_words(results, trials))}"
    largest = results.setting("trials", "max")
    beyond = f" (trials.max is {largest})" if largest is not None and trials > largest else ""
    return f"about {' '.join(needed_in_words(results, trials))} and model in total{beyond}"


def needed_in_words(results: Results, trials: float) -> tuple[str, str]:
    """Number and unit of a pair's need for so many trials per question: drawn questions count one trial each."""
    if draws_questions(results.decisions):
        needed, total = math.ceil(trials * results.max_trials_per_model), results.max_trials_per_model
        return count(needed), f"questions, more than the {count(total)} there are" if needed > total else "questions"
    return count(math.ceil(trials)), "trials per question"


def cost_to_go_on(results: Results) -> str | None:
    """Expected cost of going on until all is decided or a limit is met; None if the run is finished, or an alarm ends
    it."""
    if results.run.status == "finished" or ends_by_alarm(results):
        return None
    undecided = {name for pair in results.pairs if pair.verdict == Verdict.OPEN for name in (pair.first, pair.second)}
    rows = [row for row in results.models if row.name in undecided and not row.recorded]
    stored, cost = sum(max(0, row.stored_trials - row.ungraded - row.trials) for row in rows), results.cost
    more = results.trials_to_go - stored
    if stored and more < 0.5:
        return f"resuming begins with {several(stored, 'stored answer')}, and may need no others"
    if more < 0.5:  # open pairs are past their estimate, and how long they stay open is chance
        return "resuming takes at least another round of answers"
    amounts = {"tokens": (cost.tokens, "{:,.0f} tokens"), "usd": (cost.usd, "${:,.2f}")}
    estimates = [
        template.format(used / cost.trials * more) for used, template in amounts.values() if used and cost.trials
    ]
    return f"resuming takes about {several(round(more), 'more answer')}" + (
        f" ({', '.join(estimates)})" if estimates else ""
    )


# -- sentences --------------------------------------------------------------------------------------------------------


def undecided_pair(results: Results) -> PairRow | None:
    """The undecided pair that matters most, once the run has ended.

    Of neighbours, and of rivals of the best model, it is the highest one in the ranking; of other comparisons the one
    with the smallest difference.
    """
    if results.run.status == "running" or ends_by_alarm(results):
        return None
    asked, ranks = objective_view(results.decisions), {row.name: row.rank for row in results.models}
    by_rank = asked.compares and asked.baseline is None and asked.first is None and asked.value is None

    def importance(pair: PairRow) -> tuple[int, float]:
        gap = math.inf if pair.difference is None else abs(pair.difference)
        return ranks[pair.first] if by_rank else 0, gap

    scored = {row.name for row in results.models if row.score is not None}
    pairs = [pair for pair in results.pairs if pair.verdict in UNDECIDED and pair.first in scored]
    return min(pairs, key=importance, default=None)


def undecided_sentence(results: Results) -> str | None:
    """Name the most important undecided pair and what it would take; None if every pair is decided."""
    if (pair := undecided_pair(results)) is None:
        return None
    more, need, apart = sum(row.verdict in UNDECIDED for row in results.pairs) - 1, need_of(results, pair), ""
    what, verb = "comparison" if results.compares else "score", "is" if more == 1 else "are"
    others = f" {several(more, f'more {what}')} {verb} undecided." if more else ""
    if pair.difference is not None and need.kind in OF_TRIALS:  # else the scores may be wrong
        subject = "it differs" if pair.second is None else "they differ"
        apart = f": {subject} by {Scale.of(results.weights).rounded_points(abs(pair.difference))}"
    state = "undecided" if results.compares else "not as precise as requested"
    return f"{_subject(results, pair)} is {state}{apart}. It needs {need.missing(results)}.{others}"


def need_sentence(results: Results, pair: PairRow) -> str:
    """Say what an undecided pair needs, without a full stop."""
    return f"{_subject(results, pair)} needs {need_of(results, pair).missing(results)}"


def _subject(results: Results, pair: PairRow) -> str:
    names = pair_names(pair.first, pair.second)
    if not results.compares:
        return f"The score of {names}"
    value = Scale.of(results.weights).score(objective_view(results.decisions).value)
    return f"The comparison of {names}{f' with {value}' if pair.second is None else ''}"


def pair_names(first: str, second: str | None) -> str:
    """Names of both models of a pair, or of the one that is compared with a value."""
    return " and ".join(safe_name(name, LONGEST_NAME) for name in (first, second) if name is not None)
