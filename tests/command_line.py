"""`adaptive-eval` as users type it, in the process of the test."""

from typer.testing import CliRunner, Result

from adaptive_eval.cli import app


def typed(*words: object, **environment: str) -> Result:
    """How the command ends with these words, and what it prints; an error that it does not expect is the test's."""
    return CliRunner().invoke(app, [*map(str, words)], env=environment, catch_exceptions=False)
