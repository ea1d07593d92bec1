"""Check that a grader leaves alone what an answer names: files, hosts and variables.

Python tells of what is opened, listed, run or looked up (PEP 578); what names the file or the host of these answers is
refused and found. Of variables, and of what is opened beyond Python, it tells nothing: there the same answer must be
worth the same whether what it names is there or not.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from adaptive_eval.graders.types import Marks
from adaptive_eval.testing.runs import fail_unless

NAMED = "named-by-an-answer"
THERE, MISSING = f"{NAMED}-xq", f"{NAMED}-xz"
"""Names, of which only the first is there. Both read the same to whoever only reads them."""
SECRET = "a secret of this machine, which no model has written"
HOSTS = (
    f"http://{NAMED}.invalid/answer",
    f"\\boxed{{https://{NAMED}.invalid/}}",
    f"![answer](http://{NAMED}.invalid/a)",
)
FILES = (
    "{}",
    "file://{}",
    "@{}",
    "Answer: {}",
    "\\boxed{{{}}}",
    "\\input{{{}}}",
    "open({!r}).read()",
    '{{"$ref": "{}"}}',
    '<!DOCTYPE a [<!ENTITY b SYSTEM "file://{}">]><a>&b;</a>',
)
VARIABLES = ("{}", "${}", "${{{}}}", "%{}%", "{{{}}}", "%({})s", "Answer: ${}", "\\boxed{{${}}}", "os.environ[{!r}]")
_READING = ("compile", "exec")
"""Audit events of parsing a text, as `ast.literal_eval` does; code that is run is found in another way."""

_attempts: list[str] | None = None
"""Audit events on what an answer names; None while nobody listens."""


def check_reach(grade: Callable[[str], Marks], right: str, name: str) -> None:
    """Grade answers that name a file, a host or a variable containing the right answer."""
    with TemporaryDirectory() as folder:
        existing, missing = (str(Path(folder) / f"{stem}.txt") for stem in (THERE, MISSING))
        Path(existing).write_text(right, "utf-8", "surrogatepass")
        for form in FILES:
            _check_alike(grade, form.format(existing), form.format(missing), "opens a file", name)
    for text in HOSTS:
        _graded(grade, text, name)
    existing, missing = (stem.replace("-", "_").upper() for stem in (THERE, MISSING))
    for form in VARIABLES:
        with _variable(existing, right):
            _check_alike(
                grade, form.format(existing), form.format(missing), "reads a variable of the environment", name
            )
        with _variable(existing, SECRET):
            leaks = SECRET in repr(_graded(grade, form.format(existing), name))
        fail_unless(
            not leaks, f"{name} gives away a variable of the environment for the answer {form.format(existing)!r}"
        )


def _check_alike(grade: Callable[[str], Marks], existing: str, missing: str, does: str, name: str) -> None:
    with_it, without_it = (_graded(grade, text, name).signals.get("is_correct") for text in (existing, missing))
    fail_unless(
        with_it == without_it, f"{name} {does} that an answer names: {existing!r:.80} is {with_it} only as it is there"
    )


def _graded(grade: Callable[[str], Marks], text: str, name: str) -> Marks:
    with _refused() as attempts:
        try:
            return grade(text)
        finally:
            fail_unless(
                not attempts, f"{name} reaches for what an answer names ({' '.join(attempts[:1])}): {text!r:.80}"
            )


@contextmanager
def _refused() -> Iterator[list[str]]:
    """Refuse and record every access to something an answer names."""
    global _attempts
    _listen()
    _attempts = []
    try:
        yield _attempts
    finally:
        _attempts = None


@cache
def _listen() -> None:
    """Install the audit hook; Python cannot remove one."""
    sys.addaudithook(_hear)


def _hear(event: str, arguments: tuple[object, ...]) -> None:
    if _attempts is None or event in _READING:
        return
    if any(
        isinstance(argument, str | bytes | os.PathLike | tuple | list) and NAMED in str(argument)
        for argument in arguments
    ):
        _attempts.append(event)
        raise PermissionError(f"{event} of what an answer names")


@contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    os.environ[name] = value.encode("utf-8", "replace").decode().replace("\0", "")
    try:
        yield
    finally:
        del os.environ[name]
