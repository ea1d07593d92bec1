"""The needs of undecided comparisons: further answers, labels or recordings, for headline, report and next steps."""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from adaptive_eval.core.larger_horizon import most_plausible
from adaptive_eval.core.types import Reason, Verdict
from adaptive_eval.report.alarms import LONGEST_NAME, WHOLE_PRIOR, cut_off_pairs
from adaptive_eval.report.labelled import MIN_LABELS
from adaptive_eval.report.lines import Scale, count, safe_name, several
from adaptive_eval.report.results import PairRow, Results
from adaptive_eval.report.warnings import is_alarmed
from adaptive_eval.report.words import draws_questions, objective_view

UNDECIDED = (Verdict.UNDECIDED_BY_LABELS, Verdict.OPEN, Verdict.OUT_OF_REACH, Verdict.BLOCKED)
RESERVE = 1.1
"""Caps are to be so much above what is needed: trials are reserved at their most."""
ENDED_BY = {Reason.BUDGET: "the budget", Reason.GPU_TIME: "the budget", Reason.WALL_TIME: "the time limit"}


# -- the pair that the headline names ---------------------------------------------------------------------------------


def undecided_pair(results: Results) -> PairRow | None:
    """The undecided pair that matters most, once the run has ended.

    Of neighbours, and of rivals of the best model, it is the highest one in the ranking; of other comparisons the one
    with the smallest difference.
    """
    if results.run.status == "running" or is_alarmed(results.decisions, results.warnings):
        return None
    if results.run.reason == Reason.ALARM:
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
    more = sum(row.verdict in UNDECIDED for row in results.pairs) - 1
    what, verb = "comparison" if results.compares else "score", "is" if more == 1 else "are"
    others = f"; {several(more, f'more {what}')} {verb} undecided" if more else ""
    if results.compares and (pair.verdict == Verdict.BLOCKED or lacks_labels(results, pair)):
        return f"{pair_names(pair.first, pair.second)} {pair_need(results, pair)}{others}."
    return f"{_how_close(results, pair)}{others}. {_need_sentence(results, pair)}"


def _how_close(results: Results, pair: PairRow) -> str:
    both, asked = pair_names(pair.first, pair.second), objective_view(results.decisions)
    scale, subject = Scale.of(results.weights), "it differs" if pair.second is None else "they differ"
    apart = "" if pair.difference is None else f": {subject} by {scale.rounded_points(abs(pair.difference))}"
    ended_by = f", since {ENDED_BY[Reason(reason)]} ended the run" if (reason := results.run.reason) in ENDED_BY else ""
    is_open = pair.verdict == Verdict.OPEN
    if not results.compares:
        return f"The score of {both} is not as precise as requested"
    if results.gate or results.frontier:
        return f"{both} {'is' if pair.second is None else 'are'} undecided"
    if pair.second is None and is_open:
        return f"Whether {both} is above or below {scale.score(asked.value)} is still open{ended_by}{apart}"
    if pair.second is None:
        return f"There are too few answers to tell {both} from {scale.score(asked.value)}{apart}"
    scored = [row for row in results.models if row.score is not None]
    if asked.baseline is None and asked.first is None and {pair.first, pair.second} == {row.name for row in scored[:2]}:
        apart = ""  # the sentence before has it, with the names of all in the first tier
        if asked.in_order and sum(row.tier == scored[0].tier for row in scored) in (2, len(scored)):
            both = "these two"
    if is_open:
        return f"The comparison of {both} is still open{ended_by}{apart}"
    return f"There are too few answers to tell {both} apart{apart}"


def _need_sentence(results: Results, pair: PairRow) -> str:
    """Further answers that would decide a pair, as the next steps say, in a sentence."""
    reason = results.run.reason
    subject, it = ("It", "it") if pair.second is None else ("They", "them")
    if is_hopeless(results, pair):
        needed = math.ceil(pair.trials_needed or 0.0)
        estimate = f": about {needed:,} trials per question" if _is_implausible(results, pair) else ""
        return f"At this difference, deciding {it} would take far more answers than this run{estimate}."
    if recording_need(results, pair) is not None:
        return f"{subject} {pair_need(results, pair)}."
    if pair.trials_needed is None and pair.horizon_needed is None:
        return f"How many answers would decide {it} is not known yet."
    max_trials = results.setting("trials", "max")
    need = None if max_trials is None else more_answers(results, reason)
    given_up = pair.verdict == Verdict.OUT_OF_REACH
    if need is None or draws_questions(results.decisions) or given_up != (reason == Reason.OUT_OF_REACH):
        return f"{subject} {pair_need(results, pair)}."
    answers = "1 more answer" if need.answers == 1 else f"{count(need.answers)} more answers"
    undecided = sum(row.verdict in UNDECIDED for row in results.pairs)
    needs_more = (pair.trials_needed or 0.0) > max_trials
    alike = [row for row in need.pairs if given_up or ((row.trials_needed or math.inf) > max_trials) == needs_more]
    pairs = it if alike == [pair] else _pairs_in_words(alike, pair, undecided)
    if given_up:
        begin = "In a new run up to" if need.fresh else "Up to"
        return f"{begin} {answers} give {pairs} at least a 50% chance of a decision."
    if needs_more:
        return f"The {answers} that trials.max allows would decide {pairs} only if the difference grows."
    # of the next round's cost the next steps know more
    return f"About {answers} give {pairs} a 50% chance of a decision."


