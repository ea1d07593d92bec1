"""Runs whose ledger is in a database find what any run finds, whatever happens to them and to the database."""

import math
import random
import shutil
import signal
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from gated import GatedServer
from live_runs import ENDED, EndedRuns, Found, Site, kill, small_world, trials_in
from patient_time import HANGS
from postgres_server import PostgresServer
from typer.testing import CliRunner, Result
from warm_start import WarmProcess

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.cli import app
from adaptive_eval.simulate.server import serving
from adaptive_eval.store import RunReader
from adaptive_eval.store.address import VARIABLE, LedgerAddress
from adaptive_eval.store.postgres.reading import list_runs

pytestmark = pytest.mark.postgres

SECRET = "hunter2-never-to-be-seen"


def called(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def kept_in(database: LedgerAddress, **more: object) -> dict[str, object]:
    return {"store": {"ledger": str(database), **more}}


def reached(directory: Path, trials: int, process: WarmProcess) -> bool:
    """Whether the run has so many trials before its process ends."""
    while process.poll() is None:
        if trials_in(directory) >= trials:
            return True
        time.sleep(0.02)
    return False


def gated(site: Site, url: str) -> Site:
    """The same with a server that stands still: its run is not over before a test has done something to it."""
    return replace(site, base_url=url)


def kill_under(database: PostgresServer, process: WarmProcess) -> None:
    """Kill the database of a run that is not over."""
    process.send_signal(signal.SIGSTOP)
    assert process.poll() is None
    database.kill()
    process.send_signal(signal.SIGCONT)


@pytest.fixture
def ended(site: Site, ended_runs: EndedRuns, database: LedgerAddress, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that has ended in a database, beside the same one in its directory."""
    monkeypatch.setenv(VARIABLE, str(database))
    ended_runs.copy(site, site.directory("plain"))
    done = site.run(site.write("kept", **kept_in(database)), "--run-dir", str(site.directory("kept")))
    assert done.exit_code in ENDED, done.output
    return site.directory("kept")


def test_it_finds_what_any_run_finds_and_every_command_reads_it(
    site: Site, ended: Path, database: LedgerAddress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, address = site.directory("plain"), database.run_at("kept").path
    assert Found.of(ended) == Found.of(plain) == Found.of(address)
    assert {one.name for one in ended.iterdir()} >= {"ledger.json", "results.json", "lock"}
    assert not list(ended.glob("run.sqlite*"))
    monkeypatch.chdir(tmp_path)
    tables = [called("report", str(one), "--format", "csv", "-o", "-").output for one in (ended, address, plain)]
    assert tables[0] == tables[1]
    scores = [[line.split(",")[:8] for line in table.splitlines()] for table in tables]
    assert scores[1] == scores[2] and len(scores[1]) == 4
    monkeypatch.delenv(VARIABLE)  # an address that a person gives is given
    word = str(database.run_at("kept"))
    for words in (
        ("report", word),
        ("export", word, "--format", "npz"),
        ("verify", word),
        ("compare", str(plain), word),
        ("relabel", word),
        ("replay", word, "--output", "replayed"),
        ("study", "convergence", word, "--replicates", "5"),
        ("monitor", word, "--once", "--display", "plain"),
    ):
        done = called(*words)
        assert done.exit_code in ENDED, (words, done.output)
    assert (tmp_path / "kept.report.html").exists()
    assert "intact" in called("verify", word).output
    assert called("monitor", word).exit_code == called("monitor", str(plain)).exit_code
    seen = {str(one): called("monitor", str(one), "--once", "--display", "plain").output for one in (word, plain)}
    assert "answers   " in seen[str(plain)] and "answers   " not in seen[word], "there is no such file"
    table = called("monitor", str(database)).output
    assert table.splitlines()[0].split()[:3] == ["run", "status", "trials"] and "kept" in table
    for words in (
        ("label", word),
        ("regrade", word),
        ("track", word, "--to", "wandb"),
        ("run", "x", "--run-dir", word),
    ):
        assert called(*words).exit_code in (ExitCode.FAILED, ExitCode.CONFIGURATION), words


def test_the_same_command_goes_on_with_it_also_from_another_machine(
    site: Site, ended: Path, database: LedgerAddress
) -> None:
    before = Found.of(ended)
    shutil.rmtree(ended)  # and nothing but the database is left
    longer = site.write("kept", **kept_in(database), trials={"min": 4, "max": 40})
    done = site.run(longer, "--run-dir", str(ended))
    assert done.exit_code in ENDED, done.output
    after = Found.of(ended)
    assert before.outcomes.items() <= after.outcomes.items()
    assert [one.name for one in list_runs(database)] == ["kept"]


def test_fresh_runs_have_names_of_their_own(
    site: Site, database: LedgerAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(site.folder)
    config = str(site.write("kept", **kept_in(database), trials={"min": 4, "max": 4}))
    for options in ([], ["--fresh"], []):
        assert called("run", config, "--display", "none", *options).exit_code in ENDED
    shutil.rmtree(site.folder / "runs")
    assert called("run", config, "--display", "none", "--fresh").exit_code in ENDED
    assert [one.name for one in list_runs(database)] == ["kept", "kept~2", "kept~3"]
    monkeypatch.setenv(VARIABLE, str(database))
    assert called("run", config, "--display", "none", "--set", "store.ledger=null").exit_code == ExitCode.CONFIGURATION


def test_killed_at_any_moment_it_goes_on_and_finds_the_same(
    site: Site, ended_runs: EndedRuns, database: LedgerAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(database))
    plain, kept = ended_runs.copy(site, site.directory("plain")), site.directory("kept")
    server, moments = GatedServer(small_world(), 40), random.Random(5)
    with serving(server) as url:
        config = gated(site, url).write("kept", **kept_in(database))
        for _ in range(4):
            before = trials_in(kept)
            process = site.start(config, "--run-dir", str(kept))
            assert reached(kept, before + moments.randrange(40), process)
            second = called("run", str(config), "--display", "none", "--run-dir", str(kept / ".." / "other"), "--fresh")
            assert second.exit_code == ExitCode.CONFIGURATION
            kill(process)
            server.open(40)
    done = site.run(site.write("kept", **kept_in(database)), "--run-dir", str(kept))
    assert done.exit_code in ENDED, done.output
    assert Found.of(kept) == Found.of(plain)


def test_a_second_writer_anywhere_is_refused(
    site: Site, database: LedgerAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(database))
    with serving(GatedServer(small_world(), 20)) as url:
        config, kept = gated(site, url).write("kept", **kept_in(database)), site.directory("kept")
        process = site.start(config, "--run-dir", str(kept))
        assert reached(kept, 1, process)
        status = called("monitor", str(database)).output.splitlines()[1].split()
        assert status[:2] == ["kept", "running"]
        glance = called("monitor", str(database.run_at("kept")), "--once")
        assert glance.exit_code == ExitCode.RUNNING and "kept" in glance.output
        other = site.folder / "elsewhere" / "kept"
        refused = site.run(config, "--run-dir", str(other))
        assert refused.exit_code == ExitCode.FAILED and f"is held by process {process.pid} on" in refused.output
        kill(process)
    quick = site.write("kept", concurrency=64, **kept_in(database))
    done = site.run(quick, "--run-dir", str(other))  # the lock is gone with its process
    assert done.exit_code in ENDED, done.output


def test_the_database_is_killed_in_the_midst_and_nothing_is_lost_or_counted_twice(
    site: Site,
    ended_runs: EndedRuns,
    mortal: PostgresServer,
    mortal_database: LedgerAddress,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, str(mortal_database))
    plain, kept = ended_runs.copy(site, site.directory("plain")), site.directory("kept")
    server = GatedServer(small_world(), 20)
    with serving(server) as url:
        config = gated(site, url).write("kept", **kept_in(mortal_database, patience="10m"))
        process = site.start(config, "--run-dir", str(kept))
        for trials, more in ((20, 100), (120, math.inf)):
            assert reached(kept, trials, process)
            kill_under(mortal, process)
            server.open(more)
            time.sleep(0.3)
            mortal.start()
        out, err = process.communicate(timeout=HANGS)
    assert process.returncode in ENDED, (out, err)
    assert Found.of(kept) == Found.of(plain)


def test_where_the_database_stays_away_the_run_ends_and_can_be_gone_on_with(
    site: Site,
    ended_runs: EndedRuns,
    mortal: PostgresServer,
    mortal_database: LedgerAddress,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, str(mortal_database))
    monkeypatch.setenv("PGPASSWORD", SECRET)
    plain, kept = ended_runs.copy(site, site.directory("plain")), site.directory("kept")
    server = GatedServer(small_world(), 20)
    with serving(server) as url:
        config = gated(site, url).write("kept", **kept_in(mortal_database, patience="1s"))
        process = site.start(config, "--run-dir", str(kept))
        assert reached(kept, 20, process)
        kill_under(mortal, process)
        server.open()
        out, err = process.communicate(timeout=HANGS)
    assert process.returncode == ExitCode.FAILED
    assert "does not answer" in err and "when it is back, run the same command" in err, err
    away = called("monitor", str(mortal_database))
    assert away.exit_code == ExitCode.FAILED and "does not answer" in away.output
    assert "connection failed" not in away.output and "?" not in away.output, away.output
    mortal.start()
    quick = site.write("kept", concurrency=64, **kept_in(mortal_database, patience="10m"))
    done = site.run(quick, "--run-dir", str(kept))
    assert done.exit_code in ENDED, done.output
    assert Found.of(kept) == Found.of(plain)
    dumped = str(mortal.execute("SELECT * FROM adaptive_eval.runs", mortal_database.database))
    schema = f"adaptive_eval_{list_runs(mortal_database)[0].id}"
    for table in ("run", "configurations", "models", "events"):
        dumped += str(mortal.execute(f"SELECT * FROM {schema}.{table}", mortal_database.database))
    files = b"".join(path.read_bytes() for path in kept.rglob("*") if path.is_file())
    assert SECRET not in out + err + done.output + away.output + dumped and SECRET.encode() not in files


def test_a_database_that_is_full_ends_the_run_with_a_clear_word(
    site: Site, server: PostgresServer, database: LedgerAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(database))
    config, kept = site.write("kept", **kept_in(database)), site.directory("kept")
    assert site.run(config, "--run-dir", str(kept), "--set", "budget.trials=40").exit_code in ENDED
    before = trials_in(kept)
    # a trigger says what the server says on a full disk: a real one would be that of all tests
    server.execute(
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$",
        database.database,
    )
    schema = f"adaptive_eval_{list_runs(database)[0].id}"
    trigger = "BEFORE INSERT ON {0}.trials FOR EACH STATEMENT EXECUTE FUNCTION full_disk()"
    server.execute(f"CREATE TRIGGER full_disk {trigger.format(schema)}", database.database)
    done = site.run(config, "--run-dir", str(kept))
    assert done.exit_code == ExitCode.FAILED and "the disk of the database is full" in done.output, done.output
    assert "have room made there and run the same command" in done.output
    assert trials_in(kept) == before
    server.execute(f"DROP TRIGGER full_disk ON {schema}.trials", database.database)
    assert site.run(config, "--run-dir", str(kept)).exit_code in ENDED
    assert trials_in(kept) > before


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{SECRET}@db.example.org/evals",
        f"postgresql://{SECRET}@db.example.org/evals",
        f"postgresql://db.example.org/evals?password={SECRET}",
        "mysql://db.example.org/evals",
    ],
)
def test_a_password_in_an_address_is_refused_and_not_repeated(site: Site, url: str) -> None:
    done = site.run(site.write("kept", store={"ledger": url}), "--run-dir", str(site.directory("kept")))
    assert done.exit_code == ExitCode.CONFIGURATION and "store.ledger" in done.output, done.output
    assert "PGPASSWORD" in done.output and SECRET not in done.output, done.output
    assert not site.directory("kept").exists()
    if url.startswith("postgresql"):
        for command in ("report", "verify", "monitor"):
            told = called(command, f"{url}/run" if "?" not in url else url)
            assert told.exit_code == ExitCode.CONFIGURATION and "PGPASSWORD" in told.output, told.output
            assert SECRET not in told.output


def test_a_database_that_a_stranger_names_is_not_opened(
    site: Site, ended: Path, database: LedgerAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    from adaptive_eval.store import whereabouts

    monkeypatch.setattr(whereabouts, "_given", set())
    monkeypatch.setenv(VARIABLE, "postgresql://another.example.org/evals")
    done = called("report", str(ended))
    assert done.exit_code == ExitCode.FAILED and f"{VARIABLE}={database}" in done.output, done.output
    (ended / "ledger.json").write_text('{"address": "postgresql://x:y@host/db/run"}')
    done = called("report", str(ended))
    assert done.exit_code == ExitCode.FAILED and "names no ledger" in done.output


def test_who_may_only_read_reads(
    server: PostgresServer, ended: Path, database: LedgerAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = f"adaptive_eval_{list_runs(database)[0].id}"
    server.execute("CREATE ROLE guest LOGIN")
    for one in ("adaptive_eval", schema):
        server.execute(f"GRANT USAGE ON SCHEMA {one} TO guest", database.database)
        server.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {one} TO guest", database.database)
    monkeypatch.setenv("PGUSER", "guest")
    with closing(RunReader.open(database.run_at("kept").path)) as reader:
        assert reader.trial_count() > 0
    assert called("monitor", str(database)).exit_code == 0
    refused = called("report", str(database.run_at("nothing")))
    assert refused.exit_code == ExitCode.FAILED and "the runs of" in refused.output and "kept" in refused.output


def test_runs_go_on_while_many_begin_at_once(site: Site, database: LedgerAddress) -> None:
    """Each makes what the runs share, where it is not there yet."""
    options = kept_in(database) | {"trials": {"min": 4, "max": 4}}
    processes = [
        site.start(site.write(f"run{number}", **options), "--run-dir", str(site.directory(f"run{number}")))
        for number in range(3)
    ]
    for process in processes:
        out, err = process.communicate(timeout=HANGS)
        assert process.returncode in ENDED, (out, err)
    assert [one.name for one in list_runs(database)] == ["run0", "run1", "run2"]
