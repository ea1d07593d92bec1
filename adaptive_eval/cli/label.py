"""`adaptive-eval label RUN`: answers one by one, to be labelled by keyboard, without a word of whose they are."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from adaptive_eval.cli.shared import reported
from adaptive_eval.errors import ConfigError
from adaptive_eval.graders.ballots import BallotField
from adaptive_eval.record.label_session import AnswerToLabel, LabelSession
from adaptive_eval.record.labelled import labelled_run
from adaptive_eval.record.labels import (
    JOINED,
    add_labels,
    label_fields,
    labels_in,
    require_labels_say_something,
    require_levels,
)
from adaptive_eval.record.restore import opened_run
from adaptive_eval.show.labelled import label_sections
from adaptive_eval.show.text import without_markup
from adaptive_eval.store.postgres.address import require_directory

LONGEST = 4000
KEYS = "123456789"


def label(
    run: Annotated[Path, typer.Argument(help="The directory of a run.", metavar="RUN", show_default=False)],
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="Answers to label in this session.")] = 50,
    page: Annotated[
        bool, typer.Option("--page", help="Label in a browser on this machine, by keyboard, until q or Ctrl-C.")
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="With --page; default: any that is free.", show_default=False),
    ] = None,
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
        require_directory(run)
        _require_one_way(page, port, source, show=show)
        if source is not None:
            _take(run, source)
        elif not show:
            typer.echo("choosing the answers to label ...", err=True)
            session = LabelSession(run, number)
            if page:
                _serve(session, port or 0)
            else:
                _label(session)
        with opened_run(run) as stored:
            found = labelled_run(stored)
        said = "no answer has a label yet" if found is None else without_markup("\n\n".join(label_sections(found)))
        typer.echo(said)


def _require_one_way(page: bool, port: int | None, source: Path | None, *, show: bool) -> None:
    if [page, source is not None, show].count(True) > 1:
        raise ConfigError("--page, --from and --show are three things to do; give one of them")
    if port is not None and not page:
        raise ConfigError("--port says where --page serves its page; add --page")


def _take(run: Path, source: Path) -> None:
    """Labels of the user's own file."""
    with opened_run(run) as stored:
        fields = label_fields(stored.setup.config)
        require_labels_say_something(stored.setup.config, stored.rubric)
    labels = labels_in(source)
    require_levels(labels, fields, source)
    add_labels(run, labels)


def _serve(session: LabelSession, port: int) -> None:
    """A page, until it says that it is over."""
    # imported here: a terminal needs none of it
    from adaptive_eval.show.serve.labelling import serve_labelling

    if session.current is None:
        typer.echo("every answer that a look has judged has a label")
        return
    told = "label at {}  q on the page or Ctrl-C ends it; whoever has the address can label"
    asyncio.run(serve_labelling(session, port, lambda url: typer.echo(told.format(url))))


def _label(session: LabelSession) -> None:
    """A session: until so many have a label, nothing is left, or `q`."""
    while (answer := session.current) is not None:
        given = _asked(answer)
        if given is None:
            return
        if not (given and session.label(given)):
            session.skip()
    if not session.finished:
        typer.echo("every answer that a look has judged has a label")


def _asked(answer: AnswerToLabel) -> str | None:
    """The label that is given; "" for none, None to end the session."""
    _show(answer, whole=False)
    given: list[str] = []
    for field in answer.fields:
        level = _pressed(field, answer)
        if not level:
            return level
        given.append(level)
    return JOINED.join(given)


def _pressed(field: BallotField, answer: AnswerToLabel) -> str | None:
    """The level whose key is pressed; "" to skip the answer, None to end the session."""
    keys = dict(zip(KEYS, field.levels, strict=False))
    choices = [*(f"{key} {level}" for key, level in keys.items()), "s skip", "a all of it", "q quit"]
    typer.echo("  ".join([f"{field.name}:", *choices] if len(answer.fields) > 1 else choices))
    while True:
        try:
            pressed = typer.getchar().lower()
        except (EOFError, KeyboardInterrupt):
            return None
        except OSError as error:
            raise ConfigError(
                f"label needs a terminal to read keys from, and there is none here ({error.strerror}); label in a "
                "browser with --page, or give labels with --from FILE"
            ) from error
        if pressed in keys:
            return keys[pressed]
        if pressed == "s":
            return ""
        if pressed in ("q", ""):  # nothing more can be pressed where the input has ended
            return None
        if pressed == "a":
            _show(answer, whole=True)


def _show(answer: AnswerToLabel, *, whole: bool) -> None:
    """Print an answer, with what stands beside it."""
    typer.echo(f"\n---- {answer.place} of {answer.number} ".ljust(72, "-"))
    for name, text in answer.texts.items():
        typer.echo(f"[{name}]\n{_shortened(text, whole)}\n")


def _shortened(text: str, whole: bool) -> str:
    """A text without its middle: what is asked and what is answered stand at the ends."""
    if whole or len(text) <= LONGEST:
        return text
    half = LONGEST // 2
    return f"{text[:half]}\n[... {len(text) - LONGEST} characters, key a ...]\n{text[-half:]}"
