"""What many sites cost the head of a run: messages and CPU by their number, and memory for each of them.

    python benchmarks/many_sites.py [--quick] [--json PATH] [--markdown PATH]

The head is the real one: a whole run, with its decisions, its ledger and its links to the sites. These are simulated
in its process: each takes its requests, and after a moment gives back the same graded answer to all of them. There is
no Ray and there are no servers, so that what a message costs in Ray is not in these figures; `ray_sites.py` has that.
Each number of sites has a process of its own.
"""

import asyncio
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tables import Check, arguments, machine, markdown, publish

from adaptive_eval import __version__
from adaptive_eval.config.load import load_config
from adaptive_eval.config.prepare import prepare
from adaptive_eval.endpoints.types import Answer, EndpointStats, ReplicaStats
from adaptive_eval.graders.types import Marks
from adaptive_eval.record.status import Status
from adaptive_eval.running.execute import execute
from adaptive_eval.running.watching import Watcher, Watchers
from adaptive_eval.sites.host import PlaceWait, SiteOrigin
from adaptive_eval.sites.link import SiteLink
from adaptive_eval.sites.messages import (
    BEAT_SECONDS,
    SiteBegun,
    SiteFacts,
    SiteMaterial,
    SiteNews,
    SiteOrder,
    SiteReply,
    SiteSecrets,
    SiteSetup,
    pack_answer,
)
from adaptive_eval.sites.opening import RunSites

MODELS, QUESTIONS, IN_FLIGHT = 20, 50, 2000
ANSWER_SECONDS = 0.5
BEATS = 5
TEXT = "First we write down what is given, then we see what follows from it. " * 7 + "So the answer is 42."
STATS = EndpointStats(replicas=(ReplicaStats("http://127.0.0.1:8000/v1", True, 0, 128),))


class Seen(NamedTuple):
    """What a run with so many sites has taken."""

    sites: int
    trials: int
    cpu: float
    """Of a trial, in milliseconds."""
    messages: float
    """For each trial, those of sites that have nothing to tell included."""
    mib: float
    """At most, of the whole process."""
    beat: float
    """CPU of a message that says nothing, in milliseconds."""


class Counted:
    """All messages, each with an answer."""

    messages = 0


class SimulatedSite:
    """Answers every request a moment later, in one message."""

    def __init__(self, batch: int = 256, beat: float = BEAT_SECONDS) -> None:
        self._batch, self._beat = batch, beat
        self._replies: list[SiteReply] = []
        self._something = asyncio.Event()

    async def begin(self, setup: SiteSetup, site_secrets: SiteSecrets, material: SiteMaterial) -> SiteBegun:
        """Serve the model at once."""
        return SiteBegun()

    def _answer(self, order: SiteOrder) -> None:
        for request in order.requests:
            answers = tuple(
                pack_answer(
                    Answer(TEXT, "stop", request.first + at, "", 0.5, prompt_tokens=50, completion_tokens=120), MARKS
                )
                for at in range(request.size)
            )
            self._replies.append(SiteReply(request.number, answers))
        self._something.set()

    async def sync(self, head: str, order: SiteOrder) -> SiteNews:
        """Take requests; then what there is to tell, and something at every beat, or when more is asked for."""
        if order.requests:
            asyncio.get_running_loop().call_later(ANSWER_SECONDS, self._answer, order)
        self._something.set()
        something = self._something = asyncio.Event()
        if self._replies:
            something.set()
        try:
            async with asyncio.timeout(self._beat):
                await something.wait()
        except TimeoutError:
            pass
        Counted.messages += 1
        replies, self._replies = tuple(self._replies[: self._batch]), self._replies[self._batch :]
        return SiteNews(replies, stats=STATS)

    async def end(self, at_once: bool) -> None:
        """Nothing is to be stopped."""

    def kill(self) -> None:
        """Nothing is to be ended."""


MARKS = Marks({"is_correct": True}, "42")


class SimulatedCluster:
    """Has room for every site, on nodes of eight."""

    def __init__(self) -> None:
        self.placed = 0

    def sites_left_by(self, run: str) -> Sequence[str]:
        """None is there from before."""
        return ()

    async def place(self, name: str, resources: dict[str, float], awaited: PlaceWait) -> SiteOrigin:
        """A place, at once."""
        self.placed += 1
        return SiteOrigin(SimulatedSite(), SiteFacts(f"node{self.placed // 8}", 1, __version__), found=False)


