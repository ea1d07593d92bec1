"""What must hold in every life, judged by what the models are, what the servers counted, and what the run shows.

It knows nothing of how the program works. Each check gives the faults that it finds; a life without a fault is sound.
"""

import base64
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import Any, NamedTuple

from factors import CHEAPEST_DELTAS, GATES, IN_FLIGHT, KEY, TEMPERATURE
from life import Life, Stage
from model_server import ANSWER
from outputs import (
    BLOCKED,
    CONFIGURATION,
    DECIDED,
    GATE_FAILED,
    REACHED,
    STOPPED,
    UNDECIDED,
    Outputs,
    Pair,
    Results,
    Text,
    bare,
    read_text,
)
from world import LONG, SHORT

MIN_LABELS = 20
"""Fewer labels in a benchmark correct no score."""
DRY_RUN = "dry run"
"""The stage that tries the servers."""
LABELLED = "labelled"
"""The stage after which scores are corrected by what people say."""
SURE = 5.0
"""Standard errors by which no score is off by chance."""
DOUBTFUL = ("cut", "empty", "context")
"""What a model did not get to say."""
MORE_TRIALS = re.compile(r"raise\s+(the\s+)?trials\.max")
MUCH_DOUBT = 0.2
"""The share of doubtful answers of which a reader must be told."""


class Fault(NamedTuple):
    """Something that must not be."""

    property: str
    stage: str
    text: str

    def __str__(self) -> str:
        return f"[{self.property}] after {self.stage!r}: {self.text}"


class Asked(NamedTuple):
    """What makes an answer: the same one is drawn again for the same values."""

    model: str
    question: str
    seed: int
    temperature: float


@dataclass
class Record:
    """A life, with the sums that several checks need."""

    life: Life

    @cached_property
    def ledger(self) -> list[dict[str, Any]]:
        return self.life.ledger

    @cached_property
    def row(self) -> Mapping[str, str]:
        return self.life.row

    @cached_property
    def read(self) -> list[tuple[Stage, Outputs, list[dict[str, Any]]]]:
        """The stages after which the trials were read."""
        return [
            (stage, stage.outputs, stage.outputs.trials)
            for stage in self.life.stages
            if stage.outputs is not None and stage.outputs.trials is not None
        ]

    @cached_property
    def judged(self) -> list[tuple[Stage, Outputs, Results]]:
        """Those of them in which there are results of this moment: where plug-ins decide, only a run can renew them."""
        stale = ("regraded", "regraded elsewhere", LABELLED) if self.row["plug_in"] != "none" else ()
        return [
            (stage, outputs, outputs.results)
            for stage, outputs, _ in self.read
            if outputs.results is not None and stage.name not in stale
        ]

    @cached_property
    def outcomes(self) -> dict[Asked, list[dict[str, Any]]]:
        """The lines of the ledger by what was asked; those that got an answer first."""
        lines_of = defaultdict(list)
        for line in self.ledger:
            if line["what"] == "answer":
                lines_of[_asked(line)].append(line)
        return {asked: sorted(lines, key=lambda line: not line["sent"]) for asked, lines in lines_of.items()}

    def asked(self, trial: Mapping[str, Any]) -> Asked:
        return Asked(trial["model"], bare(trial["question"]), trial["seed"], TEMPERATURE)

    def line(self, trial: Mapping[str, Any]) -> dict[str, Any] | None:
        """The line of the ledger with the answer that a trial has; None if no server gave it."""
        text = trial.get("text") or ""
        if not text and ANSWER.search(trial["extracted"] or ""):  # lm-eval's filters may take the whole text
            text = trial["extracted"]
        outcomes = ("served",) if ANSWER.search(text) else ("cut", "context") if text else ("empty", "context")
        if not text and self.row["afterwards"] == "moved_as_table":
            match = ANSWER.search(self.life.setup.world.answer(*self.asked(trial)).text)  # a table brings no texts
            is_served = match is not None and trial["extracted"] == match[1]
            if self.row["supply"] == "command":  # it reports a score, and nothing is extracted
                is_served = trial["category"] is not None
            outcomes = ("served",) if is_served else ("empty", "context", "cut")
        lines = self.outcomes.get(self.asked(trial), [])
        if not text and trial["extracted"] is None and self.row["supply"] == "lm_eval":  # its filters are not stored
            outcomes = ("served", "empty", "context", "cut")
            lines = [line for line in lines if line.get("completion_tokens", 0) == trial["completion_tokens"]]
        return next((line for line in lines if line["sent"] and line["outcome"] in outcomes), None)

    def is_doubtful(self, trial: Mapping[str, Any]) -> bool:
        """Whether nobody knows how good the answer would have been."""
        line = self.line(trial)
        return trial["category"] is None or line is None or line["outcome"] in DOUBTFUL

    def value(self, line: Mapping[str, Any]) -> float:
        """What an answer is worth."""
        weights = self.life.setup.weights
        if not line["right"]:
            return weights["wrong"]
        return weights["brief" if line["completion_tokens"] == SHORT else "correct"]

    def truth(self, model: str, *, by_people: bool = False) -> float:
        """The score that a model would have after any number of answers."""
        setup = self.life.setup
        p = sum(setup.world.models[model].values()) / len(setup.world.models[model])
        if by_people:
            p *= 1.0 - setup.world.lenient.get(model, 0.0)
        right = (setup.weights["brief"] + setup.weights["correct"]) / 2
        return p * right + (1 - p) * setup.weights["wrong"]

    def bounds(self, outputs: Outputs, model: str) -> tuple[float, float, int, float]:
        """A model's mean with all doubtful answers at their worst and best; how many trials, and the doubtful share."""
        weights = self.life.setup.weights.values()
        by_question: dict[str, list[tuple[float, float]]] = defaultdict(list)
        doubtful = number = 0
        for trial in outputs.trials or ():
            if trial["model"] != model or trial["removed"]:
                continue
            number += 1
            if self.is_doubtful(trial):
                doubtful += 1
                by_question[trial["question"]].append((min(weights), max(weights)))
            else:
                by_question[trial["question"]].append((trial["value"], trial["value"]))
        if not number:
            return min(weights), max(weights), 0, 0.0
        parts = {"main": 2.0, "side": 1.0}
        shares = [parts.get(question.partition("/")[0], 1.0) for question in by_question]
        low, high = (
            sum(
                share * sum(values[end] for values in values_of_question) / len(values_of_question)
                for share, values_of_question in zip(shares, by_question.values(), strict=True)
            )
            / sum(shares)
            for end in (0, 1)
        )
        return low, high, number, doubtful / number

    @cached_property
    def is_overturned(self) -> bool:
        """Whether people overturn the grades. They have no text to label of a run that came as a table, and no score is
        corrected by fewer than `MIN_LABELS` labels of a benchmark."""
        parts = Counter((label["model"], str(label["question"]).rpartition("/")[0]) for label in self.life.labels)
        return self.row["labels"] == "overturn" and bool(parts) and min(parts.values()) >= MIN_LABELS

    @cached_property
    def troubled(self) -> str:
        return self.life.setup.world.troubled


