"""A run whose files are taken away while it goes on, in a process of its own."""

import shutil
from pathlib import Path

import pytest
from live_runs import Site, wait_for_trials
from patient_time import HANGS

from adaptive_eval.errors import ExitCode


@pytest.mark.parametrize(
    "how", ["folder", *(pytest.param(how, marks=pytest.mark.slow) for how in ("file", "replaced"))]
)
def test_a_run_whose_store_is_taken_away_says_what_is_lost(site: Site, how: str, tmp_path: Path) -> None:
    # more trials than the test waits for, so that the run is still going on
    config, directory = site.write(trials={"min": 400, "max": 400}), site.directory()
    process = site.start(config)
    assert wait_for_trials(directory, 20, process)
    if how == "folder":
        directory.rename(tmp_path / "elsewhere")
    else:
        (directory / "run.sqlite").unlink()
    if how == "replaced":
        (directory / "run.sqlite").write_bytes(b"")
    _, said = process.communicate(timeout=HANGS)
    assert process.returncode == ExitCode.FAILED, said
    assert "was removed or replaced while the run went on" in said
    assert "--fresh" in said
    assert "intact" not in said
    assert "Traceback" not in said
    shutil.rmtree(tmp_path / "elsewhere", ignore_errors=True)
