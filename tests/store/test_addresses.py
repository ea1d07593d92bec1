"""Addresses of runs in databases, and which of them are opened: no database is needed to say that."""

from pathlib import Path

import pytest

from adaptive_eval.base.errors import ConfigError, StoreError
from adaptive_eval.store import whereabouts
from adaptive_eval.store.address import VARIABLE, LedgerAddress, default_path, is_address, parse_address, shown
from adaptive_eval.store.database import DATABASE_FILE

SECRET = "never-to-be-seen"


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://db.example.org/evals",
        "postgresql://db.example.org:6432/evals/run~2",
        "postgresql://%2Ftmp%2Fsockets/evals/a.run",
        "postgresql://[::1]:5432/evals/run",
    ],
)
def test_an_address_survives_being_a_path(text: str) -> None:
    address = parse_address(Path(text))
    assert address is not None and str(address) == text == shown(Path(text))
    assert LedgerAddress.parse(str(address.path)) == address
    assert address.run is None or (Path(text).name == address.run and shown(Path(text).parent) + "/" in text)


@pytest.mark.parametrize("text", ["runs/a", "/postgresql/x", "postgresql", "s3://bucket/run"])
def test_a_path_is_none(text: str) -> None:
    assert parse_address(Path(text)) is None and not is_address(Path(text))


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://me:{SECRET}@host/db",
        f"postgresql://{SECRET}@host/db/run",
        f"postgresql://host/db?password={SECRET}",
        f"postgresql:///db/{SECRET}/a/b",
        "postgresql://host/db/..",
        "postgresql://host",
        "postgres:",
    ],
)
def test_what_is_none_is_told_without_being_repeated(text: str) -> None:
    with pytest.raises(ConfigError, match="PGPASSWORD") as told:
        parse_address(Path(text))
    assert SECRET not in str(told.value)


def test_a_run_stays_where_it_was_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whereabouts, "_given", set())
    monkeypatch.delenv(VARIABLE, raising=False)
    address, run = LedgerAddress.parse("postgresql://host/db"), tmp_path / "run"
    whereabouts.point_to(run, address)
    whereabouts.point_to(run, address)
    assert whereabouts.ledger_address(run) == address.run_at("run") and whereabouts.holds_ledger(run)
    with pytest.raises(ConfigError, match="store.ledger names another database"):
        whereabouts.point_to(run, LedgerAddress.parse("postgresql://host/other"))
    with pytest.raises(ConfigError, match=r"say so as store\.ledger \(postgresql://host/db\)"):
        whereabouts.require_own_ledger(run)
    own = tmp_path / "own"
    own.mkdir()
    (own / DATABASE_FILE).touch()
    with pytest.raises(ConfigError, match="a run stays where it was begun"):
        whereabouts.point_to(own, address)
    with pytest.raises(ConfigError, match="give --run-dir a path"):
        whereabouts.point_to(address.run_at("run").path, address)


def test_a_database_that_a_directory_names_is_opened_where_the_user_has_named_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whereabouts, "_given", set())
    monkeypatch.delenv(VARIABLE, raising=False)
    (tmp_path / whereabouts.POINTER_FILE).write_text('{"address": "postgresql://host/db/run"}')
    with pytest.raises(StoreError, match=f"set {VARIABLE}=postgresql://host/db"):
        whereabouts.open_to_read(tmp_path)
    monkeypatch.setenv(VARIABLE, "postgresql://host/db2")
    with pytest.raises(StoreError, match="is not opened by itself"):
        whereabouts.is_held(tmp_path)
    monkeypatch.setenv(VARIABLE, "postgresql://other/x postgresql://host/db/")
    assert whereabouts.ledger_address(tmp_path) == LedgerAddress.parse("postgresql://host/db/run")


@pytest.mark.parametrize(
    "body", ["", "[]", "{}", '{"address": 7}', '{"address": "postgresql://u:p@h/d/r"}', "[" * 9000]
)
def test_a_pointer_that_nobody_wrote_is_refused(tmp_path: Path, body: str) -> None:
    (tmp_path / whereabouts.POINTER_FILE).write_text(body)
    with pytest.raises(StoreError, match="names no ledger: it was not written by adaptive-eval"):
        whereabouts.ledger_address(tmp_path)


def test_files_about_a_run_that_is_elsewhere_are_written_here() -> None:
    assert default_path(Path("runs/a"), "report.html") == Path("runs/a/report.html")
    assert default_path(Path("postgresql://host/db/a"), "report.html") == Path("a.report.html")
