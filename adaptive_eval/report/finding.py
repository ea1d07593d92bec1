"""Findings of a run in words, for every display: for the run, for each model, and for each comparison."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from adaptive_eval.core.result import TWO_SIDED_95
from adaptive_eval.core.types import Reason, Verdict
from adaptive_eval.report.alarms import alarm_sentences
from adaptive_eval.report.choice import choice_sentence, part_in_words
from adaptive_eval.report.gate import FAIL, OUTCOMES, PASS
from adaptive_eval.report.lines import Scale, count, safe_line, safe_name, several
from adaptive_eval.report.needs import LONGEST_NAME, MAX_NAMES, UNDECIDED, some_models, undecided_sentence, void_models
from adaptive_eval.report.results import GateRow, ModelRow, PairRow, Results
from adaptive_eval.report.warnings import alarm_in_words, is_alarmed
from adaptive_eval.report.words import deciding_rule, draws_questions, objective_view

MAX_GATE_LINES = 5
"""Models with a line of their own under a gate; further ones are only counted, and have their rows."""
STATES = (
    "PASS",
    "FAIL",
    "UNDECIDED",
    "resolved",
    "tied",
    "undecided by labels",
    "open",
    "out of reach",
    "blocked",
)


class Clause(NamedTuple):
    """One relation of a model to others, such as "equal to atlas within 4 points"."""

    verdict: str
    words: str
    others: tuple[str, ...] = ()
    after: str = ""

    def __str__(self) -> str:
        return f"{self.words}{self._named(MAX_NAMES, {})}{self.after}"

    def in_short(self, names: Mapping[str, str]) -> str:
        """The relation to one other model by its short name, or to a number of models."""
        return f"{self.words}{self._named(1, names)}"

    def _named(self, limit: int, names: Mapping[str, str]) -> str:
        if len(self.others) > limit:
            return f" {several(len(self.others), 'model')}"
        return f" {_list_names([names.get(name, name) for name in self.others])}" if self.others else ""


def comparison_state(results: Results, pair: PairRow) -> str:
    """State of a comparison: its verdict, or under a gate the outcome of the judged model."""
    outcomes = {row.model: row.outcome for row in results.gate}
    return next((outcomes[name] for name in (pair.first, pair.second) if name in outcomes), pair.verdict)


def state_word(state: str) -> str:
    """Write a state as all displays do."""
    return state.replace("_", " ")


def count_states(states: Iterable[str]) -> str:
    """Number of comparisons in each state, in words."""
    counts = Counter(map(state_word, states))
    return ", ".join(f"{counts[state]} {state}" for state in sorted(counts, key=STATES.index))


def finding(results: Results) -> tuple[str, ...]:
    """The finding of the run in one sentence, after its alarms; for a gate, one sentence a model, the worst outcome
    first. Then what the most important undecided pair would take, once the run has ended, and if labels correct scores
    what the grades alone would give."""
    undecided = filter(None, [undecided_sentence(results)])
    return (*alarm_sentences(results), *main_findings(results), *undecided, *_by_grades(results))


def _by_grades(results: Results) -> Iterator[str]:
    labelled = results.labelled
    if labelled is None or labelled.by_grades is None or _no_ranking(results) is not None:
        return
    with_labels = several(labelled.labels, "label")
    same = labelled.by_grades == " ".join(main_findings(results))
    by_grades = " say the same." if same else f": {labelled.by_grades}"
    yield f"This is by scores corrected with {with_labels}. The grades alone{by_grades}"


def main_findings(results: Results) -> tuple[str, ...]:
    """The finding without its alarms and what labels change."""
    if not results.gate:
        return (_ranking_sentence(results),)
    lines = [gate_line(results, row) for row in sorted(results.gate, key=lambda row: OUTCOMES.index(row.outcome))]
    more = len(lines) - MAX_GATE_LINES
    return (*lines[:MAX_GATE_LINES], *([f"And {more} more."] if more > 0 else []))


def _no_ranking(results: Results) -> str | None:
    """Why an alarm leaves no model to rank; None if it does."""
    scored = {row.name for row in results.models if row.score is not None}
    if results.run.reason == Reason.ALARM and scored <= {row.model for row in results.alarms}:
        return "No ranking: there is an alarm about the answers of every model."
    if is_alarmed(results.decisions, results.warnings):
        return f"No ranking: {safe_line(alarm_in_words(results.warnings))}."
    return None


def _ranking_sentence(results: Results) -> str:
    scored = [row for row in results.models if row.score is not None]
    asked = objective_view(results.decisions)
    if not scored:
        return "No model has a score yet."
    if (nothing := _no_ranking(results)) is not None:
        return nothing
    if not asked.compares:
        done = sum(pair.verdict == Verdict.RESOLVED for pair in results.pairs)
        why = _because_of_labels(results)
        if len(results.pairs) == 1:
            return f"The score is {'' if done else 'not '}as precise as requested{why}."
        scores = f"{several(len(results.pairs), 'score')} {'is' if done == 1 else 'are'}"
        return f"{done} of {scores} as precise as requested{why}."
    if results.frontier:
        return choice_sentence(results)
    if asked.value is not None:
        return _value_sentence(results, Scale.of(results.weights).score(asked.value))
    if asked.baseline is not None:
        return _baseline_sentence(results, asked.baseline)
    void = void_models(results)
    scored = [row for row in scored if row.name not in void]
    if asked.first is not None and (not void or len(scored) > asked.first):
        return _without(void, _top_sentence(results, scored, asked.first))
    if void and len(scored) < min(2, len(results.models)):
        return f"No ranking: answers of {some_models(void)} come back word for word."
    leader = scored[0]
    rivals = (
        [row for row in scored[1:] if row.tier == leader.tier or not {*row.letters}.isdisjoint(leader.letters)]
        if asked.in_order  # a model far behind its neighbour may be level with the first, if it has few trials
        else _unbeaten_rivals(results, leader)
    )
    unscored = [row.name for row in results.models if row.score is None and row.name not in void]
    without = f" {_list_names(unscored)} {'has' if len(unscored) == 1 else 'have'} no score." if unscored else ""
    return f"{_without(void, _leaders_sentence(results, scored, rivals, unscored))}{without}"


def _without(void: Collection[str], sentence: str) -> str:
    """A finding about the other models."""
    return f"Without {some_models(void)}, {sentence.replace('No model', 'no model', 1)}" if void else sentence


def counted_sentence(results: Results) -> str | None:
    """Say which answers the scores include, if more were asked than looks have judged; else None."""
    judged = results.looks[-1].trials if results.looks else 0
    asked = [row for row in results.models if row.recorded is None]
    ahead = sum(row.trials for row in asked) - judged
    if results.run.status == "running" and ahead <= 0:  # else it is about to end
        return f"Scores are of the {judged:,} answers judged so far."
    sentences = []
    if draws_questions(results.decisions):
        low, high = (count(extreme(row.trials for row in results.models)) for extreme in (min, max))
        drawn, total = high if low == high else f"{low} to {high}", count(results.max_trials_per_model)
        sentences.append(f"Each model was asked {drawn} of {total} questions. Scores are for all of them.")
    if ahead > 0 < judged:
        words = f"Scores include {several(ahead, 'answer')} requested ahead of the last look. No verdict uses them."
        sentences.append(words)
    present = [row for row in asked if row.set_aside is None]
    left_out = sum(row.stored_trials - row.ungraded - row.trials for row in present)
    if left_out > 0 < judged and results.run.status != "running":
        kills, stored = results.run.kills, sum(row.stored_trials for row in present)
        why = f" The run was killed {'once' if kills == 1 else f'{kills} times'}." if kills else ""
        whose = "" if len(present) == len(asked) else " of the models that were not set aside"
        share = f"{left_out:,} of {several(stored, 'stored answer')}{whose}"
        sentences.append(f"Scores leave out {share}: no complete round includes them.{why}")
    return " ".join(sentences) or None


def difference_text(results: Results, pair: PairRow, ahead: str | None = None, called: str = "") -> str:
    """The difference in favour of `ahead` (default: the first model) with its 95% interval, which is `called` so."""
    mean = _lead(pair, ahead)
    if mean is None or pair.sigma is None:
        return "unknown"
    points = Scale.of(results.weights).rounded_points(mean)
    if pair.by_trial and len({row.trials for row in results.models if row.name in (pair.first, pair.second)}) > 1:
        points += " on the same trials"  # scores are of all trials
    return f"{points} ({called}{_interval_text(results, mean, pair.sigma)})"


def _lead(pair: PairRow, ahead: str | None) -> float | None:
    """The difference in favour of `ahead` (default: the first model)."""
    if pair.difference is None or ahead in (None, pair.first):
        return pair.difference
    return -pair.difference


def _interval_text(results: Results, mean: float, sigma: float) -> str:
    """The 95% interval of a difference."""
    scale, half = Scale.of(results.weights), TWO_SIDED_95 * sigma
    lo, hi = (scale.rounded_points(mean + side * half).removesuffix(" points") for side in (-1, 1))
    return f"{lo} to {hi}"


INTERVAL = "95% interval "


def gate_pair(results: Results, row: GateRow) -> PairRow:
    """The comparison that decides a model's gate outcome."""
    return next(pair for pair in results.pairs if {pair.first, pair.second} == {row.model, row.baseline})


