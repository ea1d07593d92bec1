"""The recipes for clusters can be read, and the command lines in them are ones that the program takes."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from document_blocks import require_understood

from adaptive_eval.config.load import load_config
from adaptive_eval.launch.types import SitesConfig
from adaptive_eval.sites.opening import require_sites, resources_of

FOLDER = Path(__file__).parents[2] / "configs" / "cluster"
RECIPES = ("slurm.sbatch", "kubernetes.yml", "skypilot.yml")


def test_the_configuration_asks_for_the_gpus_that_its_servers_use() -> None:
    config = load_config(FOLDER / "models.yaml", ())
    require_sites(config)
    taken = {one.name: resources_of(one, one.launch)["GPU"] for one in config.models if one.launch}
    assert taken == {"Qwen3-32B": 4.0, "QwQ-32B": 4.0, "Qwen3-14B": 2.0, "Qwen3-8B": 1.0}
    assert config.sites.keep == 1800.0 > SitesConfig().keep


def test_the_pool_has_fewer_places_than_models() -> None:
    config = load_config(FOLDER / "pool.yaml", ())
    require_sites(config)
    (group,) = config.serving_groups
    assert group.in_turn and len(group.models) == 6 and len(group.places) == 4
    assert max(resources_of(one, one.launch)["GPU"] for one in config.models if one.launch) == 2.0


@pytest.mark.parametrize("recipe", RECIPES)
def test_its_command_line_is_one_that_the_program_takes(recipe: str) -> None:
    text = (FOLDER / recipe).read_text()
    lines = re.findall(r"^(?!\s*#).*?\b(adaptive-eval run \S+\.yaml .*)$", text, flags=re.MULTILINE)
    assert len(lines) == 1
    words = shlex.split(lines[0])
    require_understood(words)
    assert words[-2:] == ["--ray", "auto"] and Path(words[2]).name == "models.yaml"


def test_what_is_yaml_can_be_read_and_names_nodes_of_gpus() -> None:
    job = yaml.safe_load((FOLDER / "kubernetes.yml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    (group,) = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    (container,) = group["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "8" and container["volumeMounts"]
    assert job["spec"]["rayClusterSpec"]["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    task = yaml.safe_load((FOLDER / "skypilot.yml").read_text())
    assert task["num_nodes"] == 4 and task["file_mounts"]["/evals"]["source"] == "${BUCKET}"


@pytest.mark.parametrize("recipe", ["slurm.sbatch", "skypilot.yml"])
def test_what_is_shell_is_well_formed(recipe: str) -> None:
    text = (FOLDER / recipe).read_text()
    scripts = [text] if recipe.endswith("sbatch") else [yaml.safe_load(text)[part] for part in ("setup", "run")]
    for script in scripts:
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)
