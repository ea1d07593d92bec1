"""An imported run is a run: it goes on as it would have where it was, is replayed and graded anew, and serves as R0."""

import itertools
import json
import math
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from live_runs import ENDED, RunOutcome, Site
from logs import imported, lines, outcomes, refusal, taken
from small_run import MODELS, QUESTIONS, make_run, make_trial
from stored_runs import events_in, store_records, stored_events, stored_header, stored_trials
from thoroughness import first_of
from typer.testing import CliRunner

from adaptive_eval.base.errors import ConfigError, ExitCode
from adaptive_eval.base.seeds import hashed_base
from adaptive_eval.cli import app
from adaptive_eval.config.load import load_config
from adaptive_eval.config.prepare import run_header, stored_setup
from adaptive_eval.config.task_sampling import load_run
from adaptive_eval.core import Reason
from adaptive_eval.exchange.export import export
from adaptive_eval.notes import PriorTaken, RunResumed, SettingsChanged, TrialsImported
from adaptive_eval.report.reader import RunReader
from adaptive_eval.report.records import TrialRecord
from adaptive_eval.report.results_file import read_results
from adaptive_eval.report.view import read_view
from adaptive_eval.running.beginning import stored_plan

Rows = list[dict[str, object]]


@dataclass(frozen=True)
class FullRun:
    """A run to its end, and what was exported of it."""

    result: RunOutcome
    rows: Rows
    run: Path

    def export(self, site: Site, form: str) -> Path:
        """All trials in one of the formats."""
        return export(self.run, form, site.folder / f"exported.{form}").path

    @property
    def interrupted(self) -> Rows:
        """Rows of the run as it might have been killed: with gaps in every round, each where others are not."""
        rows = [row for row in self.rows if int(str(row["trial"])) < 6]
        return [row for number, row in enumerate(rows) if number % 7 not in (0, 3)]

    def of(self, trials: int) -> Rows:
        """The first trials of each question, with their texts, as of a tool that tells no seeds."""
        rows = [row for row in self.rows if int(str(row["trial"])) < trials]
        return [{key: value for key, value in row.items() if key != "seed"} for row in rows]

    def log(self, site: Site, trials: int = 4) -> Path:
        """These trials as a table."""
        return lines(site.folder / "log.jsonl", self.of(trials))


@pytest.fixture(scope="module")
def full_run(base_url: str, tmp_path_factory: pytest.TempPathFactory) -> FullRun:
    site = Site.make(tmp_path_factory.mktemp("whole"), base_url)
    run = site.directory()
    assert site.run(site.write()).exit_code in ENDED
    table = export(run, "jsonl").path.read_text()
    return FullRun(RunOutcome.of(run), list(map(json.loads, table.splitlines())), run)


def first_look(run: Path) -> list[int]:
    """The trials of each model at the first look."""
    with closing(RunReader.open(run)) as reader:
        return list(reader.log.looks()[0].body["trials"])  # type: ignore[call-overload]


@pytest.mark.slow
def test_it_goes_on_with_the_same_trials_as_if_it_had_been_begun_so(site: Site, full_run: FullRun) -> None:
    run = site.directory()
    config = site.write()
    assert imported(full_run.log(site), "--to", run, "--config", config).exit_code == 0
    ended = site.run(config)
    assert ended.exit_code in ENDED, ended.stderr
    assert first_look(run) == [32, 32, 32]
    after, before = RunOutcome.of(run).outcomes, full_run.result.outcomes
    assert read_view(run).words.seeds.startswith("Imported trials keep their seeds")
    common = before.keys() & after.keys()
    assert len(common) > 150
    assert {trial: after[trial] for trial in common} == {trial: before[trial] for trial in common}
    cells = Counter((model, question) for model, question, _ in after)
    assert all((*cell, trial) in after for cell, held in cells.items() for trial in range(held))
    kinds = [event.kind for event in stored_events(run)]
    assert kinds[0] == TrialsImported.KIND
    assert RunResumed.KIND in kinds


def pace(directory: Path) -> object:
    """What `trials.optimize` is in the stored configuration of a run."""
    with closing(RunReader.open(directory)) as reader:
        return reader.header().configuration["trials"]["optimize"]