def gate_line(results: Results, row: GateRow) -> str:
    """One model's outcome, both scores, and their difference with its interval."""
    scale = Scale.of(results.weights)
    value = objective_view(results.decisions).value
    other = f"value {scale.score(value)}" if row.baseline is None else _score_of(results, row.baseline)
    delta = results.setting("stopping", "delta")
    allowed = f"-{scale.points(delta)} allowed; " if delta and row.outcome not in (PASS, FAIL) else ""
    apart = difference_text(results, gate_pair(results, row), row.model, f"{allowed}{INTERVAL}")
    return f"{row.outcome}: {_score_of(results, row.model)}, {other}, difference {apart}; {safe_line(row.why, 300)}."


def _score_of(results: Results, name: str) -> str:
    score = next(model.score for model in results.models if model.name == name)
    return f"{_name(name)} {Scale.of(results.weights).score(score)}"


def letters_tell_more(models: Sequence[ModelRow]) -> bool:
    """Whether some pair shares a tier and no letter, or a letter and no tier."""
    return any(
        (model.tier == other.tier) == set(model.letters).isdisjoint(other.letters)
        for at, model in enumerate(models)
        for other in models[:at]
        if model.letters and other.letters
    )


def pairing_in_words(variance: float) -> str:
    """Say which share of the trials a comparison trial by trial takes: `scorio.sinf.coupling` has the formula."""
    verb = "takes" if variance <= 1.0 else "takes, since they are negatively correlated,"
    return f"compared trial by trial, which {verb} {variance:.2f} times the trials of independent models"