def is_answered(trial: Mapping[str, Any]) -> bool:
    """Whether a stored trial has an answer: one whose requests all failed is asked again."""
    return trial["category"] is not None or bool(trial.get("text"))


def _asked(line: Mapping[str, Any]) -> Asked:
    return Asked(line["model"], line["question"], line["seed"], line["temperature"])


Check = Callable[[Record], Iterator[Fault]]
CHECKS: list[Check] = []


def check(function: Check) -> Check:
    CHECKS.append(function)
    return function


def faults(life: Life) -> list[Fault]:
    """Everything that is wrong in a life, each fault where it was seen first."""
    record = Record(life)
    distinct: dict[tuple[str, str], Fault] = {}
    for find_faults in CHECKS:
        for fault in find_faults(record):
            distinct.setdefault((fault.property, fault.text), fault)
    return list(distinct.values())


# -- answers ---------------------------------------------------------------------------------------------------------


@check
def no_failure_is_a_wrong_answer(record: Record) -> Iterator[Fault]:
    """Every grade is that of an answer which a server gave to this very request."""
    name = "no failure is a wrong answer"
    for stage, _, trials in record.read:
        wrong = [fault for trial in trials if trial["category"] is not None and (fault := _wrong_grade(record, trial))]
        if wrong:
            yield Fault(name, stage.name, f"{len(wrong)} trials, such as {wrong[0]}")


def _wrong_grade(record: Record, trial: Mapping[str, Any]) -> str | None:
    """What is wrong with the grade of a trial."""
    where = f"{trial['model']} {trial['question']} trial {trial['trial']} (seed {trial['seed']})"
    line, text = record.line(trial), (trial.get("text") or "").lstrip(".")
    if line is None:
        return f"{where} has the grade {trial['label']}, and no server answered it so: {text!r}"
    if (
        text
        and line["outcome"] != "context"
        and f"Case {trial['model']}/{bare(trial['question'])}/{trial['seed']}." not in text
    ):
        return f"{where} has the answer to another request: {text!r}"
    if line["outcome"] == "served" and abs(trial["value"] - record.value(line)) > 1e-9:
        return f"{where} counts {trial['value']}, and its answer was {'right' if line['right'] else 'wrong'}"
    return None


@check
def scores_are_those_of_the_answers(record: Record) -> Iterator[Fault]:
    """A score is near the truth, as far as its answers are known."""
    for stage, outputs, results in record.judged:
        for model in results.models if stage.name != LABELLED else ():
            if model.score is None or model.recorded or not model.trials:
                continue
            low, high, number, doubtful = record.bounds(outputs, model.name)
            truth = record.truth(model.name)
            error = SURE * max(sqrt(max(truth * (1 - truth), 0.04) / number), 0.02) if number else 1.0
            if not low - error <= truth <= high + error:
                text = f"{model.name} would be between {low:.2f} and {high:.2f}, and in truth it is {truth:.2f}"
                yield Fault("scores are those of the answers", stage.name, text)
            if model.trials + model.ungraded < number:
                continue  # some are in no score
            slack = 0.3 if record.row["prior"] == "earlier" else 0.1 if record.row["draw"] == "some" else 1e-6
            if model.score < low - slack:  # scores of drawn questions are for all, with what others did on them
                text = f"{model.name} has {model.score:.4f}, below {low:.4f}, which it would have at worst"
                yield Fault("scores are those of the answers", stage.name, text)


@check
def doubt_is_told(record: Record) -> Iterator[Fault]:
    """A reader is told of many answers that are cut, empty, refused or ungraded, and not advised to buy more."""
    name = "doubt is told"
    for stage, outputs, results in record.judged:
        for model in results.models:
            _, _, number, doubtful = record.bounds(outputs, model.name)
            waiting = model.stored - model.trials - model.ungraded  # for a verdict, or for the next look
            if model.recorded or not number or doubtful * number - waiting < MUCH_DOUBT * number:
                continue
            warnings = [warning for warning in results.warnings if model.name in warning]
            if not warnings and not model.aside:
                yield Fault(
                    name, stage.name, f"{doubtful:.0%} of {model.name}'s answers are doubtful, and no warning says so"
                )
            kinds = [kind for kind, text in outputs.texts.items() if MORE_TRIALS.search(text.next_steps)]
            undecided = [pair for pair in results.pairs if pair.verdict not in DECIDED]
            others = sum(model.name not in (pair.first, pair.second) for pair in undecided)
            if any(_helped(outputs.texts[kind].next_steps, len(undecided)) > others for kind in kinds):
                text = f"{', '.join(kinds)} advise more trials, with {doubtful:.0%} of {model.name}'s answers in doubt"
                yield Fault(name, stage.name, text)


