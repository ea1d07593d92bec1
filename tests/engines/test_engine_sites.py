"""(f) Sites on a Ray cluster: three models, each served by llama-server on a raylet of its own, as on one machine.

A server answers one request at a time, and reads each prompt anew: then what it answers depends on the seed alone.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_runs import Finished, Workplace
from engine_servers import llama
from family import checkpoints
from raylets import Raylets
from stored_runs import events_in
from to_gguf import convert

from adaptive_eval.notes import SiteLost, SitePlaced

pytestmark = pytest.mark.engine

THREE = tuple(checkpoints())[:3]
FIXED = {
    "trials": {"min": 4, "max": 16, "optimize": "cost"},  # else how far ahead is asked depends on who is faster
    "concurrency": 1,
    "sampling": {"temperature": 1.0, "max_tokens": 8, "extra_body": {"cache_prompt": False}},
}


@pytest.fixture(scope="module")
def raylets() -> Iterator[Raylets]:
    """A node for each model."""
    raylets = Raylets()
    for name in THREE:
        raylets.add(cpus=1, resources={f"of_{name}": 1})
    yield raylets
    raylets.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    """The models, each with a server that has a place on its own node alone."""
    folder = tmp_path_factory.mktemp("ggufs")
    return [_launched(convert(checkpoints()[name], folder / f"{name}.gguf")) for name in THREE]


def _launched(gguf: Path) -> dict[str, object]:
    server = llama(gguf, gguf.with_suffix(".log"), slots=1, context=64)
    command = ["{port}" if word == str(server.port) else word for word in server.command]
    resources = {"CPU": 1, f"of_{gguf.stem}": 1}
    return {"name": gguf.stem, "launch": {"command": command, "resources": resources}}


@pytest.fixture(scope="module")
def at_home(served: list[dict[str, object]], tmp_path_factory: pytest.TempPathFactory) -> Finished:
    workplace = Workplace.make(tmp_path_factory.mktemp("home"))
    return workplace.run(workplace.configure("home", served, **FIXED), accepted=(0, 3))


def test_three_raylets_find_what_one_machine_finds(
    served: list[dict[str, object]], at_home: Finished, workplace: Workplace, raylets: Raylets
) -> None:
    config = workplace.configure("there", served, **FIXED)
    on_raylets = workplace.run(config, "--ray", raylets.address, accepted=(0, 3))
    assert len(on_raylets.records) >= 4 * 30 * len(THREE)
    assert on_raylets.outcomes == at_home.outcomes and on_raylets.looks == at_home.looks
    assert (on_raylets.order, on_raylets.tiers) == (at_home.order, at_home.tiers)
    directory = workplace.directory(config)
    placed = events_in(directory, SitePlaced)
    assert {event.model for event in placed} == set(THREE)
    assert len({event.node_id for event in placed}) == len(THREE), "each on a node of its own"
    assert not events_in(directory, SiteLost)
