"""The golden runs: what is asked, of which servers, and what happens to the run."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contrary_server import Asked, Reply, answer
from golden_record import PARTS
from golden_stage import ENDED, MODELS, Stage, fast, small_world

from adaptive_eval.base.errors import ExitCode
from adaptive_eval.simulate.answering import question_rows
from adaptive_eval.simulate.faults import BatchHabits, Faults
from adaptive_eval.simulate.judging import SimulatedJudge, SimulatedVerifier
from adaptive_eval.simulate.worlds import copies, many_questions, rubric

SERVER = Path(__file__).parents[1] / "running" / "small_server.py"


@dataclass(frozen=True)
class Case:
    """One run, and the expectation that it is compared with."""

    play: Callable[[Stage], None]
    expected: str
    """The name of another run where this one must give the same."""
    parts: tuple[str, ...] = PARTS
    ahead: bool = False
    """Whether more is asked than looks count, which depends on timing and is not compared."""


CASES: dict[str, Case] = {}
"""By name."""
SAME = ("look", "trial")
"""Parts that no fault, kill or number of concurrent requests may change."""


def case(**how: Any) -> Callable[[Callable[[Stage], None]], Callable[[Stage], None]]:
    """Enter a function as a golden run of its name."""

    def enter(play: Callable[[Stage], None]) -> Callable[[Stage], None]:
        name = play.__name__
        like = how.pop("like", name)
        CASES[name] = Case(play, like, **({"parts": SAME} if like != name else {}) | how)
        return play

    return enter


SHORT = {
    "categories": [
        {"name": "short", "weight": 1, "when": {"is_correct": True, "completion_tokens": {"below": "p40"}}},
        {"name": "right", "weight": 0.7, "when": {"is_correct": True}},
        {"name": "wrong", "weight": 0},
    ],
}
CRITERIA = [
    {"name": "sound", "meaning": "it says what the reference says", "weight": 0.7},
    {"name": "form", "meaning": "its answer stands in a box", "weight": 0.3},
]
PRICE = {"price": {"input": 3.0, "output": 15.0}}
MANY = fast(many_questions(questions=300))
COPIES = fast(copies(questions=20))
FOUR = small_world((0.75, 0.6, 0.55, 0.3), (*MODELS, "dot"))


# -- the loop ----------------------------------------------------------------------------------------------------------


@case()
def plain(stage: Stage) -> None:
    stage.run(stage.config(stage.serve()))


@case(like="plain", parts=PARTS)
def plain_one_at_a_time(stage: Stage) -> None:
    stage.run(stage.config(stage.serve(), concurrency=1))


@case(like="plain", parts=PARTS)
def plain_64_at_a_time(stage: Stage) -> None:
    stage.run(stage.config(stage.serve(), concurrency=64))


def plain_begun(stage: Stage) -> None:
    stage.killed(stage.config(stage.gate(60).base_url), 30)


@case(like="plain")
def plain_killed(stage: Stage) -> None:
    plain_begun(stage)
    plain(stage)


@case(like="plain")
def plain_through_faults(stage: Stage) -> None:
    """A tenth of the requests gets a 500, a tenth is reset, a tenth is refused."""
    stage.short_pauses()
    faults = Faults(server_error=0.1, reset=0.1, rate_limited=0.1, retry_after=0.01)
    stage.run(stage.config(stage.serve(faults=faults)))


@case()
def several_answers_a_request(stage: Stage) -> None:
    limits = {"in_flight": 8, "samples_per_request": 4}
    stage.run(stage.config(stage.serve(), concurrency=limits))


TIME: dict[str, Any] = {"trials": {"optimize": "time", "max": 9}}


@case(parts=(*SAME, "event"), ahead=True)
def time(stage: Stage) -> None:
    """Its results beside the looks count all answers that came in time."""
    stage.run(stage.config(stage.serve(), **TIME))


@case(like="time", ahead=True)
def time_one_at_a_time(stage: Stage) -> None:
    stage.run(stage.config(stage.serve(), concurrency=1, **TIME))


@case(like="time", ahead=True)
def time_64_at_a_time(stage: Stage) -> None:
    stage.run(stage.config(stage.serve(), concurrency=64, **TIME))


@case(like="time", ahead=True)
def time_killed(stage: Stage) -> None:
    stage.killed(stage.config(stage.gate(130).base_url, **TIME), 100)
    stage.run(stage.config(stage.serve(), **TIME))


# -- caps --------------------------------------------------------------------------------------------------------------


def priced(url: str) -> list[dict[str, Any]]:
    return [{"name": name, "base_url": url, **PRICE} for name in MODELS]


CAP_TRIALS: dict[str, Any] = {"budget": {"trials": 120}}
CAP_TOKENS: dict[str, Any] = {"budget": {"tokens": 90_000}, "trials": {"min": 2, "max": 8}}
CAP_USD: dict[str, Any] = {"budget": {"usd": 1.6}}


@case()
def cap_trials(stage: Stage) -> None:
    stage.run(stage.config(stage.serve(), **CAP_TRIALS))


@case(like="cap_trials")
def cap_trials_killed(stage: Stage) -> None:
    stage.killed(stage.config(stage.gate(110).base_url, **CAP_TRIALS), 90)
    stage.run(stage.config(stage.serve(), **CAP_TRIALS))


@case()
def cap_tokens(stage: Stage) -> None:
    stage.run(stage.config(stage.serve(), **CAP_TOKENS))


@case(like="cap_tokens")
def cap_tokens_stopped(stage: Stage) -> None:
    """The stop waits for what is in flight, so that nothing is lost."""
    gate = stage.gate(110)
    stage.stopped(stage.config(gate.base_url, **CAP_TOKENS), 90, gate.open)
    stage.run(stage.config(stage.serve(), **CAP_TOKENS))


@case()
def cap_usd(stage: Stage) -> None:
    url = stage.serve()
    stage.run(stage.config(url, models=priced(url), **CAP_USD))


# -- grading -----------------------------------------------------------------------------------------------------------


def judged(url: str, **how: Any) -> dict[str, Any]:
    judge = {"kind": "judge", "server": {"base_url": url, "model": "judge"}, **how}
    return {"grader": judge, "trials": {"min": 2, "max": 8}}


@case()
def judge(stage: Stage) -> None:
    url = stage.serve(judge=SimulatedJudge(says_right=(0.9, 0.1)))
    stage.run(stage.config(url, **judged(url, votes=1)))


def judge_begun(stage: Stage) -> None:
    gated = stage.gate(60, judge=SimulatedJudge(says_right=(0.9, 0.1))).base_url
    stage.killed(stage.config(gated, **judged(gated, votes=1)), 10)


@case(like="judge")
def judge_killed(stage: Stage) -> None:
    judge_begun(stage)
    judge(stage)


@case()
def judge_votes(stage: Stage) -> None:
    """The majority of three verdicts, some of which are missing."""
    url = stage.serve(judge=SimulatedJudge(says_right=(0.8, 0.2), mute=0.02))
    stage.run(stage.config(url, **judged(url, votes=3)))


@case()
def judge_criteria(stage: Stage) -> None:
    url = stage.serve(judge=SimulatedJudge(says_right=(0.9, 0.2)))
    stage.run(stage.config(url, **judged(url, votes=1, scores=CRITERIA)))


@case()
def judge_against_a_field(stage: Stage) -> None:
    """Every answer is compared with one of another model, which stands in the questions."""
    url = stage.serve(judge=SimulatedJudge())
    rows = list(question_rows(small_world()))
    others = [row["answer"] if at % 2 else "1000" for at, row in enumerate(rows)]
    stage.write_questions(row | {"other": f"\\boxed{{{other}}}"} for row, other in zip(rows, others, strict=True))
    questions = {"path": "questions.jsonl", "fields": {"metadata": ["other"]}}
    stage.run(stage.config(url, questions=questions, **judged(url, votes=1, compare_to="other")))


@case()
def verifier(stage: Stage) -> None:
    url = stage.serve(verifier=SimulatedVerifier(4.0, (0.7, 0.1, -0.9), noise=1.0, errs=(0.05, 0.1)))
    grader = {"kind": "verifier", "server": {"base_url": url, "model": "verifier"}}
    grader |= {"key_grader": "numeric"}
    stage.run(stage.config(url, grader=grader, rubric="verifier_probe", trials={"min": 2, "max": 8}))


@case()
def thresholds(stage: Stage) -> None:
    """Categories depend on thresholds that are fitted on the first round of another run."""
    url = stage.serve()
    stage.run(stage.config(url, "pilot", trials={"min": 3, "max": 3}), "pilot")
    rubric = SHORT | {"thresholds": {"from": str(stage.directory("pilot"))}}
    stage.run(stage.config(url, rubric=rubric, seed=5, trials={"min": 3, "max": 12}))


@case()
def partial_credit(stage: Stage) -> None:
    """Four categories by what signals say."""
    world = fast(rubric(models=3, questions=10))
    categories = [
        {"name": "right", "weight": 1, "when": {"is_correct": True, "completion_tokens": {"below": 250}}},
        {"name": "long", "weight": 0.5, "when": {"is_correct": True}},
        {"name": "wrong", "weight": 0.1, "when": {"has_answer": True}},
        {"name": "none", "weight": 0},
    ]
    url = stage.serve(world)
    stage.run(stage.config(url, models=world.models, rubric={"categories": categories}))


# -- what a run begins with --------------------------------------------------------------------------------------------

BEGINNING: dict[str, Any] = {"trials": {"min": 3, "max": 12}}


@case()
def r0(stage: Stage) -> None:
    """Outcomes of an earlier run, of two models under other names."""
    url = stage.serve()
    stage.run(stage.config(url, "old", models=("ada", "bob"), trials={"min": 2, "max": 8}), "old")
    prior = {"run": str(stage.directory("old")), "models": {"bob": "ada", "cyd": "bob"}}
    stage.run(stage.config(url, prior=prior, **BEGINNING))


@case()
def recorded(stage: Stage) -> None:
    """A new model is placed among two of an earlier run, which are not asked."""
    url = stage.serve()
    stage.run(stage.config(url, "old", models=("ada", "cyd"), trials={"min": 2, "max": 8}), "old")
    models = [{"name": name, "recorded": str(stage.directory("old"))} for name in ("ada", "cyd")]
    models.append({"name": "bob", "base_url": url})
    stage.run(stage.config(url, models=models, objective={"kind": "place"}))


@case()
def imported(stage: Stage) -> None:
    """The first trials of another run are imported, and the run goes on."""
    url = stage.serve()
    stage.run(stage.config(url, "old"), "old")
    stage.command("export", stage.directory("old"), "--format", "jsonl", "--output", stage.folder / "all.jsonl")
    rows = (stage.folder / "all.jsonl").read_text().splitlines()
    stage.write_questions([row for row in map(json.loads, rows) if row["trial"] < 4], "log.jsonl")
    config = stage.config(url)
    stage.command("import", stage.folder / "log.jsonl", "--to", stage.directory(), "--config", config)
    stage.run(config)


# -- seeds and questions -----------------------------------------------------------------------------------------------


@case()
def coupled(stage: Stage) -> None:
    """Near copies are compared trial by trial, and pass a gate."""
    url = stage.serve(COPIES)
    gate = {"kind": "baseline", "baseline": "original", "gate": True}
    names, codes = ("original", "int8", "int4"), (*ENDED, ExitCode.WORSE)
    settings: dict[str, Any] = {"trials": {"seeds": "coupled"}, "objective": gate, "stopping": {"delta": 0.04}}
    stage.run(stage.config(url, models=names, **settings), codes=codes)


@case()
def drawn(stage: Stage) -> None:
    """One trial of each question, drawn in blocks."""
    stage.run(drawn_config(stage, stage.serve(MANY)))


def drawn_config(stage: Stage, url: str) -> Any:
    questions = {"path": "questions.jsonl", "shuffle": True}
    names = ("model-01", "model-04", "model-06")
    return stage.config(url, models=names, questions=questions, trials={"min": 1, "max": 1, "draw": 50})


# -- decisions ---------------------------------------------------------------------------------------------------------


@case()
def published(stage: Stage) -> None:
    stage.run(stage.config(stage.serve(), stopping={"rule": "published", "confidence": 0.95}))


@case()
def holm(stage: Stage) -> None:
    url = stage.serve(FOUR)
    stage.run(stage.config(url, models=FOUR.models, stopping={"familywise": "holm"}))


@case()
def ties(stage: Stage) -> None:
    """Models within delta of each other are certified to be as good."""
    world = small_world((0.9, 0.45, 0.45))
    stage.run(stage.config(stage.serve(world), stopping={"delta": 0.15}))


def decided(name: str, objective: dict[str, Any], policy: str = "weighted", **changes: Any) -> None:
    """Enter a run of four models with this objective."""

    def play(stage: Stage) -> None:
        url = stage.serve(FOUR)
        settings = {"models": FOUR.models, "objective": objective, "trials": {"policy": policy}, **changes}
        stage.run(stage.config(url, **settings), codes=(*ENDED, ExitCode.WORSE))

    CASES[name] = Case(play, name)


decided("best", {"kind": "best"}, stopping={"rule": "near_best", "delta": 0.1})
decided("top_k", {"kind": "top_k", "k": 2}, "unresolved_pairs", stopping={"rule": "near_best", "delta": 0.05})
decided("gate", {"kind": "baseline", "baseline": "bob", "gate": True}, stopping={"delta": 0.05})
decided("pairs", {"kind": "pairs", "pairs": [["ada", "dot"], ["bob", "cyd"]]}, "weighted")


@case()
def cheapest(stage: Stage) -> None:
    """The dearest model is the best, and the next one will do for a fifth of its price."""
    world = small_world((0.3, 0.8, 0.85))
    url, prices = stage.serve(world), ({"input": 0.1, "output": 0.4}, {"input": 0.5, "output": 3.0}, PRICE["price"])
    models = [{"name": name, "base_url": url, "price": price} for name, price in zip(world.models, prices, strict=True)]
    stage.run(stage.config(url, models=models, objective={"kind": "cheapest", "delta": 0.2}))


decided("precision", {"kind": "precision", "half_width": 0.12}, "uniform")
decided("threshold", {"kind": "threshold", "value": 0.5})


# -- batches, and servers that the run starts --------------------------------------------------------------------------


@case(parts=(*SAME, "result"), ahead=True)
def batches(stage: Stage) -> None:
    """A batch service that loses, refuses and repeats."""
    stage.short_pauses()
    stage.short_polls()
    faults: dict[str, Any] = {"errored": 0.1, "left_out": 0.03, "doubled": 0.1, "strange": 0.1, "expired": 0.2}
    url = stage.serve(batches=BatchHabits(seconds=0.03, lost=0.2, **faults))
    models = [{"name": name, "base_url": url, "batch": "openai"} for name in MODELS]
    stage.run(stage.config(url, models=models))


def launched(stage: Stage) -> list[dict[str, Any]]:
    """Models whose servers the run starts."""
    stage.own_places()
    stage.write_questions(question_rows(small_world()))
    command = [sys.executable, "-S", str(SERVER), "{port}", str(stage.folder)]
    return [{"name": name, "launch": {"command": command, "timeout": 300}} for name in MODELS]


@case(parts=SAME)
def pool(stage: Stage) -> None:
    """Three models at two places, which exchange servers."""
    models = launched(stage)
    stage.run(stage.config("", models=models, pool=[0, "1"], trials={"min": 2, "max": 8}))


@case(like="pool")
def pool_of_one(stage: Stage) -> None:
    """Three models in turn at one place."""
    stage.run(stage.config("", models=launched(stage), pool=["gpu0"], trials={"min": 2, "max": 8}))


# -- afterwards --------------------------------------------------------------------------------------------------------


@case()
def regraded(stage: Stage) -> None:
    """An answer key is mended, and the run goes on with the new grades."""
    url = stage.serve()
    rows = list(question_rows(small_world()))
    stage.write_questions([row | {"answer": "7"} if row["id"] in ("q3", "q6") else row for row in rows])
    stage.run(stage.config(url, trials={"min": 2, "max": 8}))
    stage.write_questions(rows)
    config = stage.config(url, trials={"min": 2, "max": 8})
    stage.command("regrade", stage.directory(), "--config", config)
    stage.run(stage.config(url, trials={"min": 2, "max": 12}))


def extended_begun(stage: Stage) -> None:
    stage.run(stage.config(stage.serve(), trials={"min": 2, "max": 8}))


def extended_on(stage: Stage) -> None:
    url = stage.servers[-1].base_url if stage.servers else stage.serve()
    stage.run(stage.config(url, trials={"min": 2, "max": 20}))


@case()
def extended(stage: Stage) -> None:
    """A run that was over goes on up to a larger trials.max."""
    extended_begun(stage)
    extended_on(stage)


# -- servers that do badly ---------------------------------------------------------------------------------------------

TWO = ("ada", "bob")


@case()
def poor_answers(stage: Stage) -> None:
    """Some answers are empty, truncated, or withheld by a filter."""

    def script(asked: Asked) -> Reply | None:
        body = answer(asked)
        choice = body["choices"][0]
        match asked.seed % 7:
            case 0:
                choice["message"]["content"] = ""
            case 1:
                choice["finish_reason"] = "length"
            case 2:
                choice["finish_reason"], choice["message"]["content"] = "content_filter", ""
            case _:
                return None
        return Reply(body=body)

    stage.run(stage.config(stage.script(script), models=TWO, trials={"min": 2, "max": 8}))


@case()
def alike_answers(stage: Stage) -> None:
    """All answers of a model are the same, word for word."""

    def script(asked: Asked) -> Reply | None:
        if asked.model == "ada":
            return None
        body = answer(asked)
        body["choices"][0]["message"]["content"] = "The answer is 1."
        return Reply(body=body)

    stage.run(stage.config(stage.script(script), models=TWO))


@case()
def model_set_aside(stage: Stage) -> None:
    """A model is refused by its server; the others are ranked."""
    world = small_world((0.7, 0.5, 0.2), ("ada", "bob", "dot"))
    url = stage.serve(world)
    limits = {"in_flight": 8, "retry_for": 0}
    stage.run(stage.config(url, models=("ada", "bob", "dot"), concurrency=limits, trials={"min": 2, "max": 8}))


@case()
def request_set_aside(stage: Stage) -> None:
    """One request of a question fails every time, and others are answered."""
    stage.short_pauses()

    def script(asked: Asked) -> Reply | None:
        always = asked.model == "ada" and "Question 2" in asked.prompt and asked.seed % 4 == 0
        return Reply(500, {"error": {"message": "no such thing", "code": 500}}) if always else None

    stage.run(stage.config(stage.script(script), models=TWO, concurrency=2, trials={"min": 2, "max": 8}))
