"""`adaptive-eval label RUN`: answers one by one, to be labelled by keyboard, without a word of whose they are."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from adaptive_eval.cli.shared import reported
from adaptive_eval.graders.ballots import BallotField
from adaptive_eval.graders.transcript import visible
from adaptive_eval.record.labelled import labelled_run, next_to_label, require_labels_say_something
from adaptive_eval.record.labels import (
    JOINED,
    Labelled,
    add_labels,
    label_fields,
    labels_in,
    read_labels,
    require_levels,
    texts_to_label,
)
from adaptive_eval.record.restore import StoredRun, opened_run
from adaptive_eval.show.labelled import label_sections
from adaptive_eval.show.text import without_markup

AT_A_TIME = 20
"""Answers that are chosen before the comparisons are looked at anew."""
LONGEST = 4000
KEYS = "123456789"


def label(
    run: Annotated[Path, typer.Argument(help="The directory of a run.", metavar="RUN", show_default=False)],
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="Answers to label in this session.")] = 50,
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="Take labels from a file: JSON lines or CSV, see the guide."),
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Only show what the labels say by now.")] = False,
) -> None:
    """Label answers of RUN one by one, blinded: the grader's error, and scores corrected for it.

    Each is shown with its question and the reference, and a key says what it is; neither the model nor what the grader
    said is shown. Chosen are answers whose labels move open comparisons most. The
    labels lie in RUN/labels.jsonl; reports then have the grader's error, and scores corrected for it.
    """
    with reported(run):
        if source is not None:
            _take(run, source)
        elif not show:
            _label(run, number)
        with opened_run(run) as stored:
            found = labelled_run(stored)
        said = "no answer has a label yet" if found is None else without_markup("\n\n".join(label_sections(found)))
        typer.echo(said)


def _take(run: Path, source: Path) -> None:
    """Labels of the user's own file."""
    with opened_run(run) as stored:
        fields = label_fields(stored.setup.config)
        require_labels_say_something(stored)
    labels = labels_in(source)
    require_levels(labels, fields, source)
    add_labels(run, labels)


def _label(run: Path, number: int) -> None:
    """A session: until so many have a label, nothing is left, or `q`."""
    left = number
    skipped: set[Labelled] = set()
    while left > 0:
        with opened_run(run) as stored:
            require_labels_say_something(stored)
            known = read_labels(run)
            some = next_to_label(stored, {**known, **dict.fromkeys(skipped, "")}, min(left, AT_A_TIME))
            if not some:
                typer.echo("every answer has a label")
                return
            for at in some:
                given = _asked(stored, at, number - left + 1, number)
                if given is None:
                    return
                left -= 1
                if given:
                    add_labels(run, {at: given})
                else:
                    skipped.add(at)


def _asked(stored: StoredRun, at: Labelled, place: int, number: int) -> str | None:
    """The label that is given; "" for none, None to end the session."""
    config = stored.setup.config
    (question,) = (one for one in stored.setup.questions if one.id == at.question)
    answer = next(one for one in stored.reader.cell(at.model, at.question, at.trial - 1)).answer.text
    shown = _Screen(texts_to_label(config, question, answer), place, number)
    shown.show(whole=False)
    given: list[str] = []
    for field in label_fields(config):
        level = _pressed(field, shown, named=len(label_fields(config)) > 1)
        if not level:
            return level
        given.append(level)
    return JOINED.join(given)


def _pressed(field: BallotField, shown: "_Screen", *, named: bool) -> str | None:
    """The level whose key is pressed; "" to skip the answer, None to end the session."""
    keys = dict(zip(KEYS, field.levels, strict=False))
    choices = [*(f"{key} {level}" for key, level in keys.items()), "s skip", "a all of it", "q quit"]
    typer.echo("  ".join([f"{field.name}:", *choices] if named else choices))
    while True:
        try:
            pressed = typer.getchar().lower()
        except (EOFError, KeyboardInterrupt):
            return None
        if pressed in keys:
            return keys[pressed]
        if pressed == "s":
            return ""
        if pressed in ("q", ""):  # nothing more can be pressed where the input has ended
            return None
        if pressed == "a":
            shown.show(whole=True)


@dataclass(frozen=True)
class _Screen:
    """What stands in the terminal of one answer."""

    texts: Mapping[str, str]
    place: int
    number: int

    def show(self, *, whole: bool) -> None:
        typer.echo(f"\n---- {self.place} of {self.number} ".ljust(72, "-"))
        for name, text in self.texts.items():
            typer.echo(f"[{name}]\n{_shortened(visible(text), whole)}\n")


def _shortened(text: str, whole: bool) -> str:
    """A text without its middle: what is asked and what is answered stand at the ends."""
    if whole or len(text) <= LONGEST:
        return text
    half = LONGEST // 2
    return f"{text[:half]}\n[... {len(text) - LONGEST} characters, key a ...]\n{text[-half:]}"
