"""Processes of Inspect that begin at once, and a file of tasks beside the configuration."""

import shutil
from pathlib import Path

import pytest
import warm_inspect
from live_runs import Site


@pytest.fixture(autouse=True)
def _warm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """But where the plainest task is asked: there they begin as they do elsewhere."""
    if request.node.get_closest_marker("slow") is not None and not request.node.name.endswith("[exactly]"):
        warm_inspect.fork_from(request.getfixturevalue("inspect_address"), monkeypatch)


@pytest.fixture
def task_file(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(Path(__file__).with_name("own_tasks.py"), site.folder / "tasks.py")
    monkeypatch.setenv("SIM_BASE_URL", site.base_url)
    monkeypatch.setenv("SIM_API_KEY", "none")
