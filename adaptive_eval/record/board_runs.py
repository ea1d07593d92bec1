"""What a board takes from each run, and which runs these are: read, never executed, and never trusted.

A run that is named must be readable. Of a folder, what cannot be read is left out and told, so that one damaged run
does not take away the board of all the others.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import NamedTuple

from adaptive_eval.config.prepare import GRADER_WORKINGS, SAMPLING_WORKINGS, StoredSetup
from adaptive_eval.errors import AdaptiveEvalError, StoreError
from adaptive_eval.graders.rubric import open_rubric
from adaptive_eval.record.benchmark import benchmark_key, benchmark_name
from adaptive_eval.record.build import iso_time
from adaptive_eval.record.folder import runs_in
from adaptive_eval.record.restore import opened_run
from adaptive_eval.record.results import ModelRow, Results
from adaptive_eval.store import OutcomesRecorded, TrialsImported, events_of_kind, is_held
from adaptive_eval.store.postgres.address import is_place_of_runs, whole_path
from adaptive_eval.store.whereabouts import holds_ledger


@dataclass(frozen=True, slots=True)
class RunScore:
    """A model's score in a run, on the average scale, with its 95% interval on these questions."""

    model: str
    run: str
    rank: int
    tier: int
    score: float
    sigma: float
    lo: float
    hi: float
    sampled_sigma: float | None
    trials: int
    set_aside: bool
    """The run went on without it."""
    with_prior: bool
    """Outcomes of an earlier run (R0) count in it."""
    recorded: bool = False
    """Whether it is made of the outcomes of an earlier run: this one has not asked the model."""


@dataclass(frozen=True, slots=True)
class RunOnBoard:
    """One run of a benchmark."""

    name: str
    """Of its directory, with as much of what it lies in as tells it from the others."""
    created: str
    """ISO 8601, UTC."""
    status: str
    """running, finished, stopped or imported."""
    over: bool
    """Nobody goes on with it: it has finished, or was imported."""
    reason: str | None
    trials: int
    models: tuple[RunScore, ...]
    """Best first; a model without a score is not among them."""


@dataclass(frozen=True, slots=True)
class BoardRun:
    """A run with what puts it into its place on a board."""

    line: RunOnBoard
    benchmark: str
    """Equal for runs of the same benchmark."""
    called: str
    """What the benchmark is called by this run."""
    questions: int
    texts: frozenset[str]
    """Of the questions, where they are known."""
    categories: tuple[str, ...]
    weights: tuple[float, ...]
    grader: str
    settings: tuple[tuple[str, str], ...]
    """How each model was asked."""
    run: str = ""
    """What the run calls itself."""
    prompt: str = ""
    """How questions are put to its models."""
    takes: frozenset[str] = frozenset()
    """The runs whose outcomes stand in it for recorded models, as they call themselves."""
    begun: float = 0.0
    """Seconds since 1970: finer than what the line says, for runs that begin within a second of each other."""


@dataclass(frozen=True, slots=True)
class UnreadRun:
    """A directory of a folder that looks like a run and cannot be read as one."""

    name: str
    why: str


class FoundRun(NamedTuple):
    """A directory to read."""

    path: Path
    named: bool
    """By the user, and not only found in a folder."""


def gather(paths: Sequence[Path]) -> tuple[list[BoardRun], list[UnreadRun]]:
    """The runs at these paths, each a run or a folder of runs; raises `StoreError` for a named one that is not."""
    found = _distinct(one for path in paths for one in _found(path))
    runs, unread = [], []
    for name, one in zip(_told_apart([each.path for each in found]), found, strict=True):
        try:
            runs.append(_read(one.path, name))
        except AdaptiveEvalError as error:
            if one.named:
                raise
            unread.append(UnreadRun(name, str(error).replace(str(one.path), name)))
    if not runs:
        told = "; ".join(one.why for one in unread)
        raise StoreError(f"none of the runs can be read: {told}")
    return runs, unread


def _found(path: Path) -> Iterator[FoundRun]:
    if holds_ledger(path):
        yield FoundRun(whole_path(path), named=True)
        return
    inside = runs_in(path)
    if not inside:
        what = "is no directory" if not is_place_of_runs(path) else "is no run and has none in it"
        raise StoreError(f"{path} {what}; name the directories of runs, or a folder that they lie in")
    for one in inside.values():
        yield FoundRun(whole_path(one), named=False)


