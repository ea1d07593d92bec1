"""What a run can have: its factors, their levels, and which of them do not go together.

A factor is a function that writes a level into a `Setup`. The first level is the plain one. Rows of a covering array
bring together all pairs (or triples) of levels, except those that `REFUSED` and `MOOT` name.

To add a factor: write its function here, say below what the program refuses, and teach the checker what must hold.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from world import World

MODELS = {"ada": 0.95, "bob": 0.35, "cyd": 0.05}
"""How often each is right: a wrong order of two of them by chance is a matter of one in a million."""
ADDED = ("dan", 0.65)
"""The model that joins later."""
EQUAL_PAIR = {"ada": 0.95, "bob": 0.3, "cyd": 0.3}
KEY_VARIABLE, KEY = "MODELS_KEY", "sk-live-4f9c2e71d8a3b605e9c7"
"""The variable with the key, and the key, which must be in no file."""
CHEAPEST_DELTAS = {"5%": 0.05, "0": 0.5}
"""How far behind the best the cheapest model that will do may be, by level of delta: within half a point, bob will do.
"""
PRICES = {"zero": {"input": 0, "output": 0}, "paid": {"input": 2.0, "output": 10.0}}
TEMPERATURE = 0.7
IN_FLIGHT = 4
QUESTIONS = 8
DRAWN, DRAW = 150, 50
"""Questions where the run draws some of them, and how many it draws at a time."""


@dataclass
class Setup:
    """A life before it begins: a configuration, a world, and what is to happen."""

    config: dict[str, Any] = field(default_factory=dict)
    world: World = field(default_factory=lambda: World({}, {}))
    row: Mapping[str, str] = field(default_factory=dict)
    options: list[str] = field(default_factory=list)
    """Of every `run`."""
    weights: dict[str, float] = field(default_factory=lambda: {"correct": 1.0, "brief": 1.0, "wrong": 0.0})
    """What an answer is worth that is right and long, right and brief, or wrong."""
    labels: dict[str, str] = field(default_factory=lambda: {"correct": "correct", "brief": "correct", "wrong": "wrong"})
    """The names of their categories."""

    def section(self, name: str) -> dict[str, Any]:
        return self.config.setdefault(name, {})

    @property
    def models(self) -> list[dict[str, Any]]:
        """The models that are asked."""
        return [model for model in self.config["models"] if "recorded" not in model]


Apply = Callable[[Setup, str], None]
FACTORS: dict[str, tuple[str, ...]] = {}
"""The levels of each factor, the plain one first."""
APPLY: dict[str, Apply] = {}
"""In this order."""


def factor(*levels: str) -> Callable[[Apply], Apply]:
    """Register a factor with its levels."""

    def register(apply: Apply) -> Apply:
        FACTORS[apply.__name__] = levels
        APPLY[apply.__name__] = apply
        return apply

    return register


def plain_setup() -> Setup:
    """Three models far apart on a few questions, nothing special; addresses are filled in when servers are there."""
    setup = Setup()
    setup.config |= {
        "name": "run",
        "seed": 5,
        "questions": "questions.jsonl",
        "models": [{"name": name} for name in MODELS],
        "sampling": {"temperature": TEMPERATURE, "max_tokens": 64},
        "grader": {"kind": "numeric"},  # graded in the process of the run itself
        "trials": {"min": 3, "max": 6},
        "concurrency": {"in_flight": IN_FLIGHT},
    }
    return setup


# -- the models ------------------------------------------------------------------------------------------------------


@factor("apart", "equal_pair")
def truth(setup: Setup, level: str) -> None:
    means = MODELS if level == "apart" else EQUAL_PAIR
    ids = [f"q{number}" for number in range(QUESTIONS if setup.row["draw"] == "none" else DRAWN)]
    setup.world.keys = {question: str(100 + number) for number, question in enumerate(ids)}
    for name, mean in {**means, ADDED[0]: ADDED[1]}.items():
        setup.world.models[name] = dict.fromkeys(ids, mean)


@factor("endpoint", "launched", "pool", "batch", "command", "recorded", "inspect", "lm_eval", "ray")
def supply(setup: Setup, level: str) -> None:
    """Where answers come from. `recorded`: one model's come from an earlier run. For tasks of others see `OWN_WAYS`."""
    for model in setup.models:
        if level in ("launched", "pool", "ray"):
            model["launch"] = {"command": ["{python}", "{server}", "{world}", "{ledger}", "{port}"]}
        if level == "batch":
            model["batch"] = "openai"
        if level == "ray":
            model["launch"]["resources"] = {"CPU": 1}
            setup.options = ["--ray", "{ray}"]
    if level == "pool":
        setup.config["pool"] = [0, 1]
    if level == "recorded":
        setup.models[1]["recorded"] = "runs/before"