def _helped(next_steps: str, undecided: int) -> int:
    """How many comparisons more trials are advised for."""
    stated = re.search(r"for\s+(\d+)\s+of\s+the\s+undecided", next_steps)
    return int(stated[1]) if stated else undecided


# -- verdicts --------------------------------------------------------------------------------------------------------


@check
def no_verdict_is_against_the_truth(record: Record) -> Iterator[Fault]:
    name = "no verdict is against the truth"
    value = (
        float(record.life.setup.config["objective"].get("value") or 0.0)
        if isinstance(record.life.setup.config["objective"], dict)
        else 0.0
    )
    delta = _delta(record)
    for stage, outputs, results in record.judged:
        for pair in results.pairs:
            if pair.verdict not in DECIDED or _is_accepted(record, outputs, pair):
                continue
            by_people = stage.name == LABELLED and record.is_overturned
            first = record.truth(pair.first, by_people=by_people)
            second = value if pair.second is None else record.truth(pair.second, by_people=by_people)
            what = f"{pair.first} over {pair.second or value}"
            if pair.verdict == "tied" and abs(first - second) > delta + 0.1:
                yield Fault(name, stage.name, f"{what} is tied, and in truth they are {first:.2f} and {second:.2f}")
            if pair.verdict != "resolved":
                continue
            ahead = 1 if pair.difference > 0 else -1
            if ahead * (first - second) < -1e-9:
                yield Fault(name, stage.name, f"{what} is resolved, and in truth they are {first:.2f} and {second:.2f}")
            if by_people or record.row["prior"] == "earlier":
                continue
            low, high, number, doubt = record.bounds(outputs, pair.first)
            other = (value, value, 1, 0.0) if pair.second is None else record.bounds(outputs, pair.second)
            if not (doubt or other[3]) or not (number and other[2]):
                continue  # nothing is in doubt, or a model's answers are those of another run
            gap = low - other[1] if ahead > 0 else other[0] - high
            if gap <= 0:
                text = f"{what} is resolved, and would not be with the doubtful answers at their best or worst"
                yield Fault(name, stage.name, text)
        for model, outcome in results.gate.items():
            by_people = stage.name == LABELLED and record.is_overturned
            against = results.gate_against
            least = value if against is None else record.truth(against, by_people=by_people)
            difference = record.truth(model, by_people=by_people) - least
            if outcome == "PASS" and difference < -delta - 0.1 or outcome == "FAIL" and difference > -delta + 0.02:
                what = f"in truth it is {difference:+.2f} from {against or value}"
                yield Fault(name, stage.name, f"{model} has {outcome}, and {what}")


def _is_accepted(record: Record, outputs: Outputs, pair: Pair) -> bool:
    """Whether the user wants verdicts on a server that has changed, and every text begins with the alarm about it."""
    alarms = ["Alarm: a server has changed" in " ".join(text.headline) for text in outputs.texts.values()]
    return record.row["on_alarm"] == "never" and record.troubled in (pair.first, pair.second) and all(alarms)


@check
def the_choice_will_do(record: Record) -> Iterator[Fault]:
    """The model chosen is not more than delta behind the best, and the headline and the file choose the same."""
    name, delta = "the choice will do", CHEAPEST_DELTAS[record.row["delta"]]
    for stage, outputs, results in record.judged:
        parts = {row["model"]: row["part"] for row in results.raw["frontier"] or ()}
        if bool(parts) != (record.row["objective"] == "cheapest"):
            yield Fault(name, stage.name, f"results.json has {parts}, and the objective is {record.row['objective']}")
            continue
        chosen = [model for model, part in parts.items() if part == "chosen"]
        by_people = stage.name == LABELLED and record.is_overturned
        truths = {model.name: record.truth(model.name, by_people=by_people) for model in results.models}
        for model in chosen:
            if truths[model] < max(truths.values()) - delta - 1e-9:
                yield Fault(name, stage.name, f"{model} is chosen, and in truth the scores are {truths}")
        decided = bool(parts) and {pair.verdict for pair in results.pairs} == {"resolved"}
        if len(chosen) > 1 or (decided and not chosen):
            yield Fault(name, stage.name, f"the parts are {parts}, and the comparisons {results.pairs}")
        for kind, text in outputs.texts.items() if parts else ():
            headline = " ".join(part for part in text.headline if not part.startswith("This is by scores corrected"))
            named = re.search(r"(\w+) \([^)]*\) is the cheapest within", headline)
            if (chosen and "larm" not in headline) if named is None else [named[1]] != chosen:
                yield Fault(name, stage.name, f"{kind} says {text.headline}, and results.json has {parts}")


def _delta(record: Record) -> float:
    return 0.05 if record.row["delta"] == "5%" else 0.0


