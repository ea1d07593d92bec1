"""Commands as users type them, in this process."""

from typer.testing import CliRunner, Result

from adaptive_eval.cli import app


def typed(*words: object, code: int | None = None) -> Result:
    """What `adaptive-eval` does on these words; it must exit with that code, if there is one."""
    result = CliRunner().invoke(app, [*map(str, words)])
    assert code is None or result.exit_code == code, result.output
    return result
