"""`adaptive-eval monitor RUN`: watch a run from another terminal, or in a browser."""

import asyncio
import signal
from pathlib import Path
from typing import Annotated

import typer

from adaptive_eval.base.errors import ConfigError, ExitCode, StoreError
from adaptive_eval.base.lists import first_few
from adaptive_eval.cli.shared import report_errors
from adaptive_eval.graders.rubric import open_rubric
from adaptive_eval.show.displays import DisplayKind, JsonDisplay, open_display
from adaptive_eval.show.serve.attach import attach, open_feed, show_end, status_text
from adaptive_eval.show.serve.feed import Feed
from adaptive_eval.store.locate import MAX_NAMES, absence, runs_in

PATIENCE_SECONDS = 30.0
"""Time that a directory may exist before its run begins."""


def monitor(
    run: Annotated[Path, typer.Argument(help="The directory of a run.", metavar="RUN")],
    once: Annotated[bool, typer.Option("--once", help="Show the current state, and exit.")] = False,
    display: Annotated[DisplayKind | None, typer.Option(help="Default: rich on a terminal, else plain.")] = None,
    web: Annotated[bool, typer.Option("--web", help="Serve a page on this machine, until Ctrl-C.")] = False,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="With --web; default: any free port.")] = None,
    host: Annotated[
        str | None,
        typer.Option(
            help="With --web; default: 127.0.0.1. At other addresses everyone can read the run without a password."
        ),
    ] = None,
) -> None:
    """Watch RUN from another terminal, or with --web in a browser. The run is not affected.

    In a terminal the monitor ends with the run, and with its exit code. Ctrl-C ends only the monitor (exit code 7: the
    run goes on).
    """
    with report_errors():
        if web and (once or display is not None):
            raise ConfigError("--once and --display cannot be used with --web; remove them, or --web")
        if not web and (port is not None or host is not None):
            raise ConfigError("--port and --host need --web; add it, or remove them")
        if problem := absence(run):
            raise StoreError(problem)
        if names := runs_in(run):
            raise ConfigError(f"{run} is a folder of runs; give one of them: {first_few(names, MAX_NAMES)}")
        patience = 0.0 if once else PATIENCE_SECONDS
        feed = open_feed(run, patience, lambda: _announce_waiting(run))
        if web:
            _serve(feed, host, port or 0)
            return
        code = _show_now(feed, display) if once or not feed.running else _attach(feed, display)
    raise typer.Exit(code)


def _announce_waiting(run: Path) -> None:
    typer.echo(f"{run} has not begun yet; waiting up to {PATIENCE_SECONDS:.0f} s for it", err=True)


def _attach(feed: Feed, kind: DisplayKind | None) -> ExitCode:
    display = open_display(kind, open_rubric(feed.stored.config.rubric).weights)

    async def attach_until_terminated() -> ExitCode:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await attach(feed, display)

    try:
        return asyncio.run(attach_until_terminated())
    except (KeyboardInterrupt, asyncio.CancelledError):
        typer.echo("the run continues", err=True)
        return ExitCode.RUNNING


def _show_now(feed: Feed, kind: DisplayKind | None) -> ExitCode:
    if kind == "json":
        return asyncio.run(attach(feed, JsonDisplay(), follow=False))
    if not feed.running:
        return show_end(feed, open_display(kind, open_rubric(feed.stored.config.rubric).weights))
    if kind != "none":
        typer.echo(status_text(feed))
    return ExitCode.RUNNING


def _serve(feed: Feed, host: str | None, port: int) -> None:
    # imported here: a terminal does not need it
    from adaptive_eval.show.serve.site import LOOPBACK, is_loopback, serve

    path, address = feed.directory, host or LOOPBACK
    if not is_loopback(address):
        typer.echo(f"warning: anyone who reaches {address} can read everything in {path} without a password", err=True)
    asyncio.run(serve(feed, address, port, lambda url: typer.echo(f"{path} at {url}  Ctrl-C ends it")))
