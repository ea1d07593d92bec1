"""`adaptive-eval export`: whole files or none, on live runs too."""

import signal
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import typed
from gated import GatedServer
from live_runs import Site, small_world, wait_for_trials
from patient_time import HANGS
from small_run import make_run, ragged

from adaptive_eval.base.errors import ExitCode, StoreError
from adaptive_eval.exchange.export import EXPORTS, export
from adaptive_eval.simulate.server import serving

WITH_TEXTS = [name for name, form in EXPORTS.items() if form.texts is not None]


@pytest.mark.parametrize("form", EXPORTS)
def test_an_export_is_not_replaced_without_force(tmp_path: Path, form: str) -> None:
    directory = make_run(tmp_path, ragged())
    first = typed("export", directory, "--format", form, code=0)
    path = Path(first.output.splitlines()[0].partition(":")[0])
    assert path.parent == directory and "11 trials of 2 models" in first.output
    assert "already exists; replace it with --force" in typed("export", directory, "--format", form, code=2).stderr
    typed("export", directory, "--format", form, "--force", code=0)
    assert not [file for file in directory.iterdir() if "draft" in file.name]


def test_a_link_is_followed_if_it_is_named_and_replaced_in_a_run(tmp_path: Path) -> None:
    directory = make_run(tmp_path, ragged())
    target, named, within = tmp_path / "target.csv", tmp_path / "named", directory / "trials.csv"
    for link in (named, within):
        link.symlink_to(target)
    typed("export", directory, "--format", "csv", code=0)
    assert not within.is_symlink() and not target.exists()
    typed("export", directory, "--format", "csv", "--output", named, code=0)
    assert named.is_symlink() and target.read_bytes() == within.read_bytes()


@pytest.mark.parametrize("form", EXPORTS)
def test_an_export_that_fails_leaves_what_was_there(tmp_path: Path, form: str) -> None:
    directory = make_run(tmp_path, ragged())
    path = export(directory, form).path
    before = path.read_bytes()

    def disk_is_full(trials: int) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(StoreError, match=r"cannot be written: No space left on device; give another --output"):
        export(directory, form, force=True, on_progress=disk_is_full)
    assert path.read_bytes() == before
    assert not [file for file in directory.iterdir() if "draft" in file.name]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["xlsx"], f"--format must be one of {', '.join(EXPORTS)}, but got 'xlsx'"),
        (["npz", "--text"], f"--text and --no-text are for {', '.join(WITH_TEXTS)}, but the format is npz"),
        (["csv", "--output", "."], "is a folder, but an export is one file"),
        (["csv", "--output", "-"], "cannot be written to standard output; give a file as --output"),
    ],
)
def test_what_cannot_be_done_is_said_before_it_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], message: str
) -> None:
    directory = make_run(tmp_path, ragged())
    monkeypatch.chdir(tmp_path)
    assert message in typed("export", directory, "--format", *options, code=2).stderr


def test_what_is_no_run_or_has_no_trials_is_said(tmp_path: Path) -> None:
    assert "has no run" in typed("export", tmp_path, "--format", "csv", code=1).stderr
    assert "has no trials yet" in typed("export", make_run(tmp_path, []), "--format", "csv", code=1).stderr


@pytest.mark.slow
def test_a_run_goes_on_while_it_is_exported(site: Site) -> None:
    undecided = {"trials": {"min": 4, "max": 4000}, "stopping": {"rule": "published", "confidence": 1 - 1e-15}}
    gated = GatedServer(small_world(), 300)
    with serving(gated) as url:
        process = site.start(replace(site, base_url=url).write(concurrency=2, **undecided))
        assert wait_for_trials(site.directory(), 150, process)
        for form in EXPORTS:
            assert export(site.directory(), form, output=site.folder / form).trials >= 150
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        gated.open()
        process.communicate(timeout=HANGS)
    assert process.returncode == ExitCode.STOPPED
    with_all = export(site.directory(), "jsonl")
    assert len(with_all.path.read_text().splitlines()) == with_all.trials > 150