def pairing_sentences(pairs: Sequence[PairRow]) -> tuple[str, ...]:
    """A sentence for each comparison that is judged by trials with the same seeds."""
    return tuple(
        f"{pair.first} and {pair.second} are {pairing_in_words(pair.variance_by_trial)}."
        for pair in pairs
        if pair.variance_by_trial is not None
    )


# -- the sentence of the run -------------------------------------------------------------------------------------------


def _leaders_sentence(results: Results, scored: list[ModelRow], rivals: list[ModelRow], unscored: Sequence[str]) -> str:
    leader = scored[0]
    if len(scored) == 1:
        return f"{_name(leader.name)} is the only model with a score: {Scale.of(results.weights).score(leader.score)}."
    if not rivals:
        margin = pick_margin(results)
        best = "is best:" if margin is None else f"is the best, or less than {margin} behind the best:"
        if unscored:
            best = "is ahead of the others that have a score:"
        return f"{_standing(results, leader, scored[1], best)}."
    among = _joined(results, _names([leader, *rivals]))
    apart = _list_names([row.name for row in rivals if row.name not in among])
    if len(among) == 1:
        highest = _standing(results, leader, scored[1], "has the highest score,")
        return f"{highest}, and is not compared with {apart}."
    standing = _standing(results, leader, next(row for row in rivals if row.name in among))
    if apart:
        standing += f"; {apart} {'is' if len(rivals) == len(among) else 'are'} not compared with them"
    verdicts = {pair.verdict for pair in results.pairs if pair.first in among and pair.second in among}
    if verdicts == {Verdict.TIED}:
        many = len(among) > 2
        equal = f"best, and {'neighbours among them are ' if many else ''}equal"
        if apart:
            equal = f"equal{' to neighbours' if many else ''}"
        return f"{_list_names(among)} are {equal}{_within_delta(results)}: {standing}."
    yet = " yet" if results.run.status == "running" else ""
    if Verdict.UNDECIDED_BY_LABELS in verdicts:
        yet = " (undecided because of labels)"
    if 1 + len(rivals) == len(scored) or leader.name not in {pair.first for pair in results.pairs}:
        return f"No model is shown to be best{yet}: {standing}."
    return f"{_list_names(among)} are ahead, and none of them is shown to be best{yet}: {standing}."


