"""Tasks of every kind, and a model that needs no server: it is right where the random number of its seed is small.

A test copies this file to where it runs; only the process of Inspect imports it. The model is scripted/p90 for one that
is right in 90 of 100 trials, and what other roles say follows from what they are asked.
"""

import json
import random
from pathlib import Path
from typing import Any

from inspect_ai import Epochs, Task, task
from inspect_ai.agent import AgentSubmit, react
from inspect_ai.dataset import Sample
from inspect_ai.model import (
    ChatMessageUser,
    ContentImage,
    ContentText,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    get_model,
    modelapi,
)
from inspect_ai.scorer import Score, choice, exact, mean, model_graded_qa, pattern, scorer
from inspect_ai.solver import generate, multiple_choice, solver, use_tools
from inspect_ai.solver._task_state import sample_state
from inspect_ai.tool import tool
from inspect_ai.util import sandbox, sandboxenv
from inspect_ai.util._sandbox.local import LocalSandboxEnvironment
from tenacity import wait_fixed

RIGHT, WRONG = "42", "41"
BACK = Path(__file__).with_name("back")
"""Without this file models that are late are away."""


@modelapi(name="scripted")
class ScriptedModel(ModelAPI):
    """Says 42 where it is right, by the seed of the trial alone."""

    async def generate(self, input: Any, tools: Any, tool_choice: Any, config: Any) -> ModelOutput:
        asked, reply = input[-1].text, RIGHT if self._right(config.seed) else WRONG
        if self.model_name.endswith("judge"):
            output = self._says(f"GRADE: {'C' if f'[Submission]: {RIGHT}' in asked else 'I'}")
        elif self.model_name.startswith("mute") and tools and input[-1].role != "tool":
            output = ModelOutput.for_tool_call(self.model_name, "add", {"x": 40, "y": 2})
        elif self.model_name.startswith("mute"):
            output = self._says("")
        elif self.model_name == "user":
            output = self._says("And what is it really?")
        elif self.model_name == "away" or (self.model_name.startswith("late-") and not BACK.exists()):
            raise ConnectionResetError("reset by peer")
        elif "ANSWER: $LETTER" in asked:
            output = self._says(f"ANSWER: {'B' if reply == RIGHT else 'A'}")
        elif tools and input[-1].role != "tool":
            output = ModelOutput.for_tool_call(self.model_name, "add", {"x": 40, "y": int(reply) - 40})
        elif tools:
            output = ModelOutput.for_tool_call(self.model_name, "submit", {"answer": asked})
        else:
            output = self._says(reply)
        times = 100 if self.model_name.startswith("dear-") else 1
        if not self.model_name.startswith("silent-"):
            cached = {"caching": 4, "boasting": 400}.get(self.model_name.partition("-")[0], 0)
            output.usage = ModelUsage(
                input_tokens=7 * times - cached,
                input_tokens_cache_read=cached or None,
                output_tokens=3 * times,
                total_tokens=10 * times,
            )
        return output

    def should_retry(self, ex: Exception) -> bool:
        return isinstance(ex, ConnectionResetError)

    def retry_wait(self) -> Any:
        return wait_fixed(0.05)

    def _right(self, seed: int | None) -> bool:
        skill = self.model_name.rpartition("-")[2][1:]
        chance = int(skill) / 100.0 if skill.isdecimal() else 1.0
        return seed is not None and random.Random(seed).random() < chance

    def _says(self, text: str) -> ModelOutput:
        return ModelOutput.from_content(self.model_name, text)


def samples(number: int = 2, **more: Any) -> list[Sample]:
    return [Sample(input=f"{at}: what is 6 * 7?", target=RIGHT, **more) for at in range(number)]


@task
def small(file: str = "questions.jsonl") -> Task:
    """Questions of the tests' world, for its server."""
    rows = map(json.loads, (Path(__file__).parent / file).read_text().splitlines())
    dataset = [Sample(id=row["id"], input=row["prompt"], target=row["answer"]) for row in rows]
    return Task(dataset=dataset, solver=generate(), scorer=pattern(r"boxed\{(\d+)\}"))


