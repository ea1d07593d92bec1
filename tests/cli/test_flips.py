"""One bit of a stored run is changed: every command that reads it says the same as before, or that it is damaged."""

import random
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import pytest
from gated import GatedServer
from live_runs import ENDED, RunOutcome, Site, kill, small_world, wait_for_trials
from typer.testing import CliRunner

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.cli import app
from adaptive_eval.simulate.server import serving
from adaptive_eval.store.errors import DATABASE_FILE

FLIPS = [pytest.param(4, marks=pytest.mark.slow), pytest.param(60, marks=pytest.mark.release)]
WHEN = re.compile('"updated": *"[^"]*"')
"""When results were made is another time where they are made anew."""
LOG = f"{DATABASE_FILE}-wal"
GOES_ON = {"trials": {"min": 4, "max": 12}}


class CommandOutput(NamedTuple):
    """What came of a command."""

    code: int
    out: str
    notes: str


@dataclass(frozen=True)
class StoredRun:
    """A run as it was left, and how it is read and gone on with."""

    site: Site
    original: Path
    folder: Path
    config: Path

    @property
    def copy(self) -> Path:
        """Always in one place, since some commands name it."""
        return self.folder / "copy"

    def fresh(self) -> Path:
        """The run as it was left."""
        shutil.rmtree(self.copy, ignore_errors=True)
        return Path(shutil.copytree(self.original, self.copy))

    def read(self) -> dict[str, CommandOutput]:
        """What every command that reads says of the copy, and what it writes."""
        out, wide = self.folder / "out", ("--display", "plain")
        return {
            "report": command("report", self.copy, "--format", "csv", "--output", out, written=out),
            "page": command("report", self.copy, "--format", "json", "--output", out, written=out),
            "monitor": command("monitor", self.copy, "--once", *wide),
            "export": command("export", self.copy, "--format", "jsonl", "--output", out, "--force", written=out),
            "arrays": command("export", self.copy, "--format", "csv", "--output", out, "--force", written=out),
            "compare": command("compare", self.copy, self.copy),
            "replay": command("replay", self.copy, "--runs", 2, "--seed", 1),
        }

    def go_on(self) -> tuple[CommandOutput, object]:
        """What a resume says, and what the run has found then."""
        output = command("run", self.config, "--display", "plain", "--run-dir", self.copy)
        return output, RunOutcome.of(self.copy) if output.code in ENDED else None


def command(*words: object, written: Path | None = None) -> CommandOutput:
    """Run it, without a traceback."""
    for file in [] if written is None else written.parent.glob(f"{written.name}*"):
        file.unlink()
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert isinstance(done.exception, SystemExit | None), (words, done.exception)
    files = [] if written is None else sorted(written.parent.glob(f"{written.name}*"))
    output = done.stdout + "".join(file.read_text() for file in files)
    return CommandOutput(done.exit_code, WHEN.sub("", output), done.stderr)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, base_url: str) -> Iterator[Site]:
    site = Site.make(tmp_path_factory.mktemp("flips"), base_url)
    yield site
    for process in site.processes:
        with process:
            process.kill()


def stored_run(site: Site, name: str, settings: dict[str, object], *, killed: bool = False) -> StoredRun:
    """A run of that name, ended or killed."""
    config, directory = site.write(name, **settings), site.directory(name)
    if killed:
        with serving(GatedServer(small_world(), 80)) as url:
            process = site.start(replace(site, base_url=url).write(name, **settings), "--run-dir", str(directory))
            assert wait_for_trials(directory, 60, process)
            kill(process)
        site.write(name, **settings)
    else:
        assert site.run(config, "--run-dir", str(directory)).exit_code in ENDED
    folder = site.folder / f"of {name}"
    folder.mkdir()
    return StoredRun(site, directory, folder, config)


def flipped(path: Path, rng: random.Random, places: Sequence[int] = ()) -> int:
    """Change one bit of a file, at one of these places or anywhere."""
    data = bytearray(path.read_bytes())
    place = rng.choice(places) if places else rng.randrange(len(data))
    data[place] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    return place


def drill(run: StoredRun, flips: int, flip: Callable[[Path, random.Random], object]) -> int:
    """How many of the flips `verify` reports; whoever would say something else because of one tells of it."""
    run.fresh()
    before = run.read()
    ended = run.go_on()[1]
    rng, reported = random.Random(11), 0
    for _ in range(flips):
        place = flip(run.fresh(), rng)
        verified = command("verify", run.copy)
        reported += verified.code != ExitCode.REACHED
        for name, output in run.read().items():
            assert reports_damage(output) or output == before[name], (place, name, output)
        output, resumed = run.go_on()
        assert reports_damage(output) or resumed == ended, (place, output)
        assert reports_damage(output) or verified.code == ExitCode.REACHED, (place, verified, output)
    return reported


def reports_damage(output: CommandOutput) -> bool:
    """Refused, or gone on with in what is said to be left."""
    refused = output.code == ExitCode.FAILED and "damaged" in output.notes
    return refused or output.notes.startswith("note: ") and "ignored" in output.notes


def written_in(path: Path) -> list[int]:
    """Where a file has more than the zeros that nobody has written anything over."""
    return [at for at, byte in enumerate(path.read_bytes()) if byte]


def indices(path: Path) -> list[int]:
    """Where a database has pages of an index, without the zeros that nobody has written anything over."""
    data = path.read_bytes()
    pages = [at for at in range(4096, len(data), 4096) if data[at] in (2, 10)]
    return [place for at in pages for place in range(at, at + 4096) if data[place]]


@pytest.mark.parametrize("flips", FLIPS)
def test_of_a_run_that_has_ended(site: Site, flips: int) -> None:
    run = stored_run(site, f"ended{flips}", GOES_ON)
    places = written_in(run.original / DATABASE_FILE)
    assert drill(run, flips, lambda copy, rng: flipped(copy / DATABASE_FILE, rng, places)) > flips / 3


@pytest.mark.parametrize("flips", FLIPS)
def test_of_its_indices(site: Site, flips: int) -> None:
    """Rows that an index does not find would be written or graded amiss, though each is what was written."""
    run = stored_run(site, f"indices{flips}", GOES_ON)
    places = indices(run.original / DATABASE_FILE)
    assert drill(run, flips, lambda copy, rng: flipped(copy / DATABASE_FILE, rng, places))


@pytest.mark.parametrize("flips", FLIPS)
def test_of_its_results(site: Site, flips: int) -> None:
    run = stored_run(site, f"results{flips}", GOES_ON)
    assert drill(run, flips, lambda copy, rng: flipped(copy / "results.json", rng)) >= flips - 1


@pytest.mark.parametrize("flips", FLIPS)
@pytest.mark.parametrize("file", [DATABASE_FILE, LOG])
def test_of_a_run_that_was_killed(site: Site, file: str, flips: int) -> None:
    run = stored_run(site, f"killed{len(file)}{flips}", {}, killed=True)
    assert (run.original / LOG).stat().st_size > 0
    drill(run, flips, lambda copy, rng: flipped(copy / file, rng))
