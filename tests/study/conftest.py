"""Simulations of this room are done by the process of the test, however slow the machine is."""

import math

import pytest

from adaptive_eval.study import workers


@pytest.fixture(autouse=True)
def no_process_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "WORTH_A_PROCESS", math.inf)
    monkeypatch.setattr(workers, "WORTH_A_COPY", math.inf)
