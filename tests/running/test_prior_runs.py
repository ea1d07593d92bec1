"""What a run takes from an earlier one: outcomes as R0, and thresholds; and known signals, as they are stored."""

import json
import math
import re
import shutil
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command_line import typed
from known_answers import known_models
from known_server import KnownRespondent, answer_serial, known_server
from live_runs import ENDED, MODELS, EndedRuns, RunOutcome, Site, models_at, stored
from stored_runs import events_in, stored_trials

from adaptive_eval.base.errors import ExitCode, StoreError
from adaptive_eval.core.answer_kinds import AnswerKind
from adaptive_eval.endpoints.types import AnswerLogprobs
from adaptive_eval.graders.rubric import RubricConfig, open_rubric
from adaptive_eval.notes import PriorTaken, ThresholdsFrozen
from adaptive_eval.report.records import TrialRecord
from adaptive_eval.running.prior_outcomes import prior_counts
from adaptive_eval.simulate.answering import question_rows, split_tokens
from adaptive_eval.simulate.server import serving
from adaptive_eval.simulate.worlds import Latency
from adaptive_eval.store.packing import pack_json, pack_logprobs, unpack_logprobs
from adaptive_eval.store.verify import Integrity
from scorio.categorical import SCHEMATA, Thresholds, classify


def first_outcomes(directory: Path, depth: int) -> dict[tuple[str, str], list[int]]:
    """The categories of the first trials of each cell, in their order."""
    outcomes: dict[tuple[str, str], list[int]] = {}
    for (model, question, trial), category in sorted(RunOutcome.of(directory).outcomes.items()):
        if trial < depth:
            assert category is not None
            outcomes.setdefault((model, question), []).append(category)
    return outcomes


@pytest.fixture
def earlier(site: Site, ended_runs: EndedRuns) -> Path:
    """A finished run with 4 trials a question before its first look."""
    return ended_runs.copy(site, site.directory("earlier"), trials={"min": 4, "max": 8})


def run_with(site: Site, section: dict[str, object], **changes: object) -> str:
    """The messages of a run that takes R0."""
    config = site.write(prior=section, **{"seed": 1, "trials": {"min": 3, "max": 8}, **changes})
    return site.run(config, code=ENDED).stdout


@pytest.mark.slow
def test_one_greedy_answer_to_each_question_may_come_first(site: Site) -> None:
    site.finished("greedy", trials={"min": 1, "max": 1}, sampling={"temperature": 0, "max_tokens": 2000})
    section = {"run": str(site.directory("greedy"))}
    output = site.run(site.write(prior=section, trials={"min": 3, "max": 8}), "--dry-run").stdout
    run_with(site, section)
    results = site.results()
    (caution,) = (warning["text"] for warning in results["warnings"] if warning["kind"] == "prior")
    changed = "sampling settings differ from this run's (ada.temperature: 0.0 → 0.6, bob."
    assert changed in caution and changed in output
    assert [row["prior_depth"] for row in results["models"]] == [1.0, 1.0, 1.0]
    assert all(row["score_without_prior"] is not None for row in results["models"])
    (event,) = events_in(site.directory(), PriorTaken)
    firsts = first_outcomes(site.directory("greedy"), 1)
    assert event.outcomes == {name: {f"q{at}": firsts[name, f"q{at}"] for at in range(8)} for name in MODELS}


@pytest.mark.parametrize(("seed", "is_same"), [(0, True), (1, False)])
def test_outcomes_with_the_seeds_of_the_run_are_warned_of(site: Site, earlier: Path, seed: int, is_same: bool) -> None:
    """A server that keeps to seeds answers as it did there: of 240 answers all were counted twice."""
    output = run_with(site, {"run": str(earlier)}, seed=seed)
    (caution,) = (warning["text"] for warning in site.results()["warnings"] if warning["kind"] == "prior")
    assert is_same == ("may be the same answers" in output) == ("which count twice" in caution)


@pytest.mark.slow
def test_the_earlier_run_is_read_only_once(site: Site, earlier: Path) -> None:
    section: dict[str, object] = {"run": str(earlier)}
    run_with(site, section, budget={"trials": 100})
    before = RunOutcome.of(site.directory())
    shutil.rmtree(earlier)
    run_with(site, section, budget={"trials": 100})
    assert RunOutcome.of(site.directory()) == before
    run_with(site, section, trials={"min": 3, "max": 30})
    assert len(RunOutcome.of(site.directory()).outcomes) > len(before.outcomes)