def _joined(results: Results, names: Sequence[str]) -> tuple[str, ...]:
    """Those of these models that comparisons among them join with the first, directly or through others."""
    joined: set[str | None] = {names[0]}
    for _ in names:
        pairs = ({pair.first, pair.second} for pair in results.pairs)
        joined.update(*(pair for pair in pairs if pair & joined and pair <= {*names}))
    return tuple(name for name in names if name in joined)


def _standing(results: Results, model: ModelRow, other: ModelRow, says: str = "has") -> str:
    """A model's score, and its lead over another if the two are compared."""
    pair = next((pair for pair in results.pairs if {pair.first, pair.second} == {model.name, other.name}), None)
    has = f"{_name(model.name)} {says} {Scale.of(results.weights).score(model.score)}"
    if pair is None:
        return has
    scale, mean, against = Scale.of(results.weights), _lead(pair, model.name), _name(other.name)
    if mean is not None and pair.sigma is not None and scale.rounded_points(abs(mean)) == scale.rounded_points(0.0):
        apart = f"{INTERVAL}of the difference {_interval_text(results, mean, pair.sigma)}"
        return f"{has}, level with {against} ({apart})"
    return f"{has}, ahead of {against} by {difference_text(results, pair, model.name, INTERVAL)}"


def _unbeaten_rivals(results: Results, leader: ModelRow) -> list[ModelRow]:
    beaten = {
        pair.second
        for pair in results.pairs
        if pair.first == leader.name and pair.verdict == Verdict.RESOLVED and not _is_reversed(results, pair)
    }
    others = {leader.name, *beaten, *void_models(results)}
    return [row for row in results.models if row.score is not None and row.name not in others]


def _top_sentence(results: Results, scored: list[ModelRow], size: int) -> str:
    names = _names(scored[:size])
    last, *others = scored[size - 1 : size + 1]
    nearest = f": {_standing(results, last, others[0])}" if others else ""
    void = void_models(results)
    pairs = [pair for pair in results.pairs if pair.first not in void and pair.second not in void]
    open_ = sum(pair.verdict != Verdict.RESOLVED or _is_reversed(results, pair) for pair in pairs)
    why = _because_of_labels(results)
    verb = "is" if len(names) == 1 else "are"
    if not open_:
        margin = pick_margin(results)
        lead = "better than each of the others" if margin is None else f"or less than {margin} behind any of the others"
        return f"{_list_names(names, size)} {verb} the best {size}, {lead}{nearest}."
    undecided = f"{open_} of {several(len(pairs), 'comparison')}"
    return f"{_list_names(names, size)} {verb} ahead; {undecided} with the others not resolved{why}{nearest}."


def _because_of_labels(results: Results) -> str:
    undecided = sum(pair.verdict == Verdict.UNDECIDED_BY_LABELS for pair in results.pairs)
    return f" ({undecided} because of labels)" if undecided else ""


def _value_sentence(results: Results, value: str) -> str:
    called = [pair for pair in results.pairs if pair.verdict == Verdict.RESOLVED]
    above = sum(((pair.z or 0.0) > 0.0) != _is_reversed(results, pair) for pair in called)
    unknown, why = len(results.pairs) - len(called), _because_of_labels(results)
    return f"{several(above, 'model')} above {value}, {len(called) - above} below it, {unknown} undecided{why}."


def _baseline_sentence(results: Results, baseline: str) -> str:
    called = [pair for pair in results.pairs if pair.verdict == Verdict.RESOLVED]
    ahead = [pair.second if _is_reversed(results, pair) else pair.first for pair in called]
    better, worse = sum(name != baseline for name in ahead), ahead.count(baseline)
    tied = sum(pair.verdict == Verdict.TIED for pair in results.pairs)
    counted = [
        f"{worse} worse" if worse else "",
        f"{tied} equal{_within_delta(results)}" if tied else "",
        count_states(pair.verdict for pair in results.pairs if pair.verdict in UNDECIDED),
    ]
    both = [row for row in results.models if row.score is not None]
    apart = f": {_standing(results, both[0], both[1])}" if len(both) == 2 == len(results.models) else ""
    parts = [f"{several(better, 'model')} better than {_name(baseline)}", *filter(None, counted)]
    return f"{', '.join(parts)}{apart}."


# -- the sentences of the models ---------------------------------------------------------------------------------------


