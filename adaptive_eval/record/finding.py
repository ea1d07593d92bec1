"""Findings of a run as sentences: for the run, for each model, and for each pair that is equal."""

from collections.abc import Iterator, Mapping, Sequence

from adaptive_eval.core.result import TWO_SIDED_95
from adaptive_eval.core.types import Verdict
from adaptive_eval.record.lines import safe_line, safe_name, several
from adaptive_eval.record.results import GateRow, ModelRow, PairRow, Results
from adaptive_eval.record.scale import Scale
from adaptive_eval.record.words import objective_view

LONGEST_NAME = 40
NAMED = 3
"""Models that a sentence names; of more it says how many."""
UNDECIDED = (Verdict.OPEN, Verdict.OUT_OF_REACH, Verdict.BLOCKED)


def finding(results: Results) -> str:
    """The finding of the run in one sentence; for a gate, one sentence a model."""
    scored = [row for row in results.models if row.score is not None]
    asked = objective_view(results.decisions)
    if not scored:
        return "No model has a score yet."
    if results.gate:
        further = [f"And {len(results.gate) - NAMED} more."] if len(results.gate) > NAMED else []
        return " ".join([*(gate_line(results, row) for row in results.gate[:NAMED]), *further])
    if not asked.compares:
        done = sum(pair.verdict == Verdict.RESOLVED for pair in results.pairs)
        known = "is" if done == 1 else "are"
        return f"{done} of {several(len(results.pairs), 'score')} {known} known as precisely as was asked."
    if asked.value is not None:
        return _value_sentence(results, Scale.of(results.weights).score(asked.value))
    if asked.baseline is not None:
        return _baseline_sentence(results, asked.baseline)
    if asked.first is not None:
        return _top_sentence(results, scored, asked.first)
    leader = scored[0]
    rivals = (
        [row for row in scored[1:] if row.tier == leader.tier] if asked.in_order else _unbeaten_rivals(results, leader)
    )
    return _leaders_sentence(results, scored, rivals)


def model_verdicts(results: Results) -> tuple[str, ...]:
    """How each model compares with the others, best model first; "" if no comparison involves it."""
    return tuple(", ".join(_model_clauses(results, row)) for row in results.models)


def equal_sentences(results: Results) -> list[str]:
    """A sentence for each pair that was found to be equal."""
    return [
        f"{_name(pair.better)} {_with_zone(results, 'is equal to', _name(pair.worse))}."
        if pair.worse is None
        else f"{_name(pair.better)} and {_name(pair.worse)} are equal{_zone(results)}."
        for pair in results.pairs
        if pair.verdict == Verdict.TIED
    ]


def difference(results: Results, pair: PairRow, ahead: str | None = None) -> str:
    """The difference in favour of `ahead`, or else of the better model, with a 95% interval."""
    if pair.difference is None or pair.sigma is None:
        return "unknown"
    scale, half = Scale.of(results.weights), TWO_SIDED_95 * pair.sigma
    mean = pair.difference if ahead in (None, pair.better) else -pair.difference
    lo, hi = (scale.rounded_points(mean + side * half).removesuffix(" points") for side in (-1, 1))
    return f"{scale.rounded_points(mean)} ({lo} to {hi})"


def gate_line(results: Results, row: GateRow) -> str:
    """The outcome of one model, both scores, and their difference with its interval."""
    scale, scores = Scale.of(results.weights), {one.name: one.score for one in results.models}
    (pair,) = (one for one in results.pairs if {one.better, one.worse} == {row.model, row.baseline})
    both = ", ".join(f"{_name(name)} {scale.score(scores[name])}" for name in (row.model, row.baseline))
    return f"{row.outcome}: {both}, difference {difference(results, pair, row.model)}: {safe_line(row.why, 300)}."


def letters_tell_more(models: Sequence[ModelRow]) -> bool:
    """Whether some pair shares a tier and no letter, or a letter and no tier."""
    return any(
        (one.tier == other.tier) == set(one.letters).isdisjoint(other.letters)
        for at, one in enumerate(models)
        for other in models[:at]
        if one.letters and other.letters
    )


# -- the sentence of the run -------------------------------------------------------------------------------------------


def _leaders_sentence(results: Results, scored: list[ModelRow], rivals: list[ModelRow]) -> str:
    leader, scale = scored[0], Scale.of(results.weights)
    name, height = _name(leader.name), scale.score(leader.score)
    if len(scored) == 1:
        return f"{name} is the only model with a score: {height}."
    if not rivals:
        following = next((pair for pair in results.pairs if (pair.better, pair.worse) == _names(scored[:2])), None)
        ahead = "" if following is None else f", ahead of {_name(following.worse)} by {difference(results, following)}"
        return f"{name} is best: {height}{ahead}."
    among = _names([leader, *rivals])
    verdicts = {pair.verdict for pair in results.pairs if pair.better in among and pair.worse in among}
    if verdicts == {Verdict.TIED}:
        each = "neighbours among them are " if len(rivals) > 1 else ""
        return f"{_list_names(among)} are best, and {each}equal{_zone(results)}."
    yet = " yet" if results.run.status == "running" else ""
    if len(among) == len(scored) or leader.name not in {pair.better for pair in results.pairs}:
        return f"No model is shown to be best{yet}: {name} has the highest score, {height}."
    return f"{_list_names(among)} are ahead; which of them is best is not decided{yet}."


