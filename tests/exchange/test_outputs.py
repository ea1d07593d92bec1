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


@pytest.mark.parametrize("place", ["/dev/fd", "/proc/self/fd"])
def test_a_file_that_is_open_already_is_written_to(tmp_path: Path, place: str) -> None:
    """Such as `3>>file`, or a temporary file that another program shares and has removed."""
    if not Path(place).exists():
        pytest.skip(f"this system has no {place}")
    with (tmp_path / "shared").open("w+b") as file:
        os.set_inheritable(file.fileno(), True)
        file.write(b"before, ")
        file.flush()
        (tmp_path / "shared").unlink()
        assert not write_output(Path(place, str(file.fileno())), b"report", "Fix that")
        file.seek(0)
        assert file.read() == b"before, report" and [*tmp_path.iterdir()] == []


def test_no_file_of_the_program_is_written_to(tmp_path: Path) -> None:
    """A user who names a number has opened that file."""
    file = tmp_path / "of the run"
    with file.open("wb") as opened, pytest.raises(StoreError, match="Bad file descriptor"):
        write_output(Path(f"/dev/fd/{opened.fileno()}"), b"report", "Fix that")
    assert file.read_bytes() == b""


def test_links_in_a_circle_are_no_defect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run, circle = make_run(tmp_path, ragged()), tmp_path / "circle"
    circle.symlink_to("circle")
    for words in (
        ("report", run, "--output", circle / "x"),
        ("export", run, "--format", "jsonl", "--output", circle / "x"),
        ("demo", "--no-open", "--output", circle / "x"),
        ("import", circle, "--to", "imported"),
    ):
        assert "Too many levels of symbolic links" in typed(*words).stderr


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