@pytest.mark.slow
def test_a_model_that_joins_later_gets_its_prior_outcomes(site: Site, earlier: Path) -> None:
    for names in (MODELS[:2], MODELS):
        run_with(site, {"run": str(earlier)}, models=models_at(site.base_url, *names))
    before, after = [event.outcomes for event in events_in(site.directory(), PriorTaken)]
    assert (before.keys(), after.keys()) == ({*MODELS[:2]}, {*MODELS})
    assert [row["prior_depth"] for row in site.results()["models"]] == [3.0] * 3, "no more than the first look"


NO, YES = {"name": "no", "weight": 0}, {"name": "yes", "weight": 2, "when": {"is_correct": True}}


@pytest.mark.parametrize(
    ("section", "changes", "message"),
    [
        ({"run": "nowhere"}, {}, "nowhere has no run"),
        ({}, {"rubric": {"categories": [NO, YES]}}, "was graded by another rubric"),
        ({"models": {"eve": "ada"}}, {}, "cannot serve 'eve'"),
        ({"models": {"ada": "eve"}}, {}, "has no model 'eve'; its models are ada, bob, cyd"),
        ({}, {"questions": {"path": "other.jsonl"}}, "has none of the questions of this run"),
        ({}, {"questions": {"path": "changed.jsonl"}}, "asked ada another text as question 'q0'"),
        ({}, {"prompt": "{prompt} Think."}, "asked ada another text as question 'q0'; R0 needs outcomes of the same"),
        ({}, {"grader": "exact"}, "was graded by another grader, or with other settings"),
    ],
)
def test_invalid_prior_runs_are_refused_and_nothing_begins(
    site: Site, earlier: Path, section: dict[str, object], changes: dict[str, object], message: str
) -> None:
    rows = [json.loads(line) for line in (site.folder / "questions.jsonl").read_text().splitlines()]
    for name, change in (("other", {"id": "other"}), ("changed", {"prompt": "something else?"})):
        (site.folder / f"{name}.jsonl").write_text(json.dumps({**rows[0], **change}))
    ended = site.run(site.write(prior={"run": str(earlier), **section}, **changes))
    assert ended.exit_code in (ExitCode.CONFIGURATION, ExitCode.FAILED) and message in ended.stderr
    assert not site.directory().exists()


def test_neither_the_run_itself_nor_one_without_a_complete_first_round_gives_r0(site: Site, earlier: Path) -> None:
    config = site.write(prior={"run": str(earlier)})
    assert "is the run itself" in site.run(config, "--run-dir", earlier, code=ExitCode.CONFIGURATION).stderr
    with closing(sqlite3.connect(earlier / "run.sqlite")) as connection, connection:
        connection.execute("DELETE FROM trials WHERE number = 3 AND question = 1")
    refused = site.run(config, code=ExitCode.CONFIGURATION)
    assert "has no complete first round of any model of this run" in refused.stderr


CUT = int(AnswerKind.TRUNCATED)


@pytest.mark.parametrize(("in_gate", "wrong"), [(False, 1), (True, 2)])
@pytest.mark.parametrize("more", [[], [CUT]], ids=["as many kinds", "more kinds than outcomes"])
def test_empty_r0_answers_are_unsure_in_a_gate(in_gate: bool, wrong: int, more: list[int]) -> None:
    outcomes, kinds = {"ada": {"q0": [1, 0, 0]}}, {"ada": {"q0": [CUT, CUT, int(AnswerKind.EMPTY), *more]}}
    prior, rubric = PriorTaken({}, "earlier", outcomes, (), kinds), open_rubric(RubricConfig())
    unsure = prior_counts(prior, ["ada"], ["q0"], np.full((1, 1), 4), rubric, in_gate=in_gate).unsure
    assert unsure is not None and unsure.tolist() == [[[wrong, 0]]]


