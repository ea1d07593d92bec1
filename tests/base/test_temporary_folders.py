"""Folders of programs of others: removed once nobody holds them, and never before."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from adaptive_eval.base import temporary_folders
from adaptive_eval.base.temporary_folders import TemporaryFolder, clear_leftovers, remove_tree

PREFIX = "adaptive-eval-test-"


@pytest.fixture(autouse=True)
def _tempdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_a_folder_is_removed_by_its_owner_or_by_the_next_process(tmp_path: Path) -> None:
    folder, other = TemporaryFolder(PREFIX), TemporaryFolder("another-")
    clear_leftovers(PREFIX)
    assert folder.path.parent == tmp_path and folder.path.exists()
    (tmp_path / f"{PREFIX}left").mkdir()
    (tmp_path / f"{PREFIX}left" / "lock").touch()
    (tmp_path / f"{PREFIX}unfinished").mkdir()
    clear_leftovers(PREFIX)
    assert not (tmp_path / f"{PREFIX}left").exists()
    folder.remove()
    assert not folder.path.exists() and other.path.exists()
    other.remove()


def test_a_folder_that_is_being_made_is_not_taken_for_a_leftover(monkeypatch: pytest.MonkeyPatch) -> None:
    flock, is_first = fcntl.flock, True

    def interrupted(descriptor: int, operation: int) -> None:
        nonlocal is_first
        if is_first:  # another process starts at this moment
            is_first = False
            clear_leftovers(PREFIX)
        flock(descriptor, operation)

    monkeypatch.setattr(temporary_folders.fcntl, "flock", interrupted)
    folder = TemporaryFolder(PREFIX)
    assert not is_first and folder.path.exists()
    folder.remove()


@pytest.fixture
def own_folder() -> Iterator[Path]:
    """A folder of a user whose rights have limits: root may write everywhere."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    user = os.geteuid() or 65534
    os.chown(folder, user, -1)
    root = os.geteuid()
    os.seteuid(user)
    yield folder
    os.seteuid(root)
    shutil.rmtree(folder)


def test_a_write_protected_folder_is_removed_and_what_a_link_leads_to_stays(own_folder: Path) -> None:
    (other := own_folder / "other").mkdir(mode=0o500)
    (module := own_folder / "removed" / "module").mkdir(parents=True)
    (module / "file").touch()
    (module / "link").symlink_to(other)
    module.chmod(0o500)
    module.parent.chmod(0o500)
    remove_tree(module.parent)
    assert not module.parent.exists() and other.stat().st_mode & 0o777 == 0o500