@task
def fetched(port: int) -> Task:
    """It cannot be loaded without its argument."""
    raise ValueError(port)


@task
def exactly(number: int = 2) -> Task:
    return Task(dataset=samples(number), solver=generate(), scorer=exact())


@task
def choices() -> Task:
    dataset = [Sample(input=f"{at}: what is 6 * 7?", choices=[WRONG, RIGHT], target="B") for at in range(2)]
    return Task(dataset=dataset, solver=multiple_choice(), scorer=choice())


@task
def judged() -> Task:
    return Task(dataset=samples(), solver=generate(), scorer=model_graded_qa())


@tool
def add() -> Any:
    async def execute(x: int, y: int) -> str:
        """Add two numbers.

        Args:
            x: One number.
            y: The other.
        """
        return str(x + y)

    return execute


@task
def agent() -> Task:
    return Task(dataset=samples(), solver=react(tools=[add()], submit=AgentSubmit(answer_only=True)), scorer=exact())


@solver
def conversation() -> Any:
    async def solve(state: Any, generate: Any) -> Any:
        state = await generate(state)
        asked = await get_model(role="user").generate(state.messages)
        state.messages.append(ChatMessageUser(content=asked.completion))
        return await generate(state)

    return solve


@task
def turns() -> Task:
    return Task(dataset=samples(), solver=conversation(), scorer=exact())


@solver
def calculated() -> Any:
    async def solve(state: Any, generate: Any) -> Any:
        state = await generate(state)
        ran = await sandbox().exec(["sh", "-c", f"echo $(({state.output.completion} + 1)) > found; cat found"])
        state.output.completion = str(int(ran.stdout) - 1)
        return state

    return solve


@task
def sandboxed() -> Task:
    return Task(dataset=samples(), solver=calculated(), scorer=exact(), sandbox="local")


@solver
def lingering() -> Any:
    """The first sample of all leaves a program at work, of which the file `program` tells."""

    async def solve(state: Any, generate: Any) -> Any:
        state = await generate(state)
        pid_file = Path(__file__).with_name("program")
        if not pid_file.exists():
            await sandbox().exec(["sh", "-c", f"echo $$ > {pid_file}; exec sleep 600"])
        return state

    return solve


@task
def lingers() -> Task:
    return Task(dataset=samples(), solver=lingering(), scorer=exact(), sandbox="local")


@task
def images() -> Task:
    shown = ContentImage(image="data:image/png;base64,iVBORw0KGgo=")
    asked = [ChatMessageUser(content=[ContentText(text="What number is this?"), shown])]
    return Task(dataset=[Sample(input=asked, target=RIGHT)], solver=generate(), scorer=exact())


@solver
def failing(first: int, only: str = "") -> Any:
    """Ends in an error at so many attempts at each sample whose id begins so."""

    async def solve(state: Any, generate: Any) -> Any:
        attempt = int(str(state.sample_id).partition("~")[2] or 1)
        if attempt <= first and str(state.sample_id).startswith(only):
            raise ConnectionResetError("reset by peer")
        return await generate(state)

    return solve


@scorer(metrics=[mean()])
def of_attempt() -> Any:
    """No score at the first attempt, a part of one for what is wrong."""

    async def score(state: Any, target: Any) -> Score:
        completion = state.output.completion
        value = float("nan") if "~" not in str(state.sample_id) else 1.0 if completion == RIGHT else 0.25
        return Score(value={"whole": value}, answer=completion)

    return score


@scorer(metrics={"strict": [mean()], "loose": [mean()]})
def twofold() -> Any:
    """Two values, and it says so."""

    async def score(state: Any, target: Any) -> Score:
        return Score(value={"strict": "C" if state.output.completion == RIGHT else "I", "loose": 1})

    return score


