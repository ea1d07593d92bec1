"""Files that users name are written whole; a device or a pipe among them is never replaced by a file."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from command_line import typed
from small_run import make_run, ragged

from adaptive_eval.base.errors import ConfigError, StoreError
from adaptive_eval.base.files import new_export, write_output
from adaptive_eval.cli.shared import write_document


def test_a_named_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(pipe.read_bytes)
        write_output(pipe, b"report", "Fix that")
        assert pipe.is_fifo() and read.result(10) == b"report"


def test_a_link_to_a_device_stays(tmp_path: Path) -> None:
    link = tmp_path / "stdout"
    link.symlink_to("/dev/null")
    write_output(link, b"report", "Fix that")
    assert link.readlink() == Path("/dev/null") and [*tmp_path.iterdir()] == [link]


def test_a_link_to_a_file_stays(tmp_path: Path) -> None:
    link, file = tmp_path / "newest", tmp_path / "first"
    link.symlink_to(file)
    write_output(link, b"report", "Fix that")
    assert link.is_symlink() and file.read_bytes() == b"report"


def test_a_device_that_takes_nothing_is_reported(tmp_path: Path) -> None:
    link = tmp_path / "full"
    link.symlink_to("/dev/full")
    if not link.exists():
        pytest.skip("this system has no /dev/full")
    with pytest.raises(StoreError, match=r"full: it cannot be written: .*\. Fix that"):
        write_output(link, b"report", "Fix that")


@pytest.mark.parametrize("force", [False, True])
def test_an_export_does_not_replace_a_device(tmp_path: Path, force: bool) -> None:
    link = tmp_path / "null"
    link.symlink_to("/dev/null")
    with pytest.raises(ConfigError, match="is a device or a pipe, but an export is one file"), new_export(link, force):
        raise AssertionError
    assert link.is_symlink()


@pytest.mark.parametrize("output", ["-", "/dev/stdout"])
def test_the_terminal_may_be_named(
    output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    directory = make_run(tmp_path, ragged())
    for kind in ("md", "summary"):
        written = Path(typed("report", directory, "--format", kind, code=0).output.splitlines()[0])
        named = typed("report", directory, "--format", kind, "--output", output, code=0)
        assert named.output == written.read_text()
    write_document("a | b", [], {}, None, Path(output))
    assert capsys.readouterr().out == "a | b\n"  # the text of a terminal, not Markdown
    assert not (tmp_path / "-").exists()
