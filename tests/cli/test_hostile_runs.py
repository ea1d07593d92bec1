"""Runs that somebody has made up or damaged: every command that reads one says what is wrong, without a traceback."""

import json
import random
import shutil
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from command_line import typed
from contrary_server import listening, write_config
from forging import forging, reseal
from live_runs import ENDED, Site

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.store.errors import DATABASE_FILE

NESTED = '{"a":' + "[" * 100_000 + "]" * 100_000 + "}"
"""Deeper than Python's parser goes."""
VALUES = [None, True, -1, 0, 1e308, 10**30, "", "x", [], {}, [1], {"a": 1}, "9" * 400, float("nan"), [[[]]], -1.5]
BODIES = ["configurations", "models", "questions", "looks", "reports", "notes", "trials"]
COLUMNS = {"models": "meaning", "trials": "signals"}
PACKED = {"looks", "reports"}
LOOSE = {
    "trials": [
        *("category", "seed", "round", "number", "state", "flags", "digest", "finish_reason", "prompt_tokens", "at"),
        *("latency", "ttft", "replica", "attempts", "completion_bpt", "tokens", "usd", "gpu_seconds", "v_tokens"),
        *("completion_tokens", "text", "model", "question"),
    ],
    "charges": ["kind", "what", "model", "number", "tokens", "usd", "gpu_seconds", "estimated", "at"],
    "looks": ["seq", "configuration", "at"],
    "reports": ["seq", "at"],
    "cells": ["look", "body"],
    "notes": ["kind", "model", "at"],
}
"""Columns by table, of which SQLite keeps any value."""
READING = [
    *("report RUN --format md --output OUT", "report RUN --format html --output OUT", "monitor RUN --once"),
    *("export RUN --format jsonl --output OUT --force", "compare RUN COPY", "replay RUN --output REPLAY"),
    *("verify RUN", "rescore RUN", "label RUN --show", "regrade RUN --config run.yaml", "run run.yaml --run-dir RUN"),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, base_url: str) -> Path:
    site = Site.make(tmp_path_factory.mktemp("hostile"), base_url)
    assert site.run(site.write(trials={"min": 4, "max": 6})).exit_code in ENDED
    site.directory().rename(site.folder / "COPY")
    return site.folder


