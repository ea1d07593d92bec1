"""Faults that the program had, put back one at a time, to show that the checker sees them.

Each is patched into the process of a command (`commands.PLANT`), for a life with the two features that it lies between.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple

from adaptive_eval.config.prepare import with_questions
from adaptive_eval.core.answer_kinds import UnsureGrades
from adaptive_eval.machine.replay import Stage

Patch = Callable[[], None]


class Plant(NamedTuple):
    """A fault, with a life in which it shows."""

    patch: Patch
    levels: Mapping[str, str]
    """Of the life; its other levels are plain."""
    seen_as: str
    """The property of the checker that does not hold."""


PLANTS: dict[str, Plant] = {}


def planted(seen_as: str, **levels: str) -> Callable[[Patch], Patch]:
    """Register a fault under the name of its function."""

    def register(patch: Patch) -> Patch:
        PLANTS[patch.__name__] = Plant(patch, levels, seen_as)
        return patch

    return register


def plant(name: str) -> None:
    """Put a fault into this process."""
    PLANTS[name].patch()


def _replace(place: str, make: Callable[[Any], Any]) -> None:
    """Put another object in the place of `package.module:name`, or of `package.module:Class.name`, wherever it was
    imported; `make` gets the old one."""
    module, _, path = place.partition(":")
    *owners, name = path.split(".")
    owner: Any = import_module(f"adaptive_eval.{module}")
    for part in owners:
        owner = getattr(owner, part)
    old = getattr(owner, name)
    new = make(old)
    setattr(owner, name, new)
    for other in [other for key, other in sys.modules.items() if key.startswith("adaptive_eval.")]:
        if not owners and getattr(other, name, None) is old:
            setattr(other, name, new)


def _returning(value: object) -> Callable[[Any], Any]:
    return lambda _: lambda *_, **__: value


@planted("no verdict is against the truth", answers="cut", objective="best")
def cut_answers_are_wrong_ones() -> None:
    """An answer that was cut off counts like any other wrong one."""
    _replace("config.planning:unsure_grades", _returning(UnsureGrades(0)))


@planted("no verdict is against the truth", answers="empty", objective="threshold")
def changed_servers_decide() -> None:
    """Nobody notices that a server answers otherwise from some answer on, or that most of its answers say nothing."""
    _replace("core.answer_alarms:AnswerHistory.find_change", _returning(None))
    _replace("core.answer_alarms:AnswerHistory.find_silence", _returning(None))


@planted("no verdict is against the truth", objective="gate_on_value")
def gates_on_a_value_are_lenient() -> None:
    """A model passes that is below the value by far more than `stopping.delta`."""

    def lenient(margin: Any) -> Any:
        return lambda against, delta, *more: margin(against, delta + 0.6, *more)

    _replace("config.planning:Margin", lenient)


@planted("a gate has one outcome of each model", objective="gate_on_value")
def models_pass_in_junit() -> None:
    """Continuous integration is told that every model passes."""

    def passing(case: Any) -> Any:
        return lambda run, name, row, *texts: case(run, name, replace(row, outcome="PASS"), *texts)

    _replace("show.junit:_case", passing)


@planted("the choice will do", objective="cheapest", price="paid", delta="5%")
def nothing_is_ruled_out() -> None:
    """The cheapest model is chosen, however weak it is."""

    def lenient(choose: Any) -> Any:
        def chosen(evidence: Any, call: Any, *more: Any) -> Any:
            return choose(evidence, 0 * call + 1, *more)

        return chosen

    _replace("core.look:choose", lenient)


@planted("no key is in any file", supply="inspect", echo="answers")
def keys_of_inspect_are_stored() -> None:
    """Answers are stored as Inspect has them, with the key that their server repeats."""
    _replace("store.redact:redact_trial", lambda _: lambda trial, *_: trial)


@planted("no failure is a wrong answer", supply="inspect", rubric="partial")
def partial_credit_is_right() -> None:
    """A score of 0.5 or more is right, and else it is wrong."""

    def rounding(make_grade: Any) -> Any:
        def rounded(answer: Any, marks: Any, *more: Any) -> Any:
            signals = dict(marks.signals)
            if "score" in signals:
                signals["score"] = float(signals["score"] >= 0.5)
            return make_grade(answer, marks._replace(signals=signals), *more)

        return rounded

    _replace("graders.pool:make_grade", rounding)


@planted("no failure is a wrong answer", supply="lm_eval", rubric="reversed")
def fewer_errors_are_worse() -> None:
    """A task's larger values are taken for the better ones, whatever it says."""

    def ignoring(make_grade: Any) -> Any:
        def as_larger(answer: Any, marks: Any, *more: Any) -> Any:
            signals = dict(marks.signals)
            if "score" in signals:
                signals["is_correct"] = signals["score"] >= 0.5
            return make_grade(answer, marks._replace(signals=signals), *more)

        return as_larger

    _replace("graders.pool:make_grade", ignoring)


