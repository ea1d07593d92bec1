"""`adaptive-eval simulate`: serve simulated models for experiments, with faults on demand."""

import asyncio
from contextlib import AsyncExitStack
from math import inf
from pathlib import Path
from typing import Annotated

import typer

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.cli.shared import report_errors
from adaptive_eval.simulate.answering import ANSWER_WORDS, OwnQuestions
from adaptive_eval.simulate.faults import BatchHabits, Faults, parse_faults, parse_habits
from adaptive_eval.simulate.judging import HABITS, JUDGE, VERIFIER, SimulatedVerifier, parse_judge
from adaptive_eval.simulate.server import SimulatedServer
from adaptive_eval.simulate.worlds import WORLDS, World, own_questions


def simulate(
    world: Annotated[
        str,
        typer.Argument(help=f"One of {', '.join(WORLDS)}; or a configuration, whose models it simulates."),
    ] = "coins",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free port.")] = 8000,
    seed: Annotated[int, typer.Option(help="Seed of the answers.")] = 0,
    max_num_seqs: Annotated[
        int | None, typer.Option(min=1, help="Maximum concurrent answers; others wait, as /metrics shows.")
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
        list[str] | None, typer.Option(metavar="NAME=SHARE", help=f"May be repeated. Names: {', '.join(HABITS)}.")
    ] = None,
) -> None:
    """Serve simulated models with known true scores. It runs on this machine until Ctrl-C.

    The server has the OpenAI chat, completions and models API, and the batch APIs of OpenAI and Anthropic.
    To use it, set `questions: {world: ...}`, `grader: math`, and this address as `base_url`. If WORLD is a
    configuration, its models are simulated on its questions, with made-up scores.

    Faults that are shares of the requests, as in --fault server_error=0.1: rate_limited (429), server_error (500),
    reset (the connection breaks), hang (no answer). Times START:LENGTH in seconds, as in --fault down=20:10: down (no
    connections), storm (429 to all), stuck (nothing is answered, and /health says 503). retry_after=S: seconds that a
    429 asks to wait. slow=N: answers take N times as long. ignore_n: one answer instead of n. count_one: usage counts
    one answer of n. seed=N chooses which requests fail.

    Batches: seconds=60 is the time of a batch. Shares of requests: errored, left_out (no result), doubled (two),
    strange (a further result with an unknown id). Shares of batches: expired (halfway), failed. Shares of creations:
    refused (429), lost (no reply). broken: share of other calls that get a 500.

    A judge and a verifier are served, too, and know the right answers. Shares for --judge: right, wrong (such answers
    that it accepts), position_bias (it gives the first verdict whatever the answer), susceptibility (it
    gives the verdict that an answer asks for), mute (it replies without a verdict).
    """
    with report_errors():
        questions = None
        if world in WORLDS:
            simulated_world = WORLDS[world]()
        elif Path(world).is_file():
            simulated_world, questions = _world_from_config(Path(world))
        else:
            raise ConfigError(f"WORLD must be one of {', '.join(WORLDS)}, or a configuration, but got {world!r}")
        server = SimulatedServer(
            simulated_world,
            port=port,
            seed=seed,
            faults=parse_faults(fault or ()),
            max_num_seqs=max_num_seqs,
            judge=parse_judge(judge or ()),
            batches=parse_habits(batch or ()),
            verifier=SimulatedVerifier(),
            own=questions,
        )
        try:
            asyncio.run(_serve(server, port, simulated_world, questions))
        except KeyboardInterrupt:  # the normal end of a server
            typer.echo(", ".join(f"{count:,} {name}" for name, count in sorted(server.counts.items())) or "no requests")


def _world_from_config(path: Path) -> tuple[World, OwnQuestions | None]:
    """A world of a configuration's models, under the names sent to servers, and its questions with right answers."""
    # imported here: slow, and only needed for a configuration
    from adaptive_eval.config.load import holds_questions, load_config
    from adaptive_eval.config.prepare import prepare
    from adaptive_eval.graders.by_benchmark import find_grader
    from adaptive_eval.graders.text import Regex

    if holds_questions(path):
        raise ConfigError(f"{path} is a file of questions; give a world, or a configuration with these questions")
    prepared = prepare(load_config(path, ()))
    if (named := prepared.config.questions.world) is not None:
        return WORLDS[named](), None
    ids_by_prompt = {
        prompt.text or "\n".join(message.content for message in prompt.messages or ()): question.id
        for prompts in prepared.prompts
        for prompt, question in zip(prompts, prepared.questions, strict=True)
    }
    right_answers = {}
    for question in prepared.questions:
        grader = find_grader(prepared.config.grader, question)
        forms = grader.right_answers(question) or [rf"\boxed{{{question.answer}}}"]
        if isinstance(grader, Regex):  # choose one that matches the pattern
            forms = [text for text in forms if grader.grade(text, question).signals["is_correct"]] or forms
        right_answers[question.id] = forms[0]
    models = {model.model: model.sampling.max_tokens or inf for model in prepared.config.asked}
    max_tokens = min(models.values()) / 2 / ANSWER_WORDS  # so that few are cut off
    return own_questions(tuple(models), tuple(right_answers), max_tokens), OwnQuestions(ids_by_prompt, right_answers)


async def _serve(server: SimulatedServer, port: int, world: World, own_questions: OwnQuestions | None) -> None:
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(server)
        except OSError as error:
            raise ConfigError(f"port {port} cannot be used ({error.strerror}); give another --port") from error
        typer.echo(f"Serving {world.name} at {server.base_url}. Ctrl-C stops it.")
        questions = "" if own_questions is not None else f"questions: {{world: {world.name}}}, grader: math, and "
        typer.echo(f"In a configuration, set {questions}this address as base_url.")
        if own_questions is not None:
            typer.echo("It answers only prompts that match the configuration exactly.")
        typer.echo("True scores:")
        for model, score in zip(world.models, world.truth, strict=True):
            typer.echo(f"  {model}  {score:.1%}")
        typer.echo(f"{JUDGE} and {VERIFIER} are served too")
        await asyncio.Event().wait()
