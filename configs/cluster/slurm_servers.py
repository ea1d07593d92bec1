"""Without Ray: submitit starts plain servers as Slurm jobs, and a run on this machine asks them.

    pip install submitit
    python configs/cluster/slurm_servers.py configs/cluster/slurm_servers.yaml configs/cluster/slurm_models.yaml

The first file says which servers, each with the variable that the second, a configuration, has its address by. When all
of them answer, `adaptive-eval run` is called; when it has ended, so are the jobs. The same command again continues the
run, with servers at other addresses. `--cluster local` starts them on this machine, to try it out.
"""

import argparse
import os
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, build_opener

import submitit
import yaml

POLL_SECONDS = 1.0


def serve(command: str, told: str, host: str | None) -> int:
    """On a node: start the server at a port that is free, and tell its address by a file that all nodes see."""
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    address = Path(told)
    address.with_suffix(".new").write_text(f"http://{host or socket.getfqdn()}:{port}/v1")
    address.with_suffix(".new").rename(address)
    return subprocess.run(shlex.split(command.replace("{port}", str(port)))).returncode


def answers(address: str) -> bool:
    """Whether the server there lists what it serves."""
    try:
        with build_opener(ProxyHandler({})).open(f"{address}/models", timeout=10) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def parse_address(name: str, job: Any, told: Path) -> str:
    """Where a job's server answers, as soon as it does; ends the program where the job has ended before."""
    while True:
        if told.exists() and answers(address := told.read_text()):
            return address
        if job.done():
            sys.exit(f"the server of {name} has ended: see {job.paths.stderr} and {job.paths.stdout}")
        time.sleep(POLL_SECONDS)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("servers", type=Path)
    parser.add_argument("config", help="and further words for `adaptive-eval run`")
    parser.add_argument("--cluster", default="slurm", choices=("slurm", "local"))
    parser.add_argument("--folder", type=Path, default=Path("runs/servers"), help="logs; all nodes must see it")
    options, words = parser.parse_known_args()
    wanted = yaml.safe_load(options.servers.read_text())
    folder = options.folder.resolve() / str(os.getpid())
    folder.mkdir(parents=True)
    host = "127.0.0.1" if options.cluster == "local" else None
    jobs, environment = {}, dict(os.environ)
    try:
        for name, server in wanted["servers"].items():
            executor = submitit.AutoExecutor(folder=folder, cluster=options.cluster)
            executor.update_parameters(**wanted["jobs"], gpus_per_node=server.get("gpus", 0), name=name.lower())
            jobs[name] = executor.submit(serve, server["command"], str(folder / name), host)
        for name, job in jobs.items():
            environment[name] = parse_address(name, job, folder / name)
            print(f"{name}={environment[name]}", flush=True)
        ended = subprocess.run(["adaptive-eval", "run", options.config, *words], env=environment)
    finally:
        for job in jobs.values():
            job.cancel()
    sys.exit(ended.returncode)


if __name__ == "__main__":
    main()
