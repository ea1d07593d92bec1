"""Warnings to read before believing a ranking, each with its possible effect on the scores."""

import re
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from types import MappingProxyType

from adaptive_eval.base.lists import first_few
from adaptive_eval.base.numbers import plain_number
from adaptive_eval.core.answer_kinds import INCOMPLETE, PHRASES, AnswerKind
from adaptive_eval.core.plan import Plan
from adaptive_eval.core.result import ModelResult
from adaptive_eval.core.rules import Correctable, Extendable, Rule
from adaptive_eval.core.settings import Bench
from adaptive_eval.core.stages import Extension
from adaptive_eval.core.types import Cost
from adaptive_eval.machine.repeats import Sampled, find_repeats, repeats_sentence
from adaptive_eval.machine.usage import AnswerFault, TrialUsage, fault_sentence
from adaptive_eval.notes import (
    AlarmRaised,
    AnswersLost,
    Event,
    OutcomesRecorded,
    PriorTaken,
    ServerLaunched,
    ServersNoticed,
    SettingsChanged,
    TrialsImported,
    TrialsRegraded,
    alarms_of_events,
    events_of_kind,
)
from adaptive_eval.report.changes import changes_promise, single_changes
from adaptive_eval.report.labelled import MIN_LABELS, LabelledRun
from adaptive_eval.report.lines import Scale, several
from adaptive_eval.report.looks import changed_horizons
from adaptive_eval.report.other_costs import total_cost
from adaptive_eval.report.results import INCOMPLETE_PRIOR, REDECIDED, Caution, ModelRow, setting
from adaptive_eval.report.words import deciding_rule, grader_errors_note, judged_by, objective_view

LOGS = "imported logs"
"""Grader of outcomes that have the grades of imported logs."""
PRICED = re.compile(r"models\..+\.(price|gpus)(\.\w+)?")
"""Settings of a model that say what its answers cost."""
SAME_SEEDS = (
    "Outcomes of the other run have this run's seeds: a server that keeps to them gives the same answers again, which "
    "count twice; a new run with another `seed` avoids this"
)
NAMED = 3
"""Models or settings that one warning names."""
AFRESH = "a new run (--fresh) with this maximum, or `rule: anytime`, avoids this"


def horizon_cautions(rule: Rule, extensions: Sequence[Extension], events: Sequence[Event]) -> Iterator[Caution]:
    """Warn of each change of the horizon after a look, with its price."""
    dates = [_date(change.at) for change in changed_horizons(events)]
    for number, extension in enumerate(extensions):
        date = f" ({dates[number]})" if number < len(dates) else ""
        verb = "raised" if extension.now > extension.before else "lowered"
        looks = f"look {extension.looks}"
        summary = f"trials.max was {verb} from {extension.before} to {extension.now} after {looks}{date}"
        yield Caution("horizon", None, f"{summary}: {_extension_price(rule, extension)}")


def _extension_price(rule: Rule, extension: Extension) -> str:
    if extension.leaves_error:
        return (
            "the promise holds, but comparisons that were undecided then need stronger evidence, and cannot be decided "
            f"once their allowed error is used up; {AFRESH}"
        )
    if isinstance(rule, Extendable):
        return "the rule does not depend on it, and its promise holds"
    return "it is unknown whether what the rule promises about repeated looks still holds"


def decision_cautions(events: Sequence[Event]) -> Iterator[Caution]:
    """Warn of settings that the promise depends on and that were changed after looks."""
    for event in events_of_kind(events, SettingsChanged):
        settings = single_changes(event.changes)
        changes = [
            path if isinstance(was or now, list | Mapping) else f"{path}: {was} → {now}"  # long, as categories are
            for path, was, now in settings
            if changes_promise(path)
        ]
        if changes and event.looks:
            yield Caution(
                REDECIDED,
                None,
                f"changed after {several(event.looks, 'look')} ({_date(event.at)}): {', '.join(changes)}; later looks "
                "judge all answers by these settings. The promise does not cover settings chosen after seeing results",
            )


def price_cautions(events: Sequence[Event]) -> Iterator[Caution]:
    """Warn of prices and GPUs of models that were changed, or given, after looks."""
    for event in events_of_kind(events, SettingsChanged):
        paths = [path for path, *_ in single_changes(event.changes) if PRICED.fullmatch(path)]
        if paths and event.looks:
            when = f"changed after {several(event.looks, 'look')} ({_date(event.at)})"
            stays = (
                "answers before that keep the cost that they had, 0 without a price, in limits and in cost per answer"
            )
            yield Caution("price", None, f"{when}: {first_few(paths, NAMED)}; {stays}")