@pytest.mark.slow
@pytest.mark.parametrize(("with_seeds", "optimize"), [(True, "time"), (False, "cost")])
def test_going_on_with_the_same_configuration_changes_no_setting_and_keeps_the_promise(
    site: Site, full_run: FullRun, with_seeds: bool, optimize: str
) -> None:
    """Its pace is left to `auto`, which an import settles as well: as a run does if the log is that of one."""
    trials: dict[str, object] = {"min": 4, "max": 30}
    config = site.folder / "run.yaml"
    config.write_text(json.dumps({**site.config(), "trials": trials}))
    log = full_run.export(site, "jsonl") if with_seeds else full_run.log(site)
    assert imported(log, "--to", site.directory(), "--config", config).exit_code == 0
    assert pace(site.directory()) == optimize
    ended = site.run(config)
    assert ended.exit_code in ENDED, ended.stderr
    assert pace(site.directory()) == optimize
    assert not events_in(site.directory(), SettingsChanged)
    results = json.loads((site.directory() / "results.json").read_text())
    assert "redecided" not in [warning["kind"] for warning in results["warnings"]]


@pytest.mark.parametrize("form", first_of(["jsonl", "csv", "npz"], 1))
def test_logs_with_the_seeds_of_a_configuration_need_as_much_room(site: Site, full_run: FullRun, form: str) -> None:
    """Without it scores would leave out what is over the horizon, whether the trials go on with their seeds or not."""
    sizes = Counter(str(row["model"]) for row in full_run.rows)
    enough = -(-max(sizes.values()) // 8)
    exported = full_run.export(site, form)
    low, high = (site.write(f"room{at}", trials={"min": 4, "max": at}) for at in (enough - 1, enough))
    assert f"trials.max must be at least {enough}, since the run begins with " in refusal(
        exported, "--to", site.directory(), "--config", low
    )
    assert not site.directory().exists()
    taken(exported, "--to", site.directory(), "--config", high)


def test_a_cap_below_what_the_logs_have_cost_is_refused_before_anything_is_written(site: Site) -> None:
    """Scores would leave out answers that are there, and comparisons would be out of reach."""
    models = [{"name": name, "base_url": site.base_url, "price": {"input": 1, "output": 4}} for name in ("ada", "bob")]
    whole = site.write(models=models)
    assert site.run(whole, "--run-dir", str(site.directory("whole"))).exit_code in ENDED
    table, results = export(site.directory("whole"), "jsonl").path, read_results(site.directory("whole"))
    assert results is not None
    cost, run = results.cost, site.directory()
    enough = {"usd": math.ceil(cost.usd * 100) / 100, "tokens": cost.tokens, "trials": cost.trials}
    for key, used in {"usd": cost.usd, "tokens": cost.tokens, "trials": cost.trials}.items():
        low = site.write(models=models, budget={key: used / 2 if key == "usd" else int(used) // 2})
        refused = imported(table, "--to", run, "--config", low)
        message = " ".join(refused.stderr.split())
        assert refused.exit_code == ExitCode.CONFIGURATION and f"budget.{key} is " in message
        assert f"have used {round(used, 9):,.10g} " in message
        assert f"set it to {enough[key]:,.10g} or more, or remove it" in message
        assert not run.exists() and not [*run.parent.glob(".*")]
    done = imported(table, "--to", run, "--config", site.write(models=models, budget=enough))
    assert done.exit_code == 0, done.output
    after = read_results(run)
    assert after is not None and after.cost.trials == cost.trials
    left_out = sum(row.trials for row in after.models) < cost.trials
    assert ("limits    the budget reserves the worst case" in done.stdout) == left_out


def test_a_configuration_with_recorded_models_is_refused(site: Site) -> None:
    """Their outcomes are taken when a run begins, so that an import has nothing to compare the others with."""
    models = [{"name": name, "base_url": "http://127.0.0.1:9/v1"} for name in ("ada", "bob")]
    rows = [{"model": "ada", "question": "q1", "text": "1"}]
    config = site.write(models=[*models, {"name": "cyd", "recorded": "before"}])
    assert "recorded models (cyd)" in refusal(
        lines(site.folder / "log.jsonl", rows), "--to", site.directory(), "--config", config
    )
    assert not site.directory().exists()


def test_a_run_killed_before_it_took_the_outcomes_of_recorded_models_has_no_plan_yet(site: Site) -> None:
    models = [{"name": name, "base_url": "http://127.0.0.1:9/v1"} for name in ("ada", "bob")]
    config, questions = load_run(load_config(site.write(models=[*models, {"name": "cyd", "recorded": "before"}])))
    store_records(site.directory(), run_header(config, questions))
    refused = pytest.raises(ConfigError, match=r"recorded models yet \(cyd\)")
    with closing(RunReader.open(site.directory())) as reader, refused:
        stored_plan(stored_setup(reader.header()), reader, reader.events())


@pytest.mark.slow
def test_before_its_first_look_a_run_asks_for_what_is_missing(site: Site, full_run: FullRun) -> None:
    config = site.write(trials={"min": 6, "max": 12})
    done = imported(full_run.log(site), "--to", site.directory(), "--config", config)
    assert done.exit_code == 0
    assert "no look yet: a model lacks trials of its first round" in done.stdout
    assert read_view(site.directory()).results is None
    assert site.run(config).exit_code in ENDED
    assert first_look(site.directory()) == [48, 48, 48]


@pytest.mark.slow
def test_it_goes_on_with_the_configuration_beside_it(
    site: Site, full_run: FullRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, questions = site.directory(), stored_header(full_run.run).questions
    asked = [{**row, **{key: questions[row["question"]][key] for key in ("prompt", "answer")}} for row in full_run.rows]
    done = taken(lines(site.folder / "log.jsonl", asked), "--to", run, "--grader", "numeric")
    assert f"adaptive-eval run {run / 'config.yaml'} --run-dir {run}" in done.stdout
    before = outcomes(run)
    assert before == full_run.result.outcomes
    refused = site.run(run / "config.yaml")
    assert "needs the environment variable" in refused.stderr
    for line in (run / "config.yaml").read_text().splitlines():
        if "base_url" in line:
            monkeypatch.setenv(line.split("${")[1].rstrip("}"), site.base_url)
    ended = site.run(run / "config.yaml")
    assert ended.exit_code in ENDED, ended.stderr
    after = outcomes(run)
    assert before.items() <= after.items()
    assert len(after) > len(before)


@pytest.mark.slow
def test_what_a_model_lacks_is_asked_for_and_until_then_the_others_are_judged(site: Site, full_run: FullRun) -> None:
    run, config = site.directory(), site.write(trials={"min": 3, "max": 4})
    held = [row for row in full_run.of(4) if row["model"] != "cyd" or row["question"] != "q3"]
    done = imported(lines(site.folder / "log.jsonl", held), "--to", run, "--config", config)
    assert done.exit_code == 0 and f"\nfor more  adaptive-eval run {config}" in done.stdout
    log = lines(site.folder / "whole.jsonl", full_run.of(4))
    whole = imported(log, "--to", site.folder / "whole", "--config", config)
    assert whole.exit_code == 0 and "for more" not in whole.stdout, "it has all that it would ask for"
    results = json.loads((run / "results.json").read_text())
    aside = {row["name"]: row["set_aside"] for row in results["models"]}
    assert aside.pop("cyd") == "trials for the first look are missing"
    assert set(aside.values()) == {None}
    assert site.run(config).exit_code in ENDED
    assert {trial for model, question, trial in outcomes(run) if (model, question) == ("cyd", "q3")} >= {0, 1, 2}
    results = json.loads((run / "results.json").read_text())
    assert all(row["set_aside"] is None for row in results["models"])


def test_one_answer_per_question_needs_more_than_one(tmp_path: Path) -> None:
    rows = [
        {"model": model, "question": f"q{n}", "correct": n < right}
        for n in range(60)
        for model, right in (("a", 30), ("b", 42))
    ]
    taken(lines(tmp_path / "log.jsonl", rows), "--to", run := tmp_path / "run")
    (pair,) = read_results(run).pairs
    assert pair.verdict == "open" and pair.trials_needed == 2.0


def test_a_finished_design_is_judged_by_one_look(tmp_path: Path) -> None:
    table = [
        {"model": model, "question": f"q{key}", "category": int((7 * trial + 3 * key) % 10 < rate)}
        for model, rate in (("good", 6), ("poor", 4))
        for key in range(10)
        for trial in range(10)
    ]
    path = lines(tmp_path / "t.jsonl", table)
    for name, options, boundary in (("open", [], 4.2), ("done", ["--finished"], 1.6449)):
        assert imported(path, "--to", tmp_path / name, *options).exit_code == 0
        results = json.loads((tmp_path / name / "results.json").read_text())
        (pair,) = results["pairs"]
        assert pair["boundary"] == pytest.approx(boundary, rel=0.25 if name == "open" else 1e-3)
        view = read_view(tmp_path / name)
        if name == "open":
            assert view.ended == "Imported: the trials are from logs, and were judged once."
            (step,) = view.next_steps
            assert step.text.startswith("to request more trials, import the logs again") and step.command is None
    assert results["run"]["reason"] in (Reason.SETTLED, Reason.OUT_OF_REACH)
    assert pair["verdict"] == "resolved"


@pytest.mark.slow
def test_it_serves_another_run_as_r0(site: Site, full_run: FullRun) -> None:
    assert imported(full_run.log(site, 3), "--to", site.directory("old"), "--config", site.write()).exit_code == 0
    config = site.write(prior={"run": str(site.directory("old"))}, seed=1, trials={"min": 4, "max": 8})
    ended = site.run(config)
    assert ended.exit_code in ENDED, ended.stderr
    with closing(RunReader.open(site.directory())) as reader:
        plan = stored_plan(stored_setup(reader.header()), reader, reader.events())
    counts = plan.bench.prior_counts
    assert counts is not None
    assert set(counts.sum(axis=-1).ravel().tolist()) == {3}


def test_it_is_replayed(site: Site, full_run: FullRun, tmp_path: Path) -> None:
    rubric = {"categories": [{"name": "no", "weight": 0}, {"name": "yes", "weight": 2, "when": {"is_correct": True}}]}
    config = site.write(rubric=rubric)
    assert imported(full_run.log(site, 4), "--to", site.directory(), "--config", config).exit_code == 0
    only_four = ["--set", "trials.min=4", "--set", "trials.max=4"]
    words = ["replay", str(site.directory()), *only_four, "--output", str(tmp_path / "replayed")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code in ENDED, done.output
    results = json.loads((tmp_path / "replayed" / "results.json").read_text())
    imported_results = json.loads((site.directory() / "results.json").read_text())
    assert results["weights"] == [0.0, 2.0]
    assert {row["name"]: row["score"] for row in results["models"]} == pytest.approx(
        {row["name"]: row["score"] for row in imported_results["models"]}
    )


@pytest.mark.slow
def test_texts_are_graded_anew_and_grades_without_texts_are_not(site: Site, full_run: FullRun) -> None:
    rows = full_run.of(4)
    config = site.write()
    for name, table in (("texts", rows), ("grades", [{**row, "text": None, "reasoning": None} for row in rows])):
        path = lines(site.folder / f"{name}.jsonl", table)
        assert imported(path, "--to", site.directory(name), "--config", config).exit_code == 0
    other = site.write(grader={"kind": "regex", "pattern": "nothing like that"})
    done = CliRunner().invoke(app, ["regrade", str(site.directory("texts")), "--config", str(other)])
    assert done.exit_code == 0, done.stderr
    assert set(outcomes(site.directory("texts")).values()) == {0}
    refused = CliRunner().invoke(app, ["regrade", str(site.directory("grades")), "--config", str(other)])
    assert refused.exit_code == ExitCode.FAILED
    assert "has 96 imported trials without a text" in refused.stderr
    assert set(outcomes(site.directory("grades")).values()) == {0, 1}


def test_r0_of_the_configuration_counts_in_an_import_once_the_grader_is_settled(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("earlier", "later")]
    for folder in folders:
        folder.mkdir()
    earlier = make_run(folders[0], one_graded())
    later = make_run(folders[1], one_graded(), prior={"run": str(earlier)})
    table = tmp_path / "t.csv"
    exported = CliRunner().invoke(app, ["export", str(later), "--format", "csv", "--output", str(table)])
    assert "note: it does not hold the outcomes of R0; `import --config` takes them from" in exported.output
    done = imported(table, "--to", tmp_path / "run", "--config", folders[1] / "made.yaml")
    assert done.exit_code == 0 and "outcomes of another run count in the scores (R0)" in done.output, done.output
    results = read_results(tmp_path / "run")
    assert results is not None and [row.prior_depth for row in results.models] == [2.0, 2.0]
    replayed = CliRunner().invoke(app, ["replay", str(later), "--output", str(tmp_path / "replayed")])
    assert "note: R0 (prior) counts in the run, and not in its replay" in replayed.output
    texts = export(later, "jsonl").path  # a run that counts R0 cannot be graded anew, which this one still needs
    done = imported(texts, "--to", tmp_path / "ungraded", "--config", folders[1] / "made.yaml")
    assert "prior     R0 does not count yet" in done.output and not events_in(tmp_path / "ungraded", PriorTaken)
    words = ["regrade", str(tmp_path / "ungraded"), "--config", str(folders[1] / "made.yaml")]
    regraded = CliRunner().invoke(app, words)
    assert regraded.exit_code == 0, regraded.output
    shutil.rmtree(earlier)
    refused = imported(table, "--to", tmp_path / "other", "--config", folders[1] / "made.yaml")
    assert refused.exit_code == 2 and "prior: " in refused.stderr and not (tmp_path / "other").exists()


def one_graded() -> Iterator[TrialRecord]:
    """Both models on both questions, three trials each."""
    for model, question, trial in itertools.product(MODELS, QUESTIONS, range(3)):
        yield make_trial(model, question, trial, int(trial > 0))


def test_grades_of_a_judge_keep_their_cost_and_their_doubt(tmp_path: Path) -> None:
    used = {"judge_prompt_tokens": 8.0, "judge_completion_tokens": 2.0, "judge_usd": 0.15, "judge_gpu_seconds": 0.0}
    judged = [replace(record, signals={**record.signals, **used}) for record in one_graded()]
    judged[0] = replace(judged[0], category=None, signals=used, grader_error="the judge gave no verdict")
    judge = {"kind": "judge", "server": {"base_url": "http://127.0.0.1:9/v1", "model": "judge"}}
    run = make_run(tmp_path, judged, grader=judge)
    table = export(run, "jsonl").path
    done = imported(table, "--to", tmp_path / "again", "--config", tmp_path / "made.yaml")
    assert "have it grade all answers again:" in done.output and "for example" not in done.output, done.output
    results = read_results(tmp_path / "again")
    assert results is not None and results.decisions["judged_by"] == "judge"
    assert "errors of the judge come on top" in done.output
    assert results.cost.usd == pytest.approx(12 * 0.25)
    for row in results.models:
        assert row.grading is not None
        in_vain = 0.0 if row.grading.in_vain is None else row.grading.in_vain.usd
        assert row.grading.usd + in_vain == pytest.approx(6 * 0.15)
        assert in_vain == pytest.approx(0.15 if row.name == judged[0].model else 0.0), "a failed verdict stays paid"
        assert row.usd_per_answer == pytest.approx(0.1)


def test_drawn_questions_need_the_seeds_of_the_configuration(tmp_path: Path) -> None:
    questions = [f"q{number}" for number in range(60)]
    (tmp_path / "q.csv").write_text("\n".join(["id,prompt,answer", *(f"{key},one?,1" for key in questions)]))
    models = ", ".join(f"{{name: {name}, base_url: 'http://127.0.0.1:9/v1'}}" for name in "ab")
    settings = "questions: {path: q.csv, shuffle: true}\ngrader: math\ntrials: {min: 1, max: 1, draw: 50}\n"
    (tmp_path / "c.yaml").write_text(f"{settings}models: [{models}]\n")
    np.savez(tmp_path / "t.npz", R=np.ones((2, 60, 1), int), models=["a", "b"], questions=questions)
    refused = imported(tmp_path / "t.npz", "--to", tmp_path / "run", "--config", tmp_path / "c.yaml")
    assert refused.exit_code == 2 and not (tmp_path / "run").exists()
    assert "import an export other than npz, which has none; else remove trials.draw" in refused.stderr


def seeds(run: Path) -> list[tuple[str, str, int]]:
    """The seed of every trial, with its model and question."""
    return [(trial.model, trial.question, trial.answer.seed) for trial in stored_trials(run)]


@pytest.mark.parametrize("form", first_of(["jsonl", "parquet"], 1))
def test_an_interrupted_run_goes_on_as_it_would_have(site: Site, full_run: FullRun, form: str) -> None:
    config, run = site.write(), site.directory()
    log = lines(site.folder / "log.jsonl", full_run.interrupted)
    assert imported(log, "--to", site.directory("killed"), "--config", config).exit_code == 0
    exported = export(site.directory("killed"), form, site.folder / f"exported.{form}").path
    taken(exported, "--to", run, "--config", config)
    assert set(outcomes(run)) == {(row["model"], row["question"], row["trial"]) for row in full_run.interrupted}
    with closing(RunReader.open(run)) as reader:
        assert list(reader.header().models) == ["ada", "bob", "cyd"]
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
        assert "it could be requested again and count twice; change the seed of the configuration" in refusal(
            log, "--to", site.directory(), "--config", site.write(seed=seed, trials=trials)
        )
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
    done = taken(*logs, "--to", tmp_path / "run", *option)
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
