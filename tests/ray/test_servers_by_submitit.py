"""Plain servers that submitit starts: as jobs of this machine, where there is no Slurm."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from live_runs import MODELS, RunOutcome, Site
from patient_time import HANGS

from adaptive_eval.base.errors import ExitCode

pytestmark = pytest.mark.ray

RECIPE = Path(__file__).parents[2] / "configs" / "cluster" / "slurm_servers.py"
SERVER = Path(__file__).parents[1] / "running" / "small_server.py"


def test_a_run_asks_servers_that_submitit_started_and_ends_them(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = f"{sys.executable} -S {SERVER} {{port}} {site.folder}"
    names = {name: f"{name.upper()}_URL" for name in MODELS}
    servers = tmp_path / "servers.yaml"
    servers.write_text(yaml.safe_dump({
        "jobs": {"timeout_min": 60}, "servers": {variable: {"command": command} for variable in names.values()}
    }))  # fmt: skip
    trials = {"min": 4, "max": 8, "optimize": "cost"}
    models = [{"name": name, "base_url": f"${{{variable}}}"} for name, variable in names.items()]
    config = site.write(models=models, trials=trials)
    launch = {"command": [sys.executable, "-S", str(SERVER), "{port}", str(site.folder)]}
    launched = [{"name": name, "launch": launch} for name in MODELS]
    at_home = site.write("home", models=launched, trials=trials)
    assert site.run(at_home, "--run-dir", str(site.directory("home"))).exit_code == ExitCode.SPENT
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    words = [str(RECIPE), str(servers), str(config), "--cluster", "local", "--folder", str(tmp_path / "jobs")]
    ended = subprocess.run(
        [sys.executable, *words, "--run-dir", str(site.directory()), "--display", "plain"],
        capture_output=True,
        text=True,
    )
    assert ended.returncode == ExitCode.SPENT, (ended.stdout, ended.stderr)
    assert RunOutcome.of(site.directory()) == RunOutcome.of(site.directory("home"))
    deadline = time.monotonic() + HANGS
    while any(str(site.folder).encode() in line for line in command_lines()):
        assert time.monotonic() < deadline, "its servers are still there"
        time.sleep(0.1)


def command_lines() -> Iterator[bytes]:
    """Of all servers on this machine."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if (line := path.read_bytes()) and SERVER.name.encode() in line:
                yield line
