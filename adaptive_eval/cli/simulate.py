"""`adaptive-eval simulate`: a model server to try things on, with faults on demand."""

import asyncio
from collections.abc import Iterator
from typing import Annotated

import typer

from adaptive_eval.cli.shared import reported
from adaptive_eval.errors import ConfigError
from adaptive_eval.simulate.batches import BatchHabits, parse_habits
from adaptive_eval.simulate.faults import Faults, parse_faults
from adaptive_eval.simulate.judging import HABITS, JUDGE, VERIFIER, SimulatedVerifier, parse_judge
from adaptive_eval.simulate.server import SimulatedServer
from adaptive_eval.simulate.worlds import WORLDS, World
from scorio.categorical import SCHEMATA


def simulate(
    world: Annotated[str, typer.Argument(help=f"One of {', '.join(WORLDS)}.")] = "coins",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8000,
    seed: Annotated[int, typer.Option(help="The seed of the models: another one gives other answers.")] = 0,
    max_num_seqs: Annotated[
        int | None,
        typer.Option(min=1, help="Answers made at the same time; others wait, and /metrics says how many."),
    ] = None,
    fault: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help=f"May be repeated. Names: {', '.join(Faults.__slots__)}."),
    ] = None,
    batch: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help=f"May be repeated. Names: {', '.join(BatchHabits.__slots__)}."),
    ] = None,
    judge: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=SHARE", help=f"May be repeated. Names: {', '.join(HABITS)}."),
    ] = None,
) -> None:
    """Serve simulated models, whose true scores are known, on this machine until Ctrl-C.

    It speaks the OpenAI chat, completions and models API, and takes batches as OpenAI, Anthropic and OpenRouter do.
    A configuration with `questions: {world: ...}` and this address as `base_url` asks it. Faults are shares of the
    requests (--fault server_error=0.1 --fault hang=0.02), numbers (--fault slow=3), or seconds since the start
    (--fault down=20:10: away from second 20 to 30). Batches take --batch seconds=60, and shares of them or of their
    requests go wrong (--batch expired=0.2 --batch errored=0.05).

    A judge and a verifier are served too, under these names. They follow their rules and know what is right; --judge
    right=0.9 --judge wrong=0.05 says how many right answers, and how many wrong ones, the judge calls right.
    """
    with reported():
        if world not in WORLDS:
            raise ConfigError(f"WORLD must be one of {', '.join(WORLDS)}, but got {world!r}")
        built = WORLDS[world]()
        server = SimulatedServer(
            built,
            port=port,
            seed=seed,
            faults=parse_faults(fault or ()),
            max_num_seqs=max_num_seqs,
            judge=parse_judge(judge or ()),
            batches=parse_habits(batch or ()),
            verifier=SimulatedVerifier() if built.population is None else None,
        )
        try:
            asyncio.run(_serve(server, built))
        except KeyboardInterrupt:  # how a server is meant to end
            typer.echo(", ".join(f"{count:,} {name}" for name, count in sorted(server.counts.items())) or "no requests")
        except OSError as error:
            raise ConfigError(f"port {port} cannot be used ({error.strerror}); give another --port") from error


async def _serve(server: SimulatedServer, world: World) -> None:
    async with server:
        typer.echo(f"{world.name} at {server.base_url}; Ctrl-C ends it")
        typer.echo(f"a configuration asks it with questions: {{world: {world.name}}} and this base_url")
        for model, score in zip(world.models, world.truth, strict=True):
            typer.echo(f"  {model}  {score:.1%}")
        typer.echo(f"{JUDGE} and {VERIFIER} are served too")
        for line in _true_scores(world):
            typer.echo(line)
        await asyncio.Event().wait()


def _true_scores(world: World) -> Iterator[str]:
    """Under each schema, where the world has what they look at."""
    if world.population is None:
        return
    yield "true scores under the schemata, with the percentiles of all answers:"
    for schema in SCHEMATA.values():
        yield f"  {schema.name}  {'  '.join(f'{score:.4f}' for score in world.population.scores(schema))}"
