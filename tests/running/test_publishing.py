"""results.json is kept up to date while a run goes on."""

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from adaptive_eval.running.session import Publisher
from patient_time import HANGS
from scipy.stats import beta

from adaptive_eval.report.build import build_unjudged
from adaptive_eval.report.results import UNJUDGED_FORMAT, Unjudged
from adaptive_eval.report.results_file import RESULTS_FILE, is_intact, read_results
from adaptive_eval.report.snapshot import RunSubject


def beginning(*answers: tuple[int, int, int]) -> Unjudged:
    """Two models, two questions, right or wrong: these answers are there, and no look."""
    arrived = np.zeros((2, 2, 2), dtype=np.int64)
    for answer in answers:
        arrived[answer] += 1
    subject = RunSubject("run", ("ada", "bob"), ("q1", "q2"), (None, None), 0.0)
    return build_unjudged(subject, np.array([0.0, 1.0]), arrived, elapsed=1.5, now=60.0, stopped=False)


async def test_trials_are_published_though_no_look_is_taken(tmp_path: Path) -> None:
    taken = asyncio.Event()

    def take() -> Unjudged:
        taken.set()
        return beginning()

    publisher = Publisher(tmp_path, take)
    with patch("adaptive_eval.running.session.BETWEEN_LOOKS_SECONDS", 0.001):
        publishing = asyncio.create_task(publisher.run())
        await asyncio.wait_for(taken.wait(), HANGS)
    publishing.cancel()
    with suppress(asyncio.CancelledError):
        await publishing
    publisher.close()


@pytest.mark.parametrize("turns", range(6))
async def test_it_ends_though_a_look_comes_at_the_moment_it_is_cancelled(tmp_path: Path, turns: int) -> None:
    publisher = Publisher(tmp_path, beginning)
    publishing = asyncio.create_task(publisher.run())
    await asyncio.sleep(0)
    publisher.looked()
    for _ in range(turns):
        await asyncio.sleep(0)
    publishing.cancel()
    done, _ = await asyncio.wait([publishing], timeout=HANGS)
    publishing.cancel()
    publisher.close()
    assert done


async def test_before_the_first_look_the_file_says_what_is_known_of_each_question(tmp_path: Path) -> None:
    publisher = Publisher(tmp_path, lambda: beginning(*[(0, 1, 1)] * 3, (1, 1, 0)))
    assert await publisher.publish() is None
    publisher.close()
    told = json.loads((tmp_path / RESULTS_FILE).read_text())
    assert (told["format"], told["models"], told["run"]["status"]) == (UNJUDGED_FORMAT, ["ada", "bob"], "running")
    first, second = told["questions"]
    assert (first["trials"], first["mean"], first["not_judged"]) == ([0, 0], [0.5, 0.5], [0, 0])
    assert (second["counts"], second["not_judged"]) == ([[0, 3], [1, 0]], [3, 1])
    assert second["mean"] == pytest.approx([4 / 5, 1 / 3])
    assert [second["lo"][0], second["hi"][0]] == pytest.approx(beta(4, 1).ppf([0.025, 0.975]))
    assert is_intact(tmp_path) and read_results(tmp_path) is None


async def test_nothing_is_published_before_the_first_answer(tmp_path: Path) -> None:
    publisher = Publisher(tmp_path, lambda: None)
    assert await publisher.publish() is None
    publisher.close()
    assert not (tmp_path / RESULTS_FILE).exists()
