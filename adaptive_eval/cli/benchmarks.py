"""`adaptive-eval benchmarks [WORD]`: benchmarks that can be run by name."""

import json
import shutil
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from textwrap import fill, indent, shorten
from typing import Annotated

import typer

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.cli.shared import report_errors
from adaptive_eval.config.named_benchmarks import PACKAGES, named_benchmarks
from adaptive_eval.questions.benchmark import NamedBenchmark, near_names
from adaptive_eval.report.lines import safe_line, several

Word = Annotated[str | None, typer.Argument(help="Only those with this word in their name or description.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print all facts as a JSON list.")]
MAX_LISTED = 500
"""Benchmarks of a source that are listed; if there are more, they are only counted."""
MAX_WIDTH = 100
INDENT = "    "


def benchmarks(word: Word = None, as_json: AsJson = False) -> None:
    """List the benchmarks that can be run by name. They are in installed packages and in this folder.

    The names are for `adaptive-eval init --benchmark NAME`. No code of a package is run, so only facts in its files are
    shown.
    """
    with report_errors():
        benchmarks = named_benchmarks(Path.cwd())
        texts = (
            (benchmark, f"{benchmark.name}\n{benchmark.about}\n{benchmark.description}".lower())
            for benchmark in benchmarks
        )
        matching = [benchmark for benchmark, text in texts if word is None or word.lower() in text]
        if word is not None and not matching:
            near = near_names(word, [benchmark.name for benchmark in benchmarks])
            raise ConfigError(f"no benchmark here has {word!r} in its name or description{near}")
        if as_json:
            typer.echo(json.dumps([asdict(benchmark) for benchmark in matching], indent=2, ensure_ascii=False))
            return
        width = min(shutil.get_terminal_size().columns, MAX_WIDTH)
        sizes = Counter(benchmark.source for benchmark in matching)
        for source, size in sizes.items():
            typer.echo(fill(f"{source}: {several(size, 'benchmark')}{_licence(matching, source)}", width))
            if size > MAX_LISTED:
                typer.echo("  too many to list: give a word, as in `adaptive-eval benchmarks math`")
            for benchmark in matching if size <= MAX_LISTED else ():
                if benchmark.source == source:
                    typer.echo(_describe(benchmark, width, in_full=len(matching) == 1))
            typer.echo()
        for package, hint in PACKAGES.items() if word is None else ():
            if not any(benchmark.name.startswith(package) for benchmark in benchmarks):
                typer.echo(f"More: {hint}")


def _licence(benchmarks: Iterable[NamedBenchmark], source: str) -> str:
    licences = (benchmark.licence for benchmark in benchmarks if benchmark.source == source and benchmark.licence)
    licence = next(licences, None)
    return "" if licence is None else f"; licence of the package {licence}; its data may have another"


def _describe(benchmark: NamedBenchmark, width: int, *, in_full: bool) -> str:
    """Name and facts, and below them a summary, or `in_full` the description."""
    facts = [] if benchmark.questions is None else [several(benchmark.questions, "question")]
    if benchmark.scorers:
        facts.append(f"scorer {' or '.join(benchmark.scorers)}")
    if benchmark.sandbox:
        facts.append("no sandbox" if benchmark.sandbox == "no" else f"sandbox for {benchmark.sandbox}")
    if benchmark.needs_hub and in_full:
        facts.append("data from the Hugging Face hub")
    head = safe_line(": ".join(filter(None, [benchmark.name, ", ".join(facts)])), 1000)
    text, text_width = benchmark.about, width - len(INDENT)
    if in_full and benchmark.description:
        title = benchmark.about.removesuffix(".")
        repeats_title = benchmark.description.startswith(title)
        text = benchmark.description if repeats_title else f"{title}. {benchmark.description}"
    if in_full:
        body = fill(safe_line(text, 4000), text_width)
    else:
        body = shorten(safe_line(text, 1000), text_width, placeholder=" ...")
    return "\n".join([fill(head, width, subsequent_indent=INDENT), indent(body, INDENT)])