@pytest.fixture
def workdir(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = Path(shutil.copytree(made, tmp_path / "here"))
    monkeypatch.chdir(folder)
    return folder


def fresh(workdir: Path, rng: random.Random) -> sqlite3.Connection:
    shutil.rmtree(workdir / "RUN", ignore_errors=True)
    shutil.copytree(workdir / "COPY", workdir / "RUN")
    if rng.random() < 0.7:
        (workdir / "RUN" / "results.json").unlink()
    return sqlite3.connect(workdir / "RUN" / DATABASE_FILE)


def put(database: sqlite3.Connection, table: str, body: str, where: str = "") -> None:
    """Put a text in the place of JSON, packed where it was."""
    packed = zlib.compress(body.encode()) if table in PACKED else body
    database.execute(f"UPDATE {table} SET {COLUMNS.get(table, 'body')} = ? {where}", (packed,))
    reseal(database)


def seal(database: sqlite3.Connection) -> None:
    """What is not UTF-8 cannot be sealed."""
    try:
        reseal(database)
    except sqlite3.OperationalError:
        database.commit()


def spoiled(value: Any, rng: random.Random) -> Any:
    """The same with one of its parts replaced, or left out."""
    places: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        parts = value.items() if isinstance(value, dict) else enumerate(value[:4]) if isinstance(value, list) else ()
        for key, part in list(parts):
            places.append((value, key))
            walk(part)

    walk(value)
    if not places:
        return rng.choice(VALUES)
    within, key = rng.choice(places)
    if isinstance(within, dict) and rng.random() < 0.25:
        del within[key]
    else:
        within[key] = rng.choice(VALUES)
    return value


def spoil(database: sqlite3.Connection, rng: random.Random) -> str:
    """One value of the run becomes another that it may not be."""
    table = rng.choice([*BODIES, *LOOSE, "run"])
    if table in LOOSE and (table not in BODIES or rng.random() < 0.5):
        column, value = rng.choice(LOOSE[table]), rng.choice(["x", -1, 10**18, 1e308, b"\xff", "", -5.5])
        row = f"rowid IN (SELECT rowid FROM {table} ORDER BY rowid LIMIT 1 OFFSET {rng.randrange(60)})"
        database.execute(f"UPDATE OR REPLACE {table} SET {column} = ? WHERE {row}", (value,))
        seal(database)
        return f"{table}.{column} {value!r}"
    if table == "run":
        key = rng.choice(["meaning", "held", "elapsed", "created", "name"])
        value = rng.choice(["x", -1, 1e308, b"\xff"])
        database.execute("UPDATE run SET value = ? WHERE key = ?", (value, key))
        seal(database)
        return f"{key} {value!r}"
    column = COLUMNS.get(table, "body")
    rows = database.execute(f"SELECT rowid, {column} FROM {table} WHERE {column} IS NOT NULL").fetchall()
    at, body = rng.choice(rows)
    new = spoiled(json.loads(zlib.decompress(body) if table in PACKED else body), rng)
    put(database, table, json.dumps(new, separators=(",", ":")), f"WHERE rowid = {at}")  # as reports begin
    return f"{table} {at}: {new!r:.300}"


@pytest.mark.parametrize(
    ("number", "runs"),
    [
        (1, 3),
        pytest.param(2, 15, marks=pytest.mark.slow),
        *(pytest.param(number, 40, marks=pytest.mark.release) for number in (2, 3)),
    ],
)
def test_whatever_is_put_into_a_run_no_command_ends_in_a_traceback(workdir: Path, number: int, runs: int) -> None:
    rng = random.Random(number)
    for _ in range(runs):
        with closing(fresh(workdir, rng)) as database:
            what = spoil(database, rng)
        for line in rng.sample(READING, 4):
            try:
                typed(*line.split())
            except Exception as error:
                error.add_note(f"{line}: {what}")
                raise


CUT_OFF = zlib.compress(b"x" * 99)[:-9]
NO_LOOK = zlib.compress(json.dumps({"models": 3}).encode())
DAMAGES = {
    "text": ("UPDATE trials SET text = ?, state = 'judging', category = NULL", CUT_OFF, "a stored text"),
    "plain look": ("UPDATE looks SET body = ?", "{}", "a stored look is not a JSON object"),
    "packed look": ("UPDATE looks SET body = ?", b"no zlib", "a stored text cannot be unpacked"),
    "look": ("UPDATE looks SET body = ?", NO_LOOK, "is not a valid look"),
    "deep look": ("UPDATE looks SET body = ?", zlib.compress(NESTED.encode()), "a stored look is not a JSON object"),
    "deep model": ("UPDATE models SET meaning = ?", NESTED, "what a model's trials mean is not a JSON object"),
    "deep configuration": ("UPDATE configurations SET body = ?", NESTED, "the stored configuration is not a JSON obj"),
    "configuration": ("UPDATE configurations SET body = ?", "[]", "the stored configuration is not a JSON object"),
    "question": ("UPDATE questions SET body = ?", "7", "a stored question is not a JSON object"),
    "number": ("UPDATE looks SET seq = ?", "seven", "a row has no number"),
}


@pytest.fixture(scope="module")
def capped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that a cap has ended after its first look, and its configuration with a larger one."""
    folder = tmp_path_factory.mktemp("made")
    more = {"trials": {"min": 2, "max": 4}, "stopping": {"confidence": 0.999999, "on_alarm": "never"}}
    with listening(lambda asked: None) as server:
        config = write_config(folder, server, budget={"trials": 24}, **more)
        typed("run", config, "--display", "plain", "--run-dir", folder / "run", code=ExitCode.SPENT)
        write_config(folder, server, **more)
    return folder


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_value_is_told_with_its_file_and_what_to_do(capped: Path, tmp_path: Path, damage: str) -> None:
    run, (sql, value, what) = tmp_path / "run", DAMAGES[damage]
    shutil.copytree(capped / "run", run)
    with forging(run) as database:
        database.execute(sql, (value,))
    if damage.endswith("look"):  # a resume derives it again
        result = typed("report", run, "--format", "md", "-o", "-")
    else:
        result = typed("run", capped / "run.yaml", "--display", "plain", "--run-dir", run)
    assert result.exit_code == ExitCode.FAILED, result.output
    told = result.output[result.output.index("error: ") :].replace("\n", " ")
    assert told.startswith(f"error: {run}/run.sqlite is damaged: ") and what in told, told
    assert f"`adaptive-eval verify {run}`" in told
    assert "restore a copy of it, or start a new run: another --run-dir" in told


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("decisions", "trials", "max"), None),
        (("decisions", "trials", "max"), 0),
        (("decisions", "stopping", "delta"), "x"),
        (("decisions", "budget", "tokens"), 10**30),
        (("pairs", 0, "first"), "a stranger"),
        (("pairs", 0, "sigma"), 1e308),
        (("weights",), []),
        (("models", 0, "trials"), "9" * 400),
        (("nested",), json.loads("[" * 500 + "]" * 500)),
    ],
)
def test_a_report_that_no_run_has_written_is_not_read(
    capped: Path, tmp_path: Path, place: tuple[Any, ...], value: Any
) -> None:
    run = tmp_path / "run"
    shutil.copytree(capped / "run", run)
    with closing(sqlite3.connect(run / DATABASE_FILE)) as database:
        ((body,),) = database.execute("SELECT body FROM reports ORDER BY seq DESC LIMIT 1")
        report = within = json.loads(zlib.decompress(body))
        for key in place[:-1]:
            within = within[key]
        within[place[-1]] = value
        put(database, "reports", json.dumps(report, separators=(",", ":")))
    for command in ("report {} --format md -o -", "monitor {} --once"):
        result = typed(*command.format(run).split())
        assert result.exit_code == ExitCode.FAILED and "its report was written by another version" in result.stderr
