"""Blocks of code in documents: where they stand, and what a command line in one means."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from adaptive_eval.cli import COMMANDS, load_command

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^```$", flags=re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """One block of a document."""

    document: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"


def documents() -> list[Path]:
    """Everything that people read, but the changelog and tables of benchmarks."""
    named = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")]
    return named + sorted((ROOT / "docs").rglob("*.md"))


def blocks_of(path: Path) -> Iterator[Block]:
    """The fenced blocks of a document."""
    text = path.read_text()
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        yield Block(str(path.relative_to(ROOT)), line, match["language"], match["text"])


def blocks(language: str) -> list[Block]:
    """All blocks of a language."""
    return [block for path in documents() for block in blocks_of(path) if block.language == language]


def without_fences(text: str) -> str:
    """The document without its fenced blocks."""
    return FENCE.sub("", text)


def commands(block: Block) -> Iterator[list[str]]:
    """The words of each command of a shell block; comments, `&&`, `&` and assignments in front are left out."""
    for line in block.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        while words:
            end = next((at for at, word in enumerate(words) if word in ("&&", "&", "|", ";", ">")), len(words))
            command = words[:end]
            while command and re.fullmatch(r"[A-Z_]+=.*", command[0]):
                command = command[1:]
            if command:
                yield command
            words = [] if words[end : end + 1] == [">"] else words[end + 1 :]


def require_understood(words: list[str]) -> None:
    """Parse an `adaptive-eval` command line as the command itself would, without running it."""
    if words[1].startswith("--"):
        assert words[1] == "--version"
        return
    assert words[1] in COMMANDS, f"no such command: {words[1]}"
    command = load_command(words[1])
    parts = getattr(command, "commands", None)
    if parts is not None:
        assert words[2] in parts, f"no such command: {words[1]} {words[2]}"
        parts[words[2]].make_context(words[2], words[3:])
    else:
        command.make_context(words[1], words[2:])
