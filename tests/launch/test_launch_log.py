"""The last lines of a server's log: safe for a terminal, and without what the server knows."""

from pathlib import Path

import pytest

from adaptive_eval.endpoints.redaction import Redactor
from adaptive_eval.endpoints.secrets import secret_values
from adaptive_eval.launch.process import LAST_BYTES, MAX_LAST_LINES, MAX_LINE_CHARS, ServerLog

KEY = "correct-horse-battery"


def last_lines(folder: Path, printed: str) -> tuple[str, ...]:
    secrets = secret_values({"VLLM_API_KEY": KEY, "MINE": "another-horse", "HOME": "/h"}, ("MINE",))
    log = ServerLog(folder / "m.log", Redactor(secrets))
    log.begin("command")
    with log.path.open("a") as file:
        file.write(printed)
    return log.last_lines()


def test_a_key_of_no_known_shape_is_not_repeated(tmp_path: Path) -> None:
    lines = last_lines(tmp_path, f"args: {{'api_key': '{KEY}', 'home': '/h'}}\nanother-horse \x1b[31m{KEY}\x1b[0m\n")
    assert lines == ("args: {'api_key': '***', 'home': '/h'}", "*** ***")


@pytest.mark.parametrize("hidden", [KEY, "sk-abcdefgh12345678abcd"])
@pytest.mark.parametrize("shown", [3, 11, 19])
def test_nor_a_part_of_it_where_a_line_is_cut(tmp_path: Path, hidden: str, shown: int) -> None:
    (line,) = last_lines(tmp_path, "x" * (MAX_LINE_CHARS - shown - 1) + " " + hidden)
    assert hidden[:3] not in line
    tail = f"{hidden} " + "x " * (LAST_BYTES // 2 - 1)
    (line,) = last_lines(tmp_path, tail + "x" * (len(hidden) - shown))
    assert hidden[-3:] not in line


def test_only_the_last_lines_since_the_last_start_are_reported(tmp_path: Path) -> None:
    last_lines(tmp_path, "before\n")
    assert last_lines(tmp_path, "now\n") == ("now",)
    assert last_lines(tmp_path, "".join(f"{number}\n" for number in range(99)))[0] == str(99 - MAX_LAST_LINES)
