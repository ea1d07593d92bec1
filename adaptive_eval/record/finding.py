"""What a run has found, as sentences: one for the run, one for each model, one for each pair that is not told apart."""

from collections.abc import Iterator, Mapping, Sequence

from adaptive_eval.core.types import Verdict
from adaptive_eval.record.lines import safe_line, safe_name, several
from adaptive_eval.record.objective import objective_view
from adaptive_eval.record.results import GateRow, ModelRow, PairRow, Results
from adaptive_eval.record.scale import WIDTH_95, Scale

LONGEST_NAME = 40
NAMED = 3
"""Models that a sentence names; of more it says how many."""
UNDECIDED = (Verdict.OPEN, Verdict.OUT_OF_REACH, Verdict.BLOCKED)


def finding(results: Results) -> str:
    """What the run has found, in one sentence; of a gate a sentence for each model."""
    scored = [row for row in results.models if row.score is not None]
    asked = objective_view(results.decisions)
    if not scored:
        return "No model has a score yet."
    if results.gate:
        return " ".join(gate_line(results, row) for row in results.gate[:NAMED]) + _further(len(results.gate))
    if not asked.compares:
        done = sum(pair.verdict == Verdict.RESOLVED for pair in results.pairs)
        known = "is" if done == 1 else "are"
        return f"{done} of {several(len(results.pairs), 'score')} {known} known as precisely as was asked."
    if asked.value is not None:
        return _beside_value(results, Scale.of(results.weights).score(asked.value))
    if asked.baseline is not None:
        return _beside_baseline(results, asked.baseline)
    if asked.first is not None:
        return _first(results, scored, asked.first)
    leader = scored[0]
    rivals = _rivals(results, scored) if asked.in_order else _not_beaten(results, leader)
    return _leaders(results, scored, rivals)


def model_verdicts(results: Results) -> tuple[str, ...]:
    """How each model compares with those it was held against, best model first; "" where there is nothing to say."""
    return tuple(", ".join(_clauses(results, row)) for row in results.models)


def equal_sentences(results: Results) -> list[str]:
    """A sentence for each pair that was found to be equal."""
    return [
        f"{_name(pair.better)} {_equal_to(results, 'is equal to', _name(pair.worse))}."
        if pair.worse is None
        else f"{_name(pair.better)} and {_name(pair.worse)} are equal{_within(results)}."
        for pair in results.pairs
        if pair.verdict == Verdict.TIED
    ]


def difference(results: Results, pair: PairRow, ahead: str | None = None) -> str:
    """By how much `ahead`, or else the better one, is ahead, with a 95% interval."""
    if pair.difference is None or pair.sigma is None:
        return "unknown"
    scale, half = Scale.of(results.weights), WIDTH_95 * pair.sigma
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


def _leaders(results: Results, scored: list[ModelRow], rivals: list[ModelRow]) -> str:
    """Who is best, and by how much; or who may be."""
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
        return f"{_listed(among)} are best, and {each}equal{_within(results)}."
    yet = " yet" if results.run.status == "running" else ""
    if len(among) == len(scored) or leader.name not in {pair.better for pair in results.pairs}:
        return f"No model is shown to be best{yet}: {name} has the highest score, {height}."
    return f"{_listed(among)} are ahead; which of them is best is not decided{yet}."


def _rivals(results: Results, scored: list[ModelRow]) -> list[ModelRow]:
    """The other models of the first tier."""
    return [row for row in scored[1:] if row.tier == scored[0].tier]


def _not_beaten(results: Results, leader: ModelRow) -> list[ModelRow]:
    """The models that are not shown to be worse than the leader."""
    beaten = {
        pair.worse
        for pair in results.pairs
        if pair.better == leader.name and pair.verdict == Verdict.RESOLVED and not _is_reversed(results, pair)
    }
    return [row for row in results.models if row.score is not None and row.name not in {leader.name, *beaten}]


def _first(results: Results, scored: list[ModelRow], wanted: int) -> str:
    """Which models come first, and whether all others are shown to be worse."""
    names = _names(scored[:wanted])
    open_ = sum(pair.verdict != Verdict.RESOLVED or _is_reversed(results, pair) for pair in results.pairs)
    verb = "is" if len(names) == 1 else "are"
    if not open_:
        return f"{_listed(names, wanted)} {verb} the best {wanted}: better than each of the others."
    left = f"{open_} of {several(len(results.pairs), 'comparison')}"
    return f"{_listed(names, wanted)} {verb} ahead; {left} with the others not resolved."


