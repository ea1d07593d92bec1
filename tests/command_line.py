"""`adaptive-eval` as users type it, in the process of the test."""

from collections.abc import Collection

from typer.testing import CliRunner, Result

from adaptive_eval.cli import app

Codes = int | Collection[int] | None
"""An exit code that is expected, or one of several, or any."""


def typed(*words: object, code: Codes = None, **environment: str) -> Result:
    """How the command ends with these words, with one of these exit codes if any is given, and what it prints; an error
    that it does not expect is the test's."""
    result = CliRunner().invoke(app, [*map(str, words)], env=environment, catch_exceptions=False)
    codes = (code,) if isinstance(code, int) else code
    assert codes is None or result.exit_code in codes, result.output
    return result