def _pairs_in_words(pairs: Sequence[PairRow], named: PairRow, undecided: int) -> str:
    """The comparisons for which further answers are, of all that are undecided; `named` is in the sentence before."""
    if len(pairs) == 1:
        return pair_names(pairs[0].first, pairs[0].second)
    if named not in pairs:
        return f"{len(pairs)} other comparisons"
    all_of_them = "both comparisons" if len(pairs) == 2 else f"all {len(pairs)} comparisons"
    return all_of_them if len(pairs) == undecided else f"{len(pairs)} of these {undecided} comparisons"


def pair_names(first: str, second: str | None, names: Mapping[str, str] = MappingProxyType({})) -> str:
    """Names of both models of a pair, or of the one that is compared with a value; some have shorter `names`."""
    return " and ".join(
        names.get(name) or safe_name(name, LONGEST_NAME) for name in (first, second) if name is not None
    )


def pair_need(results: Results, pair: PairRow) -> str:
    """The need of an undecided pair, as words that follow its names."""
    are, need = ("is", "needs") if pair.second is None else ("are", "need")
    if is_alarmed(results.decisions, results.warnings):
        return f"{are} undecided because an alarm ended the run"
    if (pair.first, pair.second) in cut_off_pairs(results):
        cut = {row.name for row in results.models if row.cut}
        instead = "complete answers instead of cut ones" if cut & {pair.first, pair.second} else WHOLE_PRIOR
        return f"{need} {instead}"
    if pair.verdict == Verdict.BLOCKED:
        return f"{need} answers of a model that was set aside, or grades for ungraded answers"
    if lacks_labels(results, pair):
        return f"{are} undecided because of labels, and {labels_needed(results, pair)}"
    if (recording := recording_need(results, pair)) is not None:
        return f"would need {recording}"
    if pair.trials_needed is None:
        return "would need an unknown number of further trials"
    each = "" if pair.second is None else "each "
    would = f"would {each}have needed" if pair.verdict == Verdict.OUT_OF_REACH else f"{each}{need}"
    in_all = "" if draws_questions(results.decisions) else " in total"
    return f"{would} about {' '.join(needed_in_words(results, pair.trials_needed))}{in_all}"


def needed_in_words(results: Results, trials: float) -> tuple[str, str]:
    """Number and unit of a pair's need for so many trials per question: drawn questions count one trial each."""
    if draws_questions(results.decisions):
        needed, total = math.ceil(trials * results.max_trials_per_model), results.max_trials_per_model
        return count(needed), f"questions, more than the {count(total)} there are" if needed > total else "questions"
    return count(math.ceil(trials)), "trials per question"


# -- further answers --------------------------------------------------------------------------------------------------


class MoreAnswers(NamedTuple):
    """Further answers that would probably decide what the budget or the horizon has left open."""

    answers: float
    pairs: Sequence[PairRow]
    """The comparisons that they are for."""
    settings: Mapping[str, float]
    """Settings to raise, with the values that allow these answers."""
    hopeless: int = 0
    """Number of further pairs that no plausible number of answers would decide."""
    fresh: bool = False
    """Whether it takes a new run."""
    recording: "RecordingNeed | None" = None