def uncounted_caution(stored: int, uncounted: int) -> Iterator[Caution]:
    """Warn that a run that goes on has stored trials that no round has reached, as after grades have changed."""
    if uncounted > MIN_REPORTED_SHARE * stored:
        yield Caution(
            "uncounted",
            None,
            f"{uncounted:,} of {stored:,} stored trials are not in the scores yet; they count once a round of this "
            "run includes them",
        )


def joined_caution(plan: Plan) -> Iterator[Caution]:
    """Warn of models that joined after looks where all comparisons share an error: what was called before stands.

    Of m hypotheses, n of which are new, the earlier calls have the whole error, and each new hypothesis 1/m of it.
    """
    if plan.judging.familywise and isinstance(plan.deciding_rule, Correctable) and _has_joined(plan):
        yield Caution(
            "joined",
            None,
            "models joined after a look, and earlier decisions stand: the risk that any comparison is ordered wrongly "
            "may be larger than promised, by less than the promised risk for each time that models joined",
        )


def _has_joined(plan: Plan) -> bool:
    before = plan.before
    if before is None or not before.verdicts_stand:
        return False
    return len(before.last_places(standing=True)) < len(before.models) or _has_joined(before.run.plan)


def _date(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).date().isoformat()


MIN_REPORTED_SHARE = 0.02
"""Smallest share of truncated, empty or refused answers that is reported."""

REPORTED_KINDS = (
    AnswerKind.TRUNCATED,
    AnswerKind.EMPTY,
    AnswerKind.REASONING_ONLY,
    AnswerKind.REFUSAL,
    AnswerKind.CONTENT_FILTER,
    AnswerKind.CONTEXT_LENGTH,
    AnswerKind.TIMED_OUT,
)
"""Kinds of answers whose shares are reported; missing answers have a warning of their own."""
_REMEDIES: Mapping[AnswerKind, str] = {
    AnswerKind.CONTEXT_LENGTH: "a smaller sampling.max_tokens or a server with a larger context",
    AnswerKind.TRUNCATED: "a larger sampling.max_tokens",
    AnswerKind.TIMED_OUT: "a longer sampling.timeout",
}
ROOM_FOR_MORE = "a server with a larger context, and then a larger sampling.max_tokens"
"""The remedy where some answers were cut off, and others exceed the context: a smaller max_tokens would cut more."""
_MORE = {
    AnswerKind.TRUNCATED: " (max_tokens, the server's context, or a limit of the task)",
    AnswerKind.REASONING_ONLY: (
        ", and were graded as empty; if the answer is in the reasoning, check the reasoning parser of the server"
    ),
}


def remedies(kinds: AnswerKind) -> str:
    """What would make answers of these kinds complete; "" if nothing is known to."""
    both = AnswerKind.CONTEXT_LENGTH | AnswerKind.TRUNCATED
    first, kinds = ([ROOM_FOR_MORE], kinds & ~both) if both in kinds else ([], kinds)
    return " and ".join([*first, *(_REMEDIES[kind] for kind in INCOMPLETE & kinds)])


def rule_caution(decisions: Mapping[str, object]) -> Iterator[Caution]:
    """Warn of repeated looks under a rule that was made for a single look."""
    rule = deciding_rule(decisions)
    if rule is not None and rule.caution:
        yield Caution("peeking", None, rule.caution)


def judge_caution(
    decisions: Mapping[str, object], models: Sequence[ModelRow], corrected: Container[str]
) -> Iterator[Caution]:
    """Warn that the promise leaves out a judge's errors, unless labels correct all scores for them."""
    uncorrected = [row for row in models if row.score is not None and row.name not in corrected]
    if (judge := judged_by(decisions)) is not None and (uncorrected or not models):
        yield Caution("judged", None, grader_errors_note(judge))