def _beside_value(results: Results, value: str) -> str:
    """How many models are above a fixed value."""
    called = [pair for pair in results.pairs if pair.verdict == Verdict.RESOLVED]
    above = sum(((pair.z or 0.0) > 0.0) != _is_reversed(results, pair) for pair in called)
    left = len(results.pairs) - len(called)
    return f"{several(above, 'model')} above {value}, {len(called) - above} below it, {left} not known to be either."


def _beside_baseline(results: Results, baseline: str) -> str:
    """How many models are better than the baseline."""
    found = [_winner(results, pair) for pair in results.pairs if pair.verdict == Verdict.RESOLVED]
    better, worse = sum(name != baseline for name in found), found.count(baseline)
    tied = sum(pair.verdict == Verdict.TIED for pair in results.pairs)
    counted = [
        f"{worse} worse" if worse else "",
        f"{tied} equal{_within(results)}" if tied else "",
        f"{left} not decided" if (left := len(results.pairs) - len(found) - tied) else "",
    ]
    return ", ".join([f"{several(better, 'model')} better than {_name(baseline)}", *filter(None, counted)]) + "."


# -- the sentences of the models ---------------------------------------------------------------------------------------


def _clauses(results: Results, row: ModelRow) -> Iterator[str]:
    """What is known of a model beside others: what it equals or is not told from, then what it is better than."""
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
            found.setdefault(_relation(results, pair, row.name), []).append("" if other is None else other)
    if asked.in_order and len(found) > 1:
        found.pop("worse than", None)  # the one above says it
    for relation in sorted(found, key=lambda one: one in ("better than", "worse than")):
        if found[relation] == [""]:
            yield _beside_fixed(results, relation, row.name)
        else:
            others = found[relation]
            named = _listed(others) if len(others) <= NAMED else several(len(others), "model")
            yield _equal_to(results, relation, named)


def _relation(results: Results, pair: PairRow, name: str) -> str:
    """What is known of a model beside the other of its pair."""
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


def _beside_fixed(results: Results, relation: str, name: str) -> str:
    """The same of a model that is held against a value, or measured by itself."""
    asked, scale = objective_view(results.decisions), Scale.of(results.weights)
    if asked.value is None:
        half = "" if asked.half_width is None else f" to within {scale.points(asked.half_width)}"
        return f"{'known' if relation in ('better than', 'worse than') else 'not known'}{half}"
    value = scale.score(asked.value)
    if relation in ("better than", "worse than"):
        (pair,) = (one for one in results.pairs if one.better == name)
        return f"{'above' if (pair.z or 0.0) > 0.0 else 'below'} {value}"
    return _equal_to(results, relation, value)


def _equal_to(results: Results, relation: str, other: str) -> str:
    return f"{relation} {other}{_within(results) if relation.endswith('equal to') else ''}"


def _within(results: Results) -> str:
    """The zone in which two scores count as equal."""
    stopping = results.decisions.get("stopping")
    delta = stopping.get("delta") if isinstance(stopping, Mapping) else None
    return f" within {Scale.of(results.weights).points(delta)}" if delta else ""


def _is_reversed(results: Results, pair: PairRow) -> bool:
    """Whether it was called for the other one of the two, and the scores have changed places since."""
    return (pair.better, pair.worse) in results.reversals


def _winner(results: Results, pair: PairRow) -> str | None:
    return pair.worse if _is_reversed(results, pair) else pair.better


def _names(rows: Sequence[ModelRow]) -> tuple[str, ...]:
    return tuple(row.name for row in rows)


def _name(name: str | None) -> str:
    return "the value" if name is None else safe_name(name, LONGEST_NAME)


def _listed(names: Sequence[str], most: int = NAMED) -> str:
    """Some names in words, and how many more there are."""
    shown = [_name(name) for name in names[:most]] + ([f"{len(names) - most} more"] if len(names) > most else [])
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def _further(models: int) -> str:
    return f" And {models - NAMED} more." if models > NAMED else ""
