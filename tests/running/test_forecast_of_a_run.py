"""The forecast of `plan` without a pilot against the run itself: both count answers that are asked ahead."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from live_runs import ENDED, Site, small_world
from typer.testing import CliRunner

from adaptive_eval.cli import app
from adaptive_eval.simulate.server import SimulatedServer, serving
from adaptive_eval.simulate.worlds import Latency, binary, with_mean

MARGIN = 0.2
"""Of the run: three runs and ten simulated ones each have a spread of some percent; a third of what `time` asks here is
asked ahead."""
GUESSED: tuple[dict[str, object], ...] = ({"temperature": 0.6}, {"temperature": 0.6, "max_tokens": 2000})
"""Without a length the times of answers are not known: what is asked ahead is the same."""


def forecast_trials(site: Site, **changes: object) -> float:
    """The median of the forecast."""
    path = site.folder / "forecast.json"
    words = [str(site.write(**changes)), "--simulations", "10", "--json", str(path)]
    planned = CliRunner().invoke(app, ["plan", *words])
    assert planned.exit_code == 0, planned.output
    return float(json.loads(path.read_text())["need"]["costs"]["trials"]["median"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimize", "seconds"), [("cost", 0.004), pytest.param("time", 0.1, marks=pytest.mark.release)]
)
def test_the_forecast_counts_every_answer_that_the_run_asks(
    optimize: str, seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the world of the servers, and in no other: worlds differ by far more than this. Wrong answers take twice as
    long, as the forecast says that it assumes."""
    p = binary(np.array([with_mean(np.linspace(0.02, 0.98, 8), mean) for mean in (0.85, 0.5, 0.15)]))
    world = replace(small_world(), p=p, latency=Latency(median=seconds))
    monkeypatch.chdir(tmp_path)  # a plan goes by the run and the dry run that are there
    monkeypatch.setattr("adaptive_eval.study.forecast.prior_chances", lambda *_: iter([world.p] * 10))
    pace = {"trials": {"min": 4, "max": 80, "optimize": optimize}, "concurrency": 16}
    with serving(SimulatedServer(world)) as url:
        site, asked = Site.make(tmp_path, url), list[int]()
        for seed in range(3):
            directory = tmp_path / f"run-{seed}"
            ended = site.run(site.write(**pace, seed=seed), "--run-dir", str(directory))
            assert ended.exit_code in ENDED, ended.output
            asked.append(json.loads((directory / "results.json").read_text())["cost"]["trials"])
        forecasts = [forecast_trials(site, **pace, sampling=sampling) for sampling in GUESSED]
    assert forecasts == pytest.approx([np.mean(asked)] * len(GUESSED), rel=MARGIN)