def _distinct(found: Iterator[FoundRun]) -> list[FoundRun]:
    """Each directory once; one that is named stays so."""
    chosen: dict[Path, FoundRun] = {}
    for one in found:
        if one.named or one.path not in chosen:
            chosen[one.path] = one
    return list(chosen.values())


def _told_apart(paths: Sequence[Path]) -> list[str]:
    """The last part of each path, and so many before it that no two are alike."""
    depth = 1
    names = ["/".join(path.parts[-depth:]) for path in paths]
    while len(set(names)) < len(names):
        depth += 1
        names = ["/".join(path.parts[-depth:]) for path in paths]
    return names


def _read(path: Path, name: str) -> BoardRun:
    try:
        return read_board_run(path, name)
    except (ValueError, TypeError, LookupError) as error:  # rows that are whole, and not what any run has written
        raise StoreError(f"{path} is no run that this version can read: what it has stored has another form") from error


def read_board_run(directory: Path, name: str) -> BoardRun:
    """The run in `directory`; raises an error of the package where there is none, or it is damaged."""
    running = is_held(directory)
    with opened_run(directory) as stored:
        results, setup = stored.results(running=running), stored.setup
        created, trials = stored.reader.created, stored.reader.trial_count()
        imported = bool(events_of_kind(stored.events, TrialsImported))
        taken = frozenset(one.run for one in events_of_kind(stored.events, OutcomesRecorded))
    config = setup.config
    rubric = open_rubric(config.rubric)
    status = _status(results, running, imported)
    line = RunOnBoard(
        name=name,
        created=iso_time(created),
        status=status,
        over=status in ("finished", "imported"),
        reason=None if results is None else results.run.reason,
        trials=trials,
        models=() if results is None else tuple(_scores(name, results, setup)),
    )
    return BoardRun(
        line=line,
        benchmark=benchmark_key(config, setup.questions, rubric),
        called=benchmark_name(config),
        prompt=_plain(config.prompt.model_dump(mode="json")),
        questions=len(setup.questions),
        texts=frozenset(one.prompt for one in setup.questions if one.prompt.strip()),
        categories=rubric.names,
        weights=rubric.weights,
        grader=_plain(config.grader.model_dump(mode="json", exclude=GRADER_WORKINGS)),
        settings=tuple(_settings(setup)),
        run=config.name,
        takes=taken,
        begun=created,
    )


def _status(results: Results | None, running: bool, imported: bool) -> str:
    status = ("running" if running else "stopped") if results is None else results.run.status
    return "imported" if imported and status == "stopped" else status


def _settings(setup: StoredSetup) -> Iterator[tuple[str, str]]:
    for one in setup.config.asked:
        sampling = one.sampling.model_dump(mode="json", exclude=SAMPLING_WORKINGS)
        yield one.name, _plain([one.model, sampling, one.prompt.model_dump(mode="json")])


def _plain(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def _scores(run: str, results: Results, setup: StoredSetup) -> Iterator[RunScore]:
    """Best first; results.json is a file that anyone may have written."""
    if sorted(row.name for row in results.models) != sorted(setup.roster.models):
        raise StoreError(f"results.json of {run} names other models than the run has; `adaptive-eval verify` checks it")
    for row in results.models:
        if row.score is None or row.sigma is None:
            continue
        if not _is_score(row):
            raise StoreError(
                f"results.json of {run} has no possible score of {row.name}; `adaptive-eval verify` checks it"
            )
        yield RunScore(
            model=row.name,
            run=run,
            rank=row.rank,
            tier=row.tier,
            score=row.score,
            sigma=row.sigma,
            lo=row.score if row.lo is None else row.lo,
            hi=row.score if row.hi is None else row.hi,
            sampled_sigma=row.sampled_sigma,
            trials=row.trials,
            set_aside=row.set_aside is not None,
            with_prior=row.prior_depth > 0.0,
            recorded=row.recorded is not None,
        )


def _is_score(row: ModelRow) -> bool:
    numbers = [one for one in (row.score, row.sigma, row.lo, row.hi, row.sampled_sigma) if one is not None]
    return all(map(isfinite, numbers)) and row.sigma is not None and row.sigma >= 0.0
