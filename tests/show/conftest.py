"""A run to watch."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from played import Played, prepared


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Callable[..., Played]]:
    """Begins or resumes the run of this test; closes what the test leaves open."""
    started: list[Played] = []

    def begin(name: str = "played", **changes: object) -> Played:
        extra = {key: changes.pop(key) for key in ("text", "skills") if key in changes}
        played = Played(tmp_path / "runs" / name, prepared(tmp_path, **changes), **extra)  # type: ignore[arg-type]
        started.append(played)
        return played

    yield begin
    for played in started:
        played.close()
