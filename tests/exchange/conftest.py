"""Graders that are tried in no time, and Inspect's own warnings, which are not ours to mend and no errors here."""

from pathlib import Path

import pytest

from adaptive_eval.exchange import importing
from adaptive_eval.graders.registry import GRADERS

OF_INSPECT = (
    "ignore:The 'initial' parameter is deprecated:DeprecationWarning",
    "ignore:Unclosed <MemoryObject:ResourceWarning",
)
"""Its retries ask tenacity by an old name; its streams of events are left open at the end of an eval."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folder = Path(__file__).parent
    for item in items:
        if item.path.parent == folder:
            for warning in OF_INSPECT:
                item.add_marker(pytest.mark.filterwarnings(warning))


@pytest.fixture
def quick_graders(monkeypatch: pytest.MonkeyPatch) -> None:
    """An import that looks for the grader of its logs tries those which need no process."""
    monkeypatch.setattr(importing, "GRADERS", {name: GRADERS[name] for name in ("exact", "contains", "choice")})