@factor("one", "each", "replicas")
def addresses(setup: Setup, level: str) -> None:
    """One address for all models, one for each, or two that serve all of them; filled in when servers are there."""


@factor("environment", "header", "none")
def access(setup: Setup, level: str) -> None:
    for model in setup.models:
        if level == "environment":
            model["api_key_env"] = KEY_VARIABLE
        elif level == "header":
            model["headers"] = {"X-Api-Key": f"${{{KEY_VARIABLE}}}"}


@factor("none", "zero", "paid")
def price(setup: Setup, level: str) -> None:
    for model in setup.models:
        if level != "none":
            model["price"] = PRICES[level]


@factor("stream", "whole", "completions")
def api(setup: Setup, level: str) -> None:
    for model in setup.models:
        model["stream"] = level == "stream"
        if level == "completions":
            model["api"] = "completions"


@factor("1", "3")
def samples_per_request(setup: Setup, level: str) -> None:
    setup.section("concurrency")["samples_per_request"] = int(level)
    if level != "1" and setup.row["rubric"] == "partial" and setup.row["supply"] != "lm_eval":
        setup.section("sampling")["logprobs"] = True  # counts the tokens of each answer


# -- trouble ---------------------------------------------------------------------------------------------------------


@factor("fine", "cut", "empty", "context")
def answers(setup: Setup, level: str) -> None:
    """The best model's answers are cut off; or from the middle of the first round on they are empty, or refused. To be
    sure that a server has changed takes twice as many answers, the first of them whole passes over the questions: of
    requests, since one may ask for several trials of a question."""
    if level != "fine":
        setup.world.answers, setup.world.troubled = level, "ada"
    if level in ("empty", "context"):
        setup.section("trials").update(min=6, max=8)
        full_pass = QUESTIONS * max(int(setup.row["samples_per_request"]), 2)
        setup.world.middle = full_pass if setup.row["draw"] == "none" else DRAW // 2


@factor("fine", "errors", "hangs", "doubled")
def wire(setup: Setup, level: str) -> None:
    setup.world.wire = level
    if level == "hangs":
        setup.section("sampling")["timeout"] = 3


@factor("none", "answers", "errors")
def echo(setup: Setup, level: str) -> None:
    """The server repeats the key that it was sent."""
    setup.world.echo = level


# -- questions, grading ----------------------------------------------------------------------------------------------


@factor("key", "judge", "verifier", "failing")
def grader(setup: Setup, level: str) -> None:
    """`key`: commands report scores by it. `failing`: a function that fails on some answers, until it is mended."""
    if level in ("judge", "verifier"):
        setup.config["grader"] = {"kind": level, "server": {"base_url": "{url}", "model": level}}
        setup.config["grader"]["concurrency"] = {"in_flight": 4}
        if setup.row["price"] != "none":
            setup.config["grader"]["server"]["price"] = PRICES[setup.row["price"]]
    elif level == "failing":
        setup.config["grader"] = {"kind": "python", "function": "failing_grader:grade"}
        setup.config["grading"] = {"workers": 1}
    elif setup.row["supply"] == "command":
        setup.config["grader"] = "reported"