FIRST = 3
"""Trials per question before the first look."""
IS_SHORT, IS_LONG = {"completion_tokens": {"below": "p40"}}, {"length_ratio": {"at_least": 1.2}}
RIGHT = {"name": "right", "weight": 0.7, "when": {"is_correct": True}}
SHORT = {"categories": [{"name": "short", "weight": 1, "when": {"is_correct": True, **IS_SHORT}}, RIGHT, NO]}
BRIEF = {
    "categories": [
        {"name": "wrong and long", "weight": 0, "when": {"is_correct": False, **IS_LONG}},
        {"name": "wrong", "weight": 0.2, "when": {"is_correct": False}},
        {"name": "right and long", "weight": 0.75, "when": IS_LONG},
        {"name": "right", "weight": 1},
    ]
}
QUICK = {"categories": [{"name": "a", "weight": 1, "when": {"latency": {"below": 3}}}, {"name": "b", "weight": 0}]}


def settings(**changes: object) -> dict[str, object]:
    return {"trials": {"min": FIRST, "max": 8}} | changes


def taking(rubric: dict[str, object], run: Path, **numbers: float) -> dict[str, object]:
    """The rubric with thresholds of a run."""
    return rubric | {"thresholds": {"from": str(run), **numbers}}


def by_hand(trials: list[TrialRecord]) -> float:
    """The percentile, from the stored answers alone."""
    return float(np.percentile([trial.answer.completion_tokens for trial in trials if trial.trial < FIRST], 40))


def require_labels(trials: list[TrialRecord], threshold: float) -> None:
    for trial in trials:
        short = trial.answer.completion_tokens < threshold
        assert trial.category == (2 if not trial.signals["is_correct"] else 0 if short else 1)


@pytest.fixture
def pilot(site: Site) -> Path:
    """A finished run with the rubric `binary`."""
    site.finished("pilot", **settings())
    return site.directory("pilot")


@pytest.mark.slow
def test_thresholds_stay_through_extension_and_go_to_a_later_run(site: Site, pilot: Path) -> None:
    rubric = taking(SHORT, pilot)
    site.finished(**settings(rubric=rubric))
    site.finished(**settings(rubric=rubric, trials={"min": FIRST, "max": 14}, stopping={"confidence": 0.999}))
    (event,) = events_in(site.directory(), ThresholdsFrozen)
    require_labels(stored_trials(site.directory()), event.values["completion_tokens p40"])

    site.finished("later", **settings(rubric=taking(SHORT, site.directory()), seed=5))
    (later_event,) = events_in(site.directory("later"), ThresholdsFrozen)
    assert later_event.values == event.values and later_event.run == "run"
    require_labels(stored_trials(site.directory("later")), event.values["completion_tokens p40"])


@pytest.mark.slow
def test_regrading_takes_thresholds_of_the_run_itself_and_rescoring_says_the_same(site: Site) -> None:
    site.run(site.write(**settings(rubric="binary", trials={"min": FIRST, "max": FIRST})))
    (path := site.folder / "short.yaml").write_text(json.dumps({"rubric": SHORT}))
    looked = typed("rescore", site.directory(), "--rubric", path, "--format", "json")
    changes = settings(rubric=taking(SHORT, site.directory()), trials={"min": FIRST, "max": 8})
    typed("regrade", site.directory(), "--config", site.write(**changes), code=ExitCode.REACHED)
    trials, (event,) = stored_trials(site.directory()), events_in(site.directory(), ThresholdsFrozen)
    assert event.values == {"completion_tokens p40": pytest.approx(by_hand(trials))}
    require_labels(trials, by_hand(trials))
    assert looked.exit_code == 0, looked.output
    (_, short) = json.loads(looked.stdout)["rescoring"]["rubrics"]
    assert short["thresholds"] == event.values  # on the same trials, though the run had no such rubric
    counts = Counter((trial.model, trial.category) for trial in trials)
    for model in short["models"]:
        assert model["counts"] == [counts[model["name"], category] for category in range(3)]
    assert site.run(site.write(**changes)).exit_code in ENDED
    require_labels(stored_trials(site.directory()), event.values["completion_tokens p40"])


