"""What all tests share: a simulated server with fast answers, another with slow ones, a place to run against them, a
browser, and in some rooms a clock that waits for them.

Property tests are not timed, nor is how their examples are drawn, since the machines they run on are not alike. They
draw the same examples in every run, and others only where `THOROUGH` is set: a change is judged by what it changes.
Hundreds of processes are started that import the package: they may keep what they have compiled, whatever is set. Some
are sent signals, which they would never hear of where the shell has these ignored, as in the background or under nohup.
Runs sync every commit to the disk: their folders are in memory if there is enough, and go if no test has failed.
"""

import asyncio
import gc
import os
import shutil
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from functools import cache, partial
from multiprocessing.util import get_temp_dir
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import typer.testing
import warm_inspect
from browsing import Tabs, chromium
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from live_runs import EndedRuns, Site, small_world
from patient_time import HANGS, PatientLoop
from ports import held_port
from thoroughness import THOROUGH, examples

from adaptive_eval import cli
from adaptive_eval.endpoints import client, transport
from adaptive_eval.endpoints import settings as endpoint_settings
from adaptive_eval.endpoints.settings import EndpointSettings
from adaptive_eval.simulate.server import SimulatedServer, serving
from adaptive_eval.simulate.worlds import Latency

if TYPE_CHECKING:
    from playwright.sync_api import Browser

settings.register_profile(
    "untimed",
    deadline=None,
    derandomize=not THOROUGH,
    max_examples=examples(100),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("untimed")
if not THOROUGH:  # constants of all modules that a process has loaded would be tried: other examples beside other tests
    providers._get_local_constants = lambda: providers._local_constants

# what takes options apart is made once, as in a process of its own, and not for each command that a test gives
cli.load_command = cache(cli.load_command)
typer.testing._get_command = cache(typer.testing._get_command)

# servers on loopback are reached at once, unless the machine stands still meanwhile
client.PROBE_SECONDS = transport.CONNECT_SECONDS = HANGS

MEMORY, ENOUGH = Path("/dev/shm"), 4 * 2**30
"""A container may have 64 MB there, and may forbid to start the programs that tests write."""
if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ENOUGH and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
get_temp_dir()  # is made once, and not in the folder of a test, where others like it are

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
for _ignored in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_ignored) is signal.SIG_IGN:
        # a handler is not passed on to a process that is started, an ignored signal is
        signal.signal(_ignored, lambda *_: None)


def pytest_xdist_auto_num_workers() -> int:
    """Three for two cores: tests of whole runs wait for their servers a third of the time."""
    cores = os.cpu_count() or 1
    return cores + cores // 2


LONG = ("golden", "running", "inspect", "notebook", "exchange", "show", "study", "report", "cli", "launch")
"""Rooms whose tests are few and long."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long files come first: workers take whole files, and none should have a long one when the others are done."""
    order = {room: number for number, room in enumerate(LONG)}
    items.sort(key=lambda item: order.get(item.path.parent.name, len(order)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """The tests are half a million objects that live to the end: no collection scans them."""
    gc.disable()
    collected = yield
    gc.freeze()
    gc.set_threshold(10_000)
    gc.enable()
    return collected


PATIENT_ROOMS = {"endpoints", "simulate"}
"""Where all that takes time is in the loop of the test."""


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    marker = item.get_closest_marker("patient")
    if marker is not None:
        return {"patient": partial(PatientLoop, **marker.kwargs)}
    if item.path.parent.name in PATIENT_ROOMS:
        return {"patient": PatientLoop}
    return {"real": asyncio.new_event_loop}


@pytest.fixture(scope="session", autouse=True)
def _memory_is_given_back(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    yield
    folder = tmp_path_factory.getbasetemp()
    if MEMORY in folder.parents and not request.session.testsfailed:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def base_url() -> Iterator[str]:
    with serving(SimulatedServer(small_world())) as url:
        yield url


@pytest.fixture(scope="session")
def slow_url() -> Iterator[str]:
    """A server that thinks for an hour about every answer."""
    with serving(SimulatedServer(replace(small_world(), latency=Latency(median=3600.0, sigma=0.1)))) as url:
        yield url


@pytest.fixture
def unused_tcp_port() -> Iterator[int]:
    """In place of that of pytest-asyncio, which another test may have got before it is used."""
    with held_port() as port:
        yield port


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is refused, loses an answer, or finds nobody, asks again soon: how long the pauses are has tests of its
    own."""
    short = EndpointSettings(tick=0.02, backoff=0.01, longest_backoff=0.04, longest_pause=0.02, probe_again=0.02)
    monkeypatch.setattr("adaptive_eval.endpoints.settings.DEFAULT", short)


@pytest.fixture
def set_attempts(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets after how many failures a request is given up."""

    def set_to(attempts: int) -> None:
        monkeypatch.setattr(endpoint_settings, "DEFAULT", replace(endpoint_settings.DEFAULT, attempts=attempts))

    return set_to


@pytest.fixture
def site(tmp_path: Path, base_url: str) -> Iterator[Site]:
    site = Site.make(tmp_path, base_url)
    yield site
    for process in site.processes:  # those that a failed test has left behind
        with process:
            process.kill()


@pytest.fixture(scope="session")
def ended_runs(tmp_path_factory: pytest.TempPathFactory) -> EndedRuns:
    return EndedRuns(tmp_path_factory.mktemp("ended"))


@pytest.fixture(scope="session")
def inspect_address() -> Iterator[str]:
    with warm_inspect.loaded() as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    with chromium() as browser:
        yield browser


@pytest.fixture
def tabs(browser: "Browser", tmp_path: Path) -> Iterator[Tabs]:
    tabs = Tabs(browser, tmp_path)
    yield tabs
    tabs.close()