@factor("binary", "partial", "reversed")
def rubric(setup: Setup, level: str) -> None:
    """`partial`: long answers count less. `reversed`: the score is the share of wrong answers."""
    right = {"is_correct": True}
    brief = {"name": "brief", "weight": 1.0, "when": right | {"completion_tokens": {"below": 13}}}
    if level == "partial":
        categories = [brief, {"name": "long", "weight": 0.6, "when": right}, {"name": "wrong", "weight": 0.0}]
        setup.weights = {"brief": 1.0, "correct": 0.6, "wrong": 0.0}
        setup.labels = {"brief": "brief", "correct": "long", "wrong": "wrong"}
    elif level == "reversed":
        categories = [{"name": "right", "weight": 0.0, "when": right}, {"name": "wrong", "weight": 1.0}]
        setup.weights = {"brief": 0.0, "correct": 0.0, "wrong": 1.0}
        setup.labels = {"brief": "right", "correct": "right", "wrong": "wrong"}
    else:
        return
    setup.config["rubric"] = {"categories": categories}


@factor("none", "agree", "overturn")
def labels(setup: Setup, level: str) -> None:
    """What people say of the answers in the end: as the grader does, or that it was lenient with the best model."""
    if level == "overturn":
        setup.world.lenient = {"ada": 0.9}


@factor("one", "weighted", "grouped")
def benchmarks(setup: Setup, level: str) -> None:
    if level == "weighted":
        del setup.config["questions"]
        parts = [{"name": "main", "weight": 2, "questions": "main.jsonl"}, {"name": "side", "questions": "side.jsonl"}]
        setup.config["benchmarks"] = parts
    elif level == "grouped":
        setup.config["questions"] = {"path": "questions.jsonl", "fields": {"metadata": ["topic"]}}
        setup.config["report"] = {"group_by": ["topic"]}


@factor("none", "some")
def draw(setup: Setup, level: str) -> None:
    if level == "some":
        settings = setup.config.get("questions", "questions.jsonl")
        settings = {"path": settings} if isinstance(settings, str) else settings
        setup.config["questions"] = {**settings, "shuffle": True}
        setup.config["trials"] = {"min": 1, "max": 1, "draw": DRAW}


@factor("none", "several_draws")
def metrics(setup: Setup, level: str) -> None:
    if level == "several_draws":
        setup.section("report")["metrics"] = ["pass@2", "maj@3"]


# -- decisions -------------------------------------------------------------------------------------------------------


GATES = ("gate", "gate_on_value")


@factor("ranking", "best", "gate", "threshold", "gate_on_value", "place", "cheapest")
def objective(setup: Setup, level: str) -> None:
    value = {"binary": 0.65, "partial": 0.5, "reversed": 0.35}[setup.row["rubric"]]
    setup.config["objective"] = {
        "ranking": {"kind": "ranking"},
        "best": {"kind": "best"},
        "gate": {"kind": "baseline", "baseline": "bob", "gate": True},
        "threshold": {"kind": "threshold", "value": value},
        "gate_on_value": {"kind": "threshold", "value": value, "gate": True},
        "place": {"kind": "place"},
        "cheapest": {"kind": "cheapest"},
    }[level]
    if level == "cheapest" and setup.row["price"] == "paid":  # the first model is the dearest
        for times, model in enumerate(reversed(setup.models), 1):
            model["price"] = {key: times * usd for key, usd in PRICES["paid"].items()}


@factor("optimal", "published", "anytime")
def rule(setup: Setup, level: str) -> None:
    if level != "optimal":
        setup.section("stopping")["rule"] = level


@factor("none", "holm")
def familywise(setup: Setup, level: str) -> None:
    if level == "holm":
        setup.section("stopping")["familywise"] = level


@factor("5%", "0")
def delta(setup: Setup, level: str) -> None:
    if setup.row["objective"] == "cheapest":
        setup.config["objective"]["delta"] = CHEAPEST_DELTAS[level]
    else:
        setup.section("stopping")["delta"] = level if level != "0" else 0


@factor("self", "earlier")
def prior(setup: Setup, level: str) -> None:
    if level == "earlier":
        setup.config["prior"] = {"run": "runs/elder"}


@factor("hashed", "consecutive", "coupled")
def seeds(setup: Setup, level: str) -> None:
    setup.section("trials")["seeds"] = level


@factor("auto", "cost", "time")
def optimize(setup: Setup, level: str) -> None:
    setup.section("trials")["optimize"] = level


@factor("weighted", "unresolved_pairs", "uniform")
def policy(setup: Setup, level: str) -> None:
    setup.section("trials")["policy"] = level


