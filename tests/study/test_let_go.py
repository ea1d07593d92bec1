"""For how long simulated runs hold servers that are stopped while a batch is waited for."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from planned import MODELS, prepared_from, write_config

from adaptive_eval.study.forecast import ForecastRequest, make_forecast
from adaptive_eval.study.pilot import AnswerUsage
from adaptive_eval.study.scenario import ServiceCosts
from adaptive_eval.study.simulated import held_seconds
from adaptive_eval.study.timed import ServedSpans, Timeline

USAGE = AnswerUsage(*(np.ones((4, 2)) for _ in range(3)), np.zeros(4))


def spans(*each: tuple[float, float]) -> ServedSpans:
    begins, ends = zip(*each, strict=True)
    return ServedSpans(np.array(begins), np.array(ends))


TIMES = Timeline(
    seconds=8000.0,
    looks=np.zeros(0),
    served=(
        spans((0.0, 90.0), (50.0, 100.0), (3700.0, 3800.0), (3820.0, 3900.0), (4100.0, 4200.0)),
        spans((100.0, 300.0), (3900.0, 4000.0)),
        spans((0.0, 3700.0), (4250.0, 8000.0)),  # two batches, the second of which a look later
        spans((0.0, 20.0), (500.0, 600.0)),
    ),
)


def served(*stopped: tuple[int, ...], batched: tuple[int, ...] = (2,), **more: float) -> ServiceCosts:
    costs = ServiceCosts(USAGE, (), (8,) * 4, batched=batched, stopped_for_batches=stopped, swap_seconds=120.0)
    return costs._replace(**more)  # type: ignore[arg-type]


def test_a_gap_that_is_longer_than_a_start_and_has_a_batch_in_it_is_not_held() -> None:
    ends = (4200.0, 4000.0, 8000.0, 600.0)
    assert held_seconds(TIMES, served((0,), (1,), batched=())) == ends, "nobody has batches"
    assert held_seconds(TIMES, served()) == ends, "the run starts no server"
    gone = 3700.0 - 100.0
    # of the other gaps one is shorter than a start, and in one, of 200 s, there is no batch
    assert held_seconds(TIMES, served((0,), (3,))) == (4200.0 - gone, 4000.0, 8000.0, 600.0 - 480.0)
    assert held_seconds(TIMES, served((0,), wake_seconds=3500.0))[0] == 4200.0 - gone
    assert held_seconds(TIMES, served((0,), swap_seconds=3600.0))[0] == 4200.0, "not longer than a start"


def test_servers_at_one_place_are_stopped_when_none_of_them_has_anything_to_do() -> None:
    gone = 3700.0 - 300.0
    assert held_seconds(TIMES, served((0, 1))) == (4200.0 - gone, 4000.0 - gone, 8000.0, 600.0)


@pytest.mark.slow
def test_plan_knows_that_servers_are_stopped_for_batches(tmp_path: Path) -> None:
    """A batch takes a day, and all else minutes: in rounds of which each has one, servers are held for minutes."""
    own = [{"name": name, "launch": {"command": "serve --port {port}"}, "gpus": 1} for name in MODELS[:2]]
    batched = {"name": MODELS[2], "base_url": "http://127.0.0.1:9/v1", "batch": {"kind": "openai", "expected": "24h"}}
    path = write_config(tmp_path)
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"models": [*own, batched]}))
    found = make_forecast(prepared_from(path), ForecastRequest(worlds=8), lambda share, words, *, at_once=False: None)
    assert found.need.costs.seconds is not None
    assert found.need.costs.seconds.median >= 24 * 3600.0
