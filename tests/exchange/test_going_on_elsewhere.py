"""An exported run goes on elsewhere as it would have gone on where it was: no seed is asked for twice."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from live_runs import ENDED, MODELS, RunOutcome, Site
from logs import imported, lines, outcomes
from stored_runs import stored_trials
from thoroughness import first_of

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.base.seeds import hashed_base
from adaptive_eval.exchange.export import export
from adaptive_eval.report.reader import RunReader

Rows = Sequence[Mapping[str, object]]


@dataclass(frozen=True)
class FullRun:
    """A run to its end, and its rows."""

    result: RunOutcome
    rows: Rows

    @property
    def interrupted(self) -> Rows:
        """Rows of the run as it might have been killed: with gaps in every round, each where others are not."""
        rows = [row for row in self.rows if int(str(row["trial"])) < 6]
        return [row for number, row in enumerate(rows) if number % 7 not in (0, 3)]


@pytest.fixture(scope="module")
def full_run(base_url: str, tmp_path_factory: pytest.TempPathFactory) -> FullRun:
    site = Site.make(tmp_path_factory.mktemp("whole"), base_url)
    assert site.run(site.write()).exit_code in ENDED
    table = export(site.directory(), "jsonl").path.read_text()
    return FullRun(RunOutcome.of(site.directory()), list(map(json.loads, table.splitlines())))


def seeds(run: Path) -> list[tuple[str, str, int]]:
    """The seed of every trial, with its model and question."""
    return [(trial.model, trial.question, trial.answer.seed) for trial in stored_trials(run)]


FORMS: dict[str, Callable[[Path, Path], Path]] = {
    "jsonl": lambda run, path: export(run, "jsonl", path).path,
    "inspect": lambda run, path: export(run, "inspect", path).path,
    "parquet": lambda run, path: export(run, "parquet", path).path,
}


@pytest.mark.parametrize("form", first_of(FORMS, 1))
def test_an_interrupted_run_goes_on_as_it_would_have(site: Site, full_run: FullRun, form: str) -> None:
    config, run = site.write(), site.directory()
    log = lines(site.folder / "log.jsonl", full_run.interrupted)
    assert imported(log, "--to", site.directory("killed"), "--config", config).exit_code == 0
    exported = FORMS[form](site.directory("killed"), site.folder / f"exported.{form}")
    done = imported(exported, "--to", run, "--config", config)
    assert done.exit_code == 0, done.stderr
    assert set(outcomes(run)) == {(row["model"], row["question"], row["trial"]) for row in full_run.interrupted}
    with closing(RunReader.open(run)) as reader:
        assert list(reader.header().models) == list(MODELS)
        assert list(reader.header().questions) == [f"q{number}" for number in range(8)]
    ended = site.run(config)
    assert ended.exit_code in ENDED, ended.stderr
    assert max(Counter(seeds(run)).values()) == 1
    assert RunOutcome.of(run) == full_run.result


@pytest.mark.slow
def test_what_has_no_grade_is_a_gap_where_there_is_nothing_to_grade(site: Site, full_run: FullRun) -> None:
    """An answer without text and grade is asked for again; one that its server fails every time is a trial."""
    lost: dict[str, object] = {"category": None, "label": None, "value": None, "text": ""}
    unread = {**lost, "text": None, "grader_error": "it took too long"}
    failed = {**lost, "flags": "unanswered", "finish_reason": "500", "grader_error": "its server fails this request"}
    changed = [{**row, **({3: unread, 5: failed}.get(number, {}))} for number, row in enumerate(full_run.interrupted)]
    unread_at, failed_at = (
        (str(changed_row["model"]), str(changed_row["question"]), int(str(changed_row["trial"])))
        for changed_row in (changed[3], changed[5])
    )
    config, run = site.write(), site.directory()
    assert imported(lines(site.folder / "log.jsonl", changed), "--to", run, "--config", config).exit_code == 0
    assert unread_at not in outcomes(run)
    assert site.run(config).exit_code in ENDED
    assert outcomes(run)[unread_at] == full_run.result.outcomes[unread_at]
    assert outcomes(run)[failed_at] is None
    assert max(Counter(seeds(run)).values()) == 1


@pytest.mark.slow
def test_arrays_keep_the_numbers_of_their_trials(site: Site, full_run: FullRun) -> None:
    """They tell no seeds: a trial that they lack is asked for, and no other has its number."""
    config, run = site.write(), site.directory()
    log = lines(site.folder / "log.jsonl", full_run.interrupted)
    assert imported(log, "--to", site.directory("killed"), "--config", config).exit_code == 0
    array = export(site.directory("killed"), "npz").path
    assert imported(array, "--to", run, "--config", config).exit_code == 0
    assert outcomes(run) == outcomes(site.directory("killed"))
    assert site.run(config).exit_code in ENDED
    after = outcomes(run)
    assert {**full_run.result.outcomes, **after} == {**after, **full_run.result.outcomes}


@pytest.mark.slow
def test_a_seed_that_would_be_asked_again_is_refused(site: Site) -> None:
    trials = {"min": 2, "max": 30, "seeds": "consecutive"}
    rows = [
        {"model": name, "question": f"q{key}", "trial": trial, "seed": 5 + trial, "category": 1}
        for name in ("ada", "bob", "cyd")
        for key in range(8)
        for trial in range(3)
    ]
    log = lines(site.folder / "log.jsonl", rows)
    for seed in (3, 6):
        refused = imported(log, "--to", site.directory(), "--config", site.write(seed=seed, trials=trials))
        assert refused.exit_code == ExitCode.CONFIGURATION
        assert "it could be requested again and count twice; change the seed of the configuration" in refused.stderr
        assert not site.directory().exists()
    for seed in (5, 10_000_000):
        run = site.directory(str(seed))
        assert imported(log, "--to", run, "--config", site.write(seed=seed, trials=trials)).exit_code == 0


def test_without_a_configuration_it_gets_seeds_of_its_own(tmp_path: Path) -> None:
    rows = [
        {
            "model": name,
            "question": key,
            "trial": trial,
            "seed": hashed_base(0, name, key) + trial,
            "category": trial % 2,
        }
        for name in ("ada", "bob")
        for key in ("q1", "q2")
        for trial in (1, 2, 5)
    ]
    run = tmp_path / "run"
    assert imported(lines(tmp_path / "log.jsonl", rows), "--to", run).exit_code == 0
    assert {trial for *_, trial in outcomes(run)} == {0, 1, 2}
    seed = yaml.safe_load((run / "config.yaml").read_text())["seed"]
    bases = [hashed_base(seed, name, key) for name in ("ada", "bob") for key in ("q1", "q2")]
    assert not {base + trial for base in bases for trial in range(80)} & {row["seed"] for row in rows}


@pytest.mark.parametrize("option", [[], ["--append"]])
def test_no_answer_counts_twice_in_overlapping_logs(tmp_path: Path, full_run: FullRun, option: list[str]) -> None:
    """A run that was exported twice, the second time with a few trials more."""
    parts = full_run.interrupted[:-20], full_run.interrupted
    logs = [lines(tmp_path / f"{number}.jsonl", rows) for number, rows in enumerate(parts)]
    done = imported(*logs, "--to", tmp_path / "run", *option)
    assert done.exit_code == 0, done.stderr
    assert f"copies    {len(parts[0])} records" in done.stdout
    assert Counter(seeds(tmp_path / "run")) == Counter(
        (row["model"], row["question"], row["seed"]) for row in full_run.interrupted
    )


def test_two_grades_of_one_answer_are_refused(tmp_path: Path, full_run: FullRun) -> None:
    (row, *_), logs = full_run.rows, [tmp_path / "0.jsonl", tmp_path / "1.jsonl"]
    for category, log in enumerate(logs):
        lines(log, [{**row, "category": category}])
    refused = imported(*logs, "--to", tmp_path / "run")
    assert refused.exit_code == ExitCode.CONFIGURATION
    assert "is also in" in refused.stderr and "remove one of them" in refused.stderr.replace("\n", " ")
