"""(f) llama-server as a judge and as a verifier: grammars, log-probabilities, its own counters, a kill, and a cap.

The model that is asked knows nothing of answers, so what it says is no test of anybody. What is tested is all that lies
between: that its replies come in the form that was asked for, that one that cannot be read is no grade, that the
probabilities are those of its weights for the very request that was sent, and what is counted.
"""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from arithmetic import FIRST_BYTE, Problem, questions
from engine_runs import Finished, Workplace
from engine_servers import Server, llama
from family import checkpoints
from judging_model import CONTEXT, judging_weights, slot_of
from stored_runs import stored_trials
from to_gguf import convert, convert_weights

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.graders.verifier import LABELS, Verifier, label_probabilities, label_scores
from adaptive_eval.questions.types import Question
from adaptive_eval.report.records import AWAITS_VERDICT, TrialRecord

pytestmark = pytest.mark.engine

ANSWERING, JUDGING = "abacus-900", "abacus-1000"
TRIALS = {"min": 2, "max": 2}
PROBABILITY = 2e-3
"""Within which those of single precision agree with those of double precision."""
PROBES = 200
"""Tokens that are used to see whether a server answers."""
COMPARED = 12
"""Answers whose probabilities are worked out by hand, at half a second each."""
QUOTE = str(FIRST_BYTE + ord('"'))
REPLY = {"temperature": 1.0, "max_tokens": 96, "timeout": 120.0, "extra_body": {"logit_bias": {QUOTE: 1.5}}}
"""A text ends after ten tokens or so."""
SHORT = 50
"""Tokens: enough for most verdicts in JSON, and not for all."""


