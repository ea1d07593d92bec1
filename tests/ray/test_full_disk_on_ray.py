"""The disk for the texts of answers is full while models are served at sites of a Ray cluster."""

from pathlib import Path

import pytest
from full_disk import small_disk, texts_wait_for_room
from live_runs import Site
from raylets import Raylets

pytestmark = pytest.mark.ray


def test_texts_stay_in_the_database_and_move_when_there_is_room(
    site: Site, raylets: Raylets, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(config: Path) -> int:
        return site.run(config, "--ray", raylets.address).exit_code

    with small_disk(site, monkeypatch) as disk:
        texts_wait_for_room(site, disk, run)
