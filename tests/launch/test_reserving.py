"""Ports at which servers are to listen are given to one run at a time, on a machine with many runs and sites."""

import tempfile
from pathlib import Path

import pytest

from adaptive_eval.errors import LaunchFailed
from adaptive_eval.launch import command
from adaptive_eval.launch.command import free_ports


@pytest.fixture(autouse=True)
def three_free_ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(command, "RANGE", range(20_000, 20_003))
    monkeypatch.setattr(command, "TRIES", 3)
    monkeypatch.setattr(command, "is_free", lambda port: True)  # as long as no server listens there


def test_two_runs_are_never_given_the_same_port_before_their_servers_listen() -> None:
    first, second = free_ports(), free_ports()
    assert {next(first), next(second), next(first)} == {20_000, 20_001, 20_002}
    with pytest.raises(LaunchFailed, match="no free port"):
        next(second)
    first.close()  # type: ignore[attr-defined]
    assert {next(ports) for ports in [free_ports()] for _ in range(3)} == {20_000, 20_001, 20_002}, "let go by both"


def test_where_no_port_can_be_reserved_servers_are_started_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    assert set(next(ports) for ports in [free_ports()] for _ in range(3)) == {20_000, 20_001, 20_002}