@pytest.fixture(scope="module")
def answering(serve: Callable[..., None], logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Server:
    folder = tmp_path_factory.mktemp("answering")
    server = llama(convert(checkpoints()[ANSWERING], folder / f"{ANSWERING}.gguf"), logs / "answering.log")
    serve(server)
    return server


@pytest.fixture(scope="module")
def judging(serve: Callable[..., None], logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Server:
    folder = tmp_path_factory.mktemp("judging")
    gguf = convert_weights("judge", judging_weights(JUDGING), folder / "judge.gguf", CONTEXT)
    server = llama(gguf, logs / "judging.log", slots=8, context=CONTEXT)
    serve(server)
    return server


def asked(server: Server, kind: str, **changes: object) -> dict[str, object]:
    limits = {"in_flight": 8}
    return {"kind": kind, "server": {"base_url": server.base_url, "model": "judge"}, "concurrency": limits, **changes}


def judge(server: Server, **changes: object) -> dict[str, object]:
    return asked(server, "judge", **{"sampling": REPLY, **changes})


def settings(answering: Server, grader: dict[str, object], **changes: object) -> dict[str, object]:
    models = [{"name": ANSWERING, "base_url": answering.base_url}]
    precise = {"kind": "precision", "half_width": 0.001}
    return {"models": models, "grader": grader, "objective": precise, "trials": TRIALS, "concurrency": 8} | changes


def run(workplace: Workplace, name: str, settings: dict[str, object], accepted: tuple[int, ...] = (0, 3)) -> Finished:
    models = settings.pop("models")
    assert isinstance(models, list)
    return workplace.run(workplace.configure(name, models, **settings), accepted=accepted)


def used(trials: list[TrialRecord]) -> tuple[float, float]:
    """Tokens of what the one who grades has read and written, as the run has counted them."""
    tokens = [[float(trial.signals.get(f"judge_{kind}_tokens", 0.0)) for trial in trials] for kind in _KINDS]
    return sum(tokens[0]), sum(tokens[1])


_KINDS = ("prompt", "completion")


def counters(server: Server) -> tuple[float, float]:
    """The same as the server has."""
    metrics = server.metrics()
    read = metrics["llamacpp:prompt_tokens_total"] + metrics["llamacpp:prompt_tokens_cached_total"]
    return read, metrics["llamacpp:tokens_predicted_total"]


def grading_tokens(trial: TrialRecord) -> int:
    """What was counted of a trial besides its answer."""
    return trial.cost.tokens - trial.answer.prompt_tokens - trial.answer.completion_tokens


def by_id() -> dict[str, Problem]:
    return {problem.prompt: problem for problem in questions()}


# -- a judge -----------------------------------------------------------------------------------------------------------


def test_verdicts_have_the_form_of_the_grammar(answering: Server, judging: Server, workplace: Workplace) -> None:
    """JSON by a schema: every reply that ends is a verdict; one that is cut off is none, and is counted."""
    before = counters(judging)
    finished = run(
        workplace, "structured", settings(answering, judge(judging, sampling={**REPLY, "max_tokens": SHORT}))
    )
    read, written = (after - earlier for after, earlier in zip(counters(judging), before, strict=True))
    graded = [record for record in finished.records if record.category is not None]
    failed = [record for record in finished.records if record.category is None]
    assert len(graded) > 10 and failed, (len(graded), len(failed))
    assert {record.signals["verdict"] for record in graded} <= {"correct", "wrong", ""}
    assert all("is not the requested JSON object" in str(record.grader_error) for record in failed)
    assert sum(map(grading_tokens, finished.records)) == read + written
    assert used(graded)[1] < written
    assert "response_format" not in str(finished.results["warnings"])


def test_a_verdict_that_cannot_be_read_is_no_grade(answering: Server, judging: Server, workplace: Workplace) -> None:
    """Nobody sees to the form of these replies, and this model knows of none: the run stops, and all is stored."""
    mute = settings(answering, judge(judging, sampling={**REPLY, "extra_body": {"response_format": {"type": "text"}}}))
    finished = run(workplace, "lines", mute, accepted=(ExitCode.ENDPOINTS,))
    sent = [record for record in finished.records if record.answer.text.strip()]
    assert sent and all(record.category is None for record in sent)
    judged = [record for record in sent if record.grader_error != AWAITS_VERDICT]
    assert judged and all("gave no verdict" in str(record.grader_error) for record in judged)


def test_votes_and_levels_of_criteria_are_of_a_schema(answering: Server, judging: Server, workplace: Workplace) -> None:
    scores = [{"name": "brief", "weight": 0.5}, {"name": "true", "weight": 0.5, "levels": {"bad": 0, "good": 1}}]
    grader = judge(judging, scores=scores, votes=3, sampling={**REPLY, "max_tokens": 256})
    finished = run(workplace, "criteria", settings(answering, grader, trials={"min": 1, "max": 1}))
    graded = [record for record in finished.records if record.category is not None and record.answer.text.strip()]
    assert len(graded) > 20
    assert {record.signals["brief"] for record in graded} <= {"met", "not met"}
    assert {record.signals["true"] for record in graded} <= {"bad", "good"}
    assert len({record.signals["agreement"] for record in graded}) > 1, "each vote has a seed of its own"


def test_a_kill_before_a_verdict_loses_nothing(answering: Server, judging: Server, workplace: Workplace) -> None:
    same = {"concurrency": {"in_flight": 1}, "sampling": {**REPLY, "max_tokens": 512}}
    undisturbed = run(workplace, "undisturbed", settings(answering, judge(judging, **same)))
    disturbed = settings(answering, judge(judging, **same))
    config = workplace.configure("disturbed", disturbed.pop("models"), **disturbed)  # type: ignore[arg-type]
    with judging.stalled():
        process = workplace.start(config)
        workplace.await_trials(config, 8, process)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    waiting = [record for record in stored_trials(workplace.directory(config)) if record.grader_error == AWAITS_VERDICT]
    assert waiting
    finished = workplace.run(config, accepted=(0, 3))
    after = {(record.model, record.question, record.trial): record for record in finished.records}
    for record in waiting:
        graded = after[record.model, record.question, record.trial]
        assert graded.answer == record.answer and graded.grader_error != AWAITS_VERDICT
    assert finished.outcomes == undisturbed.outcomes


def test_a_cap_holds_by_the_counters_of_both_servers(answering: Server, judging: Server, workplace: Workplace) -> None:
    cap = 110_000
    grader = judge(judging, max_answer_bytes=1024)
    capped = settings(answering, grader, trials={"min": 1, "max": 60}, budget={"tokens": cap})
    before = [counters(server) for server in (answering, judging)]
    config = workplace.configure("capped", capped.pop("models"), **capped)  # type: ignore[arg-type]
    finished = workplace.run(config, accepted=(ExitCode.SPENT,))
    after = [counters(server) for server in (answering, judging)]
    spent = sum(map(sum, after)) - sum(map(sum, before))
    counted = float(finished.results["cost"]["tokens"])
    assert 0.2 * cap < counted <= cap
    assert counted <= spent <= counted + PROBES, "what a server is asked before the run is not of the run"


# -- a verifier --------------------------------------------------------------------------------------------------------


def test_a_verifier_says_what_its_weights_say(answering: Server, judging: Server, workplace: Workplace) -> None:
    grader = asked(judging, "verifier", key_grader="exact")
    before = counters(judging)
    finished = run(
        workplace, "verified", settings(answering, grader, rubric="verifier_probe", trials={"min": 1, "max": 1})
    )
    read, written = (after - earlier for after, earlier in zip(counters(judging), before, strict=True))
    assert all(record.category is not None for record in finished.records)
    assert used(list(finished.records))[1] == written - 1, "one request is without content"
    assert used(list(finished.records))[0] < read
    verifier, weights = Verifier.model_validate(grader), judging_weights(JUDGING)
    base = label_scores(list(slot_of(weights, verifier.content_free).items()), LABELS).values
    shown = [record for record in finished.records if record.answer.text.strip()][:COMPARED]
    first_probabilities = set()
    for record in shown:
        question = Question(record.question, record.question, by_id()[record.question].answer)
        scores = label_scores(list(slot_of(weights, verifier.transcript(question, record.answer.text)).items()), LABELS)
        expected, _ = label_probabilities(scores, base)
        given = tuple(float(record.signals[f"verifier_{label.lower()}"]) for label in LABELS)
        assert given == pytest.approx(expected, abs=PROBABILITY)
        first_probabilities.add(round(given[0], 4))
    assert len(first_probabilities) > COMPARED // 2, "what is verified makes a difference"