def label_cautions(models: Sequence[ModelRow], labelled: LabelledRun | None) -> Iterator[Caution]:
    """Explain corrected scores, and name models with too few labels."""
    if labelled is None:
        return
    if labelled.problem is not None:
        yield Caution("labels", None, f"the labels cannot be used: {labelled.problem}")
        return
    if not labelled.corrected:
        return
    wrong = sum(row.disagreements for row in labelled.models)
    yield Caution(
        "labels",
        None,
        f"{several(labelled.labels, 'label')} correct the scores, the order and the verdicts; the grader disagrees "
        f"with {wrong:,} of them. The promise now covers the scores that labels of all answers would give. It assumes "
        "that labelled answers were not chosen by content, and that the number of labels was fixed beforehand",
    )
    few = [row for row in models if row.score is not None and row.name not in labelled.corrected]
    if few:
        is_asked = any(row.recorded is None for row in few)
        advice = "label equally many answers of each model" if is_asked else "answers of recorded models have none here"
        yield Caution(
            "few_labels",
            None,
            f"fewer than {MIN_LABELS} labels, so their scores are not corrected: "
            f"{first_few([row.name for row in few], NAMED)}. A comparison with such a model only keeps its verdict if "
            f"the corrected score of the other model supports it; {advice}",
        )


def recorded_caution(names: Sequence[str], events: Sequence[Event]) -> Iterator[Caution]:
    """Warn of earlier outcomes whose grades are those of imported logs, or are corrected by labels elsewhere."""
    graded = {event.model: event.meaning.get("grader") for event in events_of_kind(events, OutcomesRecorded)}
    if logged := [name for name in names if graded.get(name) == LOGS]:
        yield Caution(
            "recorded_logs",
            None,
            f"the recorded outcomes of {', '.join(logged)} have the grades of the logs they came from: the ranking "
            "holds only if this run's grader gives the same grades",
        )
    corrected = [event.model for event in events_of_kind(events, OutcomesRecorded) if event.corrected]
    for prior in events_of_kind(events, PriorTaken)[-1:]:
        corrected += prior.corrected or ()
    if present := [name for name in names if name in corrected]:
        yield Caution(
            "labels_elsewhere",
            None,
            f"in the earlier run labels correct the score of {', '.join(present)}; here the earlier answers count as "
            "they were graded there: label answers of this run, or do without the earlier run",
        )


def elsewhere_cautions(names: Sequence[str], depths: Sequence[float], events: Sequence[Event]) -> Iterator[Caution]:
    """Repeat what the runs that recorded outcomes, and R0 of models that have any (D), come from warn of."""
    alarms = {event.model: (event.run, event.alarm) for event in events_of_kind(events, OutcomesRecorded)}
    counted = {name for name, depth in zip(names, depths, strict=True) if depth}
    for prior in events_of_kind(events, PriorTaken)[-1:]:
        alarms |= {name: (prior.run, alarm) for name, alarm in (prior.alarms or {}).items() if name in counted}
    for name in names:
        run, alarm = alarms.get(name, ("", None))
        if alarm is not None:
            yield Caution("alarm_elsewhere", name, f"its answers count here as in the run {run}, which warns: {alarm}")


def prior_caution(
    names: Sequence[str], depths: Sequence[float], models: Sequence[ModelRow], events: Sequence[Event]
) -> Iterator[Caution]:
    """Warn of R0 in scores: how much of it (D), how its sampling differs, and the order without it."""
    if any(depths):
        prior = events_of_kind(events, PriorTaken)[-1]
        listed = ", ".join(f"{name} {plain_number(depth, 3)}" for name, depth in zip(names, depths, strict=True))
        text = (
            "outcomes of another run count in the scores (R0), at most those of its first look. In trials per "
            f"question: {listed}. If a model has changed since, they pull its score towards the earlier one, and its "
            "comparisons are wrong more often than promised."
        )
        sampling = "".join(f" {sentence}." for sentence in sampling_sentences(prior))
        yield Caution("prior", None, f"{text}{sampling} {_order_alone(models)}")


def incomplete_prior_cautions(names: Sequence[str], bench: Bench) -> Iterator[Caution]:
    """Warn of incomplete answers of R0, for each model that is asked."""
    if bench.prior_unsure is None:
        return
    for name, asked, unsure in zip(names, bench.asked, bench.prior_unsure, strict=True):
        if asked and unsure.any():
            number = int(unsure.sum())
            are = f"{several(number, 'answer')} of the prior run {'is' if number == 1 else 'are'} incomplete"
            no_call = "No comparison is decided that another grade could reverse"
            yield Caution(INCOMPLETE_PRIOR, name, f"{are}. {no_call}")


