"""Where the program shows answers, it shows the end of a transcript in Inspect's log, too, and links to that log."""

import os
import shutil
import sys
from pathlib import Path

import pytest
import warm_inspect
import yaml
from browsing import Tabs
from live_runs import Site, stored
from test_monitor_browser import Monitors, monitors, open_cell
from typer.testing import CliRunner

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.cli import app
from adaptive_eval.labels.session import LAST_MESSAGE, LabelSession
from adaptive_eval.questions.benchmark import INSPECT_LOGS
from adaptive_eval.report import log_files
from adaptive_eval.report.records import TrialRecord
from adaptive_eval.report.transcripts import LOG_MISSING, transcript_end

__all__ = ["monitors"]
OWN = Path(__file__).parents[1] / "inspect" / "own_tasks.py"
HOSTILE = "<img src=x onerror=alert(1)>\u202eevil</script>"


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory, base_url: str, inspect_address: str) -> Path:
    """A run whose samples end with hostile text of a tool or a model."""
    site = Site.make(tmp_path_factory.mktemp("ended"), base_url)
    shutil.copy(OWN, site.folder / "tasks.py")
    settings = {
        "benchmark": {"inspect": "tasks.py@afterword"},
        "models": [{"name": skill, "inspect": f"scripted/{skill}"} for skill in ("p95", "p10")],
        "trials": {"min": 2, "max": 2, "optimize": "cost"},
        "stopping": {"on_alarm": "never"},
        "store": str(site.folder / "runs"),
    }
    config = site.folder / "run.yaml"
    config.write_text(yaml.safe_dump(settings))
    with pytest.MonkeyPatch.context() as monkeypatch:
        warm_inspect.fork_from(inspect_address, monkeypatch)
        ended = site.run(config)
    assert ended.exit_code in (ExitCode.REACHED, ExitCode.SPENT), ended.stderr
    assert f"inspect view --log-dir {site.directory() / INSPECT_LOGS}" in ended.stdout
    return site.directory()


@pytest.fixture
def run(site: Site, ended: Path) -> Path:
    """A copy of that run."""
    return shutil.copytree(ended, site.directory())


@pytest.fixture
def records(site: Site, run: Path) -> list[TrialRecord]:
    return stored(site)


@pytest.mark.slow
def test_the_last_message_is_that_of_the_sample_and_no_file_elsewhere_is_read(
    run: Path, records: list[TrialRecord], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for record, end in zip(records, [transcript_end(run, record) for record in records], strict=True):
        assert (end.role, end.text) == ("user", f"{HOSTILE} {record.question}#{record.trial}")
        assert (run / end.log).is_file()
        assert end.sample == f"{record.question}#{record.trial}"
    first, *_ = records
    log = run / first.answer.replica
    moved = log.rename(tmp_path / "elsewhere.eval")
    assert transcript_end(run, first).text == LOG_MISSING
    log.symlink_to(moved)
    assert transcript_end(run, first).text == LOG_MISSING, "a link out of the run is not followed"
    log.unlink()
    log.write_bytes(b"PK\x03\x04 no log at all")
    damaged = transcript_end(run, first)
    assert damaged.role is None and damaged.text.startswith("Inspect has not written this sample into its log yet, or")
    shutil.copy(moved, log)
    assert transcript_end(run, first).role == "user"
    monkeypatch.setitem(sys.modules, "zstandard", None)
    log_files._decompressor.cache_clear()
    bare = transcript_end(run, first)
    assert (bare.role, bare.log) == (None, first.answer.replica)
    assert "pip install 'adaptive-eval[import]'" in bare.text


@pytest.mark.slow
def test_labelling_shows_the_last_message_and_a_report_names_the_logs(run: Path, records: list[TrialRecord]) -> None:
    texts = LabelSession(run, 2).current
    assert texts is not None and texts.texts[LAST_MESSAGE].startswith("user: <img src=x onerror=alert(1)>[U+202E]")
    assert "p95" not in str(texts) and "p10" not in str(texts)
    assert CliRunner().invoke(app, ["report", str(run), "--format", "md"]).exit_code == ExitCode.REACHED
    report = (run / "report.md").read_text()
    assert "## Transcripts" in report and f"`inspect view --log-dir {INSPECT_LOGS}`" in report
    for log in (run / INSPECT_LOGS).iterdir():
        os.truncate(log, 10)
    damaged = LabelSession(run, 2).current
    assert damaged is not None and "or the log is damaged" in damaged.texts[LAST_MESSAGE]


@pytest.mark.browser
def test_the_page_shows_the_last_message_as_text_and_a_report_names_the_log(
    run: Path, monitors: Monitors, tabs: Tabs
) -> None:
    page = tabs.at(monitors.serve(run))
    open_cell(page, 1)
    page.locator("dialog details.answer > summary").first.click()
    page.wait_for_selector("dialog .transcript pre")
    message = page.inner_text("dialog .transcript pre")
    assert "<img src=x onerror=alert(1)>" in message and "U+202E" in message
    assert "by user:" in page.inner_text("dialog .transcript .note")
    assert page.locator("dialog img").count() == 0
    shutil.rmtree(run / INSPECT_LOGS)
    page.locator("dialog details.answer > summary").nth(1).click()
    page.wait_for_selector("dialog .note.transcript")
    assert "no longer exists" in page.inner_text("dialog .note.transcript")
    assert CliRunner().invoke(app, ["report", str(run)]).exit_code == ExitCode.REACHED
    report = tabs.report((run / "report.html").read_text())
    assert "inspect view --log-dir logs/inspect" in report.text_content("#traffic")