def more_answers(
    results: Results, reason: Reason | str | None, short_caps: Mapping[str, float] = MappingProxyType({})
) -> MoreAnswers | None:
    """Further answers for the pairs that were given up, if that is the reason of the end, else for those that are open.

    None if there are no such pairs, or no plausible number of answers would decide any. `short_caps`: caps that do not
    cover the next round, with the values that would.
    """
    if reason != Reason.OUT_OF_REACH:
        pairs = tuple(
            pair for pair in results.pairs if pair.verdict == Verdict.OPEN and not lacks_labels(results, pair)
        )
        answers = _answers_in_horizon(results, pairs)
        return MoreAnswers(answers, pairs, larger_caps(results, answers, short_caps)) if pairs else None
    given_up = [pair for pair in results.pairs if pair.verdict == Verdict.OUT_OF_REACH]
    pairs = tuple(pair for pair in given_up if not is_hopeless(results, pair) and not lacks_labels(results, pair))
    if not pairs:
        return None
    max_trials = results.setting("trials", "max")
    recordings = [need for pair in pairs if (need := recording_need(results, pair)) is not None]
    go_on = tuple(pair for pair in pairs if pair.horizon_needed is not None)
    if recordings:
        larger = max(max_trials, *(need.trials for need in recordings))
    elif go_on:
        pairs, larger = go_on, max(pair.horizon_needed or 0 for pair in go_on)
    else:  # twice what they need as they stand, in a new run
        larger = int(round_up(2 * max(max_trials, *(math.ceil(pair.trials_needed or 0.0) for pair in pairs))))
    named = {name for pair in pairs for name in (pair.first, pair.second)}
    goal = larger / max_trials * results.max_trials_per_model
    asked = [row for row in results.models if row.name in named and row.recorded is None]
    answers = sum(max(goal - row.stored_trials, 0.0) for row in asked)
    return MoreAnswers(
        answers=answers,
        pairs=pairs,
        settings=larger_caps(results, answers) | ({"trials.max": larger} if larger > max_trials else {}),
        hopeless=sum(is_hopeless(results, pair) for pair in given_up),
        fresh=bool(recordings) or not go_on,
        recording=max(recordings, default=None),
    )


def is_hopeless(results: Results, pair: PairRow) -> bool:
    """Whether no plausible number of answers would decide a pair that was given up, if its difference stays.

    What this run cannot decide because its error is spent, a new run may."""
    if pair.verdict != Verdict.OUT_OF_REACH or pair.horizon_needed is not None:
        return False
    if draws_questions(results.decisions) or recording_need(results, pair) is not None:
        return False
    if pair.second is None and not results.gate:
        return False
    return _is_implausible(results, pair) or (pair.trials_needed is None and not _had_other_horizon(results))


def has_spent_error(results: Results, pair: PairRow) -> bool:
    """Whether no evidence can decide a pair any more, since an earlier horizon has used up its error."""
    return pair.boundary is None and pair.trials_needed is None and _had_other_horizon(results)


def _had_other_horizon(results: Results) -> bool:
    return any(warning.kind == "horizon" for warning in results.warnings)


def _is_implausible(results: Results, pair: PairRow) -> bool:
    return 2 * (pair.trials_needed or 0.0) > most_plausible(results.setting("trials", "max") or 0)


def _answers_in_horizon(results: Results, pairs: Sequence[PairRow]) -> float:
    """Further trials of the models in these pairs that would call them at the present difference, up to the horizon."""
    max_trials = results.setting("trials", "max")
    target: dict[str | None, float] = {}
    for pair in pairs:
        needed = max_trials if pair.trials_needed is None else min(pair.trials_needed, max_trials)
        for name in (pair.first, pair.second):
            target[name] = max(target.get(name, 0.0), math.ceil(needed) * results.max_trials_per_model / max_trials)
    asked = [row for row in results.models if row.recorded is None and row.set_aside is None]
    return sum(max(target.get(row.name, 0.0) - row.stored_trials, 0.0) for row in asked)


def larger_caps(
    results: Results, further: float, short_caps: Mapping[str, float] = MappingProxyType({})
) -> dict[str, float]:
    """Caps that are too small for so many further trials at the mean cost of the current models' so far, and the values
    that allow them. Time cannot be known beforehand. A cap also covers the last of these rounds at its worst, as
    `short_caps` do the next one."""
    cost = results.cost
    hours = (cost.counted_gpu_seconds or cost.in_all("gpu_seconds")) / 3600
    used = {key: cost.in_all(key) for key in ("trials", "tokens", "usd")} | {"gpu_hours": hours}
    once = [row for row in cost.beside if row.what != "failed"]  # what a kill lost, say, is not lost again
    spent_once = {key: sum(getattr(row, key) for row in once) for key in ("trials", "tokens", "usd")}
    spent_once["gpu_hours"] = sum(row.counted_gpu_seconds for row in once) / 3600
    growth = {key: (used[key] - spent_once[key]) * further / max(cost.trials, 1) for key in used}
    needed = {
        key: max(RESERVE * (used[key] + growth[key]), short_caps.get(key, 0.0) + growth[key]) for key in sorted(used)
    }
    caps = {key: results.setting("budget", key) for key in needed}
    return {f"budget.{key}": round_up(need) for key, need in needed.items() if caps[key] and need > caps[key]}


def round_up(value: float) -> float:
    """The next number of two digits."""
    step = 10.0 ** (math.floor(math.log10(max(value, 1e-6))) - 1)
    return float(f"{math.ceil(value / step - 1e-9) * step:.2g}")


# -- labels and recordings --------------------------------------------------------------------------------------------


