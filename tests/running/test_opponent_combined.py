"""The opponent that is asked first, where models are asked in batches, share their seeds or take turns on servers."""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from live_runs import ENDED, FAST, MODELS, EndedRuns, Found, Site, kill, small_world, trials_in
from opponents import DEPTH, IN_ALL, OPPONENT, OTHERS, opponent_of, results_of, settings, texts_of
from test_batched_runs import QUICK
from test_launched_run import events, launched, none_left, nothing_is_left, places_of_its_own, printed  # noqa: F401

from adaptive_eval.simulate.answering import question_rows
from adaptive_eval.simulate.batches import BatchHabits
from adaptive_eval.simulate.judging import SimulatedJudge
from adaptive_eval.simulate.server import SimulatedServer, serving
from adaptive_eval.simulate.worlds import copies
from adaptive_eval.store import RunReader, ServerLaunched


@pytest.fixture(scope="module")
def fair_url() -> Iterator[str]:
    with serving(SimulatedServer(small_world(), judge=SimulatedJudge())) as url:
        yield url


def found_by(site: Site, name: str, **changes: object) -> Found:
    """What the run of that name finds."""
    ended = site.run(site.write(name, **changes), "--run-dir", str(site.directory(name)))
    assert ended.exit_code in ENDED, ended.output
    return Found.of(site.directory(name))


@pytest.mark.parametrize("batched", [MODELS, (OPPONENT,), OTHERS], ids=["all", "the opponent", "the others"])
def test_answers_that_come_in_batches_are_compared_as_others_are(
    site: Site, fair_url: str, ended_runs: EndedRuns, batched: tuple[str, ...]
) -> None:
    trials = {"min": 3, "max": 8, "favour": "answers"}
    direct = Found.of(ended_runs.copy(site, site.directory("direct"), **settings(fair_url, trials=trials)))
    server = SimulatedServer(small_world(), batches=BatchHabits(seconds=0.05))
    with serving(server) as url:
        batch = {"base_url": url, "batch": {"kind": "openai", **QUICK}}
        models = [{"name": one, **(batch if one in batched else {"base_url": fair_url})} for one in MODELS]
        found = found_by(site, "run", **settings(fair_url, trials=trials, models=models))
    both = found.outcomes.keys() & direct.outcomes.keys()
    assert both and all(found.outcomes[key] == direct.outcomes[key] for key in both)
    assert found == direct or OTHERS[0] in batched, "how large rounds are is a property of the service"
    assert texts_of(opponent_of(site)) == texts_of(opponent_of(site, "direct"))
    asked = (IN_ALL if OPPONENT in batched else 0) + (len(found.outcomes) if OTHERS[0] in batched else 0)
    assert server.batch_counts["answered"] == asked and server.counts.get("answered", 0) == 0


@pytest.mark.slow
def test_the_opponent_has_seeds_of_its_own_where_the_others_share_theirs(tmp_path: Path) -> None:
    """Else its first answers would go with their first trials, and not with later ones."""
    world = replace(copies(questions=10), latency=FAST)
    (tmp_path / "questions.jsonl").write_text("\n".join(json.dumps(row) for row in question_rows(world)))
    with serving(SimulatedServer(world, judge=SimulatedJudge())) as url:
        site = Site(tmp_path, url)
        names = ("original", "int8", "int4")
        against = settings(url, {"model": "int4", "trials": 4})
        changes = {
            "models": [{"name": name, "base_url": url} for name in names],
            "objective": {"kind": "baseline", "baseline": "original"},
        }
        trials = {"min": 4, "max": 8}
        found = found_by(site, "run", **{**against, **changes, "trials": trials | {"seeds": "coupled"}})
        apart = found_by(site, "apart", **{**against, **changes, "trials": trials | {"seeds": "hashed"}})
    assert texts_of(opponent_of(site)) == texts_of(opponent_of(site, "apart")) and found != apart
    seeds = {name: seeds_of(site.directory(), name) for name in names[:2]}
    shared = seeds["original"].keys() & seeds["int8"].keys()
    assert all(seeds["original"][place] == seeds["int8"][place] for place in shared) and len(shared) >= 40
    assert not set(seeds["original"].values()) & set(seeds_of(opponent_of(site), "int4").values())
    (pair,) = results_of(site).pairs
    assert {pair.better, pair.worse} == set(names[:2]) and pair.by_trial


def seeds_of(directory: Path, model: str) -> dict[tuple[str, int], int | None]:
    with closing(RunReader.open(directory)) as reader:
        return {(one.question, one.trial): one.answer.seed for one in reader.trials() if one.model == model}


@pytest.mark.slow
def test_servers_of_a_pool_are_there_for_the_opponent_first(site: Site, fair_url: str) -> None:
    """The run is killed while the opponent answers, and while others are swapped; each is asked where there is room."""

    def pooled(*flags: str) -> dict[str, object]:
        models = launched(site, *flags, exclusive=None)
        return settings(fair_url, models=models, servers={"pool": {"places": ["0"]}}, trials={"min": 3, "max": 6})

    whole = found_by(site, "whole", **pooled())
    process = site.start(site.write(**pooled("held")), "--run-dir", str(site.directory()))
    assert f"{OPPONENT}: its server" in printed(process, "is ready after")
    while trials_in(opponent_of(site)) < 5:
        assert process.poll() is None
    kill(process)
    assert none_left(site) and not trials_in(site.directory())
    (site.folder / "go").touch()
    process = site.start(site.write(**pooled("held")), "--run-dir", str(site.directory()))
    assert f"{OPPONENT}: its server" in printed(process, "is ready after")
    assert f"{OPPONENT}: its server" not in printed(process, "is ready after")
    kill(process)
    assert none_left(site)
    assert found_by(site, "run", **pooled()) == whole
    assert texts_of(opponent_of(site)) == texts_of(opponent_of(site, "whole"))
    assert {one.model for one in events(opponent_of(site), ServerLaunched)} == {OPPONENT}
    assert {one.model for one in events(site.directory(), ServerLaunched)} == set(OTHERS)
    (row,) = results_of(site).cost.beside
    assert (row.what, row.model, row.trials) == ("opponent", OPPONENT, DEPTH * 8)