def model_clauses(results: Results, row: ModelRow) -> Iterator[Clause]:
    """A model's relations to others: first equal and open, then better and worse. Where only neighbours are compared,
    the upper one of the two has the clause."""
    asked = objective_view(results.decisions)
    gate = {gate_row.model: gate_row for gate_row in results.gate}
    if row.name == asked.baseline:
        yield Clause("", "the baseline")
        return
    pairs = [pair for pair in results.pairs if row.name in (pair.first, pair.second)]
    if row.name in gate:
        why = f": {gate[row.name].why}" if len(gate) > MAX_GATE_LINES else ""  # else the finding says it
        yield Clause(pairs[0].verdict, gate[row.name].outcome, after=why)
        return
    if is_alarmed(results.decisions, results.warnings):
        return  # such answers support no verdict
    if (priced := next((priced for priced in results.frontier if priced.model == row.name), None)) is not None:
        yield Clause("", *part_in_words(results, priced))
        return
    if asked.in_order:
        pairs = [pair for pair in pairs if pair.first == row.name] or pairs
    with_others: dict[tuple[str, str, str], list[str]] = {}
    for pair in pairs:
        other = pair.second if row.name == pair.first else pair.first
        with_others.setdefault((pair.verdict, *_relation(results, pair, row.name)), []).extend(filter(None, [other]))
    for verdict, words, after in sorted(with_others, key=lambda key: key[0] == Verdict.RESOLVED):
        yield Clause(verdict, words, tuple(with_others[verdict, words, after]), after)


def _relation(results: Results, pair: PairRow, name: str) -> tuple[str, str]:
    """A verdict as words before the name of the other model, or with the value, and words after that."""
    asked, scale, margin = objective_view(results.decisions), Scale.of(results.weights), pick_margin(results)
    is_resolved, is_reversed = pair.verdict == Verdict.RESOLVED, _is_reversed(results, pair)
    if pair.second is None and asked.value is None:
        half = "" if asked.half_width is None else f" to within {scale.points(asked.half_width)}"
        return f"{'known' if is_resolved else 'not known'}{half}", ""
    is_ahead, after = pair.first == name, ""
    if pair.verdict == Verdict.TIED:
        words, after = "equal to", _within_delta(results)
    elif not is_resolved:
        words = f"{state_word(pair.verdict)} against"
    elif margin is not None and is_reversed:
        words = "undecided against"
    elif margin is not None:
        words, other_side = ("ahead of", "behind") if is_ahead else ("behind", "ahead")
        after = f", or less than {margin} {other_side}"
    elif is_reversed:
        words = "ahead now, but decided as worse than" if is_ahead else "behind now, but decided as better than"
    elif pair.second is None:
        words = "above" if (pair.z or 0.0) > 0.0 else "below"
    else:
        words = "better than" if is_ahead else "worse than"
    return words if pair.second is not None else f"{words} {scale.score(asked.value)}", after


def _within_delta(results: Results) -> str:
    delta = results.setting("stopping", "delta")
    return f" within {Scale.of(results.weights).points(delta)}" if delta else ""


def has_tiers(results: Results) -> bool:
    """Whether tiers say anything: a gate judges each model alone, and a pick, or the choice of the cheapest, compares
    models with one of them only."""
    is_choice = objective_view(results.decisions).margin is not None
    return not results.gate and not is_choice and pick_margin(results) is None


def pick_margin(results: Results) -> str | None:
    """The margin of a picked model behind the best, in words; None if decisions say which model is better."""
    rule = deciding_rule(results.decisions)
    delta = results.setting("stopping", "delta")
    return Scale.of(results.weights).points(delta) if rule is not None and rule.lenient and delta else None


def _is_reversed(results: Results, pair: PairRow) -> bool:
    """Whether the pair was called for the other model, and the scores have changed places since."""
    return (pair.first, pair.second) in results.reversals


def _names(rows: Sequence[ModelRow]) -> tuple[str, ...]:
    return tuple(row.name for row in rows)


def _name(name: str | None) -> str:
    return "the value" if name is None else safe_name(name, LONGEST_NAME)


def _list_names(names: Sequence[str], limit: int = MAX_NAMES) -> str:
    """Names in words; those beyond `limit` are only counted."""
    shown = [_name(name) for name in names[:limit]] + ([f"{len(names) - limit} more"] if len(names) > limit else [])
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)
