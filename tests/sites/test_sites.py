"""Runs whose models are served at sites, or in turn at places of a cluster, find what they find at home."""

import asyncio
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from live_runs import MODELS, RunOutcome, Site, small_world
from near_sites import NearCluster
from patient_time import HANGS
from stored_runs import events_in

from adaptive_eval.base.errors import ConfigError, ExitCode, LaunchFailed
from adaptive_eval.config.load import load_config
from adaptive_eval.config.prepare import prepare
from adaptive_eval.endpoints import settings
from adaptive_eval.graders.types import MarkedAnswer
from adaptive_eval.notes import Event, ModelSetAside, ServerLaunched, ServerReleased, SiteAwaited, SiteLost, SitePlaced
from adaptive_eval.report.reader import RunReader
from adaptive_eval.running.start import execute
from adaptive_eval.running.watching import Display
from adaptive_eval.simulate.judging import SimulatedJudge
from adaptive_eval.simulate.server import SimulatedServer, serving
from adaptive_eval.sites.messages import TIMEOUTS
from adaptive_eval.sites.opening import open_sites, require_sites, site_resources

SERVER = Path(__file__).parents[1] / "running" / "small_server.py"
Kind = TypeVar("Kind", bound=Event)
NOBODY = Display()
ELSEWHERE = {"name": "bob", "base_url": "http://127.0.0.1:1/v1"}


@pytest.fixture(autouse=True)
def places_of_its_own(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(site.folder))
    monkeypatch.setattr(tempfile, "tempdir", str(site.folder))


def models(site: Site, sites: dict[str, int] | None = None, *flags: str, **more: object) -> list[dict[str, object]]:
    command = [sys.executable, "-S", str(SERVER), "{port}", *flags, str(site.folder)]
    section = {"command": command, "timeout": HANGS, **more}
    return [{"name": name, "launch": {**section, "sites": (sites or {}).get(name, 1)}} for name in MODELS]


def written(site: Site, **changes: object) -> Path:
    return site.write(trials={"min": 4, "max": 8, "optimize": "cost"}, concurrency=2, **changes)


def run_at(cluster: NearCluster, config: Path, site: Site, display: Display = NOBODY) -> ExitCode:
    """The run with these sites, in the directory of its name."""
    prepared = prepare(load_config(config, ()))
    running = execute(prepared, site.directory(), display, sites=partial(open_sites, cluster, TIMEOUTS))
    return asyncio.run(running)


class LetsGo(Display):
    """Servers that are `held` go on when so many are up: a run is not over before the last of them has come."""

    def __init__(self, site: Site, servers: int) -> None:
        self.site, self.missing = site, servers

    def happened(self, event: Event) -> None:
        self.missing -= isinstance(event, ServerLaunched)
        if not self.missing:
            (self.site.folder / "go").touch()


def events(site: Site, kind: type[Kind]) -> list[Kind]:
    return events_in(site.directory(), kind)


@pytest.fixture(scope="module")
def at_home(tmp_path_factory: pytest.TempPathFactory) -> RunOutcome:
    """What the run finds with servers that it starts on its own machine."""
    site = Site.make(tmp_path_factory.mktemp("home"), "")
    site.run(written(site, models=models(site)), code=ExitCode.SPENT)
    return RunOutcome.of(site.directory())


@pytest.mark.slow
def test_a_run_finds_the_same_at_one_two_and_three_sites(site: Site, at_home: RunOutcome) -> None:
    cluster, config = NearCluster(), written(site, models=models(site, {"ada": 2, "bob": 3}, "held"))
    assert run_at(cluster, config, site, LetsGo(site, 6)) == ExitCode.SPENT
    assert RunOutcome.of(site.directory()) == at_home
    placed = events(site, SitePlaced)
    assert sorted((event.model, event.on) for event in placed) == [
        ("ada", "site 1"), ("ada", "site 2"), ("bob", "site 1"), ("bob", "site 2"), ("bob", "site 3"), ("cyd", "site 1")
    ]  # fmt: skip
    assert {(event.model, event.on) for event in events(site, ServerLaunched)} == {
        (event.model, event.on) for event in placed
    }
    reports = [report for _, near_site in cluster.placed for report in near_site.sent_reports]
    assert sum(len(report.replies) for report in reports) == len(at_home.outcomes)


@pytest.mark.slow
def test_what_a_lost_site_had_is_asked_again_there_or_elsewhere(site: Site, at_home: RunOutcome) -> None:
    """The only site of one model, one of two of another; each is lost with answers on their way."""
    cluster = NearCluster([1, 0, 2, 1, 0])
    assert run_at(cluster, written(site, models=models(site, {"bob": 2})), site) == ExitCode.SPENT
    assert RunOutcome.of(site.directory()) == at_home
    lost = events(site, SiteLost)
    assert len(lost) >= 3 and {event.reason for event in lost} == {"its node was taken away"}
    again = {(event.model, event.on) for event in lost}
    assert all(sum((event.model, event.on) == place for event in events(site, SitePlaced)) >= 2 for place in again)