@pytest.mark.slow
def test_thresholds_of_another_run_at_the_same_path_are_outside_the_promise(site: Site, pilot: Path) -> None:
    config = site.write(**settings(rubric=taking(SHORT, pilot)))
    assert site.run(config).exit_code in ENDED
    assert typed("regrade", site.directory(), "--config", config).exit_code in ENDED
    assert "settings chosen after" not in site.report(), "the same thresholds are no choice"
    shutil.rmtree(pilot)
    site.finished("pilot", **settings(seed=7))
    assert typed("regrade", site.directory(), "--config", config).exit_code in ENDED
    before, _, now = (event.values for event in events_in(site.directory(), ThresholdsFrozen))
    assert before != now
    assert re.search(r"changed after \d+ looks? \(.*\): rubric.thresholds; .*settings chosen after", site.report())


@pytest.mark.slow
def test_lengths_are_relative_to_the_median_of_the_question_in_the_other_run(site: Site, pilot: Path) -> None:
    site.finished(**settings(rubric=taking(BRIEF, pilot), seed=5))
    (event,), lengths = events_in(site.directory(), ThresholdsFrozen), defaultdict(list)
    for trial in stored_trials(pilot):
        if trial.trial < FIRST:
            lengths[trial.question].append(trial.answer.completion_tokens)
    assert event.medians == {key: np.median(values) for key, values in lengths.items()}
    for trial in stored_trials(site.directory()):
        ratio = trial.answer.completion_tokens / event.medians[trial.question]
        assert trial.signals["length_ratio"] == pytest.approx(ratio)
        assert trial.category == 2 * bool(trial.signals["is_correct"]) + (ratio < 1.2)
    assert "the median length of the answers to each of 8 questions" in site.report()
    assert typed("rescore", site.directory()).exit_code == 0


@pytest.mark.slow
def test_a_run_that_cannot_give_thresholds_is_refused(site: Site, pilot: Path) -> None:
    confidence = {"name": "conf_wrong_penalty"}
    sampling = {"temperature": 0.6, "max_tokens": 2000, "logprobs": True}
    begun, fewer = site.directory("begun"), site.directory("fewer")
    site.finished("begun", **settings(budget={"trials": 30}))
    site.run(site.write("fewer", **settings()), "--run-dir", fewer, "--set", "questions.limit=6")
    for rubric, message in (
        (taking(SHORT, Path("nowhere")), "nowhere has no run"),
        (taking(SHORT, begun), "begun has no complete first round; resume that run first"),
        (taking(BRIEF, fewer), "fewer has no lengths of answers to q6, q7, which length_ratio needs; name a run"),
        (taking(confidence, pilot), "low_wrong cannot be fitted: no trial has completion_bpt and is wrong; name"),
    ):
        refused = site.run(site.write(**settings(rubric=rubric, sampling=sampling)))
        assert refused.exit_code == ExitCode.CONFIGURATION and message in " ".join(refused.output.split())
        assert not site.directory().exists()


@pytest.mark.parametrize(
    ("rubric", "message"),
    [
        (SHORT, "rubric.thresholds must be given: the rubric compares with completion_tokens p40"),
        ({"name": "efficiency_adjusted"}, "compares with len_p33, len_p66"),
        (BRIEF, "compares with length_ratio"),
        ({"name": "binary", "thresholds": {"from": "runs/old"}}, "rubric.thresholds.from has nothing to fit"),
        (SHORT | {"thresholds": {"completion_tokens p40": "runs/old"}}, "a number under every other name"),
        (SHORT | {"thresholds": {"from": 0.3}}, "must have a run directory under `from`"),
        (SHORT | {"thresholds": {"high_p40": 0.3}}, "must not have high_p40; the names are from, high"),
        (QUICK, "must not use latency"),
    ],
)
def test_a_rubric_without_usable_thresholds_is_refused(site: Site, rubric: dict[str, object], message: str) -> None:
    refused = site.run(site.write(**settings(rubric=rubric)))
    assert refused.exit_code == ExitCode.CONFIGURATION and message in " ".join(refused.output.split())


def known_respondent() -> KnownRespondent:
    """Two models on five questions."""
    world, population = known_models(models=2, questions=5, answers=60)
    return KnownRespondent(replace(world, latency=Latency(median=0.01)), population)


@pytest.fixture(scope="module")
def known_url() -> Iterator[str]:
    with serving(known_server(known_respondent())) as url:
        yield url


