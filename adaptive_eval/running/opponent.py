"""The answers of the opponent, which come first (`first_part`): all others are compared with them.

They are asked for in a run of their own, whose answers nobody grades. Once every question has as many as it is to have,
they become a part of the questions, in one commit with what they have cost. A run whose opponent lacks some of them
ends before it has asked anybody else, and its next start asks for the rest.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from adaptive_eval.config.opponent import opponent_trials
from adaptive_eval.config.other_answers import answers_in, with_others
from adaptive_eval.config.prepare import PreparedRun, with_question_answers, with_questions
from adaptive_eval.errors import ConfigError
from adaptive_eval.graders.judge import Judge
from adaptive_eval.graders.registry import AsTheyAre
from adaptive_eval.graders.rubric import CategoryConfig, RubricConfig
from adaptive_eval.record.starting_point import StartingPoint, load_starting_point
from adaptive_eval.running.first_part import AskRun, FirstPartFound, ended_early, first_part_changes, run_spending
from adaptive_eval.store import CommitBatch, OpponentAnswered, OpponentBegun, RunReader, Store

FOLDER = "opponent"
SUFFIX = ".opponent"
SHOWN = 5
ANSWERED = RubricConfig(
    categories=(
        CategoryConfig(name="empty", weight=0.0, when={"empty": True}),
        CategoryConfig(name="answered", weight=1.0),
    )
)


def opponent_begun(prepared: PreparedRun) -> OpponentBegun:
    """The event that says what is requested first."""
    opponent = prepared.config.opponent
    assert opponent is not None
    return OpponentBegun(opponent.name, opponent_trials(prepared.config), len(prepared.questions))


async def ask_opponent(
    prepared: PreparedRun, beginning: StartingPoint, store: Store, ask: AskRun, stopped: Callable[[], bool]
) -> FirstPartFound:
    """Have the answers that all others are compared with, and keep them in the run, which is `prepared` as it was
    configured."""
    directory, number = store.directory / FOLDER, opponent_trials(prepared.config)
    ended = await ask(load_starting_point(_opponent_run(prepared, number), directory))
    with RunReader.intact(directory) as reader:
        whole = reader.trial_count() >= number * len(prepared.questions) and not _lacks_some(prepared, reader, number)
        spent = run_spending(reader)
    if stopped() or not whole:
        return ended_early(ended, store, stopped=stopped())
    others = _answers_by_question(prepared, directory, number)
    each = [len(some) for some in others.values()]
    assert prepared.config.opponent is not None
    event = OpponentAnswered(
        prepared.config.opponent.name,
        min(each),
        max(each),
        spent.trials,
        *spent.cost,
        spent.counted_gpu_seconds,
        spent.seconds,
    )
    complete = with_question_answers(beginning.prepared, with_others(prepared.questions, others))
    batch = CommitBatch(events=[event], elapsed=store.reader.elapsed + spent.seconds)
    store.complete_questions(complete.header, batch)
    return FirstPartFound(
        load_starting_point(prepared, store.directory)._replace(opponent=event, thresholds=beginning.thresholds)
    )


def _opponent_run(prepared: PreparedRun, trials: int) -> PreparedRun:
    """The opponent alone, with so many answers to each question.

    It has seeds of its own: else its first answers would go with the others' first trials, and not with later ones.
    """
    config = prepared.config
    assert config.opponent is not None
    models = (config.opponent,)
    part = first_part_changes(config, SUFFIX, trials, config.budget)
    if config.trials.seeds == "coupled":
        part["trials"] = part["trials"].model_copy(update={"seeds": "hashed"})
    pool = config.servers.pool if any(model.in_pool for model in models) else None
    changes = {
        **part,
        "models": models,
        "opponent": None,
        "servers": config.servers.model_copy(update={"pool": pool}),
        "grader": AsTheyAre(),
        "rubric": ANSWERED,
    }
    return with_questions(config.model_copy(update=changes), prepared.questions)


def _lacks_some(prepared: PreparedRun, reader: RunReader, number: int) -> bool:
    """Some question has fewer answers than it is to have."""
    there = {(one.question, one.trial) for one in reader.outcomes()}
    return any((question.id, trial) not in there for question in prepared.questions for trial in range(number))


def _answers_by_question(prepared: PreparedRun, directory: Path, number: int) -> Mapping[str, tuple[str, ...]]:
    """The opponent's answers by question; raises `ConfigError` if all attempts at one timed out."""
    grader, opponent = prepared.config.grader, prepared.config.opponent
    assert isinstance(grader, Judge) and opponent is not None
    found = answers_in(directory, opponent.name, grader.longest)
    others = {question.id: found.get(question.id, ())[:number] for question in prepared.questions}
    if late := [key for key, some in others.items() if not some]:
        more = f" and {len(late) - SHOWN} more" if len(late) > SHOWN else ""
        raise ConfigError(
            f"grader.against.model: {opponent.name} did not answer {', '.join(late[:SHOWN])}{more} in time, so nothing "
            "can be compared with it; raise its sampling.timeout and run the same command, or compare with another"
        )
    return others