@scorer(metrics=[mean()])
def broken(model: str = "") -> Any:
    """Fails on every answer, or on those of one model."""

    async def score(state: Any, target: Any) -> Score:
        if str(state.model).endswith(model):
            raise KeyError("verdict")
        return Score(value=1 if state.output.completion == RIGHT else 0)

    return score


@task
def thrice(reducer: str) -> Task:
    return Task(dataset=samples(), solver=generate(), scorer=exact(), epochs=Epochs(3, reducer))


@task
def unscored(number: int = 8, model: str = "") -> Task:
    return Task(dataset=samples(number), solver=generate(), scorer=broken(model))


@task
def doubly() -> Task:
    return Task(dataset=samples(), solver=generate(), scorer=twofold())


@task
def faults(first: int = 1, only: str = "") -> Task:
    return Task(dataset=samples(), solver=failing(first, only), scorer=exact())


@task
def partial() -> Task:
    return Task(dataset=samples(), solver=generate(), scorer=[exact(), of_attempt()])


@solver
def killer(at: int) -> Any:
    """Ends the whole process at a trial."""

    async def solve(state: Any, generate: Any) -> Any:
        if str(state.sample_id).endswith(f"#{at}"):
            import os

            os._exit(9)
        return await generate(state)

    return solve


@task
def killed() -> Task:
    return Task(dataset=samples(), solver=killer(1), scorer=exact())


@task
def wordless() -> Task:
    """What is done with a tool is the answer."""
    return Task(dataset=samples(), solver=[use_tools(add()), generate()], scorer=exact())


@task
def endless() -> Task:
    return Task(dataset=samples(), solver=[conversation()] * 50, scorer=exact())


RIGHT_CODE = "def double(n): return 2 * n\n"
PROGRAMS = {
    "right": RIGHT_CODE,
    "wrong": "def double(n): return 3 * n",
    "ends early": f"{RIGHT_CODE}raise SystemExit(0)",
    "ends at once": f"import os\n{RIGHT_CODE}os._exit(0)",
    "sleeps": f"import time\n{RIGHT_CODE}time.sleep(60)",
    "floods": f"import os\n{RIGHT_CODE}for _ in range(24): os.write(1, b'x' * 2**20)\nos._exit(0)",
    "forks": f"import os, time\n{RIGHT_CODE}for _ in range(16):\n    if os.fork() == 0: time.sleep(20); os._exit(0)\n"
    "time.sleep(60)",
    "writes outside": f"{RIGHT_CODE}open(r'{Path(__file__).parent / 'outside'}', 'w').close()",
}
"""What one model writes, by the number of the trial; the forks are bounded."""
PLAIN = 2
"""The other writes only so many of the first: what hangs is waited for to its limit, two at a time."""


@solver
def hostile() -> Any:
    async def solve(state: Any, generate: Any) -> Any:
        trial = int(str(state.sample_id).partition("#")[2].partition("~")[0])
        program = trial if str(state.model).endswith("p95") else trial % PLAIN
        state.output = ModelOutput.from_content("scripted", list(PROGRAMS.values())[program])
        return state

    return solve


@sandboxenv(name="broken")
class BrokenSandbox(LocalSandboxEnvironment):
    """Its container is gone at trial 0, always."""

    @classmethod
    async def sample_init(cls, *_: Any) -> Any:
        return {"default": cls()}

    async def exec(self, *args: Any, **options: Any) -> Any:
        state = sample_state()
        if state is not None and "#0" in str(state.sample_id):
            raise RuntimeError("the container is gone")
        return await super().exec(*args, **options)


@sandboxenv(name="unstartable")
class UnstartableSandbox(LocalSandboxEnvironment):
    """Has no daemon."""

    @classmethod
    async def task_init(cls, *_: Any) -> None:
        raise RuntimeError("the daemon of the sandbox is not running")