def known_settings(url: str, site: Site) -> dict[str, object]:
    world = known_respondent().world
    rows = (json.dumps(row) for row in question_rows(world))
    (site.folder / "known.jsonl").write_text("\n".join(rows))
    models = models_at(url, *world.models, prompt_logprobs="vllm")
    grader = {"kind": "verifier", "server": {"base_url": url, "model": "verifier"}, "key_grader": "math"}
    sampling = {"temperature": 0.6, "max_tokens": 2000, "logprobs": True}
    return {"questions": "known.jsonl", "models": models, "sampling": sampling, "grader": grader}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["concision_high_conf", "ood_robustness"])
def test_drawn_signals_are_stored_and_decide_the_category(name: str, site: Site, known_url: str) -> None:
    settings, pilot = known_settings(known_url, site), site.directory("pilot")
    site.finished("pilot", **settings, trials={"min": 3, "max": 3})
    site.finished(**settings, trials={"min": 3, "max": 4}, rubric={"name": name, "thresholds": {"from": str(pilot)}})
    population = known_respondent().population
    (frozen,) = events_in(Path(site.directory()), ThresholdsFrozen)
    categories = classify(population.signals, SCHEMATA[name], Thresholds(**frozen.values))
    trials = stored(site)
    assert len(trials) >= 2 * 5 * 3
    for trial in trials:
        serial = answer_serial(trial.answer.text)
        assert serial is not None
        at = tuple(map(int, np.unravel_index(serial, population.words.shape)))
        signals, labels = trial.signals, population.labels[at]
        assert (signals["is_correct"], signals["has_box"]) == (population.is_correct[at], population.has_box[at])
        assert trial.answer.completion_tokens == population.words[at]
        assert (trial.answer.finish_reason == "length") == population.cut_off[at]
        assert trial.answer.completion_bpt == pytest.approx(population.bits[at])
        assert trial.answer.prompt_bpt == pytest.approx(population.prompt_bits[at[1]])
        assert [signals[f"verifier_{letter}"] for letter in "abc"] == pytest.approx(labels.tolist(), abs=1e-9)
        assert trial.category == categories[at]


def logprobs_of(trial: TrialRecord) -> AnswerLogprobs:
    assert trial.answer.token_logprobs is not None
    return trial.answer.token_logprobs


@pytest.mark.slow
def test_every_token_is_kept_and_exported(site: Site) -> None:
    """The tokens are those of the text, their mean is the one that is stored."""
    usual, sampling = {"trials": {"min": 2, "max": 3}}, {"temperature": 0.6, "max_tokens": 2000}
    outcome = site.finished(sampling=sampling | {"logprobs": "tokens"}, **usual)
    trials = stored(site)
    for trial in trials:
        tokens, values = logprobs_of(trial)
        assert list(tokens) == split_tokens(trial.answer.text)
        bits = -sum(values) / len(values) / math.log(2.0)  # type: ignore[arg-type]
        assert len(values) == len(tokens) and bits == pytest.approx(trial.answer.completion_bpt, abs=1e-4)
    assert Integrity.check(site.directory()).damages == ()
    assert site.finished("plain", sampling=sampling | {"logprobs": True}, **usual) == outcome
    assert all(trial.answer.token_logprobs is None for trial in stored(site, "plain"))
    place = site.folder / "rows.jsonl"
    typed("export", site.directory(), "--format", "jsonl", "--output", place, code=0)
    rows = [json.loads(line) for line in place.read_text().splitlines()]
    assert [row["token_logprobs"]["tokens"] for row in rows] == [list(logprobs_of(trial).tokens) for trial in trials]


@pytest.mark.parametrize(
    "stored", [b"", b"no zlib", "text", *map(pack_json, ([], [["a"], []], [[1], [1]], {"a": 1}, [["a"], ["b"]], 7))]
)
def test_corrupt_token_logprobs_are_refused(stored: object) -> None:
    with pytest.raises(StoreError):
        unpack_logprobs(stored)


def test_log_probabilities_keep_four_decimals_and_may_be_unknown() -> None:
    given = AnswerLogprobs(("\ud800", "b", "c"), (-0.123456, None, -9999.0))
    assert unpack_logprobs(pack_logprobs(given)) == AnswerLogprobs(given.tokens, (-0.1235, None, -9999.0))
