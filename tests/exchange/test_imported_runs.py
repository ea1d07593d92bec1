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
from typing import Any

import numpy as np
import pytest
import yaml
from command_line import typed
from live_runs import ENDED, RunOutcome, Site
from logs import lines, outcomes, refusal, taken
from small_run import MODELS, QUESTIONS, make_run, make_trial
from stored_runs import events_in, store_records, stored_events, stored_header, stored_trials
from thoroughness import first_of

from adaptive_eval.base.errors import ConfigError, ExitCode
from adaptive_eval.base.seeds import hashed_base
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


@pytest.mark.slow
@pytest.mark.parametrize(("with_seeds", "optimize"), [(True, "time"), (False, "cost")])
def test_going_on_with_the_same_configuration_gives_the_same_trials_and_changes_no_setting(
    site: Site, full_run: FullRun, with_seeds: bool, optimize: str
) -> None:
    """Its pace is left to `auto`, which an import settles as well: as a run does if the log is that of one."""
    run, config = site.directory(), site.folder / "run.yaml"
    config.write_text(json.dumps({**site.config(), "trials": {"min": 4, "max": 30}}))
    taken(full_run.export(site, "jsonl") if with_seeds else full_run.log(site), "--to", run, "--config", config)
    assert stored_header(run).configuration["trials"]["optimize"] == optimize
    site.run(config, code=ENDED)
    assert stored_header(run).configuration["trials"]["optimize"] == optimize
    events = stored_events(run)
    assert isinstance(events[0], TrialsImported) and not events_in(run, SettingsChanged)
    assert "redecided" not in [warning["kind"] for warning in site.results()["warnings"]]
    after, before = outcomes(run), full_run.result.outcomes
    assert len(before.keys() & after.keys()) > 150 and {**before, **after} == {**after, **before}
    if not with_seeds:
        assert RunOutcome.of(run).looks[0]["trials"] == [32, 32, 32] and events_in(run, RunResumed)
        assert read_view(run).words.seeds.startswith("Imported trials keep their seeds")
        cells = Counter((model, question) for model, question, _ in after)
        assert all((*cell, trial) in after for cell, held in cells.items() for trial in range(held))


