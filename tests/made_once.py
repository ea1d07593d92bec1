"""What every command makes for itself, made once where its processes are forked from: schemas of configurations,
parsers of what is stored, and what takes options apart. It takes as much of the processor as a small command does.
"""

import importlib
import pkgutil
import sys
from contextlib import suppress
from functools import cache

import typer.main
from pydantic import BaseModel

from adaptive_eval import cli, notes
from adaptive_eval.report import looks, results_file


def make_once() -> None:
    cli.load_command = cache(cli.load_command)
    typer.main.get_command = cache(typer.main.get_command)
    typer.main.get_command(cli.app)
    for module in pkgutil.iter_modules(cli.__path__, f"{cli.__name__}."):
        with suppress(Exception):  # extras need not be installed
            importlib.import_module(module.name)
    for name in cli.COMMANDS:
        with suppress(Exception):
            cli.load_command(name)
    models = [
        value
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] == "adaptive_eval"
        for value in list(vars(module).values())
        if isinstance(value, type) and issubclass(value, BaseModel) and value.__module__.startswith("adaptive_eval")
    ]
    for model in dict.fromkeys(models):
        model.model_rebuild()
    for reader in (*notes._READERS.values(), results_file._reader, looks._parsers):
        reader()
