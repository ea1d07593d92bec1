"""`adaptive-eval simulate`: serve simulated models to try things on, with faults on demand."""

import asyncio
from math import inf
from pathlib import Path
from typing import Annotated

import typer

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.cli.shared import report_errors
from adaptive_eval.record.lines import safe_line
from adaptive_eval.simulate.answering import ANSWER_WORDS, OwnQuestions
from adaptive_eval.simulate.faults import BatchHabits, Faults, parse_faults, parse_habits
from adaptive_eval.simulate.judging import HABITS, JUDGE, VERIFIER, SimulatedVerifier, parse_judge
from adaptive_eval.simulate.server import SimulatedServer
from adaptive_eval.simulate.worlds import WORLDS, World, own_questions

SHOWN = 80
"""Characters shown of a prompt."""


def simulate(
    world: Annotated[
        str,
        typer.Argument(help=f"One of {', '.join(WORLDS)}; or a configuration, whose models it simulates."),
    ] = "coins",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one.")] = 8000,
    seed: Annotated[int, typer.Option(help="Seed of the models: another one gives other answers.")] = 0,
    max_num_seqs: Annotated[
        int | None, typer.Option(min=1, help="Answers made at the same time; others wait, and /metrics says how many.")
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
    """Serve simulated models, whose true scores are known, on this machine until Ctrl-C.

    It speaks the OpenAI chat, completions and models API, and takes batches as OpenAI, Anthropic and OpenRouter do.
    A configuration with `questions: {world: ...}` and this address as `base_url` asks it. If WORLD is a configuration,
    it simulates its models on its questions, with scores of its own making. Faults are shares of the requests
    (--fault server_error=0.1 --fault hang=0.02), numbers (--fault slow=3), or seconds since the start (--fault
    down=20:10: away from second 20 to 30); --fault decline=empty:60 makes all answers after the 60th empty. Batches
    take --batch seconds=60, and shares of them or of their requests fail (--batch expired=0.2 --batch errored=0.05).

    A judge and a verifier are served too, under these names. They follow their rules and know what is right; --judge
    right=0.9 --judge wrong=0.05 sets the shares of right and of wrong answers that the judge calls right.
    """
    with report_errors():
        own = None
        if world in WORLDS:
            built = WORLDS[world]()
        elif Path(world).is_file():
            built, own = _world_from_config(Path(world))
        else:
            raise ConfigError(f"WORLD must be one of {', '.join(WORLDS)}, or a configuration, but got {world!r}")
        server = SimulatedServer(
            built,
            port=port,
            seed=seed,
            faults=parse_faults(fault or ()),
            max_num_seqs=max_num_seqs,
            judge=parse_judge(judge or ()),
            batches=parse_habits(batch or ()),
            verifier=SimulatedVerifier(),
            own=own,
            tell_unknown=lambda prompt: typer.echo(
                f"this is not a question of {built.name}, and the answer says so: {safe_line(prompt, SHOWN)!r}\n"
                f"{'after a change of prompts' if own else 'to play your own questions'}: adaptive-eval simulate CONFIG"
            ),
        )
        try:
            asyncio.run(_serve(server, built, own))
        except KeyboardInterrupt:  # the normal end of a server
            typer.echo(", ".join(f"{count:,} {name}" for name, count in sorted(server.counts.items())) or "no requests")
        except OSError as error:
            raise ConfigError(f"port {port} cannot be used ({error.strerror}); give another --port") from error


def _world_from_config(path: Path) -> tuple[World, OwnQuestions | None]:
    """A world of a configuration's models, by the names that servers know, and its questions with right answers."""
    # imported here: it takes a while, and other worlds do not need it
    from adaptive_eval.config.load import load_config
    from adaptive_eval.config.prepare import prepare
    from adaptive_eval.graders.by_benchmark import find_grader
    from adaptive_eval.graders.text import Regex

    prepared = prepare(load_config(path, ()))
    if (named := prepared.config.questions.world) is not None:
        return WORLDS[named](), None
    asked = {
        prompt.text or "\n".join(message.content for message in prompt.messages or ()): question.id
        for prompts in prepared.prompts
        for prompt, question in zip(prompts, prepared.questions, strict=True)
    }
    right = {}
    for question in prepared.questions:
        grader = find_grader(prepared.config.grader, question)
        forms = grader.right_answers(question) or [rf"\boxed{{{question.answer}}}"]
        if isinstance(grader, Regex):  # find one that matches the pattern
            forms = [text for text in forms if grader.grade(text, question).signals["is_correct"]] or forms
        right[question.id] = forms[0]
    models = {model.model: model.sampling.max_tokens or inf for model in prepared.config.asked}
    longest = min(models.values()) / 2 / ANSWER_WORDS  # so that few are cut off
    return own_questions(tuple(models), tuple(right), longest), OwnQuestions(asked, right)


async def _serve(server: SimulatedServer, world: World, own: OwnQuestions | None) -> None:
    async with server:
        typer.echo(f"{world.name} at {server.base_url}; Ctrl-C ends it")
        questions = "" if own is not None else f"questions: {{world: {world.name}}} and "
        typer.echo(f"to use it, write {questions}this base_url into a configuration; true scores:")
        for model, score in zip(world.models, world.truth, strict=True):
            typer.echo(f"  {model}  {score:.1%}")
        typer.echo(f"{JUDGE} and {VERIFIER} are served too")
        await asyncio.Event().wait()