@factor("none", "rule", "policy", "objective")
def plug_in(setup: Setup, level: str) -> None:
    if level == "rule":
        setup.section("stopping").update(rule="plug_ins:Stern", options={"height": 3.0})
    elif level == "policy":
        setup.section("trials")["policy"] = "plug_ins:Alike"
    elif level == "objective":
        setup.config["objective"] = "plug_ins:Ends"


@factor("all", "any", "never")
def on_alarm(setup: Setup, level: str) -> None:
    setup.section("stopping")["on_alarm"] = level


@factor("none", "trials", "tokens", "usd", "wall_time")
def cap(setup: Setup, level: str) -> None:
    """Reached after the first round, and before the end, unless everything is decided by then."""
    large = setup.row["draw"] != "none"
    twice = setup.row["answers"] in ("empty", "context") and not large
    times = (4 if large else 2 if twice else 1) * (5 if setup.row["grader"] in ("judge", "verifier") else 1)
    budget = {"trials": 320 if large else 180 if twice else 90, "tokens": 12_000 * times, "usd": 0.08 * times}
    if level == "wall_time":
        setup.config["budget"] = {"wall_time": "1.5s"}
        setup.world.seconds = 0.1
    elif level != "none":
        setup.config["budget"] = {level: budget[level]}


# -- its life --------------------------------------------------------------------------------------------------------


@factor("no", "yes")
def dry_run(setup: Setup, level: str) -> None:
    """Whether `run --dry-run` comes first."""


@factor("none", "killed_twice", "stopped")
def interruption(setup: Setup, level: str) -> None:
    """What befalls the first starts."""


@factor("none", "max_by_file", "max_by_set", "model_added")
def continuation(setup: Setup, level: str) -> None:
    """How the run goes on once it has ended; afterwards comes the first command again."""


@factor("none", "regraded", "moved", "moved_as_table")
def afterwards(setup: Setup, level: str) -> None:
    """`moved`: exported, imported elsewhere, and continued there."""


# -- tasks of other harnesses ------------------------------------------------------------------------------------------


def _inspect_task(setup: Setup) -> None:
    """The questions, and what grades them, are in a task of Inspect, which asks the models itself."""
    config, sampling = setup.config, setup.config.pop("sampling")
    config["benchmark"] = {"inspect": "inspect_task.py@questions", "args": {"credit": setup.row["rubric"] == "partial"}}
    config.pop("questions")
    config.pop("grader")
    options = {key: value for key, value in sampling.items() if key in ("temperature", "max_tokens")}
    if "timeout" in sampling:
        options["attempt_timeout"] = sampling["timeout"]
    for model in setup.models:
        priced = {"price": model["price"]} if "price" in model else {}
        name = model["name"]
        model.clear()
        model |= {"name": name, "inspect": {"model": f"openai-api/sim/{name}", **options}, "concurrency": 4, **priced}
    config.pop("concurrency")
    if setup.row["rubric"] == "partial":
        _by_score(config)


def _by_score(config: dict[str, Any]) -> None:
    """The rubric `partial` of what a task says an answer is worth."""
    brief, long, _ = config["rubric"]["categories"]
    brief["when"], long["when"] = {"score": {"at_least": 0.9}}, {"score": {"at_least": 0.5}}


def _lm_eval_task(setup: Setup) -> None:
    """The prompts, and what grades the answers, are in a task of lm-evaluation-harness."""
    setup.config["benchmark"] = {"lm_eval": f"sums_{setup.row['rubric']}", "include_path": "lm_eval_tasks"}
    if setup.row["draw"] == "none":
        setup.config.pop("questions")
    else:
        setup.config["questions"] = {"shuffle": True}
    setup.config.pop("grader")
    if setup.row["rubric"] == "partial":
        _by_score(setup.config)
    elif setup.row["rubric"] == "reversed":  # the task says that fewer wrong answers are better
        del setup.config["rubric"]
        setup.weights = {"brief": 1.0, "correct": 1.0, "wrong": 0.0}
        if setup.row["objective"] in ("threshold", "gate_on_value"):
            setup.config["objective"]["value"] = 0.65


