"""Golden runs find scripted servers here; they are corrected by as many replays as users' runs."""

import sys
from pathlib import Path

import pytest

from adaptive_eval.core.early_stop import REPLAYS
from adaptive_eval.report import build

sys.path.insert(0, str(Path(__file__).parents[1] / "running"))


@pytest.fixture(autouse=True)
def all_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "REPLAYS", REPLAYS)
