"""A table over many replays of one thing."""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from adaptive_eval.display.text import number
from adaptive_eval.replay.judged import Judged

ROWS = {
    "cost": "cost, share of the maximum",
    "trials": "trials",
    "looks": "looks",
    "called": "comparisons called",
    "wrong": "wrong calls",
    "tied": "tied",
    "out_of_reach": "out of reach",
    "covered": "95% intervals that hold the truth",
    "tau_b": "Kendall's tau-b with the truth",
    "minutes": "simulated minutes",
    "busy": "busy slots of the slowest open model",
    "swaps": "swaps of models on one server",
}


def study_table(runs: Sequence[Judged]) -> str:
    """Mean, standard deviation and range of what every run gave, and how many were wrong somewhere."""
    width = max(map(len, ROWS.values()))
    lines = [f"{'':<{width}}  {'mean':>9}  {'sd':>9}  {'least':>9}  {'most':>9}"]
    for name, title in ROWS.items():
        values = np.array([getattr(run, name) for run in runs], dtype=float)
        if not np.isnan(values).all():
            lines.append(f"{title:<{width}}  {'  '.join(_cells(values))}")
    wrong = sum(run.wrong > 0 for run in runs)
    ended = Counter(run.reason for run in runs)
    return "\n".join([
        *lines,
        "",
        f"{wrong} of {len(runs)} runs made a wrong call ({wrong / len(runs):.1%})",
        f"ended: {', '.join(f'{reason} {times}' for reason, times in ended.most_common())}",
    ])  # fmt: skip


def _cells(values: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> Iterator[str]:
    digits = 0 if np.nanmax(np.abs(values)) >= 1000.0 else 3
    spread = float(np.nanstd(values, ddof=1)) if len(values) > 1 else float("nan")
    for value in (float(np.nanmean(values)), spread, float(np.nanmin(values)), float(np.nanmax(values))):
        yield f"{number(value, digits):>9}"
