"""`adaptive-eval benchmarks [WORD]`: benchmarks that can be run by name."""

import json
import shutil
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from textwrap import fill, shorten
from typing import Annotated

import typer

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.cli.shared import report_errors
from adaptive_eval.config.named_benchmarks import PACKAGES, named_benchmarks
from adaptive_eval.questions.benchmark import NamedBenchmark, near_names
from adaptive_eval.record.lines import safe_line, several

Word = Annotated[str | None, typer.Argument(help="Only those with this word in their name or description.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print everything that is known, as a JSON list.")]
MAX_LISTED = 500
"""Most benchmarks of a source that are listed; more are only counted."""
MAX_WIDTH = 100


def benchmarks(word: Word = None, as_json: AsJson = False) -> None:
    """List the benchmarks that can be run by name, in installed packages and in this folder.

    The names are for `adaptive-eval init --benchmark NAME`. No code of a package is run, so only facts in its files
    are shown.
    """
    with report_errors():
        known = named_benchmarks(Path.cwd())
        told = ((one, f"{one.name}\n{one.about}\n{one.description}".lower()) for one in known)
        found = [one for one, text in told if word is None or word.lower() in text]
        if word is not None and not found:
            near = near_names(word, [one.name for one in known])
            raise ConfigError(f"no benchmark here has {word!r} in its name or description{near}")
        if as_json:
            typer.echo(json.dumps([asdict(one) for one in found], indent=2, ensure_ascii=False))
            return
        width = min(shutil.get_terminal_size().columns, MAX_WIDTH)
        sizes = Counter(one.source for one in found)
        for source, size in sizes.items():
            typer.echo(fill(f"{source}: {several(size, 'benchmark')}{_licence(found, source)}", width))
            if size > MAX_LISTED:
                typer.echo("  too many to list: give a word, as in `adaptive-eval benchmarks math`")
            for one in found if size <= MAX_LISTED else ():
                if one.source == source:
                    typer.echo(_describe(one, width, whole=len(found) == 1))
            typer.echo()
        missing = [how for package, how in PACKAGES.items() if not any(one.name.startswith(package) for one in known)]
        for how in missing if word is None else ():
            typer.echo(f"More: {how}")


def _licence(found: Iterable[NamedBenchmark], source: str) -> str:
    licence = next((one.licence for one in found if one.source == source and one.licence), None)
    return "" if licence is None else f"; licence of the package {licence}, its data may have another"


def _describe(one: NamedBenchmark, width: int, *, whole: bool) -> str:
    """Name and facts, and below them a summary, or the `whole` description."""
    facts = [
        *([] if one.questions is None else [several(one.questions, "question")]),
        *([f"scorer {' or '.join(one.scorers)}"] if one.scorers else []),
        *([] if not one.sandbox else ["no sandbox" if one.sandbox == "no" else f"sandbox for {one.sandbox}"]),
    ]
    facts += ["data from the Hugging Face hub"] if one.needs_hub and whole else []
    about, more = one.about.removesuffix("."), one.description if whole else ""
    about = more if more.startswith(about) else f"{about}. {more}" if more else one.about
    line = fill(safe_line(": ".join(filter(None, [one.name, ", ".join(facts)])), 1000), width, subsequent_indent="    ")
    wide = width - 4
    told = fill(safe_line(about, 4000), wide) if whole else shorten(safe_line(about, 1000), wide, placeholder=" ...")
    return "\n".join([line, *(f"    {part}" for part in told.split("\n"))])
