"""The recipes for clusters can be read, and their command lines are valid."""

import os
import re
import shlex
import subprocess
import time
from pathlib import Path

import pytest
import yaml
from document_blocks import require_understood

from adaptive_eval.config.load import load_config
from adaptive_eval.sites.opening import require_sites, site_resources

FOLDER = Path(__file__).parents[2] / "configs" / "cluster"
RECIPES = ("slurm.sbatch", "kubernetes.yml", "skypilot.yml")


def test_the_configuration_asks_for_the_gpus_that_its_servers_use() -> None:
    config = load_config(FOLDER / "models.yaml", ())
    require_sites(config)
    gpus = {model.name: site_resources(model, model.launch)["GPU"] for model in config.models if model.launch}
    assert gpus == {"Qwen3-32B": 4.0, "QwQ-32B": 4.0, "Qwen3-14B": 2.0, "Qwen3-8B": 1.0}


def test_the_pool_has_fewer_places_than_models() -> None:
    config = load_config(FOLDER / "pool.yaml", ())
    require_sites(config)
    (group,) = config.serving_groups
    assert group.in_turn and len(group.models) == 6 and len(group.places) == 4
    assert max(site_resources(model, model.launch)["GPU"] for model in config.models if model.launch) == 2.0


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_command_line_of_a_recipe_is_valid(recipe: str) -> None:
    text = (FOLDER / recipe).read_text()
    lines = re.findall(r"^(?!\s*#).*?\b(adaptive-eval run \S+\.yaml .*)$", text, flags=re.MULTILINE)
    assert len(lines) == 1
    words = shlex.split(lines[0])
    require_understood(words)
    assert words[-2:] == ["--ray", "auto"] and Path(words[2]).name == "models.yaml"


def on_the_path(folder: Path, programs: dict[str, str]) -> dict[str, str]:
    """An environment with these programs, each of which notes its words before it does anything."""
    for name, does in programs.items():
        program = folder / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/bash\necho "{name} $*" >> {folder}/called\n{does}\n')
        program.chmod(0o755)
    return {"HOME": str(folder), "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}


RUN = "adaptive-eval run configs/cluster/models.yaml"


def test_on_slurm_the_run_begins_on_the_first_node_of_the_cluster_of_all(tmp_path: Path) -> None:
    environment = on_the_path(tmp_path, {
        "scontrol": "printf 'node7\nnode8\n'",
        "srun": "shift 2; for task in 0 1; do SLURM_PROCID=$task \"$@\"; done",
        "ray": "[ $SLURM_PROCID != 0 ] || { until [ $1 = -- ]; do shift; done; shift; \"$@\"; }",
        "adaptive-eval": "exit 3",
    })  # fmt: skip
    (tmp_path / "bin" / "activate").write_text("")
    end = str(2**31)  # so many seconds are left that the run is not told to end
    job = {"SLURM_JOB_ID": "123", "SLURM_JOB_NODELIST": "node[7-8]", "SLURM_JOB_NUM_NODES": "2"}
    variables = {**environment, **job, "SLURM_JOB_END_TIME": end, "ADAPTIVE_EVAL_ENVIRONMENT": str(tmp_path)}
    begun = time.time()
    ended = subprocess.run(["bash", str(FOLDER / "slurm.sbatch")], env=variables)
    assert ended.returncode == 0, "the last task was that of the second node"
    called = (tmp_path / "called").read_text().splitlines()
    started = [line for line in called if line.startswith("ray symmetric-run --address node7:6523 --min-nodes 2 -- ")]
    assert len(started) == 2
    assert [line for line in called if line.startswith("adaptive")] == [f"{RUN} --display plain --ray auto"]
    given = re.search(r"timeout (\d+) ", started[0])
    assert given and int(given[1]) <= int(end) - begun - 299, "it is told to end five minutes before the job is"


def test_servers_without_ray_are_those_that_the_configuration_names(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = yaml.safe_load((FOLDER / "slurm_servers.yaml").read_text())["servers"]
    for name in servers:
        monkeypatch.setenv(name, f"http://{name.lower().replace('_', '-')}:8000/v1")
    config = load_config(FOLDER / "slurm_models.yaml", ())
    assert [model.base_url for model in config.models] == [(os.environ[name],) for name in servers]
    assert all(model.model in servers[name]["command"] for name, model in zip(servers, config.models, strict=True))