class LabelNeed(NamedTuple):
    """Labels that an undecided comparison needs."""

    further: int | None
    """Further labels of both models together; None if all their answers would not be enough."""
    without: tuple[str, ...] = ()
    """Models with too few labels for a correction."""

    def __str__(self) -> str:
        if self.without:
            names = " and of ".join(safe_name(name, LONGEST_NAME) for name in self.without)
            return f"need at least {MIN_LABELS} labels of {names}"
        if self.further is None:
            return "would need more labels than there are answers"
        return f"would need about {self.further:,} more labels"


def lacks_labels(results: Results, pair: PairRow) -> bool:
    """Whether labels are what an undecided pair lacks: they leave it undecided, or most of its variance is theirs."""
    if pair.verdict not in (Verdict.OPEN, Verdict.OUT_OF_REACH) or pair.sigma is None:
        return pair.verdict == Verdict.UNDECIDED_BY_LABELS
    rows = () if results.labelled is None else results.labelled.models
    shifts = sum((row.shift_sigma or 0.0) ** 2 for row in rows if row.name in (pair.first, pair.second))
    return 2.0 * shifts > pair.sigma**2


def labels_needed(results: Results, pair: PairRow) -> LabelNeed:
    """The labels that would probably decide a pair, if the corrected difference stays as it is.

    The variance of the shifts falls with their labels: f times as many leave rest + shifts / f, and the difference d
    (from a gate: that to its limit) is called where d >= b times the root of that, so f = shifts / ((d / b)^2 - rest).
    """
    labelled = () if results.labelled is None else results.labelled.models
    rows = [row for row in labelled if row.name in (pair.first, pair.second)]
    names = [row.name for row in rows if row.corrected is None]
    recorded = {row.name for row in results.models if row.recorded is not None}
    unlabelled = [*names, *({pair.first, pair.second} - {None} - {row.name for row in rows})]
    if unlabelled:
        missing = tuple(str(name) for name in unlabelled if name not in recorded)
        few = [row for row in rows if row.name in missing]
        further = MIN_LABELS * len(missing) - sum(min(row.labels, MIN_LABELS) for row in few)
        return LabelNeed(further, missing) if missing else LabelNeed(None)
    shifts = sum((row.shift_sigma or 0.0) ** 2 for row in rows)
    labels, answers = sum(row.labels for row in rows), sum(row.trials for row in rows)
    if pair.sigma is None or pair.difference is None or not pair.boundary:
        return LabelNeed(None)
    graded_tie = pair.by_grades is not None and pair.by_grades.verdict == Verdict.TIED
    room = results.setting("stopping", "delta") - abs(pair.difference) if graded_tie else abs(pair.difference)
    if results.gate:  # whose z has delta added
        room = abs(pair.z or 0.0) * pair.sigma
    allowed = (max(room, 0.0) / pair.boundary) ** 2 - max(pair.sigma**2 - shifts, 0.0)
    further = math.ceil((shifts / allowed - 1.0) * labels) if allowed > 0.0 else answers
    return LabelNeed(max(further, 1) if labels + further <= answers else None)


class RecordingNeed(NamedTuple):
    """Trials per question of a recorded model, and of its opponent, that would probably decide their comparison."""

    trials: int
    model: str
    recorded_trials: float

    def __str__(self) -> str:
        name = safe_name(self.model, 40)
        return (
            f"a recording of {name} with about {self.trials:,} trials per question, instead of "
            f"{self.recorded_trials:,.0f}"
        )


def recording_need(results: Results, pair: PairRow) -> RecordingNeed | None:
    """The recording that an undecided pair needs; None if more trials of the other model alone would be cheaper.

    N trials of both give the difference a variance of sum(s^2 n) / N, with the current s^2 and n of each. The boundary
    at the horizon is about the current one times the square root of the information.
    """
    two = [row for row in results.models if row.name in (pair.first, pair.second) and row.sigma]
    recorded = next((row for row in two if row.recorded is not None), None)
    if recorded is None or not (pair.boundary and pair.information and pair.sigma) or pair.difference is None:
        return None
    questions = results.max_trials_per_model / results.setting("trials", "max")
    recorded_trials = recorded.trials / questions
    if pair.by_trial:  # of both models only trials with the same seeds count
        needed = math.ceil(pair.trials_needed or 0.0)
        return RecordingNeed(needed, recorded.name, recorded_trials) if needed > recorded_trials else None
    tie = 0.0 if results.gate else (results.setting("stopping", "delta") - abs(pair.difference)) / pair.sigma
    times = pair.information * (pair.boundary / max(abs(pair.z or 0.0), tie, 1e-6)) ** 2
    squares = [(row.sigma or 0.0) ** 2 for row in two]
    depth = sum(square * row.trials for square, row in zip(squares, two, strict=True)) / sum(squares) / questions
    trials = max(math.ceil(times * depth), math.floor(recorded_trials) + 1)
    return (
        None if (pair.trials_needed or math.inf) < 2 * trials else RecordingNeed(trials, recorded.name, recorded_trials)
    )
