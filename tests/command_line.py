"""`adaptive-eval` as users type it, in the process of the test."""

from typer.testing import CliRunner, Result

from adaptive_eval.cli import app


def typed(*words: object, code: int | None = None, **environment: str) -> Result:
    """How the command ends with these words, with this exit code if one is given, and what it prints; an error that it
    does not expect is the test's."""
    result = CliRunner().invoke(app, [*map(str, words)], env=environment, catch_exceptions=False)
    assert code is None or result.exit_code == code, result.output
    return result
