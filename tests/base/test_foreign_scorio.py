"""PyPI's package scorio in place of this project's is noticed at import, with the command that repairs it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import adaptive_eval
import scorio
from adaptive_eval.base.errors import ForeignScorio

ROOT = Path(adaptive_eval.__file__).parents[1]


def python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the modules of this folder first on its path."""
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def shadowed(tmp_path: Path) -> Path:
    """A folder whose scorio has the names of PyPI's package."""
    (tmp_path / "scorio").mkdir()
    (tmp_path / "scorio" / "__init__.py").write_text('__version__ = "0.2.3"\nCounts = categorical = None\n')
    return tmp_path


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A folder with both of our packages after PyPI's scorio was installed over ours and removed again."""
    for name in ("adaptive_eval", "scorio"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "scorio" / "__init__.py").unlink()
    return tmp_path


def test_command_line_ends_with_the_repairing_command(shadowed: Path) -> None:
    ended = python(shadowed, "-m", "adaptive_eval", "--help")
    assert ended.returncode == 1 and not ended.stdout
    message, command = ended.stderr.splitlines()
    place = shadowed / "scorio" / "__init__.py"
    assert message.startswith("error: adaptive_eval needs its own package scorio")
    assert f"another package, {place}." in message
    assert command.strip().endswith("-m pip install --force-reinstall --no-deps SOURCE")


def test_removed_files_are_noticed(mixed: Path) -> None:
    ended = python(mixed, "-S", "-c", "import adaptive_eval")  # without the site, which has a whole one
    assert ended.returncode == 1
    assert "missing or partly removed" in ended.stderr and "Traceback" not in ended.stderr


def test_error_is_an_import_error_and_other_errors_keep_their_traceback(shadowed: Path) -> None:
    code = "try:\n    import adaptive_eval\nexcept ImportError as error:\n    print(error)\nraise ValueError('other')"
    ended = python(shadowed, "-c", code)
    assert "pip uninstall --yes scorio" in ended.stdout
    assert ended.stderr.startswith("Traceback") and "ValueError: other" in ended.stderr
    assert issubclass(ForeignScorio, ImportError)


def test_import_of_either_loads_neither_numpy_nor_typing() -> None:
    code = "import sys; b = set(sys.modules); import scorio, adaptive_eval; print(sorted(set(sys.modules) - b))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "['adaptive_eval', 'scorio']"
    assert scorio.__version__ == adaptive_eval.__version__ and "__version__" in dir(scorio)
