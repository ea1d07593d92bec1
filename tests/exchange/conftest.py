"""Inspect's own warnings, which are not ours to mend and no errors here."""

from pathlib import Path

import pytest

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