def sampling_sentences(prior: PriorTaken) -> Iterator[str]:
    """State that the answers of R0 were drawn with other sampling settings than this run's, or with the same seeds."""
    if prior.sampled_otherwise:
        changes = first_few(prior.sampled_otherwise, NAMED)
        yield f"Their sampling settings differ from this run's ({changes})"
    if prior.same_seeds:
        yield SAME_SEEDS


def _order_alone(models: Sequence[ModelRow]) -> str:
    ranked = [row for row in models if row.rank_without_prior is not None]
    alone = sorted(ranked, key=lambda row: (row.rank_without_prior or 0, row.rank))
    if not ranked:
        return "Without them no model has a score"
    if alone == ranked:
        return "Without them the order is the same"
    return f"Without them the order is {', '.join(row.name for row in alone)}"


def notice_cautions(events: Sequence[Event]) -> Iterator[Caution]:
    """Notices about servers, each once, regardless of the number of starts; not that a grader takes no notice of a
    score, once all answers are graded anew."""
    regraded = max((at for at, event in enumerate(events) if isinstance(event, TrialsRegraded)), default=-1)
    notices = {
        (event.notice, event.model, event.text): None
        for at, event in enumerate(events)
        if isinstance(event, ServersNoticed) and (event.notice != "unused_score" or at > regraded)
    }
    return (Caution(kind, model or None, text) for kind, model, text in notices)


def unpaid_caution(events: Sequence[Event]) -> Iterator[Caution]:
    """Warn of stored answers without a grade since the caps do not cover a judge's verdicts on them."""
    for event in events_of_kind(events, TrialsRegraded)[-1:]:
        if event.short_caps:
            left = several((event.of or 0) - (event.so_far or 0), "stored answer")
            yield Caution("unpaid_verdicts", None, f"the budget does not cover the verdicts on {left} without a grade")


LOSS_KINDS = ("discarded", "lost", "failed_attempts")


def loss_cautions(events: Sequence[Event]) -> Iterator[Caution]:
    """Warn of answers that were discarded, never came or failed, with what caps count for them.

    For servers that the run starts, caps count the time for which they are held, and no time of answers.
    """
    launched = {event.model for event in events_of_kind(events, ServerLaunched)}
    losses = events_of_kind(events, AnswersLost)
    for model in dict.fromkeys(loss.model for loss in losses):
        of_model = [loss for loss in losses if loss.model == model]
        counted = [loss for loss in of_model if not loss.estimated and not loss.failed]
        if discarded := [loss for loss in counted if loss.discarded]:
            text = f"{several(_answers(discarded), 'answer')} discarded after an alarm and requested again"
            limits = (
                f"budget.trials does not count them; other limits count their {total_cost(discarded).tokens:,} tokens"
            )
            yield Caution("discarded", model, f"{text}. {limits}")
        if never := [loss for loss in counted if not loss.discarded]:
            yield Caution("lost", model, _never_received(never, is_launched=model in launched))
        if failed := [loss for loss in of_model if loss.failed and loss.answers]:
            used = _used(total_cost(failed)) or "nothing"
            text = f"{several(_answers(failed), 'attempt')} at an answer failed, and used {used}; no score counts them"
            yield Caution("failed_attempts", model, text)


def _answers(losses: Iterable[AnswersLost]) -> int:
    return sum(loss.answers for loss in losses)


def _never_received(losses: Sequence[AnswersLost], *, is_launched: bool) -> str:
    number, killed = _answers(losses), _answers(loss for loss in losses if loss.killed)
    verdicts, cost = sum(loss.verdicts for loss in losses), total_cost(losses)
    of = [several(number, "answer")] * (number > 0) + [f"{several(verdicts, 'verdict')} of its judge"] * (verdicts > 0)
    were = "was" if killed == 1 else "were"
    flying = f" ({killed} {were} in flight when an earlier start ended)" if killed else ""
    counted = _used(cost._replace(gpu_seconds=0.0) if is_launched else cost)
    limits = f"; the limits count {counted} for them" if counted else ""
    return f"{' and '.join(of)} requested, but never received{flying}{limits}"


