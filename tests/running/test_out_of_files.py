"""A run with a low limit on open files takes longer, and is otherwise the same."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from contrary_server import MODELS, listening, write_config
from patient_time import HANGS

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.notes import ModelSetAside, OnlyFailures, ReplicaLost, ServersNoticed, events_of_kind
from adaptive_eval.report.reader import RunReader

FILES = 72


@pytest.mark.slow
@pytest.mark.parametrize("client", ["http", "openai"])
def test_a_limit_on_open_files_is_not_blamed_on_servers(tmp_path: Path, client: str) -> None:
    """Each request needs a file: fewer are in flight at a time."""
    with listening(lambda asked: None) as server:
        models = [{"name": name, "base_url": server.base_url, "client": client} for name in MODELS]
        changes = {"models": models, "trials": {"min": 10, "max": 10}, "concurrency": 128}
        config, run = write_config(tmp_path, server, **changes), tmp_path / "run"
        command = f'ulimit -n {FILES} && exec "$@"'
        words = [sys.executable, "-m", "adaptive_eval", "run", str(config), "--display", "plain", "--run-dir", str(run)]
        with (run_log := tmp_path / "said").open("w") as output:
            process = subprocess.Popen(["sh", "-c", command, "sh", *words], stdout=output, stderr=output)
        assert process.wait(HANGS) == ExitCode.REACHED, run_log.read_text()
    with closing(RunReader.open(run)) as reader:
        events = reader.events()
        assert reader.trial_count() == 120
        assert all(row.retries == 0 for row in reader.sums())
    assert (
        not events_of_kind(events, ModelSetAside)
        and not events_of_kind(events, ReplicaLost)
        and not events_of_kind(events, OnlyFailures)
    )
    assert {event.notice for event in events_of_kind(events, ServersNoticed)} == {"few_open_files"}
    assert f"this process may have only {FILES}" in run_log.read_text() and "ulimit -n" in run_log.read_text()