@check
def what_was_decided_stays(record: Record) -> Iterator[Fault]:
    """A verdict is not undone by going on, by the same command again, by a model that joins, or by a move: only by an
    alarm about the server whose answers it was based on."""
    before: dict[frozenset[str | None], tuple[str, str]] = {}
    for stage, outputs, _ in record.read:
        results = outputs.results
        if results is None:
            if before and stage.run == "runs/run":
                yield Fault("what was decided stays", stage.name, "there was a ranking, and now there is none")
            continue
        if stage.name == "regraded" and record.row["grader"] == "failing":
            before.clear()  # grades are new
        goes_on = stage.done.arguments[0] == "run" and stage.done.code != CONFIGURATION
        if stage.run == "runs/moved" and not goes_on and stage.name != LABELLED:
            continue  # it is judged once, and further when it goes on
        now = {}
        for pair in results.pairs:
            now[frozenset((pair.first, pair.second))] = (
                pair.verdict,
                pair.first if pair.difference > 0 else str(pair.second),
            )
        for models, (verdict, winner) in now.items():
            was = before.get(models)
            if was is None or was[0] not in DECIDED or record.row["rule"] == "published":
                continue
            if verdict == "blocked" and results.reason == "alarm" and record.troubled in models:
                continue
            if stage.name == LABELLED:  # labels may undo a verdict, and only those that overturn it may turn it round
                turned = winner != was[1] and record.row["labels"] == "agree"
                is_undone = verdict == "resolved" and turned
            else:
                is_undone = verdict != was[0] or verdict == "resolved" and winner != was[1]
            if is_undone:
                both = " and ".join(sorted(map(str, models)))
                text = f"{both}: {was[0]} ({was[1]} ahead) became {verdict} ({winner} ahead)"
                yield Fault("what was decided stays", stage.name, text)
        before |= now


@check
def the_same_command_again_changes_nothing(record: Record) -> Iterator[Fault]:
    """It buys nothing, ends as before, and shows the same; or it is refused with what to type."""
    name = "the same command again changes nothing"
    starts = [stage for stage in record.life.stages if stage.done.arguments[0] == "run"]
    for earlier, stage in zip(starts, starts[1:], strict=False):
        if not stage.name.startswith("again"):
            continue
        bought = [line for line in record.ledger[stage.begun : stage.ended] if line["what"] in ("answer", "verdict")]
        if bought and not _has_unanswered(earlier):
            yield Fault(name, stage.name, f"{len(bought)} requests were sent")
        if stage.done.code == CONFIGURATION and "--set" in stage.done.err:
            continue
        if bought or stage.name == "again after the regrade":
            continue
        if stage.done.code != earlier.done.code:
            yield Fault(
                name, stage.name, f"exit code {stage.done.code} instead of {earlier.done.code}: {stage.done.err[-300:]}"
            )
        now, then = read_text(stage.done.out), read_text(earlier.done.out)
        if now is not None and then is not None and (now.headline, now.rows) != (then.headline, then.rows):
            yield Fault(name, stage.name, f"{then.headline} {then.rows} became {now.headline} {now.rows}")
        elif now is not None and then is not None and (new := set(now.warnings) - set(then.warnings)):
            yield Fault(name, stage.name, f"there is a new warning: {min(new)}")


def _has_unanswered(stage: Stage) -> bool:
    """Whether a start may try again: trials without a grade, or a model that was set aside."""
    outputs = stage.outputs
    if outputs is None:
        return False
    aside = outputs.results is not None and any(model.aside for model in outputs.results.models)
    return aside or any(trial["category"] is None for trial in outputs.trials or ())


# -- what is shown ---------------------------------------------------------------------------------------------------


@check
def everything_shows_the_same(record: Record) -> Iterator[Fault]:
    """Headline, table, promise and cost are the same in every text, and those of results.json."""
    name = "everything shows the same"
    for stage, outputs, results in record.judged:
        texts = dict(outputs.texts)
        printed = read_text(stage.done.out) if stage.done.arguments[0] == "run" else None
        if printed is not None and stage.done.code != STOPPED:
            texts["run"] = printed
        missing = [kind for kind in outputs.printed if kind in ("monitor", "pr", "summary", "md") and kind not in texts]
        if missing:
            yield Fault(name, stage.name, f"{', '.join(missing)} shows no ranking")
        for kind, text in texts.items():
            base = texts.get("pr", text)
            for what in ("headline", "promise"):
                if getattr(text, what) != getattr(base, what):
                    yield Fault(
                        name, stage.name, f"{what} of pr: {getattr(base, what)}; of {kind}: {getattr(text, what)}"
                    )
            if kind != "md" and text.cost.split(". ")[0] != base.cost.split(". ")[0]:
                yield Fault(name, stage.name, f"cost of pr: {base.cost}; of {kind}: {text.cost}")
            if [_shown(row) for row in text.rows] != [_shown(row) for row in base.rows]:
                yield Fault(name, stage.name, f"table of pr: {base.rows}; of {kind}: {text.rows}")
            yield from (Fault(name, stage.name, f"{kind}: {text_}") for text_ in _differs(text, results))
        for row in outputs.table:
            model = next((model for model in results.models if model.name == row["name"]), None)
            if model is None or str(model.tier or "") != row["tier"] or str(model.trials) != row["trials"]:
                yield Fault(name, stage.name, f"csv has {row}, results.json {model}")


