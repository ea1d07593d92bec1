"""The bar of the commands that take a while."""

import threading

import pytest

from adaptive_eval.cli.progress import Progress


def test_a_bar_on_a_terminal_is_drawn_when_there_is_news_and_has_no_thread(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    before = threading.active_count()
    with Progress(10.0) as progress:
        assert threading.active_count() == before
        progress.to(4.0, "first figures")
        shown = capsys.readouterr().err
        assert "40%" in shown and "first figures" in shown


def test_a_log_has_a_line_for_each_tenth(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(10.0) as progress:
        for done, state in ((0.1, "begun"), (5.0, "half"), (5.1, "more")):
            progress.to(done, state)
    assert capsys.readouterr().err.splitlines() == [" 50%  half"]