@pytest.mark.slow
@pytest.mark.parametrize("at_sites", [True, False])
def test_answers_of_earlier_starts_count_alone(site: Site, at_sites: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "DEFAULT", settings.EndpointSettings(backoff=0.01, longest_backoff=0.01))
    for cap in (24, 720):
        config = site.write(
            models=models(site, None, "picky"),
            trials={"min": 1, "max": 30, "optimize": "cost"},
            budget={"trials": cap},
            concurrency={"in_flight": 1, "retry_for": 2},
            stopping={"on_alarm": "never"},
        )
        code = run_at(NearCluster(), config, site) if at_sites else site.run(config).exit_code
        assert code in (ExitCode.SPENT, ExitCode.REACHED)
        (site.folder / "go").touch()
    outcomes = RunOutcome.of(site.directory()).outcomes
    assert {place[:2] for place, category in outcomes.items() if category is None} == {("ada", "q0")}
    assert not any("given up" in event.reason for event in events(site, ModelSetAside))


def test_a_site_without_a_place_is_reported(site: Site) -> None:
    """As where a server cannot be started at all: it is a mistake, and nothing was asked yet."""
    with pytest.raises(LaunchFailed, match="no place with GPU 8 was had"):
        run_at(NearCluster(["nowhere"]), written(site, models=models(site)), site)
    (awaited,) = events(site, SiteAwaited)
    assert (awaited.asked, awaited.missing) == ("GPU 8", "the cluster has none")


def test_a_site_whose_server_does_not_start_has_held_its_place_while_it_tried(site: Site) -> None:
    dies = [sys.executable, "-S", "-c", "import time; time.sleep(0.3); raise SystemExit(3)", "{port}"]
    started = [{"name": name, "launch": {"command": dies, "timeout": HANGS}} for name in MODELS]
    with pytest.raises(LaunchFailed, match="exited with status 3"):
        run_at(NearCluster(), written(site, models=started), site)
    with closing(RunReader.open(site.directory())) as reader:
        held = reader.held_times()
    assert max(held_time.seconds for held_time in held.values()) >= 0.3


@pytest.mark.slow
def test_a_site_that_is_lost_again_and_again_is_given_up(site: Site) -> None:
    cluster = NearCluster([0] * 30)
    assert run_at(cluster, written(site, models=models(site)), site) == ExitCode.ENDPOINTS
    aside = events(site, ModelSetAside)
    assert all("was lost 4 times without an answer" in event.reason for event in aside)
    placed = {name[-5:]: len(cluster.of([name])) for name, _ in cluster.placed}
    given_up = {f"{event.model}/1" for event in aside}
    assert len(given_up) >= 2, "then nothing is left to compare"
    assert placed.keys() >= given_up and all(number == 4 for name, number in placed.items() if name in given_up)
    assert max(placed.values()) == 4


@pytest.mark.slow
def test_answers_are_graded_where_made(site: Site, at_home: RunOutcome, monkeypatch: pytest.MonkeyPatch) -> None:
    from adaptive_eval.graders.pool import GradingPool

    graded: list[GradingPool] = []
    marks = GradingPool.marks

    async def noted(self: GradingPool, text: str, question: object) -> object:
        graded.append(self)
        return await marks(self, text, question)  # type: ignore[arg-type]

    monkeypatch.setattr(GradingPool, "marks", noted)
    run_at(NearCluster(), written(site, models=models(site), grading={"timeout": HANGS}), site)
    assert RunOutcome.of(site.directory()) == at_home
    assert {pool._limits.timeout for pool in graded} == {HANGS}
    keys = 8  # the head has tried the grader on the key of each question
    assert len(graded) - keys == len(at_home.outcomes), "none was graded twice"
    assert len(set(map(id, graded))) == 1 + len(MODELS)