def _shown(row: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(row.get(column, "") for column in ("tier", "model", "score", "trials", "verdict"))


def _differs(text: Text, results: Results) -> Iterator[str]:
    """Where a table and its headline are not those of results.json."""
    models = {model.name: model for model in results.models}
    for row in text.rows:
        model = models.get(row["model"].split(" (")[0])
        if model is None:
            yield f"there is no model {row['model']}"
            continue
        if row.get("trials", "").replace(",", "") not in (str(model.trials), str(model.stored)):
            yield f"{model.name} has {row.get('trials')} trials, and {model.trials} in results.json"
        if "tier" in row and row["tier"] != str(model.tier or "-"):
            yield f"{model.name} is in tier {row['tier']}, and {model.tier} in results.json"
        if model.score is not None and (shown := re.match(r"(-?[\d.]+)(%?)", row["score"])):
            score = float(shown[1]) / (100 if shown[2] else 1)
            if abs(score - model.score) > 0.0006:
                yield f"{model.name} has {row['score']}, and {model.score:.4f} in results.json"
        yield from _wrong_verdict(row.get("verdict", ""), model.name, results.pairs, results.gate)
    headline = " ".join(text.headline)
    if best := re.match(r"(\w+) is best\b", headline):
        beaten = {pair.second for pair in results.pairs if pair.first == best[1] and pair.verdict == "resolved"}
        beaten |= {
            pair.first
            for pair in results.pairs
            if pair.second == best[1] and pair.verdict == "resolved" and pair.difference < 0
        }
        if not beaten:
            yield f"the headline says {headline!r}, and no comparison of {best[1]} is resolved"
        if models[best[1]].tier != 1 or sum(model.tier == 1 for model in models.values()) > 1:
            firsts = [model.name for model in models.values() if model.tier == 1]
            yield f"the headline says {headline!r}, and tier 1 has {firsts}"


def _wrong_verdict(shown: str, model: str, pairs: list[Pair], gate: Mapping[str, str]) -> Iterator[str]:
    """Where a row's verdict is not that of its comparison."""
    match = re.match(
        r"(better than|worse than|equal to|(?:open|out of reach|blocked|undecided) against) ([a-z]+)", shown
    )
    if gate and model in gate and shown != gate[model]:
        yield f"{model} has the verdict {shown}, and {gate[model]} in results.json"
    if match is None:
        return
    pair = next((pair for pair in pairs if {pair.first, pair.second} == {model, match[2]}), None)
    if pair is None:
        yield f"{model} is shown as {shown!r}, and there is no such comparison"
        return
    ahead = pair.first if pair.difference > 0 else pair.second
    is_so = {
        "better than": pair.verdict == "resolved" and ahead == model,
        "worse than": pair.verdict == "resolved" and ahead != model,
        "equal to": pair.verdict == "tied",
    }.get(match[1], pair.verdict not in DECIDED)
    if not is_so:
        yield f"{model} is shown as {shown!r}, and the comparison is {pair.verdict}, {ahead} ahead"


@check
def the_exit_code_is_that_of_the_verdicts(record: Record) -> Iterator[Fault]:
    for stage, outputs, results in record.judged:
        if stage.done.arguments[0] != "run" or stage.interrupted or stage.done.code == CONFIGURATION:
            continue
        verdicts = [pair.verdict for pair in results.pairs]
        gate = set(results.gate.values())
        expected = {REACHED} if set(verdicts) <= set(DECIDED) else {UNDECIDED}
        if "blocked" in verdicts:  # by a server, or by answers without a grade
            expected = {BLOCKED, UNDECIDED}
        if "FAIL" in gate:
            expected = {GATE_FAILED}
        elif gate:
            expected = {REACHED} if gate == {"PASS"} else {UNDECIDED, BLOCKED}
        if stage.done.code not in expected:
            text = f"exit code {stage.done.code}, and the comparisons are {verdicts} {sorted(gate)}"
            yield Fault("the exit code is that of the verdicts", stage.name, text)
        headlines = [" ".join(shown.headline) for shown in outputs.texts.values()]
        if stage.done.code == REACHED and (
            undecided := [line for line in headlines if re.search(r" is (open|out of reach|blocked): ", line)]
        ):
            yield Fault("the exit code is that of the verdicts", stage.name, f"exit code 0, and {undecided[0]!r}")
        shown = outputs.printed["monitor"].code
        if shown != stage.done.code:
            text = f"exit code {stage.done.code}, and {shown} of monitor --once"
            yield Fault("the exit code is that of the verdicts", stage.name, text)


@check
def a_gate_has_one_outcome_of_each_model(record: Record) -> Iterator[Fault]:
    name = "a gate has one outcome of each model"
    if record.row["objective"] not in GATES:
        return
    for stage, outputs, results in record.judged:
        asked = {model.name for model in results.models} - {results.gate_against}
        if results.gate.keys() != asked:
            yield Fault(
                name, stage.name, f"results.json has outcomes of {sorted(results.gate)}, not of {sorted(asked)}"
            )
        alarm = {"no alarm": "UNDECIDED"} if results.reason == "alarm" else {}
        if outputs.junit is not None and outputs.junit != results.gate | alarm:
            yield Fault(name, stage.name, f"JUnit says {outputs.junit}, and results.json {results.gate}")
        for kind, text in outputs.texts.items():
            shown = {row["model"].split(" (")[0]: row.get("verdict", "") for row in text.rows}
            wrong = {model: shown.get(model) for model, outcome in results.gate.items() if shown.get(model) != outcome}
            if wrong:
                yield Fault(name, stage.name, f"{kind} says {wrong}, and results.json {results.gate}")


@check
def labels_reach_the_headline(record: Record) -> Iterator[Fault]:
    """Where people say that the grader was lenient with the best model, it is not called the best."""
    if not record.is_overturned:
        return
    for stage, outputs, _ in record.judged:
        if stage.name != LABELLED or stage.done.code != REACHED:
            continue
        for kind, text in outputs.texts.items():
            match = re.match(r"(\w+) is best\b", " ".join(text.headline))
            if match is None:
                continue
            asked = [model["name"] for model in record.life.setup.config["models"]]
            best = max(asked, key=lambda model: record.truth(model, by_people=True))
            if record.truth(match[1], by_people=True) < record.truth(best, by_people=True):
                text_ = f"{kind}: {text.headline}, and by the labels {best} is best"
                yield Fault("labels reach the headline", stage.name, text_)


# -- what is stored, and what it cost --------------------------------------------------------------------------------


@check
def stored_trials_are_in_the_scores(record: Record) -> Iterator[Fault]:
    """Or every text says how many are not."""
    name = "stored trials are in the scores"
    for stage, outputs, results in record.judged:
        left_out = waiting = 0
        for model in results.models:
            if model.recorded:
                continue
            stored = [trial for trial in outputs.trials or () if trial["model"] == model.name and not trial["removed"]]
            graded = sum(trial["category"] is not None for trial in stored)
            if model.stored < len(stored) and stage.interrupted == "killed":
                left_out = 0  # the file is of the last look, and what came since is in no report of it
                break
            if model.stored != len(stored):
                yield Fault(
                    name,
                    stage.name,
                    f"{model.name}: results.json has {model.stored} stored trials, the export {len(stored)}",
                )
            if record.row["draw"] == "none" and record.row["prior"] == "self" and not model.aside:
                left_out += graded - model.trials
                waiting += len(stored) - graded - model.ungraded  # for a verdict
        if not left_out:
            continue
        number = rf"\b({left_out:,}|{left_out + waiting:,})\b"
        named = [kind for kind, text in outputs.texts.items() if re.search(number, text.screen)]
        silent = outputs.texts.keys() - set(named)
        if silent or left_out < 0:
            yield Fault(
                name,
                stage.name,
                f"{left_out} graded trials are in no score, and {', '.join(sorted(silent))} does not say so",
            )


@check
def what_is_stored_stays(record: Record) -> Iterator[Fault]:
    """No stored answer is lost, whatever happens. A table has no texts: an import of it says which answers have neither
    a text nor a grade."""
    before, ungraded = set[Asked](), set[Asked]()
    for stage, _, trials in record.read:
        present = {record.asked(trial) for trial in trials if is_answered(trial)}
        says_so = record.row["afterwards"] == "moved_as_table" and "its verdict has not come yet" in stage.done.out
        if lost := before - present - (ungraded if says_so else set()):
            yield Fault("what is stored stays", stage.name, f"{len(lost)} stored trials are gone, such as {min(lost)}")
        before, ungraded = present, {record.asked(trial) for trial in trials if trial["category"] is None}


@check
def what_a_look_judged_is_stored(record: Record) -> Iterator[Fault]:
    """The trials that a start has printed a verdict about are there after a kill."""
    for stage, _, trials in record.read:
        looks = re.findall(r"^look \d+: ([\d,]+) trials", stage.done.out, re.MULTILINE)
        if looks and len(trials) < int(looks[-1].replace(",", "")) and record.row["prior"] == "self":
            text = f"a look of {looks[-1]} trials was printed, and {len(trials)} are stored"
            if record.row["supply"] != "recorded":
                yield Fault("what a look judged is stored", stage.name, text)


@check
def nothing_is_bought_twice(record: Record) -> Iterator[Fault]:
    """No answer that is stored is asked for again, and none within one start unless its response was no good."""
    name = "nothing is bought twice"
    stored: set[Asked] = set()
    dry: set[Asked] = set()
    for stage in record.life.stages:
        bought: Counter[Asked] = Counter()
        for line in record.ledger[stage.begun : stage.ended]:
            if line["what"] == "answer" and line["sent"]:
                bought[_asked(line)] += 1
        if again := [asked for asked in bought if asked in stored]:
            yield Fault(name, stage.name, f"{len(again)} stored answers were asked for again, such as {again[0]}")
        if again := [asked for asked in bought if asked in dry and stage.name != DRY_RUN]:
            yield Fault(
                name, stage.name, f"{len(again)} answers of the dry run were asked for again, such as {again[0]}"
            )
        twice = [asked for asked, times in bought.items() if times > 1]
        is_repeated = record.row["wire"] in ("doubled", "hangs") or record.row["answers"] != "fine"
        is_repeated |= record.row["supply"] == "inspect" and record.row["grader"] == "failing"  # lost with its score
        if twice and not is_repeated:
            yield Fault(name, stage.name, f"{len(twice)} answers were asked for twice in one start, such as {twice[0]}")
        if stage.outputs is not None and stage.outputs.trials is not None:
            stored = {record.asked(trial) for trial in stage.outputs.trials if is_answered(trial)}
        elif stage.name == DRY_RUN and _keeps_dry_run(record):
            dry = set(bought)


@check
def the_cost_is_what_was_served(record: Record) -> Iterator[Fault]:
    """Tokens are those that the servers counted, at most less what was lost at a kill."""
    name = "the cost is what was served"
    stored_tokens = 0
    for stage, outputs, results in record.judged:
        if stage.run != "runs/run":
            continue  # what was lost elsewhere is not exported
        lines = _lines_of_run(record, stage)
        served = sum(
            line["prompt_tokens"] + line["completion_tokens"]
            for line in lines
            if line.get("sent", True) and "completion_tokens" in line
        )
        counted = _told_tokens(results)
        stored_tokens = sum(trial["tokens"] or 0 for trial in outputs.trials or ())
        interrupted = any(stage.interrupted for stage in record.life.stages)
        clean = (
            not interrupted
            and record.row["wire"] == "fine"
            and record.row["echo"] != "errors"
            and record.row["grader"] in ("key", "failing")
        )
        if clean and record.row["answers"] == "fine" and counted != served:
            yield Fault(name, stage.name, f"{counted} tokens are told, and {served} were served")
        if counted < stored_tokens and stage.interrupted != "killed":  # the file is of the last look before that
            yield Fault(name, stage.name, f"{counted} tokens are told, and the stored trials took {stored_tokens}")


def _lines_of_run(record: Record, until: Stage) -> list[dict[str, Any]]:
    """What was asked for by the run until a stage has ended; it begins with the answers of a dry run that are kept."""
    first = 0 if _keeps_dry_run(record) else max(stage.ended for stage in record.life.stages if stage.name == DRY_RUN)
    return [line for line in record.ledger[first : until.ended] if line["what"] in ("answer", "verdict")]


def _keeps_dry_run(record: Record) -> bool:
    """Whether the run begins with the answers of its dry run: not with those that Inspect has logged elsewhere."""
    return record.row["dry_run"] == "no" or record.row["supply"] != "inspect"


@check
def the_cost_in_usd_is_what_commands_report(record: Record) -> Iterator[Fault]:
    """Every USD that a command says it has used is told, besides what those that were ended may have used."""
    if record.row["supply"] != "command":
        return
    interrupted = any(stage.interrupted for stage in record.life.stages)
    for stage, _, results in record.judged:
        if stage.run != "runs/run" or interrupted or record.row["grader"] in ("judge", "verifier"):
            continue
        used = sum(line.get("usd", 0.0) for line in _lines_of_run(record, stage) if line["outcome"] != "hung")
        told = results.cost["usd"] + sum(row["usd"] for row in results.cost["beside"] if row["what"] != "lost")
        if abs(told - used) > 1e-9:
            text = f"{told:.6f} USD are told, and commands reported {used:.6f}"
            yield Fault("the cost in USD is what commands report", stage.name, text)


def _told_tokens(results: Results) -> int:
    """Of stored trials, and of samples that failed after an answer."""
    failed = sum(row["tokens"] for row in results.cost["beside"] if row["what"] == "failed")
    return int(results.cost["tokens"] + failed)


@check
def no_cap_is_exceeded(record: Record) -> Iterator[Fault]:
    name = "no cap is exceeded"
    for stage, outputs, _ in record.read:
        budget = stage.config.get("budget", {})
        lines = [line for line in _lines_of_run(record, stage) if line.get("sent", True)]
        answers = [line for line in lines if line["what"] == "answer" and "completion_tokens" in line]
        prompts = sum(line["prompt_tokens"] for line in lines)
        completions = sum(line.get("completion_tokens", 0) for line in lines)
        used = {
            "trials": len({_asked(line) for line in answers if line["temperature"] == TEMPERATURE}),
            "tokens": prompts + completions,
            "usd": sum(_usd(record, line) for line in lines),
        }
        slack = _used_beyond_reserve(record)
        for kind, value in used.items():
            if kind in budget and value > budget[kind] + slack.get(kind, 0.0):
                yield Fault(name, stage.name, f"budget.{kind} is {budget[kind]}, and {value} were used")
        if "wall_time" in budget and outputs.results is not None:
            wall, kills = (
                float(budget["wall_time"].rstrip("s")),
                sum(stage.interrupted == "killed" for stage in record.life.stages),
            )
            if outputs.results.active_seconds > wall + 3.0 * kills + 3.0:
                yield Fault(
                    name, stage.name, f"budget.wall_time is {wall}, and {outputs.results.active_seconds:.1f} were used"
                )


def _used_beyond_reserve(record: Record) -> dict[str, float]:
    """By how much a cap may be exceeded where nothing bounds an answer: what trials in flight use beyond the largest
    answer before them."""
    if record.row["supply"] != "command":
        return {}
    in_flight = LONG * IN_FLIGHT * len(record.life.setup.models)
    return {"tokens": in_flight, "usd": in_flight * max(line.get("usd", 0.0) for line in record.ledger)}


def _usd(record: Record, line: Mapping[str, Any]) -> float:
    if "usd" in line:
        return float(line["usd"])
    config = record.life.setup.config
    price = next((model.get("price") for model in config["models"] if model["name"] == line["model"]), None)
    if line["what"] == "verdict":
        price = config["grader"].get("price")
    if not price:
        return 0.0
    factor = 0.5 if record.row["supply"] == "batch" and line["what"] == "answer" else 1.0
    tokens = line["prompt_tokens"] * price["input"] + line.get("completion_tokens", 0) * price["output"]
    return float(factor * tokens / 1e6)


# -- secrets, promises, ends -----------------------------------------------------------------------------------------


@check
def no_key_is_in_any_file(record: Record) -> Iterator[Fault]:
    """Neither in what the run writes nor in what its commands print."""
    name, reported = "no key is in any file", False
    forms = [KEY.encode(), base64.b64encode(KEY.encode())[:20], base64.b64encode(b"Bearer " + KEY.encode())[10:30]]
    exempt = {"world", "ledger", "ledger_before", "ledger_elder"}
    for path in sorted(record.life.folder.rglob("*")):
        if path.is_file() and path.name not in exempt and any(form in path.read_bytes() for form in forms):
            yield Fault(name, "the end", f"it is in {path.relative_to(record.life.folder)}")
    for stage in record.life.stages:
        printed = [stage.done, *(stage.outputs.printed.values() if stage.outputs else ())]
        for done in printed:
            if KEY in done.out + done.err:
                yield Fault(name, stage.name, f"{done.line} prints it")
        for trial in (stage.outputs.trials or ()) if stage.outputs else ():
            if KEY in str(trial) and not reported:
                reported = True
                yield Fault(name, stage.name, f"it is in the stored answer {trial['text']!r}")


@check
def commands_get_the_variables_that_are_named(record: Record) -> Iterator[Fault]:
    """The key is in a command's environment if `env` names it, and else not."""
    is_named = record.row["access"] == "environment"
    for stage in record.life.stages:
        lines = [line for line in record.ledger[stage.begun : stage.ended] if "has_key" in line]
        if wrong := [line for line in lines if line["has_key"] != is_named]:
            text = f"{len(wrong)} commands {'lack the key' if is_named else 'got a key'}, such as {_asked(wrong[0])}"
            yield Fault("commands get the variables that are named", stage.name, text)


@check
def nothing_goes_on_after_the_end(record: Record) -> Iterator[Fault]:
    """No process of a command lives on after the run, however that ended."""
    if record.life.left_running:
        yield Fault("nothing goes on after the end", "the end", "a process of a command is still running")


@check
def the_promise_is_that_of_the_settings(record: Record) -> Iterator[Fault]:
    name = "the promise is that of the settings"
    row = record.row
    for stage, outputs, results in record.judged:
        for kind, text in outputs.texts.items():
            promise = text.promise
            if row["plug_in"] == "rule":
                expected = r"that of the plug-in"
            elif row["rule"] == "published":
                expected = r"none for repeated looks"
            elif row["objective"] == "cheapest":
                expected = r"5% risk that the model chosen is more than"
            elif row["objective"] in GATES:
                expected = r"5% risk that a PASS or a FAIL is wrong"
            elif row["familywise"] == "holm" and row["objective"] in ("best", "top_k"):
                expected = r"5% risk that a picked model is worse"
            elif row["familywise"] == "holm":
                expected = r"all comparisons|together"
            else:
                expected = r"at most 5% risk"
            if not re.search(expected, promise):
                yield Fault(name, stage.name, f"{kind} says {promise!r}")
        for warning in results.warnings:
            if re.search(r"promise.*does not|not cover|settings changed|promised .* no longer", warning):
                yield Fault(
                    name, stage.name, f"nothing that the promise depends on was changed, and a warning says {warning!r}"
                )


@check
def commands_end_as_they_should(record: Record) -> Iterator[Fault]:
    """No traceback, no hanging; a stop has exit code 4, and what reads a run ends well."""
    name = "commands end as they should"
    for stage in record.life.stages:
        commands = [stage.done, *(stage.outputs.printed.values() if stage.outputs else ())]
        for done in commands:
            if "Traceback (most recent call last)" in done.err + done.out or "killed: it hung" in done.err:
                yield Fault(name, stage.name, f"{done.line}: {done.err[-1500:]}")
        # what was in flight has ended it
        finished = (
            re.search(
                "inished:|[Ss]topped by (an alarm|the budget|the time limit)|Stopped without a ranking",
                stage.done.out + stage.done.err,
            )
            is not None
        )
        if stage.interrupted == "stopped" and stage.done.code != STOPPED and not finished:
            yield Fault(name, stage.name, f"exit code {stage.done.code} after Ctrl-C")
        for kind, done in (stage.outputs.printed if stage.outputs else {}).items():
            if kind != "monitor" and done.code != REACHED and (stage.outputs and stage.outputs.results is not None):
                yield Fault(name, stage.name, f"{done.line} ended with {done.code}: {done.err[-600:]}")
        is_read = stage.done.arguments[0] in ("export", "import", "label", "regrade")
        bad = stage.done.code != REACHED if is_read else stage.done.code in (CONFIGURATION, 1)
        if bad and not stage.name.startswith("again") and not _may_be_refused(record, stage):
            yield Fault(name, stage.name, f"{stage.done.line} ended with {stage.done.code}: {stage.done.err[-600:]}")


def _may_be_refused(record: Record, stage: Stage) -> bool:
    """Refusals that depend on what came before: a cap on new verdicts, grades that a judge would have to give anew."""
    judged = record.row["grader"] in ("judge", "verifier") and stage.begun == stage.ended
    names = [stage.name for stage in record.life.stages]
    before = record.life.stages[max(names.index(stage.name) - 1, 0)]
    return (
        judged
        and (
            (stage.name == "continued elsewhere" and "adaptive-eval regrade" in stage.done.err)
            or (stage.name.startswith("regraded") and "--beyond-limits" in stage.done.err)
            or (stage.name == "continued after the regrade" and before.done.code != REACHED)
        )
    ) or (before.outputs is not None and re.search("has no (trials|answers) yet", stage.done.err) is not None)


def refusal_faults(life: Life, sentence: str, refused: str) -> list[Fault]:
    """What is wrong where a command must refuse a row before anything is bought."""
    name = "it is refused before anything is bought"
    stage = next((stage for stage in life.stages if stage.name == refused), None)
    if stage is None:
        return [Fault(name, refused, f"it never came so far: {[stage.name for stage in life.stages]}")]
    problems = []
    if stage.done.code != CONFIGURATION:
        problems.append(
            Fault(name, stage.name, f"exit code {stage.done.code}: {stage.done.out[-300:]} {stage.done.err[-300:]}")
        )
    elif not re.search(sentence, stage.done.err):
        problems.append(Fault(name, stage.name, f"{stage.done.err!r} does not say {sentence!r}"))
    if bought := [line for line in life.ledger[stage.begun : stage.ended] if line["what"] != "probe"]:
        problems.append(Fault(name, stage.name, f"{len(bought)} requests were sent"))
    return problems