def _used(cost: Cost) -> str:
    """A cost in words, in the units in which there is any."""
    parts = [f"{cost.tokens:,} tokens"] * (cost.tokens > 0) + [f"{plain_number(cost.usd, 4)} USD"] * (cost.usd > 0.0)
    parts += [f"{plain_number(cost.gpu_seconds / 3600.0, 2)} GPU hours"] * (cost.gpu_seconds > 0.0)
    return " and ".join(parts)


def repeats_warning(number: int) -> str:
    """Warn that an import has left out this number of repeated answers."""
    return (
        f"{number} answers in its logs are identical to another one to the same question, as from a server that "
        "ignores the seed or uses a cache, and were not counted; `import --repeats-are-samples` counts each of them"
    )


REPEATS_UNCLEAR = "repeats_unclear"
"""Kind of the warning that answers repeat, which may be chance."""
REPEATS_COUNT = Caution(
    "repeats_count",
    None,
    "identical answers in the logs were each counted (`import --repeats-are-samples`); another warning names models "
    "whose answers agree more often than independent samples would",
)


def import_cautions(events: Sequence[Event]) -> Iterator[Caution]:
    """Warn of trials missing from imported logs: quick answers are more often present, and more often right."""
    for event in events_of_kind(events, TrialsImported):
        for model, reasons in event.missing.items():
            worst = max(reasons, key=lambda why: reasons[why])
            text = (
                f"{sum(reasons.values())} records in its logs are not trials ({worst}); if long answers failed, its "
                "score may be too high, since quick answers are more often right"
            )
            yield Caution("missing", model, text)
        if event.has_unchecked_grades and not event.lacks_questions:
            yield Caution(
                "unchecked_grades",
                None,
                f"{several(event.without_text, 'answer')} came with grades and without texts, so nobody knows whether "
                "the grader gives the same: further answers may be graded otherwise",
            )
        if event.repeats_count:
            yield REPEATS_COUNT
        for model, number in event.repeated.items():
            yield Caution("repeats_omitted", model, repeats_warning(number))


ALL_ALIKE = "all answers of {} are empty, identical, unreadable or wrong"
ALL_REPEAT = "answers of {} come back word for word"
CHECK_SETUP = ": check the setup"


def alarm_cautions(
    names: Sequence[str],
    usages: Sequence[TrialUsage],
    events: Sequence[Event],
    explained: Container[int] = (),
    *,
    stop_on: object = "all",
    set_aside: Container[int] = (),
    recorded: Collection[int] = (),
) -> Iterator[Caution]:
    """Warn of models whose answers are all alike in some way, with an example; other alarms have `explained` those of
    some models already.

    First comes the alarm that ends the run, if there is one: about every model that it asks, or where one suffices
    (`stop_on`, or a single model is asked), about those whose alarms are stored and that are not `set_aside`.
    """
    examples = {(event.model, event.fault): event.example for event in events_of_kind(events, AlarmRaised)}
    faults = [None if model in explained else usage.answers.fault for model, usage in enumerate(usages)]
    repeating = _repeating_models(events)
    present = [at for at in range(len(names)) if at not in set_aside and at not in recorded]
    alarmed = [at for at in present if faults[at] is not None or names[at] in repeating]
    says = ALL_REPEAT if all(faults[at] is None for at in alarmed) else ALL_ALIKE
    if len(present) > 1 and alarmed == present:
        yield Caution("alarm", None, says.format("every model") + CHECK_SETUP)
    elif (stop_on == "any" or len(names) - len(recorded) == 1) and (
        raised := [names[at] for at in alarmed if (names[at], faults[at]) in examples or names[at] in repeating]
    ):
        yield Caution("alarm", None, says.format(first_few(raised, NAMED)) + CHECK_SETUP)
    for name, usage, fault in zip(names, usages, faults, strict=True):
        if fault is not None:
            example = examples.get((name, fault))
            shown = "" if example is None else f" ({example})"
            yield Caution(fault, name, f"{fault_sentence(fault, usage.answers.number)}{shown}")


def _repeating_models(events: Sequence[Event]) -> set[str]:
    """Models with an alarm that their answers repeat, unless these answers were discarded since."""
    about = (event for event in events if not isinstance(event, AlarmRaised) or event.fault == AnswerFault.REPEATED)
    return {*alarms_of_events(about)}


def is_alarmed(decisions: Mapping[str, object], cautions: Iterable[Caution]) -> bool:
    """Whether implausible answers end the run, as `on_alarm` has it: then no verdict stands."""
    return setting(decisions, "stopping", "on_alarm") != "never" and any(
        caution.kind == "alarm" for caution in cautions
    )


