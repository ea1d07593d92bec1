"""The committed models are what `train.py` makes."""

import hashlib
import json
import subprocess
from pathlib import Path

import pytest
from engine_servers import VLLM_PYTHON, require
from family import FAMILY

pytestmark = pytest.mark.engine

TRAIN = Path(__file__).with_name("train.py")
SECONDS = 1500


def files(folder: Path) -> dict[str, str]:
    paths = {path.relative_to(folder): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {str(name): hashlib.sha256(path.read_bytes()).hexdigest() for name, path in paths.items()}


def test_training_again_makes_the_same_bytes(tmp_path: Path) -> None:
    require(VLLM_PYTHON)
    subprocess.run([VLLM_PYTHON, TRAIN, tmp_path], check=True, timeout=SECONDS, capture_output=True)
    made_on = json.loads((FAMILY / "made_on.json").read_text())
    this_machine = json.loads((tmp_path / "made_on.json").read_text())
    if this_machine != made_on:
        pytest.skip(f"the models were made on {made_on}, whose last digits are others than those of {this_machine}")
    assert files(tmp_path) == files(FAMILY)