@pytest.mark.parametrize("form", first_of(["jsonl", "csv", "npz"], 1))
def test_logs_with_the_seeds_of_a_configuration_need_as_much_room(site: Site, full_run: FullRun, form: str) -> None:
    """Without it scores would leave out what is over the horizon, whether the trials go on with their seeds or not."""
    enough = -(-max(Counter(str(row["model"]) for row in full_run.rows).values()) // 8)
    low, high = (site.write(f"room{at}", trials={"min": 4, "max": at}) for at in (enough - 1, enough))
    words = (full_run.export(site, form), "--to", site.directory(), "--config")
    assert f"trials.max must be at least {enough}, since the run begins with " in refusal(*words, low)
    taken(*words, high)


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
        message = refusal(table, "--to", run, "--config", low)
        assert f"budget.{key} is " in message and f"have used {round(used, 9):,.10g} " in message
        assert f"set it to {enough[key]:,.10g} or more, or remove it" in message
    done = taken(table, "--to", run, "--config", site.write(models=models, budget=enough))
    after = read_results(run)
    assert after is not None and after.cost.trials == cost.trials
    left_out = sum(row.trials for row in after.models) < cost.trials
    assert ("limits    the budget reserves the worst case" in done.stdout) == left_out


def test_recorded_models_are_taken_when_a_run_begins_and_an_import_has_nothing_to_compare_with(site: Site) -> None:
    """A run that was killed before it took their outcomes has no plan yet."""
    models = [{"name": name, "base_url": "http://127.0.0.1:9/v1"} for name in ("ada", "bob")]
    config = site.write(models=[*models, {"name": "cyd", "recorded": "before"}])
    log = lines(site.folder / "log.jsonl", [{"model": "ada", "question": "q1", "text": "1"}])
    assert "recorded models (cyd)" in refusal(log, "--to", site.directory(), "--config", config)
    store_records(site.directory(), run_header(*load_run(load_config(config))))
    refused = pytest.raises(ConfigError, match=r"recorded models yet \(cyd\)")
    with closing(RunReader.open(site.directory())) as reader, refused:
        stored_plan(stored_setup(reader.header()), reader, reader.events())


@pytest.mark.slow
def test_before_its_first_look_a_run_asks_for_what_is_missing(site: Site, full_run: FullRun) -> None:
    config, run = site.write(trials={"min": 6, "max": 12}), site.directory()
    done = taken(full_run.log(site), "--to", run, "--config", config)
    assert "no look yet: a model lacks trials of its first round" in done.stdout
    assert read_view(run).results is None
    assert site.run(config).exit_code in ENDED
    assert RunOutcome.of(run).looks[0]["trials"] == [48, 48, 48]


@pytest.mark.slow
def test_it_goes_on_by_the_configuration_there(site: Site, full_run: FullRun, monkeypatch: pytest.MonkeyPatch) -> None:
    run, questions = site.directory(), stored_header(full_run.run).questions
    asked = [{**row, **{key: questions[row["question"]][key] for key in ("prompt", "answer")}} for row in full_run.rows]
    done = taken(lines(site.folder / "log.jsonl", asked), "--to", run, "--grader", "numeric")
    assert f"adaptive-eval run {run / 'config.yaml'} --run-dir {run}" in done.stdout
    before = outcomes(run)
    assert before == full_run.result.outcomes
    assert "needs the environment variable" in site.run(run / "config.yaml").stderr
    for line in (run / "config.yaml").read_text().splitlines():
        if "base_url" in line:
            monkeypatch.setenv(line.split("${")[1].rstrip("}"), site.base_url)
    site.run(run / "config.yaml", code=ENDED)
    after = outcomes(run)
    assert before.items() <= after.items()
    assert len(after) > len(before)


@pytest.mark.slow
def test_what_a_model_lacks_is_asked_for_and_until_then_the_others_are_judged(site: Site, full_run: FullRun) -> None:
    run, config = site.directory(), site.write(trials={"min": 3, "max": 4})
    held = [row for row in full_run.of(4) if row["model"] != "cyd" or row["question"] != "q3"]
    done = taken(lines(site.folder / "log.jsonl", held), "--to", run, "--config", config)
    assert f"\nfor more  adaptive-eval run {config}" in done.stdout
    log = lines(site.folder / "whole.jsonl", full_run.of(4))
    whole = taken(log, "--to", site.folder / "whole", "--config", config)
    assert "for more" not in whole.stdout, "it has all that it would ask for"
    aside = {row["name"]: row["set_aside"] for row in site.results()["models"]}
    assert aside == {"ada": None, "bob": None, "cyd": "trials for the first look are missing"}
    assert site.run(config).exit_code in ENDED
    assert {trial for model, question, trial in outcomes(run) if (model, question) == ("cyd", "q3")} >= {0, 1, 2}
    assert all(row["set_aside"] is None for row in site.results()["models"])


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
        taken(path, "--to", tmp_path / name, *options)
        view = read_view(tmp_path / name)
        (pair,) = view.results.pairs
        assert pair.boundary == pytest.approx(boundary, rel=0.25 if name == "open" else 1e-3)
        if name == "open":
            assert view.ended == "Imported: the trials are from logs, and were judged once."
            (step,) = view.next_steps
            assert step.text.startswith("to request more trials, import the logs again") and step.command is None
    assert view.results.run.reason in (Reason.SETTLED, Reason.OUT_OF_REACH) and pair.verdict == "resolved"


@pytest.mark.slow
def test_texts_are_graded_anew_and_grades_without_texts_are_not(site: Site, full_run: FullRun) -> None:
    rows, config = full_run.of(4), site.write()
    for name, table in (("texts", rows), ("grades", [{**row, "text": None, "reasoning": None} for row in rows])):
        taken(lines(site.folder / f"{name}.jsonl", table), "--to", site.directory(name), "--config", config)
    other = site.write(grader={"kind": "regex", "pattern": "nothing like that"})
    typed("regrade", site.directory("texts"), "--config", other, code=0)
    assert set(outcomes(site.directory("texts")).values()) == {0}
    refused = typed("regrade", site.directory("grades"), "--config", other, code=ExitCode.FAILED)
    assert "has 96 imported trials without a text" in refused.stderr
    assert set(outcomes(site.directory("grades")).values()) == {0, 1}


def test_r0_of_the_configuration_counts_in_an_import_once_the_grader_is_settled(tmp_path: Path) -> None:
    """It is the outcomes of an imported run, too."""
    earlier, later, table = (tmp_path / name for name in ("earlier", "later", "t.csv"))
    taken(export(make_run(tmp_path, one_graded()), "csv").path, "--to", earlier, "--config", tmp_path / "made.yaml")
    later.mkdir()
    config = later / "made.yaml"
    later = make_run(later, one_graded(), prior={"run": str(earlier)})
    exported = typed("export", later, "--format", "csv", "--output", table)
    assert "note: it does not hold the outcomes of R0; `import --config` takes them from" in exported.output
    done = taken(table, "--to", tmp_path / "counted", "--config", config)
    assert "outcomes of another run count in the scores (R0)" in done.output, done.output
    assert [row.prior_depth for row in read_results(tmp_path / "counted").models] == [2.0, 2.0]
    replayed = typed("replay", later, "--output", tmp_path / "replayed")
    assert "note: R0 (prior) counts in the run, and not in its replay" in replayed.output
    texts = export(later, "jsonl").path  # a run that counts R0 cannot be graded anew, which this one still needs
    done = taken(texts, "--to", tmp_path / "ungraded", "--config", config)
    assert "prior     R0 does not count yet" in done.output and not events_in(tmp_path / "ungraded", PriorTaken)
    typed("regrade", tmp_path / "ungraded", "--config", config, code=0)
    shutil.rmtree(earlier)
    assert "prior: " in refusal(table, "--to", tmp_path / "other", "--config", config)


def one_graded() -> Iterator[TrialRecord]:
    """Both models on both questions, three trials each."""
    for model, question, trial in itertools.product(MODELS, QUESTIONS, range(3)):
        yield make_trial(model, question, trial, int(trial > 0))


def test_grades_of_a_judge_keep_their_cost_and_their_doubt(tmp_path: Path) -> None:
    used = {"judge_prompt_tokens": 8.0, "judge_completion_tokens": 2.0, "judge_usd": 0.15, "judge_gpu_seconds": 0.0}
    judged = [replace(record, signals={**record.signals, **used}) for record in one_graded()]
    judged[0] = replace(judged[0], category=None, signals=used, grader_error="the judge gave no verdict")
    judge = {"kind": "judge", "server": {"base_url": "http://127.0.0.1:9/v1", "model": "judge"}}
    table = export(make_run(tmp_path, judged, grader=judge), "jsonl").path
    done = taken(table, "--to", tmp_path / "again", "--config", tmp_path / "made.yaml")
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
    refused = refusal(tmp_path / "t.npz", "--to", tmp_path / "run", "--config", tmp_path / "c.yaml")
    assert "import an export other than npz, which has none; else remove trials.draw" in refused


def seeds(run: Path) -> list[tuple[str, str, int]]:
    """The seed of every trial, with its model and question."""
    return [(trial.model, trial.question, trial.answer.seed) for trial in stored_trials(run)]


@pytest.mark.parametrize("form", first_of(["jsonl", "parquet"], 1))
def test_an_interrupted_run_goes_on_as_it_would_have(site: Site, full_run: FullRun, form: str) -> None:
    config, run = site.write(), site.directory()
    log = lines(site.folder / "log.jsonl", full_run.interrupted)
    taken(log, "--to", site.directory("killed"), "--config", config)
    taken(export(site.directory("killed"), form).path, "--to", run, "--config", config)
    assert set(outcomes(run)) == {(row["model"], row["question"], row["trial"]) for row in full_run.interrupted}
    header = stored_header(run)
    assert [*header.models] == ["ada", "bob", "cyd"] and [*header.questions] == [f"q{number}" for number in range(8)]
    site.run(config, code=ENDED)
    assert max(Counter(seeds(run)).values()) == 1
    assert RunOutcome.of(run) == full_run.result


@pytest.mark.slow
def test_what_has_no_grade_is_a_gap_where_there_is_nothing_to_grade(site: Site, full_run: FullRun) -> None:
    """An answer without text and grade is asked for again; one that its server fails every time is a trial."""
    lost: dict[str, object] = {"category": None, "label": None, "value": None, "text": ""}
    unread = {**lost, "text": None, "grader_error": "it took too long"}
    failed = {**lost, "flags": "unanswered", "finish_reason": "500", "grader_error": "its server fails this request"}
    rows: list[Any] = full_run.interrupted
    unread_at, failed_at = ((rows[at]["model"], rows[at]["question"], rows[at]["trial"]) for at in (3, 5))
    rows[3], rows[5] = rows[3] | unread, rows[5] | failed
    config, run = site.write(), site.directory()
    taken(lines(site.folder / "log.jsonl", rows), "--to", run, "--config", config)
    assert unread_at not in outcomes(run)
    assert site.run(config).exit_code in ENDED
    after = outcomes(run)
    assert after[unread_at] == full_run.result.outcomes[unread_at] and after[failed_at] is None
    assert max(Counter(seeds(run)).values()) == 1


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
    for seed in (3, 6, 5, 10_000_000):
        words = (log, "--to", site.directory(str(seed)), "--config", site.write(seed=seed, trials=trials))
        if seed in (3, 6):
            assert "it could be requested again and count twice; change the seed of the configuration" in refusal(
                *words
            )
        else:
            taken(*words)


def test_without_a_configuration_it_gets_seeds_of_its_own(tmp_path: Path) -> None:
    cells = [*itertools.product(("ada", "bob"), ("q1", "q2"))]
    rows = [
        {"model": name, "question": key, "trial": at, "seed": hashed_base(0, name, key) + at, "category": at % 2}
        for name, key in cells
        for at in (1, 2, 5)
    ]
    run = tmp_path / "run"
    taken(lines(tmp_path / "log.jsonl", rows), "--to", run)
    assert {trial for *_, trial in outcomes(run)} == {0, 1, 2}
    seed = yaml.safe_load((run / "config.yaml").read_text())["seed"]
    own = {hashed_base(seed, *cell) + trial for cell in cells for trial in range(80)}
    assert not own & {row["seed"] for row in rows}


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
    refused = refusal(*logs, "--to", tmp_path / "run")
    assert "is also in" in refused and "remove one of them" in refused