def alarm_in_words(cautions: Iterable[Caution]) -> str:
    """Text of the alarm that ends the run, without the advice."""
    return next(caution.text.removesuffix(CHECK_SETUP) for caution in cautions if caution.kind == "alarm")


def reversal_cautions(pairs: Sequence[tuple[str, str | None]], decisions: Mapping[str, object]) -> Iterator[Caution]:
    """Warn of calls that stand although the scores have changed places since."""
    rule = deciding_rule(decisions)
    picks = (rule is not None and rule.lenient) or objective_view(decisions).margin is not None
    called = "picked" if picks else "ranked higher"
    for better, worse in pairs:
        yield Caution(
            "reversal", better, f"is ahead of {worse or 'the reference'}, although an earlier look {called} the other"
        )


def unknown_cautions(
    names: Sequence[str],
    usages: Sequence[TrialUsage],
    results: Iterable[ModelResult],
    scale: Scale,
    unsure: AnswerKind = INCOMPLETE,
    recorded: Mapping[int, int] = MappingProxyType({}),
) -> Iterator[Caution]:
    """Warn of answers without a grade, and of those of the kinds that are `unsure`, with their largest effect on each
    score; `recorded`: the number of answers of each recorded model, whose kinds are unknown."""
    for row in sorted(results, key=lambda row: row.model):
        usage = usages[row.model]
        signals, failed = usage.signals, usage.signals["unanswered"]
        ungraded, late = usage.ungraded - failed, 0 if isfinite(row.score) else signals["timed_out"]
        kinds = AnswerKind(sum(kind for kind in unsure if signals[kind.signal]))
        phrase = (
            kinds.phrase if kinds else "are incomplete or empty" if AnswerKind.EMPTY in unsure else "are incomplete"
        )
        scored, stored = recorded.get(row.model, row.trials), recorded.get(row.model, usage.trials)
        parts = [f"{late} {PHRASES[AnswerKind.TIMED_OUT]}"] if late else []
        parts += [f"{failed} never came, since every attempt at them failed"] if failed else []
        parts += [f"{ungraded} could not be graded"] if ungraded else []
        shares = [f"of {scored} scored answers {row.unsure} {phrase}"] if row.unsure else []
        shares += [f"of {stored} answers {' and '.join(parts)}"] if parts else []
        if not shares:
            continue
        moved = ", and are in no score"
        if row.highest > row.lowest:
            ends = scale.width(row.lowest), scale.width(row.highest)
            moved = f"; the score would be {ends[0]} if all of them were wrong, {ends[1]} if right"
        consequences = ". Comparisons that they could reverse stay undecided" if usage.ungraded or row.unsure else ""
        consequences += ". The next start grades them again" if ungraded else ""
        yield Caution("unknown", names[row.model], f"{' and '.join(shares)}{moved}{consequences}")


def repeat_caution(name: str, usage: TrialUsage, sampled: Sampled | None) -> Caution | None:
    """Warn of a model whose answers repeat more often than independent samples would, or may do so."""
    repeats = find_repeats(usage.watch, sampled)
    if repeats is None:
        return None
    kind = AnswerFault.REPEATED if repeats.is_certain else REPEATS_UNCLEAR
    return Caution(kind, name, repeats_sentence(repeats))


def signal_cautions(
    names: Sequence[str], usages: Sequence[TrialUsage], unsure: AnswerKind = INCOMPLETE
) -> Iterator[Caution]:
    """Warn of frequent signals of each model's answers: truncated, empty, refused ... `unknown_cautions` has those that
    are `unsure`, unless they may be right."""
    reported = [kind for kind in REPORTED_KINDS if kind not in unsure or kind is AnswerKind.TRUNCATED]
    for name, usage in zip(names, usages, strict=True):
        for kind in reported:
            excluded = usage.signals["reasoning_only"] if kind is AnswerKind.EMPTY else 0  # has its own warning
            share = (usage.signals[kind.signal] - excluded) / max(usage.trials, 1)
            if share < MIN_REPORTED_SHARE:
                continue
            text = f"{share:.1%} of its {usage.trials:,} stored answers {PHRASES[kind]}{_MORE.get(kind, '')}"
            yield Caution(kind.signal, name, text)
