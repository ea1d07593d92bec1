"""One cluster for all tests of this folder."""

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from patient_time import HANGS
from raylets import Raylets

from adaptive_eval.sites import messages


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


@pytest.fixture(autouse=True)
def set_timeouts(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets the timeouts of sites, here and in processes of `timed_sites.py`; before that a site may be as slow as a
    busy machine makes it."""

    def set_to(**seconds: float) -> None:
        timeouts = {"heartbeat": HANGS, **seconds}
        monkeypatch.setattr(messages, "TIMEOUTS", messages.SiteTimeouts(**timeouts))
        monkeypatch.setenv("SITE_TIMEOUTS", json.dumps(timeouts))

    set_to()
    return set_to
