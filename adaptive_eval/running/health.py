"""Whether the models of a configuration can be asked."""

import asyncio
import shlex
import shutil
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from adaptive_eval.base.errors import LaunchFailed
from adaptive_eval.config.document import read_environment
from adaptive_eval.config.prepare import missing_programs
from adaptive_eval.config.run import RunConfig
from adaptive_eval.config.run_secrets import run_redactor
from adaptive_eval.endpoints.endpoint import open_endpoint
from adaptive_eval.endpoints.types import Health, ReplicaHealth
from adaptive_eval.graders.asked import AskedGrader
from adaptive_eval.graders.by_benchmark import graders_that_ask
from adaptive_eval.launch.command import server_command
from adaptive_eval.launch.host import Host, find_holder
from adaptive_eval.report.lines import several
from adaptive_eval.running.simulator import with_simulator
from adaptive_eval.supplies.launched import hosts_here, require_no_cluster
from adaptive_eval.supplies.opening import SuppliedModel, SupplyContext, within_open_files


async def check_endpoints(config: RunConfig) -> dict[str, Health]:
    """The health of each model's servers, asked all at once; those that a run starts are started, and stopped again."""
    config = config.model_copy(update={"models": config.asked})  # nobody need reach a recorded one
    asked: set[int] = set()
    logs, well = Path(tempfile.mkdtemp(prefix="adaptive-eval-check-")), True
    try:
        async with AsyncExitStack() as stack:
            config, notices = within_open_files(await with_simulator(config, stack))
            redactor = run_redactor(config)
            context = SupplyContext(None, config, logs, redactor, notices, stack, _ignore, _ignore, patient=False)
            launched = {number: SuppliedModel(config.models[number], *([_ignore] * 3)) for number in config.launched}
            context.servers.hosts += hosts_here(context, launched).hosts if launched else ()
            stack.push_async_callback(context.servers.end)
            groups = await asyncio.gather(
                _check_running(context),
                *(_check_launched(host, asked) for host in context.servers.hosts if isinstance(host, Host)),
            )
        results = {number: health for group in groups for number, health in group.items()}
        well = all(health.ok for health in results.values())
    finally:
        _remove_logs(logs, well)
    return {model.name: results[number] for number, model in enumerate(config.models)}


def _ignore(*_: object) -> Any:
    """Ignore an event: no model is asked anything."""


async def check_graders(config: RunConfig) -> dict[str, Health]:
    """The health of the servers that are asked for grades: a judge's, those of everyone on a panel, a verifier's."""
    keys = read_environment(config.folder)
    seats: dict[str, AskedGrader] = {}
    for benchmark, grader in graders_that_ask(config.grader).items():
        whose = f"the {grader.kind} of {benchmark}" if benchmark else f"the {grader.kind}"
        for place, seat in enumerate(grader.seats, start=1):
            seats[whose if len(grader.seats) == 1 else f"{whose} {place}"] = seat
    endpoints = [
        open_endpoint(
            seat.host, seat.sampling, config.concurrency.with_limits(seat.concurrency), keys=keys, folder=config.folder
        )
        for seat in seats.values()
    ]
    try:
        results = await asyncio.gather(*(endpoint.check() for endpoint in endpoints))
    finally:
        await asyncio.gather(*(endpoint.close() for endpoint in endpoints))
    return dict(zip(seats, results, strict=True))


async def check_without_starting(config: RunConfig, *, on_cluster: bool = False) -> dict[str, Health]:
    """Check servers without starting any. For a server that the run starts, the result has its command, and whether
    its program exists; on a cluster that is checked when it is started."""
    launched = _cluster_launch_health(config) if on_cluster else _local_launch_health(config)
    others = tuple(model for model in config.asked if model.name not in launched)
    results = await check_endpoints(config.model_copy(update={"models": others}))
    results |= launched
    return {model.name: results[model.name] for model in config.asked}


def _cluster_launch_health(config: RunConfig) -> dict[str, Health]:
    results = {}
    for group in config.serving_groups:
        for number in group.models:
            model, launch = config.models[number], config.launched[number]
            place = "a shared site" if group.places else several(launch.sites, "site")
            detail = f"would be started on the cluster: {shlex.join(server_command(launch, model.model))}"
            results[model.name] = Health((ReplicaHealth(place, True, detail),))
    return results


def _local_launch_health(config: RunConfig) -> dict[str, Health]:
    require_no_cluster(config)
    missing = dict(missing_programs(config, read_environment(config.folder)))
    results = {}
    for number, launch in config.launched.items():
        model = config.models[number]
        (places,) = (group.places for group in config.serving_groups if number in group.models)
        place = f"on {' or '.join(places)}" if places else "a server of its own"
        holders = [find_holder(place) for place in places]
        holder = holders[0] if holders and all(holders) else None
        when = "" if holder is None else f" when {holder} has ended"
        would = f"would be started{when}: {shlex.join(server_command(launch, model.model))}"
        detail = missing.get(model.name, would)
        results[model.name] = Health((ReplicaHealth(place, model.name not in missing, detail),))
    return results


def _remove_logs(logs: Path, well: bool) -> None:
    """Delete the logs, unless someone may want to read them."""
    if well or not any(logs.iterdir()):
        shutil.rmtree(logs)


async def _check_running(context: SupplyContext) -> dict[int, Health]:
    """The health of servers of others; only a trial can check a command, or a model that Inspect asks."""
    endpoints = {
        number: context.open_endpoint(model) for number, model in enumerate(context.config.models) if model.has_address
    }
    for endpoint in endpoints.values():
        context.stack.push_async_callback(endpoint.close)
    results = dict(
        zip(endpoints, await asyncio.gather(*(endpoint.check() for endpoint in endpoints.values())), strict=True)
    )
    return {
        number: results.get(number, Health(()))
        for number, model in enumerate(context.config.models)
        if model.launch is None
    }


async def _check_launched(host: Host, asked: set[int]) -> dict[int, Health]:
    """Start, ask and stop one server after the other; those of a pool only at one of its places."""
    results = {}
    for number, server in host.servers.items():
        if number in asked:
            continue
        asked.add(number)
        try:
            await host.load(number, lambda event: None)
            results[number] = await server.check()
        except LaunchFailed as error:
            results[number] = Health((ReplicaHealth(server.spec.root, False, str(error)),))
    await host.unload()
    return results