def _unbeaten_rivals(results: Results, leader: ModelRow) -> list[ModelRow]:
    beaten = {
        pair.worse
        for pair in results.pairs
        if pair.better == leader.name and pair.verdict == Verdict.RESOLVED and not _is_reversed(results, pair)
    }
    return [row for row in results.models if row.score is not None and row.name not in {leader.name, *beaten}]


def _top_sentence(results: Results, scored: list[ModelRow], wanted: int) -> str:
    names = _names(scored[:wanted])
    open_ = sum(pair.verdict != Verdict.RESOLVED or _is_reversed(results, pair) for pair in results.pairs)
    verb = "is" if len(names) == 1 else "are"
    if not open_:
        return f"{_list_names(names, wanted)} {verb} the best {wanted}: better than each of the others."
    left = f"{open_} of {several(len(results.pairs), 'comparison')}"
    return f"{_list_names(names, wanted)} {verb} ahead; {left} with the others not resolved."


def _value_sentence(results: Results, value: str) -> str:
    called = [pair for pair in results.pairs if pair.verdict == Verdict.RESOLVED]
    above = sum(((pair.z or 0.0) > 0.0) != _is_reversed(results, pair) for pair in called)
    left = len(results.pairs) - len(called)
    return f"{several(above, 'model')} above {value}, {len(called) - above} below it, {left} not known to be either."


def _baseline_sentence(results: Results, baseline: str) -> str:
    called = [pair for pair in results.pairs if pair.verdict == Verdict.RESOLVED]
    found = [pair.worse if _is_reversed(results, pair) else pair.better for pair in called]
    better, worse = sum(name != baseline for name in found), found.count(baseline)
    tied = sum(pair.verdict == Verdict.TIED for pair in results.pairs)
    counted = [
        f"{worse} worse" if worse else "",
        f"{tied} equal{_zone(results)}" if tied else "",
        f"{left} not decided" if (left := len(results.pairs) - len(found) - tied) else "",
    ]
    return ", ".join([f"{several(better, 'model')} better than {_name(baseline)}", *filter(None, counted)]) + "."


# -- the sentences of the models ---------------------------------------------------------------------------------------


def _model_clauses(results: Results, row: ModelRow) -> Iterator[str]:
    """A model's relations to others: equal and undecided ones first, then better and worse."""
    asked = objective_view(results.decisions)
    gate = {one.model: one for one in results.gate}
    if row.name == asked.baseline:
        yield "the baseline"
        return
    if row.name in gate:
        yield f"{gate[row.name].outcome}: {gate[row.name].why}"
        return
    found: dict[str, list[str]] = {}
    for pair in results.pairs:
        if row.name in (pair.better, pair.worse):
            other = pair.worse if row.name == pair.better else pair.better
            found.setdefault(_pair_relation(results, pair, row.name), []).append("" if other is None else other)
    if asked.in_order and len(found) > 1:
        found.pop("worse than", None)  # the one above says it
    for relation in sorted(found, key=lambda one: one in ("better than", "worse than")):
        if found[relation] == [""]:
            yield _value_clause(results, relation, row.name)
        else:
            others = found[relation]
            named = _list_names(others) if len(others) <= NAMED else several(len(others), "model")
            yield _with_zone(results, relation, named)


def _pair_relation(results: Results, pair: PairRow, name: str) -> str:
    ahead = pair.better == name
    if pair.verdict == Verdict.RESOLVED and _is_reversed(results, pair):
        return "ahead now, but was called worse than" if ahead else "behind now, but was called better than"
    return relation(pair.verdict, ahead=ahead, running=results.run.status == "running")


def relation(verdict: str, *, ahead: bool, running: bool = False) -> str:
    """A verdict as words that stand before the name of the other model."""
    match verdict:
        case Verdict.RESOLVED:
            return "better than" if ahead else "worse than"
        case Verdict.TIED:
            return "equal to"
        case Verdict.BLOCKED:
            return "not comparable with"
    return "undecided so far against" if verdict == Verdict.OPEN and running else "undecided against"


def _value_clause(results: Results, relation: str, name: str) -> str:
    """The clause for a model that is compared with a value, or measured by itself."""
    asked, scale = objective_view(results.decisions), Scale.of(results.weights)
    if asked.value is None:
        half = "" if asked.half_width is None else f" to within {scale.points(asked.half_width)}"
        return f"{'known' if relation in ('better than', 'worse than') else 'not known'}{half}"
    value = scale.score(asked.value)
    if relation in ("better than", "worse than"):
        (pair,) = (one for one in results.pairs if one.better == name)
        return f"{'above' if (pair.z or 0.0) > 0.0 else 'below'} {value}"
    return _with_zone(results, relation, value)


def _with_zone(results: Results, relation: str, other: str) -> str:
    return f"{relation} {other}{_zone(results) if relation.endswith('equal to') else ''}"


def _zone(results: Results) -> str:
    stopping = results.decisions.get("stopping")
    delta = stopping.get("delta") if isinstance(stopping, Mapping) else None
    return f" within {Scale.of(results.weights).points(delta)}" if delta else ""


def _is_reversed(results: Results, pair: PairRow) -> bool:
    """The pair was called for the other model, and the scores have changed places since."""
    return (pair.better, pair.worse) in results.reversals


def _names(rows: Sequence[ModelRow]) -> tuple[str, ...]:
    return tuple(row.name for row in rows)


def _name(name: str | None) -> str:
    return "the value" if name is None else safe_name(name, LONGEST_NAME)


def _list_names(names: Sequence[str], most: int = NAMED) -> str:
    """Names in words; of more than `most` their number."""
    shown = [_name(name) for name in names[:most]] + ([f"{len(names) - most} more"] if len(names) > most else [])
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)
