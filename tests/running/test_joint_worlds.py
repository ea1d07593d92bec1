"""Runs over HTTP on answers whose signals are all known: what is stored of each is what was drawn."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from known_answers import known_models
from known_server import KnownRespondent, answer_serial, known_server
from live_runs import ENDED, Site, stored
from stored_runs import events_in

from adaptive_eval.notes import ThresholdsFrozen
from adaptive_eval.simulate.answering import question_rows
from adaptive_eval.simulate.server import serving
from adaptive_eval.simulate.worlds import Latency
from scorio.categorical import SCHEMATA, Thresholds, classify


def known_respondent() -> KnownRespondent:
    """Two models on five questions."""
    world, population = known_models(models=2, questions=5, answers=60)
    return KnownRespondent(replace(world, latency=Latency(median=0.01)), population)


@pytest.fixture(scope="module")
def known_url() -> Iterator[str]:
    with serving(known_server(known_respondent())) as url:
        yield url


def known_settings(url: str, site: Site) -> dict[str, object]:
    world = known_respondent().world
    rows = (json.dumps(row) for row in question_rows(world))
    (site.folder / "known.jsonl").write_text("\n".join(rows))
    models = [{"name": name, "base_url": url, "prompt_logprobs": "vllm"} for name in world.models]
    server = {"base_url": url, "model": "verifier"}
    return {
        "questions": "known.jsonl",
        "models": models,
        "sampling": {"temperature": 0.6, "max_tokens": 2000, "logprobs": True},
        "grader": {"kind": "verifier", "server": server, "key_grader": "math"},
        "trials": {"min": 3, "max": 4, "optimize": "cost"},
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["concision_high_conf", "ood_robustness"])
def test_drawn_signals_are_stored_and_decide_the_category(name: str, site: Site, known_url: str) -> None:
    settings, pilot = known_settings(known_url, site), site.directory("pilot")
    first = site.write("pilot", **settings | {"trials": {"min": 3, "max": 3, "optimize": "cost"}})
    assert site.run(first, "--run-dir", str(pilot)).exit_code in ENDED
    config = site.write(**settings, rubric={"name": name, "thresholds": {"from": str(pilot)}})
    ended = site.run(config)
    assert ended.exit_code in ENDED, ended.output
    population = known_respondent().population
    (frozen,) = events_in(Path(site.directory()), ThresholdsFrozen)
    categories = classify(population.signals, SCHEMATA[name], Thresholds(**frozen.values))
    trials = stored(site)
    assert len(trials) >= 2 * 5 * 3
    for trial in trials:
        serial = answer_serial(trial.answer.text)
        assert serial is not None
        at = tuple(map(int, np.unravel_index(serial, population.words.shape)))
        signals, labels = trial.signals, population.labels[at]
        assert [trial.signals["is_correct"], trial.signals["has_box"]] == [
            population.is_correct[at],
            population.has_box[at],
        ]
        assert trial.answer.completion_tokens == population.words[at]
        assert (trial.answer.finish_reason == "length") == population.cut_off[at]
        assert trial.answer.completion_bpt == pytest.approx(population.bits[at])
        assert trial.answer.prompt_bpt == pytest.approx(population.prompt_bits[at[1]])
        assert [signals[f"verifier_{letter}"] for letter in "abc"] == pytest.approx(labels.tolist(), abs=1e-9)
        assert trial.category == categories[at]
