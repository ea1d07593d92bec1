"""scorio.eval beside the PyPI package `scorio` 0.2.3: the same numbers, and how much faster.

    python benchmarks/scorio_speed.py [--quick] [--json PATH] [--markdown PATH]

The package has the same import name, so it lives in a virtual environment of its own, made on the first run. Each side
is one process (`scorio_worker.py`); they take turns on the same outcomes, and the fastest of their calls counts.
"""

import json
import math
import os
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tables import Check, arguments, check_table, machine, markdown, publish

VERSION = "0.2.3"
WORKER = Path(__file__).with_name("scorio_worker.py")
SMALL, MEDIUM, LARGE = (30, 80), (1000, 64), (100_000, 64)
MODELS = 11

SCALES = ("bayes", "bayes_ci", "avg", "avg_ci")
BEST = ("max_at_k", "max_at_k_ci")
BINARY = (
    "pass_at_k", "pass_hat_k", "g_pass_at_k", "g_pass_at_k_tau", "mg_pass_at_k", "maj_at_k", "auc_at_k", "geom_at_k",
    "geom_ds_at_k", "geo_spectrum_at_k", "geo_spectrum_star_at_k", "threshold_spectrum_at_k",
)  # fmt: skip
BATCHED = ("bayes", "avg_ci", "pass_at_k", "pass_at_k_ci", "mg_pass_at_k_ci", "geo_spectrum_at_k_ci", "max_at_k_ci")

SECONDS = {True: 0.003, False: 0.02}  # of a side's turn
ROUNDS = {True: 3, False: 8}


@dataclass
class Case:
    """One function on one set of outcomes, and the microseconds that each side took: theirs, ours."""

    function: str
    shape: tuple[int, ...]
    categories: int
    k: int | None = None
    fastest: list[float] = field(default_factory=lambda: [math.inf, math.inf])
    first: float = math.inf
    difference: float = 0.0

    @property
    def times(self) -> float:
        return self.fastest[0] / self.fastest[1]

    @property
    def slow(self) -> bool:
        """Seconds a call on the other side."""
        return (self.function, self.shape) == ("max_at_k_ci", LARGE)

    @property
    def goal(self) -> float | None:
        if self.slow:
            return 100.0
        heavy = self.function in ("mg_pass_at_k_ci", "auc_at_k_ci", "geo_spectrum_at_k_ci")
        return 20.0 if heavy and self.shape == SMALL else None

    def __str__(self) -> str:
        draws = f", k = {self.k}" if self.k else ""
        return f"{self.function} at {self.shape}, {self.categories} categories{draws}"

    def request(self, seconds: float) -> dict[str, Any]:
        kwargs: dict[str, Any] = {} if self.k is None else {"k": self.k}
        if "tau" in self.function:
            kwargs["tau"] = 0.7
        if "threshold" in self.function and self.k:
            kwargs["weights"] = [1.0 / self.k] * self.k
        where = {"function": self.function, "shape": self.shape, "categories": self.categories}
        return where | {"kwargs": kwargs, "seconds": seconds}


