"""Ports at which servers are to listen are given to one run at a time, on a machine with many runs and sites."""

import gc
import os

import pytest

from adaptive_eval.base.errors import LaunchFailed
from adaptive_eval.launch import command
from adaptive_eval.launch.command import free_ports


@pytest.fixture(autouse=True)
def three_free_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "PORT_RANGE", range(20_000, 20_003))
    monkeypatch.setattr(command, "MAX_TRIES", 3)
    monkeypatch.setattr(command, "is_free", lambda port: True)  # as long as no server listens there


def test_two_runs_are_never_given_the_same_port_before_their_servers_listen() -> None:
    first, second = free_ports(), free_ports()
    assert {next(first), next(second), next(first)} == {20_000, 20_001, 20_002}
    with pytest.raises(LaunchFailed, match="no free port"):
        next(second)
    first.close()  # type: ignore[attr-defined]
    assert {next(ports) for ports in [free_ports()] for _ in range(3)} == {20_000, 20_001, 20_002}, "let go by both"


def test_two_users_of_a_machine_are_never_given_the_same_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """They share no folder where one of them could say what it has."""
    first, second = free_ports(), free_ports()
    given = {next(first)}
    monkeypatch.setattr(os, "getuid", lambda: 4_711)
    given |= {next(second), next(second)}
    assert given == {20_000, 20_001, 20_002}


def test_ports_are_counted_up_where_none_can_be_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "HOST", "192.0.2.1")  # of no interface
    assert set(next(ports) for ports in [free_ports()] for _ in range(3)) == {20_000, 20_001, 20_002}


def test_ports_that_nobody_lets_go_of_are_free_when_they_are_collected() -> None:
    """A run that is ended in the middle closes nothing, and no warning of it may be raised wherever that is noticed."""

    class Holder:
        pass

    holder = Holder()
    holder.ports = ports = free_ports()  # type: ignore[attr-defined]
    holder.itself = holder  # type: ignore[attr-defined]
    assert {next(ports) for _ in range(3)} == {20_000, 20_001, 20_002}
    del holder, ports
    gc.collect()
    assert {next(ports) for ports in [free_ports()] for _ in range(3)} == {20_000, 20_001, 20_002}
