"""One cluster for all tests of this folder."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from raylets import Raylets


@pytest.fixture(scope="session")
def raylets() -> Iterator[Raylets]:
    """Two nodes for sites beside the head node; those that tests kill are for a while still thought to be there."""
    raylets = Raylets()
    raylets.add(resources={"lasting": 8})
    raylets.add(resources={"lasting": 8})
    yield raylets
    raylets.close()


@pytest.fixture(autouse=True)
def places_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
