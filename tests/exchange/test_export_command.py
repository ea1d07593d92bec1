"""`adaptive-eval export`: whole files or none, on live runs too."""

import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from command_line import typed
from gated import GatedServer
from live_runs import Site, small_world, wait_for_trials
from patient_time import HANGS
from small_run import make_run, ragged

from adaptive_eval.base.errors import ExitCode, StoreError
from adaptive_eval.exchange.export import EXPORTS, export
from adaptive_eval.exchange.source import ExportSource, OnProgress
from adaptive_eval.report.reader import RunReader
from adaptive_eval.simulate.server import serving

WITH_TEXTS = [name for name, form in EXPORTS.items() if form.texts is not None]


@pytest.mark.parametrize("form", EXPORTS)
def test_an_export_is_not_replaced_without_force(tmp_path: Path, form: str) -> None:
    directory = make_run(tmp_path, ragged())
    first = typed("export", directory, "--format", form)
    assert first.exit_code == 0, first.output
    path = Path(first.output.splitlines()[0].partition(":")[0])
    assert path.parent == directory and "9 trials" not in first.output and "11 trials of 2 models" in first.output
    again = typed("export", directory, "--format", form)
    assert again.exit_code == 2 and "already exists; replace it with --force" in again.stderr
    forced = typed("export", directory, "--format", form, "--force")
    assert forced.exit_code == 0, forced.output
    assert not [file for file in directory.iterdir() if "draft" in file.name]


@pytest.mark.parametrize("form", EXPORTS)
def test_an_export_that_fails_leaves_what_was_there(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = make_run(tmp_path, ragged())
    path = export(directory, form).path
    before = path.read_bytes()

    def cut_off(method: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        def first(*arguments: Any) -> Iterator[Any]:
            yield from islice(method(*arguments), 1)
            raise OSError(28, "No space left on device")

        return first

    original_write = EXPORTS[form].write

    def write(source: ExportSource, draft: Path, texts: bool, on_progress: OnProgress) -> None:
        if form == "npz":  # it has read all before it opens its file
            monkeypatch.setattr("numpy.savez_compressed", cut_off_now)
        else:
            for method in ("trials", "graded_trials", "trial_facts", "cell"):
                monkeypatch.setattr(RunReader, method, cut_off(getattr(RunReader, method)))
        original_write(source, draft, texts, on_progress)

    monkeypatch.setitem(EXPORTS, form, EXPORTS[form]._replace(write=write))
    with pytest.raises(StoreError, match=r"cannot be written: No space left on device; give another --output"):
        export(directory, form, force=True)
    assert path.read_bytes() == before
    assert not [file for file in directory.iterdir() if "draft" in file.name]


def cut_off_now(*arguments: object, **named: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--format", "xlsx"], f"--format must be one of {', '.join(EXPORTS)}, but got 'xlsx'"),
        (["--format", "npz", "--text"], f"--text and --no-text are for {', '.join(WITH_TEXTS)}, but the format is npz"),
        (["--format", "csv", "--output", "."], "is a folder, but an export is one file"),
        (
            ["--format", "csv", "--output", "-"],
            "cannot be written to standard output; give a file as --output",
        ),
    ],
)
def test_what_cannot_be_done_is_said_before_it_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], message: str
) -> None:
    directory = make_run(tmp_path, ragged())
    monkeypatch.chdir(tmp_path)
    result = typed("export", directory, *options)
    assert result.exit_code == 2 and message in result.stderr


def test_what_is_no_run_or_has_no_trials_is_said(tmp_path: Path) -> None:
    none = typed("export", tmp_path, "--format", "csv")
    assert none.exit_code == 1 and "has no run" in none.stderr
    empty = typed("export", make_run(tmp_path, []), "--format", "csv")
    assert empty.exit_code == 1 and "has no trials yet" in empty.stderr


@pytest.mark.slow
def test_a_run_goes_on_while_it_is_exported(site: Site) -> None:
    undecided = {
        "trials": {"min": 4, "max": 4000},
        "stopping": {"rule": "published", "confidence": 1 - 1e-15},
    }
    gated = GatedServer(small_world(), 300)
    with serving(gated) as url:
        process = site.start(replace(site, base_url=url).write(concurrency=2, **undecided))
        assert wait_for_trials(site.directory(), 150, process)
        for form in EXPORTS:
            exported = export(site.directory(), form, output=site.folder / form)
            assert exported.trials >= 150
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        gated.open()
        process.communicate(timeout=HANGS)
    assert process.returncode == ExitCode.STOPPED
    with_all = export(site.directory(), "jsonl")
    assert len(with_all.path.read_text().splitlines()) == with_all.trials > 150
