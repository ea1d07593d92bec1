"""Stored values that no run has written, under checksums that fit: who goes on with the run, or reads it, names it."""

import json
import shutil
import zlib
from pathlib import Path

import pytest
from contrary_server import listening, write_config
from forging import forging
from typer.testing import CliRunner

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.cli import app

NO_LOOK = zlib.compress(json.dumps({"models": 3}).encode())
DAMAGES = {
    "text": (
        "UPDATE trials SET text = ?, state = 'judging', category = NULL",
        zlib.compress(b"x" * 99)[:-9],
        "a stored text",
    ),
    "plain look": ("UPDATE looks SET body = ?", "{}", "a stored look is not a JSON object"),
    "packed look": ("UPDATE looks SET body = ?", b"no zlib", "a stored text cannot be unpacked"),
    "look": ("UPDATE looks SET body = ?", NO_LOOK, "is not a valid look"),
    "configuration": ("UPDATE configurations SET body = ?", "[]", "the stored configuration is not a JSON object"),
    "question": ("UPDATE questions SET body = ?", "7", "a stored question is not a JSON object"),
    "number": ("UPDATE looks SET seq = ?", "seven", "a row has no number"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that a cap has ended after its first look, and its configuration with a larger one."""
    folder = tmp_path_factory.mktemp("made")
    more = {"trials": {"min": 2, "max": 4}, "stopping": {"confidence": 0.999999, "on_alarm": "never"}}
    with listening(lambda asked: None) as server:
        config = write_config(folder, server, budget={"trials": 24}, **more)
        words = ["run", str(config), "--display", "plain", "--run-dir", str(folder / "run")]
        assert CliRunner().invoke(app, words).exit_code == ExitCode.SPENT
        write_config(folder, server, **more)
    return folder


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_value_is_told_with_its_file_and_what_to_do(made: Path, tmp_path: Path, damage: str) -> None:
    run, (sql, value, what) = tmp_path / "run", DAMAGES[damage]
    shutil.copytree(made / "run", run)
    with forging(run) as database:
        database.execute(sql, (value,))
    words = ["run", str(made / "run.yaml"), "--display", "plain", "--run-dir", str(run)]
    if damage.endswith("look"):  # a resume derives it again
        words = ["report", str(run), "--format", "md", "-o", "-"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == ExitCode.FAILED, result.output
    told = result.output[result.output.index("error: ") :].replace("\n", " ")
    assert told.startswith(f"error: {run}/run.sqlite is damaged: ") and what in told, told
    assert (
        f"`adaptive-eval verify {run}`" in told
        and "restore a copy of it, or start a new run: another --run-dir" in told
    )
