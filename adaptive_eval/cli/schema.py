"""`adaptive-eval schema`: print the JSON schema of the configuration, for editors."""

import json

import typer

from adaptive_eval.config.json_schema import json_schema


def schema() -> None:
    """Print the JSON schema of the configuration.

    To use it in an editor, begin a configuration with this line:

    # yaml-language-server: $schema=schema.json
    """
    typer.echo(json.dumps(json_schema(), indent=2))
