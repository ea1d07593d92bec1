"""A run in a process of its own whose files are removed while it goes on."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from gated import GatedServer
from live_runs import Site, small_world, wait_for_trials
from patient_time import HANGS

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.simulate.server import serving


@pytest.mark.parametrize(
    "how", ["folder", *(pytest.param(how, marks=pytest.mark.slow) for how in ("file", "replaced"))]
)
def test_a_run_whose_store_is_removed_says_what_is_lost(site: Site, how: str, tmp_path: Path) -> None:
    server = GatedServer(small_world(), 30)
    with serving(server) as url:
        _take_away(replace(site, base_url=url), server, how, tmp_path)


def _take_away(site: Site, server: GatedServer, how: str, tmp_path: Path) -> None:
    directory = site.directory()
    process = site.start(site.write())
    assert wait_for_trials(directory, 20, process)
    if how == "folder":
        directory.rename(tmp_path / "elsewhere")
    else:
        (directory / "run.sqlite").unlink()
    if how == "replaced":
        (directory / "run.sqlite").write_bytes(b"")
    server.open()
    _, errors = process.communicate(timeout=HANGS)
    assert process.returncode == ExitCode.FAILED, errors
    assert "was removed or replaced during the run" in errors
    assert "--fresh" in errors
    assert "intact" not in errors
    assert "Traceback" not in errors
    shutil.rmtree(tmp_path / "elsewhere", ignore_errors=True)
