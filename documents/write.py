"""Write the generated pages: the worked example, the glossary and the keys of the configuration.

    python documents/write.py            # write them
    python documents/write.py --check    # fail unless they are up to date

The example is run as a reader would run it, over HTTP. Its answers depend only on seeds, so it is reproducible.
"""

import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory

from reference import reference

from adaptive_eval.report.glossary import GLOSSARY
from adaptive_eval.report.results import Results
from adaptive_eval.report.results_file import read_results
from adaptive_eval.simulate.worlds import coins

ROOT = Path(__file__).resolve().parents[1]
GUIDE = ROOT / "docs" / "guide"
TEMPLATE = ROOT / "documents" / "reading-a-report.md"
WIDTH = 120
EXAMPLE = "configs/quickstart.yaml"
UNDECIDED = (1, 4)
"""The pairs of the example that its text calls close: tied with `delta`, out of reach without."""


def pages() -> Iterator[tuple[Path, str]]:
    """Generated pages with their texts."""
    yield GUIDE / "glossary.md", glossary()
    yield ROOT / "docs" / "reference" / "configuration.md", fill_paragraphs(reference())
    yield GUIDE / "reading-a-report.md", worked_example()


def glossary() -> str:
    """The page with the terms of reports that the worked example does not explain."""
    explained = set(re.findall(r"\{(\w+)\}", TEMPLATE.read_text()))
    head = (
        "Further terms of reports and of a run's page. [How to read a report](reading-a-report.md) explains the most "
        "important ones."
    )
    terms = (term for key, term in GLOSSARY.items() if key not in explained)
    return fill_paragraphs(f"# Glossary\n\n{head}\n" + "".join(f"\n## {term.name}\n\n{term.text}\n" for term in terms))


def worked_example() -> str:
    """The page that explains a report, with the numbers of a new run."""
    with TemporaryDirectory() as folder, ThreadPoolExecutor(2) as both:
        with_delta = both.submit(run_example, Path(folder) / "a")
        without = both.submit(run_example, Path(folder) / "b", "--set", "stopping.delta=0")
        (a, report_a), (b, report_b) = with_delta.result(), without.result()
    require([pair.verdict for pair in a.pairs], expected_verdicts("tied"))
    require([pair.verdict for pair in b.pairs], expected_verdicts("out_of_reach"))
    world = coins()
    truth = dict(zip(world.models, world.truth, strict=True))
    terms = {name: term.text for name, term in GLOSSARY.items()}
    text = TEMPLATE.read_text().format(
        **terms,
        a=a,
        b=b,
        gap_a=[points(pair.difference) for pair in a.pairs],
        sigma_a=[points(pair.sigma) for pair in a.pairs],
        certifiable_b=points(b.pairs[4].certifiable_delta),
        horizon=round(a.cost.max_trials / len(a.models) / len(world.questions)),
        looks_a=len(a.looks),
        truth=[truth[model.name] for model in a.models],
        finding_a=first_sentences(report_a),
        finding_b=first_sentences(report_b),
        table_a=tables(report_a)[0],
        details_a=tables(report_a)[2],
        comparisons_a=tables(report_a)[3],
        undecided_b=undecided_rows(tables(report_b)[3]),
        needed_b=ceil(b.pairs[4].deciding_max or 0),
        fresh_b=ceil(b.pairs[1].trials_needed or 0),
    )
    return fill_paragraphs(text)


def expected_verdicts(close: str) -> list[str]:
    """Verdicts of the five pairs in the text, with this verdict for close pairs."""
    return [close if pair in UNDECIDED else "resolved" for pair in range(5)]


def fill_paragraphs(text: str) -> str:
    """Wrap the paragraphs of a text at the width of all pages."""
    parts = text.rstrip("\n").split("\n\n")
    return "\n\n".join(part if part.startswith(("#", "|", "```")) else fill(part) for part in parts) + "\n"


def fill(paragraph: str) -> str:
    """Wrap a paragraph, which may be a quotation."""
    mark = "> " if paragraph.startswith("> ") else ""
    return textwrap.fill(
        paragraph.removeprefix(mark), WIDTH, initial_indent=mark, subsequent_indent=mark, break_on_hyphens=False
    )


def run_example(run: Path, *more: str) -> tuple[Results, str]:
    """Run the example, and report it as Markdown."""
    run_command("run", EXAMPLE, "--run-dir", str(run), "--display", "none", *more)
    results = read_results(run)
    assert results is not None
    return results, run_command("report", str(run), "--format", "md", "--output", "-")


def run_command(*words: str) -> str:
    """The output of a command; an undecided run is not a failure."""
    command = [sys.executable, "-m", "adaptive_eval", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    require(done.returncode in (0, 3), True, done.stderr)
    return done.stdout


def require(got: object, expected: object, detail: str = "") -> None:
    """Stop if the run does not match the text of the page."""
    if got != expected:
        raise SystemExit(f"{TEMPLATE} describes {expected}, but the run has {got}; change its text. {detail}")


def points(value: float | None) -> str:
    """A difference of scores in percentage points."""
    return f"{100 * (value or 0.0):.1f} points"


def first_sentences(report: str) -> str:
    """The finding of a report, and how many comparisons are decided at what cost in trials."""
    *finding, counted = (part for part in report.split("\n\n") if part.startswith("**") or " decided. Cost: " in part)
    return " ".join([*(part.strip("*") for part in finding), f"{counted.partition('),')[0]})."])


def undecided_rows(table: str) -> str:
    """A table of comparisons with those that are out of reach only."""
    head, line, *rows = table.splitlines()
    return "\n".join([head, line, *(row for row in rows if "out of reach" in row)])


MEASURED = "s/answer"
"""The measured column, which differs between runs and is omitted."""


def tables(report: str) -> list[str]:
    """The tables of a report, in order."""
    return [drop_measured_column(part) for part in report.split("\n\n") if part.startswith("|")]


def drop_measured_column(table: str) -> str:
    """A table without the measured column."""
    rows = [line.split("|") for line in table.splitlines()]
    measured = [at for at, head in enumerate(rows[0]) if head.strip() == MEASURED]
    return "\n".join("|".join(cell for at, cell in enumerate(row) if at not in measured) for row in rows)


def main() -> None:
    check = sys.argv[1:] == ["--check"]
    for path, text in pages():
        if check and (not path.exists() or path.read_text() != text):
            raise SystemExit(f"{path.relative_to(ROOT)} is not up to date; run: python documents/write.py")
        path.write_text(text)


if __name__ == "__main__":
    main()