class Side:
    """A worker process of one interpreter, with one BLAS thread: none of the work gains from more."""

    def __init__(self, python: Path) -> None:
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        environment |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [python, WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def __enter__(self) -> "Side":
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(timeout=60)


def other_python() -> Path:
    """The interpreter of an environment that holds the package, in the user's cache, with our numpy and scipy."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "adaptive-eval"
    libraries = [f"{name}=={version(name)}" for name in ("numpy", "scipy")]
    home = cache / "-".join(
        [f"scorio=={VERSION}", *libraries, f"python{sys.version_info.major}.{sys.version_info.minor}"]
    )
    python = home / "bin" / "python"
    works = [str(python), "-c", "import scorio.eval"]
    if not python.exists() or subprocess.run(works, capture_output=True).returncode:
        venv.create(home, with_pip=True, clear=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, f"scorio=={VERSION}", *libraries], check=True)
    return python


def cases() -> Iterator[Case]:
    for shape in (SMALL, MEDIUM, LARGE):
        for categories in (2, 4):
            yield from (Case(name, shape, categories) for name in SCALES)
            yield from (Case(name, shape, categories, 8) for name in BEST)
        for k in (8, 16, 32) if shape == SMALL else (8,):
            yield from (Case(name + end, shape, 2, k) for name in BINARY for end in ("", "_ci"))
    yield from (Case(name, (MODELS, *SMALL), 2, None if name in SCALES else 8) for name in BATCHED)


def relative(ours: float, theirs: float) -> float:
    return abs(ours - theirs) / abs(theirs) if theirs else abs(ours)


def measure(found: Sequence[Case], quick: bool) -> None:
    """Take turns, case by case and round by round, so that both sides meet the same machine."""
    with Side(other_python()) as theirs, Side(Path(sys.executable)) as ours:
        for case in found:
            for turn in range(1 if case.slow else ROUNDS[quick]):
                seconds = SECONDS[quick]
                answers = theirs.ask(case.request(0.0 if case.slow else seconds)), ours.ask(case.request(seconds))
                case.fastest = [min(best, now["fastest"]) for best, now in zip(case.fastest, answers, strict=True)]
                if turn == 0:
                    case.first = answers[1]["first"]
            values = zip(answers[1]["values"], answers[0]["values"], strict=True)
            case.difference = max(relative(*pair) for pair in values)


def geometric_mean(found: Sequence[Case]) -> float:
    return math.exp(math.fsum(math.log(case.times) for case in found) / len(found))


def checks(found: Sequence[Case]) -> list[Check]:
    """The goals: the same values, nowhere slower, far faster on the whole and on the heavy functions."""
    single = [case for case in found if case.shape != (MODELS, *SMALL)]
    mean, mean_at_8 = geometric_mean(single), geometric_mean([case for case in single if case.k in (None, 8)])
    apart, slowest = max(found, key=lambda case: case.difference), min(found, key=lambda case: case.times)
    new_k = next(case for case in found if case.function == "mg_pass_at_k_ci" and case.k == 16)
    return [
        Check(f"largest relative difference: {apart}", f"{apart.difference:.1e}", "<= 1e-9", apart.difference <= 1e-9),
        Check(f"least times faster: {slowest}", slowest.times, ">= 1 / 1.1", slowest.times >= 1.0 / 1.1),
        Check("times faster, geometric mean of single models", mean, ">= 8", mean >= 8.0),
        Check("the same with k = 8 only", mean_at_8, "", None),
        *(
            Check(f"times faster: {case}", case.times, f">= {case.goal:.0f}", case.times >= case.goal)
            for case in single
            if case.goal is not None
        ),
        Check(f"first call with a new k, us: {new_k}", round(new_k.first), "", None),
    ]


def report(found: Sequence[Case]) -> str:
    """Goals and measured times as Markdown."""
    text = [
        f"# scorio.eval beside scorio {VERSION}",
        f"{machine()}; CPU microseconds of the fastest call, the two sides in turn, on 64-bit integer outcomes that\n"
        "are checked and tallied in every call. Tables that depend on `k` and the number of trials alone are kept\n"
        "between calls; the last check shows a call that finds none.",
        check_table(checks(found)),
    ]
    header = ("function", "k", "categories", f"scorio {VERSION}, us", "ours, us", "times faster")
    for shape in dict.fromkeys(case.shape for case in found):
        models = f"{MODELS} models of " if len(shape) == 3 else ""
        text.append(f"## {models}{shape[-2]:,} questions, {shape[-1]} trials")
        rows = [
            (case.function, case.k or "", case.categories, *(f"{us:,.0f}" for us in case.fastest), f"{case.times:,.1f}")
            for case in found
            if case.shape == shape
        ]
        text.append(markdown(header, rows))
    return "\n\n".join(text) + "\n"


def main() -> int:
    options = arguments("scorio.eval beside the PyPI package scorio.").parse_args()
    found = list(cases())
    measure(found, options.quick)
    text = report(found)
    publish(options, text, checks(found))
    return 0 if all(check.holds is not False for check in checks(found)) else 1


if __name__ == "__main__":
    sys.exit(main())
