"""What Inspect leaves behind is not ours to mend: its own warnings are not errors in these tests."""

from pathlib import Path

import pytest

OF_INSPECT = (
    "ignore:The 'initial' parameter is deprecated:DeprecationWarning",
    "ignore:Unclosed <MemoryObject:ResourceWarning",
)
"""Its retries ask tenacity by an old name; its streams of events are left open at the end of an eval."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            for warning in OF_INSPECT:
                item.add_marker(pytest.mark.filterwarnings(warning))