@pytest.mark.parametrize(
    ("launch", "more", "resources"),
    [
        ({}, {}, {"CPU": 1.0, "GPU": 1.0}),
        ({"flags": {"tensor_parallel_size": 4, "pipeline-parallel-size": 2}}, {}, {"CPU": 1.0, "GPU": 8.0}),
        ({"flags": {"tensor-parallel-size": 4}}, {"gpus": 2}, {"CPU": 1.0, "GPU": 2.0}),
        ({"command": "serve --port {port}"}, {}, {"CPU": 1.0}),
        ({"resources": {"CPU": 4, "H100": 1}}, {"gpus": 2}, {"CPU": 4.0, "H100": 1.0}),
    ],
)
def test_a_site_takes_the_resources_of_its_launch_section(
    site: Site, launch: dict[str, object], more: dict[str, object], resources: dict[str, float]
) -> None:
    (model, _) = load_config(site.write(models=[{"name": "ada", "launch": launch, **more}, ELSEWHERE]), ()).models
    assert model.launch is not None
    assert site_resources(model, model.launch) == resources


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"models": [{"name": "ada", "base_url": "http://127.0.0.1:1/v1"}]}, "no model has a `launch` section"),
        ({"models": [{"name": "ada", "launch": {}}], "pool": [0]}, "pool names places of"),
        (
            {"models": [{"name": "ada", "launch": {"sites": 3}}], "pool": 4},
            "models.ada.launch.sites asks for 3 servers, but pool says how many",
        ),
    ],
)
def test_what_no_site_can_serve_is_refused(site: Site, changes: dict[str, object], message: str) -> None:
    models = [*changes["models"], ELSEWHERE]  # type: ignore[misc]
    with pytest.raises(ConfigError, match=message):
        require_sites(load_config(site.write(**{**changes, "models": models}), ()))


@pytest.fixture(scope="module")
def judge_url() -> Iterator[str]:
    with serving(SimulatedServer(small_world(), judge=SimulatedJudge((0.9, 0.2)))) as url:
        yield url


def judged(site: Site, url: str, name: str, **more: object) -> Path:
    grader = {"kind": "judge", "server": {"base_url": url, "model": "judge"}}
    trials = {"min": 4, "max": 8, "optimize": "cost"}
    sites = {"bob": 2} if name == "run" else None
    return site.write(name, models=models(site, sites), grader=grader, trials=trials, concurrency=2, **more)


@pytest.mark.slow
def test_a_judge_is_asked_from_the_head(site: Site, judge_url: str) -> None:
    site.run(judged(site, judge_url, "plain"), "--run-dir", str(site.directory("plain")), code=ExitCode.SPENT)
    cluster = NearCluster([1, 0, 2])
    assert run_at(cluster, judged(site, judge_url, "run"), site) == ExitCode.SPENT
    assert RunOutcome.of(site.directory()) == RunOutcome.of(site.directory("plain"))
    assert len(events(site, SiteLost)) >= 2
    replies = [reply for _, near in cluster.placed for report in near.sent_reports for reply in report.replies]
    assert replies and not any(isinstance(answer, MarkedAnswer) for reply in replies for answer in reply.answers), (
        "no grade is there"
    )


def pooled(site: Site, *flags: str) -> Path:
    """Three models on a pool of two places."""
    return written(site, models=models(site, None, *flags), pool=2)


@pytest.mark.slow
@pytest.mark.parametrize("room", [1, 2])
def test_a_run_finds_the_same_however_many_places_come(site: Site, at_home: RunOutcome, room: int) -> None:
    cluster = NearCluster(room=room)
    assert run_at(cluster, pooled(site, "held"), site, LetsGo(site, room)) == ExitCode.SPENT
    assert RunOutcome.of(site.directory()) == at_home
    assert cluster.peak == room
    served = [(event.model, event.on) for event in events(site, ServerLaunched)]
    assert {model for model, _ in served} == set(MODELS) and len({on for _, on in served}) == room
    assert len(served) > len(events(site, SitePlaced)), "models are swapped where they are"
    assert all(event.on in ("place 1", "place 2") for event in events(site, ServerReleased))


@pytest.mark.slow
def test_what_a_lost_place_had_is_served_at_another(site: Site, at_home: RunOutcome) -> None:
    """Each of the first places is lost with answers on their way; models go where there is room."""
    assert run_at(NearCluster([1, 0, 2, 1, 0, 3], room=2), pooled(site), site) == ExitCode.SPENT
    assert RunOutcome.of(site.directory()) == at_home
    # their lives are 13 messages together, the run is more: only one, whose server is slow to start, may outlive it
    assert len(events(site, SiteLost)) >= 5


def test_a_pool_of_a_cluster_needs_a_cluster(site: Site) -> None:
    assert "pool: 2 needs a cluster: run it with --ray" in site.run(pooled(site), code=ExitCode.CONFIGURATION).output


@pytest.mark.parametrize("options", [[], ["--dry-run"]])
def test_sites_are_not_left_out_silently_where_there_is_no_cluster(site: Site, options: list[str]) -> None:
    config = written(site, models=models(site, {"bob": 2}))
    refused = site.run(config, *options, code=ExitCode.CONFIGURATION)
    assert "models.bob.launch.sites: 2 needs a cluster: run it with --ray, or remove it" in refused.output