def _commands(setup: Setup) -> None:
    """Each answer is a process, which says what it has used."""
    config, sampling = setup.config, setup.config.pop("sampling")
    reported, partial = config["grader"] == "reported", setup.row["rubric"] == "partial"
    graded = "nothing" if not reported else "credit" if partial else "right"
    for model in setup.models:
        price = model.get("price")
        usd = "-" if price is None else str(price["output"] / 1e6)
        name, seconds = model["name"], sampling.get("timeout")
        model.clear()
        model |= {
            "name": name,
            "command": ["{python}", "-S", "./command_model.py", "./world", name, graded, usd],
            "concurrency": IN_FLIGHT,
        }
        if seconds is not None:
            model["timeout"] = seconds
        if setup.row["access"] == "environment":
            model["env"] = [KEY_VARIABLE]
    if partial and reported:
        _by_score(config)
    for kind, too_much in (("tokens", 10_000), ("usd", 0.06)):  # prompts cost nothing, and less is reserved
        if kind in config.get("budget", {}):
            config["budget"][kind] -= too_much * (4 if setup.row["draw"] != "none" else 1)


OWN_WAYS: dict[str, Callable[[Setup], None]] = {
    "inspect": _inspect_task,
    "lm_eval": _lm_eval_task,
    "command": _commands,
}
"""Supplies that are configured in their own way."""


def make_setup(row: Mapping[str, str]) -> Setup:
    """A row of the array as a life."""
    setup = plain_setup()
    setup.row = row
    for name, apply in APPLY.items():
        apply(setup, row[name])
    if row["supply"] in OWN_WAYS:
        OWN_WAYS[row["supply"]](setup)
    return setup


# -- what does not go together ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Conflict:
    """Levels that do not go together, by factor."""

    levels: Mapping[str, tuple[str, ...]]
    why: str
    """What the program says, as a regular expression; or in words, where there is no such life."""
    stage: str = "run"
    """The command that refuses."""

    def holds(self, row: Mapping[str, str]) -> bool:
        return all(row.get(name) in levels for name, levels in self.levels.items())


