"""Checks that stored trials mean the same under today's configuration.

A resume may not change what the stored trials depend on: seed, prompt, grader, rubric and questions, and the served
name and sampling settings of each model that has answered. A model may join a run or leave it: seeds and decisions go
by name, so the other trials stay valid, and the looks are taken again over today's models. A question may not, since
every score is a mean over all questions.
"""

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence

from adaptive_eval.base.errors import NEW_RUN, RunChanged, first_lines
from adaptive_eval.notes.event import Change
from adaptive_eval.store.header import RunHeader

SHOWN_CHANGES = 12
GRADING = ("grader", "rubric")
"""The part of a run's meaning that grading anew may change, besides the questions' answer keys."""


def differences(was: object, now: object, path: str = "") -> Iterator[Change]:
    """Every leaf in which two trees of plain values differ; a missing leaf is the same as None."""
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        for key in sorted({*was, *now}, key=str):
            yield from differences(was.get(key), now.get(key), f"{path}.{key}" if path else str(key))
    elif was != now:
        yield Change(path, was, now)


def _description(change: Change, meaning: object) -> str:
    """A changed setting in words; for a changed file its name instead of digests."""
    *place, last = change.path.split(".")
    if last == "digest" and isinstance(task := _at(meaning, place), Mapping):
        file = str(task.get("inspect")).partition("@")[0]
        return f"{'.'.join(place)}.inspect: {file} {_file_change(change)}"
    grader, source, file = change.path.partition(".sources.")
    if source:
        return f"{grader}: {file} {_file_change(change)}"
    return str(change)


def shared_differences(stored: RunHeader, now: RunHeader, unanswered: Collection[str] = ()) -> Iterator[Change]:
    """The differences of models and questions that both runs have, but for `unanswered` models."""
    models = (stored.models.keys() & now.models.keys()).difference(unanswered)
    questions = stored.questions.keys() & now.questions.keys()
    then, today = ({name: header.models[name] for name in models} for header in (stored, now))
    yield from differences(then, today, "models")
    then, today = ({name: header.questions[name] for name in questions} for header in (stored, now))
    yield from differences(then, today, "questions")


def _listed(names: Sequence[str]) -> str:
    """How many questions, with the first and the last."""
    named = f"{names[0]} … {names[-1]}" if len(names) > 1 else names[0]
    return f"{len(names):,} question{'s' if len(names) > 1 else ''} ({named}) {'are' if len(names) > 1 else 'is'}"


def _file_change(change: Change) -> str:
    """Describe the change of a file whose digest differs."""
    return "no longer exists" if change.now is None else "was edited after the start of the run"


def _at(tree: object, place: Sequence[str]) -> object:
    for key in place:
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree


def require_same_meaning(
    stored: RunHeader,
    now: RunHeader,
    directory: object,
    unanswered: Collection[str] = (),
    *,
    is_regradable: bool = True,
) -> None:
    """Raise `RunChanged` listing the changed settings that trials depend on; `unanswered` models have no trials.
    `is_regradable`: whether all answers that have counted are here."""
    changes = [*differences(stored.meaning, now.meaning), *shared_differences(stored, now, unanswered)]
    missing = [name for name in stored.questions if name not in now.questions]
    new = [name for name in now.questions if name not in stored.questions]
    counts = [f"{_listed(names)} {what}" for names, what in ((missing, "missing now"), (new, "new")) if names]
    if changes or counts:
        lines = [*counts, *(_description(change, stored.meaning) for change in changes)]
        is_of_models = not counts and all(change.path.startswith("models.") for change in changes)
        advice = f"Undo the change, {'give a changed model another name, ' if is_of_models else ''}or {NEW_RUN}."
        if not counts and all(map(_concerns_grades, changes)) and is_regradable:
            regrade = f"adaptive-eval regrade {shlex.quote(str(directory))} --config CONFIG"
            advice = f"Undo the change, or {NEW_RUN}. This grades the stored answers again:\n  {regrade}"
        raise RunChanged(
            f"{directory} has a run with other settings, so its answers cannot be used for this one:\n"
            + "\n".join((*first_lines(lines, SHOWN_CHANGES), advice))
        )


def _concerns_grades(change: Change) -> bool:
    """Whether a change only concerns how answers are graded: the grader, its source files, the rubric, or a key."""
    section, *_ = change.path.split(".")
    return section in GRADING or (section == "questions" and change.path.endswith(".answer"))
