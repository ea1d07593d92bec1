"""Runs whose judge compares all models with one of them, which is asked first."""

from contextlib import closing
from pathlib import Path

from live_runs import MODELS, Site

from adaptive_eval.record.results import Results
from adaptive_eval.record.results_file import read_results
from adaptive_eval.store import RunReader

OPPONENT, OTHERS = "bob", ("ada", "cyd")
DEPTH, QUESTIONS = 2, 8
IN_ALL = DEPTH * QUESTIONS


def settings(url: str, against: object = None, **changes: object) -> dict[str, object]:
    """Three models and their judge at that address."""
    against = {"model": OPPONENT, "trials": DEPTH} if against is None else against
    grader = {"kind": "judge", "server": {"base_url": url, "model": "judge"}, "against": against}
    models = [{"name": name, "base_url": url} for name in MODELS]
    return {"models": models, "grader": grader, "trials": {"min": 3, "max": 8}} | changes


def opponent_of(site: Site, name: str = "run") -> Path:
    """Where the opponent of a run was asked."""
    return site.directory(name) / "opponent"


def results_of(site: Site, name: str = "run") -> Results:
    """What a run has come to."""
    results = read_results(site.directory(name))
    assert results is not None
    return results


def texts_of(directory: Path) -> dict[tuple[str, int], str]:
    """The answers of the opponent."""
    with closing(RunReader.open(directory)) as reader:
        return {(one.question, one.trial): one.answer.text for one in reader.trials()}