@planted("labels reach the headline", labels="overturn")
def labels_stay_in_their_section() -> None:
    """Headline, verdicts and exit code are those of the grades, whatever people say of them."""
    _replace("report.label_effect:read_run_labels", _returning(None))
    _replace("report.stored:has_current_labels", _returning(True))


@planted("the same command again changes nothing", truth="equal_pair", rule="anytime", continuation="max_by_set")
def settings_are_forgotten() -> None:
    """A start without `--set` goes back to the settings of the file, with trials left over."""
    _replace("running.chosen:_stored_overrides", _returning({}))
    _replace("report.changes:require_compatible", _returning(None))


@planted("what was decided stays", cap="trials", continuation="model_added")
def joining_models_undo_looks() -> None:
    """A model that joins has all looks taken anew, within the caps of the file."""
    _replace(
        "running.settings_of_run:stages_of_run", lambda _: lambda reader, events, config, setting: [Stage(setting)]
    )


@planted("the promise is that of the settings", afterwards="moved", access="none")
def moving_voids_the_promise() -> None:
    """An imported run has no pace, so that going on changes it after looks, and comparisons are judged anew."""
    _replace("config.prepare:with_pace", lambda _: lambda config: config)
    _replace("config.prepare:adopt_stored_trials", lambda _: lambda config, *_, **__: config)
    _replace("report.changes:changes_promise", _returning(True))
    _replace(
        "report.changes:_promise_settings", lambda old: lambda config: [*old(config), {"": config.trials.optimize}]
    )
    module: Any = import_module("adaptive_eval.exchange.run_directory")
    module.at_first_start = with_questions  # a run still chooses one


@planted("the cost is what was served", supply="inspect", grader="failing")
def failed_samples_are_free() -> None:
    """Samples of Inspect that get no score are paid for, and counted nowhere."""
    _replace("inspect.endpoint:InspectEndpoint._count_lost", _returning(False))


@planted("no failure is a wrong answer", wire="doubled")
def any_response_is_taken() -> None:
    """The response to another request is an answer, and so is one of several under an index."""

    def sorted_by_index(_: Any) -> Any:
        return lambda choices, requested: sorted(choices, key=lambda choice: choice.get("index") or 0)[:requested]

    _replace("endpoints.answers:_sort_by_index", sorted_by_index)
    _replace("endpoints.response_ids:ResponseIds.require_new", _returning(None))


@planted("no failure is a wrong answer", supply="command", wire="errors")
def exit_statuses_are_ignored() -> None:
    """What a command printed before it failed is its answer."""
    _replace("supplies.commands.process:exit_words", _returning(None))


@planted("the cost in USD is what commands report", supply="command", price="paid")
def reported_usd_is_not_counted() -> None:
    """Answers of commands cost nothing, whatever they report."""
    _replace("supplies.commands.outcome:answer_cost", lambda old: lambda answer: old(answer)._replace(usd=0.0))


@planted("commands get the variables that are named", supply="command", access="none")
def commands_get_all_variables() -> None:
    """The environment of the run is that of its commands, too."""
    _replace("config.commands:command_environment", lambda _: lambda keys, environment: dict(environment))


@planted("nothing goes on after the end", supply="command", wire="hangs")
def what_a_command_has_started_goes_on() -> None:
    """A command is ended alone, without the processes of its group."""
    keeper: Any = import_module("adaptive_eval.launch.keeper")
    text = Path(keeper.__file__).read_text()
    assert (ending := "os.killpg(") in text
    lenient = Path(mkdtemp()) / "keeper.py"
    lenient.write_text(text.replace(ending, "os.kill("))
    keeper.__file__ = str(lenient)