def _levels(**levels: str | tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    return {name: (value,) if isinstance(value, str) else value for name, value in levels.items()}


def _other(name: str, *levels: str) -> tuple[str, ...]:
    """All levels of a factor but these."""
    return tuple(level for level in FACTORS[name] if level not in levels)


REFUSED = (
    Conflict(_levels(supply="batch", samples_per_request="3"), "asks for one answer in each request"),
    Conflict(_levels(supply="recorded", draw="some"), "recorded cannot be combined with trials.draw"),
    Conflict(_levels(supply="recorded", prior="earlier"), "prior cannot be combined with recorded"),
    Conflict(_levels(objective="place", supply=_other("supply", "recorded")), "place needs recorded models"),
    Conflict(
        _levels(objective=("ranking", "best", "place", "cheapest"), seeds="coupled"),
        "coupled is for the objectives baseline",
    ),
    Conflict(_levels(plug_in="objective", seeds="coupled"), "coupled is for the objectives baseline"),
    Conflict(_levels(prior="earlier", seeds="coupled"), "trials.seeds"),
    Conflict(_levels(grader="verifier", benchmarks="weighted"), "cannot grade one of several benchmarks"),
    Conflict(_levels(rubric="partial", metrics="several_draws"), "report.metrics need a rubric of two categories"),
    Conflict(_levels(benchmarks="weighted", metrics="several_draws"), "report.metrics cannot be combined with several"),
    Conflict(_levels(benchmarks="weighted", draw="some"), "trials.draw cannot be combined with several benchmarks"),
    Conflict(_levels(benchmarks="grouped", draw="some"), "report.group_by cannot be combined with trials.draw"),
    Conflict(_levels(metrics="several_draws", draw="some"), "report.metrics cannot be combined with trials.draw"),
    Conflict(
        _levels(objective="cheapest", price=("none", "zero"), supply=_other("supply", "command")),
        "cheapest compares what answers cost",
    ),
    Conflict(
        _levels(objective="cheapest", grader=("judge", "verifier")),
        "cheapest would count the verdicts|no price above 0",
    ),
    Conflict(_levels(objective="cheapest", supply="recorded"), "cheapest needs models that are asked"),
    Conflict(_levels(objective="cheapest", familywise="holm"), "stopping.familywise is not for the objective cheapest"),
    Conflict(
        _levels(objective=("threshold", "gate_on_value", "place"), draw="some"), "objective.kind must compare models"
    ),
    Conflict(_levels(rule="published", draw="some"), "stopping.rule compares Bayes@N"),
    Conflict(_levels(prior="earlier", draw="some"), "trials.draw"),
    Conflict(_levels(seeds="coupled", draw="some"), "trials.seeds must not be coupled with trials.draw"),
    Conflict(_levels(optimize="time", draw="some"), "must be answers with trials.draw"),
    Conflict(_levels(rule="published", familywise="holm"), "needs a rule with a valid p-value"),
    Conflict(_levels(rule="published", seeds="coupled"), "stopping.rule compares Bayes@N"),
    Conflict(_levels(plug_in="rule", familywise="holm"), "familywise needs a rule with p-values"),
    Conflict(
        _levels(cap="usd", price="none", supply=_other("supply", "command")),
        "budget.usd.*(needs price|counts nothing)",
    ),
    Conflict(_levels(supply="recorded", afterwards=("moved", "moved_as_table")), "recorded models", "imported"),
)
"""The program refuses these before anything is bought, with such a sentence."""

MOOT = (
    Conflict(_levels(plug_in="rule", rule=_other("rule", "optimal")), "the plug-in is the rule"),
    Conflict(_levels(plug_in="policy", policy=_other("policy", "weighted")), "the plug-in is the policy"),
    Conflict(_levels(plug_in="objective", objective=_other("objective", "ranking")), "the plug-in is the objective"),
    Conflict(
        _levels(supply=("launched", "pool", "ray"), addresses=("each", "replicas")), "the run itself has the addresses"
    ),
    Conflict(_levels(access="none", echo=("answers", "errors")), "there is no key to repeat"),
    *(
        Conflict(_levels(supply="inspect", **{name: FACTORS[name][1:]}), "Inspect asks the models in its own way")
        for name in ("addresses", "access", "api", "samples_per_request", "draw")
    ),
    *(
        Conflict(
            _levels(supply="command", **{name: FACTORS[name][1:]}), "a command has no address and sends no request"
        )
        for name in ("addresses", "api", "samples_per_request")
    ),
    Conflict(_levels(supply="command", access="header"), "a command is given variables alone"),
    Conflict(_levels(supply="command", wire="doubled"), "a command has one last line"),
    Conflict(_levels(supply="command", answers="cut"), "a command says nothing of a limit on its answer"),
    Conflict(
        _levels(supply="command", price="none", cap="usd"), "known from its first answer on, which reports no USD"
    ),
    Conflict(
        _levels(supply="command", price="none", objective="cheapest"), "known from its first answer on, as with a cap"
    ),
    Conflict(_levels(supply="command", grader="key", prior="earlier"), "servers of the earlier run report no scores"),
    Conflict(
        _levels(supply="command", grader="key", rubric="partial", labels=("agree", "overturn")),
        "the rubric goes by the score that the command reports, which no label says",
    ),
    Conflict(_levels(supply="inspect", wire="doubled"), "Inspect reads the responses, without their ids"),
    Conflict(_levels(supply=("inspect", "lm_eval"), grader=("judge", "verifier")), "the task's own scorer grades"),
    Conflict(_levels(supply="lm_eval", grader="failing"), "the task's own scorer grades"),
    Conflict(
        _levels(supply=("inspect", "lm_eval"), rubric="partial", labels=("agree", "overturn")),
        "the rubric goes by the score of the task, which no label says",
    ),
    Conflict(_levels(supply=("inspect", "lm_eval"), benchmarks=("weighted", "grouped")), "the task has the questions"),
    Conflict(_levels(supply=("inspect", "lm_eval"), prior="earlier"), "the earlier run has questions of its own"),
    Conflict(_levels(supply="batch", wire="hangs"), "a batch service has no open requests"),
    Conflict(_levels(afterwards="moved_as_table", grader=_other("grader", "key")), "a table has no texts to be graded"),
    Conflict(_levels(draw="some", continuation=("max_by_file", "max_by_set")), "each question is asked once"),
)
"""These say nothing, or the life cannot be led."""
