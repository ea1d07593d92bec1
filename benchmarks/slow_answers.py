"""What twenty hostile or merely slow answers among 600 cost the math grader.

    python benchmarks/slow_answers.py [--quick] [--json PATH] [--markdown PATH]

580 usual expressions (--quick: 180) that are compared in worker processes, and 20 others spread among them: as usual;
bombs that are known by their size; polynomials that would be expanded; integrals, sums and equations that take seconds
to minutes; and a mixture. `usual` is the rate until the last usual answer has its grade, `all` the seconds until the
last one has. The usual answers alone are timed before and after.
"""

import asyncio
import time
from typing import NamedTuple

from tables import Check, arguments, conclude, markdown

from adaptive_eval.base.errors import GraderError
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.graders.mathematics import Math
from adaptive_eval.graders.pool import GradingPool
from adaptive_eval.graders.rubric import RubricConfig, open_rubric
from adaptive_eval.questions.types import Question

OTHERS = 20
GOALS = {"bombs": 0.8, "polynomials": 0.8, "slow": 0.67, "mixed": 0.67}
"""Of the rate of usual answers alone."""
BOMBS = (r"x^{9^{9^9}}", r"(x+1)^{10000}", r"\sum_{k=1}^{10^9} \frac{x}{k}", r"100000!x", r"\binom{10^9}{10^8}x")
POLYNOMIALS = (
    r"(x+y+z+1)^{29}",
    r"(a+b+c+d+f)^{20}",
    r"(x+y+1)^{30}(x-y+1)^{30}",
    r"\frac{x^{5000}-1}{x-1}",
    r"\frac{(x+y)^{20}-(x-y)^{20}}{(x+y+z)^{15}}",
)
SLOW = (
    r"\int_0^\infty \frac{\sin(x)}{x} dx",
    r"\int_0^\infty \cos(x^2)\ln(1+x) dx",
    r"\sum_{k=1}^{1000} \frac{1}{k^2+k+1}",
    r"x^5+y^5+z^5=(x+y+z)^{25}",
)
MIXED = (
    r"\sin(\log((\log(\log(y+50!)+500!))(200^{77}+7+y)+500!))",
    r"11^{77}+2(x+1)+\log(13(x+1)+50!)",
    r"\int x^{30} e^{x} \sin(x) dx",
    "(" * 29 + "x+y" + ")" * 29 + "^{20}",
    r"e^{e^{e^{e^{x}}}}-e^{e^{e^{9}}}",
    r"\log_{2}(\log_{3}(\log_{5}(x^{100}+7)))+\sqrt[7]{x+\sqrt[5]{y}}",
    r"\{(x+1)^{25},(x+2)^{25},(x+3)^{25},(x+4)^{25}\}",
    "+".join(f"{k}^{{{k}}}x^{{{k}}}" for k in range(2, 40)),
)
"""Nested functions, huge factorials, deep brackets, towers of powers, long sums."""
KINDS = {"usual": (), "bombs": BOMBS, "polynomials": POLYNOMIALS, "slow": SLOW, "mixed": MIXED, "usual again": ()}


class Taken(NamedTuple):
    """How long a set of answers has taken."""

    usual: float
    """Seconds until the last usual one had its grade."""
    last: float
    """Seconds until the last one had it."""
    failed: int
    """How many got none."""


def usual_pair(number: int) -> tuple[str, str]:
    """An expression and the key it is compared with; half of them are equal."""
    a, b = 2 + number % 17, 3 + number % 23
    wrong = number % 2
    return (
        (rf"\frac{{{a}\sqrt{{{b}}}}}{{{b}}}", rf"\frac{{{a + wrong}}}{{\sqrt{{{b}}}}}"),
        (f"(x-{a})(x+{b})", f"x^2+{b - a}x-{a * b + wrong}"),
        (rf"\{{{a},{b}\}}", rf"\{{{b},{a + wrong}\}}"),
        (rf"{a}\pi+{number}", rf"{number + wrong}+{a}\pi"),
    )[number % 4]


def pairs(number: int, others: tuple[str, ...]) -> list[tuple[bool, str, str]]:
    """Whether it is usual, the answer and its key; the others stand among the rest at equal distances."""
    rows = [(True, *usual_pair(place)) for place in range(number)]
    for place in range(OTHERS):
        at = place * len(rows) // OTHERS
        other = (False, others[place % len(others)], f"x^2-{place}") if others else (True, *usual_pair(number + place))
        rows.insert(at, other)
    return rows


async def taken(rows: list[tuple[bool, str, str]]) -> Taken:
    """Grade them all at once."""
    pool = GradingPool(Math(), open_rubric(RubricConfig()))
    ends: list[float] = []
    failed = 0

    async def one(usual: bool, said: str, key: str) -> float:
        nonlocal failed
        answer = Answer(rf"So it is \boxed{{{said}}}.", "stop", 0, "replica", 0.1)
        try:
            await pool.grade(answer, Question("q", "?", key))
        except GraderError:
            failed += 1
        ends.append(time.perf_counter())
        return ends[-1] if usual else 0.0

    try:
        await asyncio.gather(*(one(True, f"{n}x-y", f"y-{n}x") for n in range(64)))  # workers are up
        begun = time.perf_counter()
        ended = await asyncio.gather(*(one(*row) for row in rows))
        return Taken(max(ended) - begun, max(ends) - begun, failed)
    finally:
        await pool.close()


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    number = 180 if options.quick else 580
    found = {kind: asyncio.run(taken(pairs(number, others))) for kind, others in KINDS.items()}
    alone = (number + OTHERS) / min(found["usual"].usual, found["usual again"].usual)
    rows, checks = [], []
    for kind, took in found.items():
        count = number if KINDS[kind] else number + OTHERS
        rate = count / took.usual
        rows.append((kind, f"{rate:.0f}", f"{took.usual:.1f}", f"{took.last:.1f}", took.failed))
        if KINDS[kind]:
            told = f"usual answers a second beside {OTHERS} {kind}, of those alone"
            checks.append(Check(told, round(rate / alone, 2), f"{GOALS[kind]}", rate / alone >= GOALS[kind]))
    head = (f"{OTHERS} others", "usual a second", "seconds", "all", "without a grade")
    conclude(options, "Slow answers", __doc__, f"{number + OTHERS} answers", markdown(head, rows), checks)


if __name__ == "__main__":
    main()