class LatestStatus(Watcher):
    """Keeps the way to the status, so that the trials can be counted."""

    def opened(self, name: str, models: Sequence[str], take: Callable[[], Status]) -> None:
        self.take = take


def configuration(folder: Path, sites: int, trials: int) -> Path:
    """Twenty models with as many sites as that makes of each."""
    questions = [
        {"id": f"q{at}", "prompt": f"[q{at}] Which integer is meant?", "answer": "42"} for at in range(QUESTIONS)
    ]
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, questions)))
    launch = {"command": ["serve", "{port}"], "sites": sites // MODELS, "resources": {"GPU": 1}}
    config = {
        "name": "many",
        "questions": "questions.jsonl",
        "models": [{"name": f"m{at}", "launch": launch} for at in range(MODELS)],
        "concurrency": IN_FLIGHT // sites,
        "sampling": {"temperature": 0.6, "max_tokens": 512},
        "grader": "numeric",
        "trials": {"min": trials, "max": trials},
        "stopping": {"on_alarm": "never"},
    }
    path = folder / "config.yaml"
    path.write_text(json.dumps(config))
    return path


async def beats(sites: int) -> float:
    """CPU milliseconds of a message without news, of sites that never have any."""
    links = [
        SiteLink(
            SimulatedSite(beat=0.1 * BEAT_SECONDS),
            "head",
            lambda prompt, seeds: (0, 0),  # nobody asks
            "site",
            60.0,
            lambda event: None,
            lambda link, reason: None,
        )
        for _ in range(sites)
    ]
    await asyncio.sleep(BEAT_SECONDS)
    heard, cpu = Counted.messages, time.process_time()
    await asyncio.sleep(BEATS * BEAT_SECONDS)
    each = (time.process_time() - cpu) / (Counted.messages - heard) * 1e3
    for link in links:
        await link.close()
    return each


def seen(sites: int, trials: int) -> Seen:
    """A whole run in this process."""
    with tempfile.TemporaryDirectory() as folder:
        prepared = prepare(load_config(configuration(Path(folder), sites, trials), ()))
        watcher, cluster = LatestStatus(), SimulatedCluster()
        begun = time.process_time()
        asyncio.run(
            execute(prepared, Path(folder) / "run", Watchers(watcher), lambda ended: None, sites=RunSites(cluster))
        )
        cpu, done = time.process_time() - begun, watcher.take().trials
        assert cluster.placed == sites, f"{cluster.placed} sites were placed, not {sites}"
    messages = Counted.messages / done
    peak = int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024  # type: ignore[index]
    return Seen(sites, done, cpu / done * 1e3, messages, peak, asyncio.run(beats(sites)))


def in_its_own_process(sites: int, trials: int) -> Seen:
    """The same, with a memory of its own."""
    command = [sys.executable, __file__, "--sites", str(sites), "--trials", str(trials)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Seen(*json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--sites", type=int, help="one run with so many, in this process")
    parser.add_argument("--trials", type=int, default=10, help="of each question by each model")
    options = parser.parse_args()
    if options.sites:
        print(json.dumps(seen(options.sites, options.trials)))
        return
    numbers, trials = ((20, 200), 2) if options.quick else ((20, 100, 500, 1000), 10)
    found = [in_its_own_process(sites, trials) for sites in numbers]
    fewest, most = found[0], found[-1]
    kib = 1024 * (most.mib - fewest.mib) / (most.sites - fewest.sites)
    checks = [Check("KiB of the head for each further site", round(kib, 1), "", None)]
    checks += [Check(f"messages a trial, {one.sites:,} sites", round(one.messages, 2), "", None) for one in found]
    header = (
        "sites",
        "trials",
        "CPU ms a trial",
        "messages a trial",
        "MiB at most",
        "CPU ms of a message without news",
    )
    rows = [(str(one.sites), f"{one.trials:,}", one.cpu, one.messages, round(one.mib), one.beat) for one in found]
    document = [
        "# Many sites on one head",
        f"What `benchmarks/many_sites.py{' --quick' * options.quick}` prints: {MODELS} models, {QUESTIONS} questions, "
        f"{IN_FLIGHT:,} requests in flight in all, answers after {ANSWER_SECONDS} s, simulated in the head's process.",
        f"Each further site takes {kib:.0f} KiB of the head.",
        markdown(header, rows),
        "Messages in Ray are not in these figures: `ray_sites.md` has what they cost.",
        f"{machine()}.",
    ]
    publish(options, "\n\n".join(document), checks)


if __name__ == "__main__":
    main()
