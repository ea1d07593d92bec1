"""A model that is a command. It knows the truth, makes trouble as a world says, and counts in the ledger what it does.

    python -S ./command_model.py ./world NAME GRADED USD_A_TOKEN

GRADED says what it reports as a score: `nothing`, whether it is `right`, or `credit`, by which a long answer is worth
less. With `-` for the price it reports no USD. It holds the lock of `RUNNING` while it and what it has started live.
"""

import fcntl
import os
import sys
import time

from world import CONTEXT_ERROR, LONG, Drawn, Ledger, World, padded, share

KEY_VARIABLE, TEMPERATURE = "MODELS_KEY", 0.7
RUNNING = "running.lock"
"""The file, beside the world, whose lock every process of a command holds."""
CREDIT = 0.6
"""What a long answer is worth."""
SECONDS_OF_A_HANG = 60
CRASHED, LOST_CONTEXT = 7, 3
"""Exit statuses."""


class CommandModel:
    """One trial."""

    def __init__(self, world: str, name: str, graded: str, usd: str) -> None:
        asked = eval(sys.stdin.read(), {"null": None, "true": True, "false": False})  # before `json` would be loaded
        self.world, self.ledger = World.read(world), Ledger(os.path.join(os.path.dirname(world), "ledger"))  # noqa: PTH118, PTH120
        self.graded, self.usd = graded, None if usd == "-" else float(usd)
        self.key = os.environ.get(KEY_VARIABLE, "")
        self.drawn = self.world.answer(name, asked["id"].rpartition("/")[2], asked["seed"], TEMPERATURE)
        self.line: dict[str, object] = {
            "model": name,
            "question": self.drawn.question,
            "seed": self.drawn.seed,
            "temperature": TEMPERATURE,
            "prompt_tokens": 0,
            "has_key": bool(self.key),
        }
        self.attempt, self.number = self.begin()

    def begin(self) -> tuple[int, int]:
        """Count this attempt: how many the trial had before, and how many trials of the model have begun."""
        with open(self.ledger.path) as file:  # noqa: PTH123
            fcntl.flock(file, fcntl.LOCK_EX)
            asked = [_asked(line) for line in self.ledger.lines() if line["what"] == "begun"]
            self.ledger.write(what="begun", **self.line)
        mine = _asked(self.line)
        return asked.count(mine), len({other for other in asked if other[0] == mine[0]} - {mine})

    def main(self) -> None:
        """Answer, or make trouble."""
        world, drawn = self.world, self.drawn
        time.sleep(world.seconds)
        chance = share("wire", drawn.model, drawn.question, drawn.seed, self.attempt)
        if world.echo == "errors" and chance > 0.92:
            self.crash(f"it was refused {self.key}")
        if world.wire == "errors" and chance < 0.05:
            self.crash("the agent stumbled")
        if world.wire == "hangs" and self.attempt == 0 and chance < 0.02:
            self.note("hung")
            os.spawnlp(os.P_NOWAIT, "sleep", "sleep", str(SECONDS_OF_A_HANG))
            time.sleep(SECONDS_OF_A_HANG)
        if drawn.model == world.troubled and self.number >= world.middle and world.answers in ("empty", "context"):
            self.note(world.answers, completion_tokens=1)
            self.report(1)
            if world.answers == "context":
                sys.exit(f"{CONTEXT_ERROR}")
            return
        text = padded(drawn.text, drawn.tokens)
        if world.echo == "answers" and share("echo", drawn.model, drawn.question, drawn.seed) < 0.1:
            text = f"I was given {self.key}. {text}"
        with open("trace.txt", "w") as file:  # noqa: PTH123
            file.write(f"{text}\nkey: {self.key}\n")
        self.note("served", completion_tokens=drawn.tokens)
        print(text)
        self.report(drawn.tokens, score=self.score(drawn), transcript="trace.txt")

    def score(self, drawn: Drawn) -> float | None:
        """What the command says that its answer is worth."""
        if self.graded == "nothing":
            return None
        return CREDIT if drawn.right and drawn.tokens == LONG and self.graded == "credit" else float(drawn.right)

    def crash(self, word: str) -> None:
        """End badly, with an answer that looks like a wrong one."""
        self.note("error")
        print(f"Case {self.drawn.model}/{self.drawn.question}/{self.drawn.seed}. The answer is 1")
        self.report(1, score=0.0 if self.graded != "nothing" else None)
        print(word, file=sys.stderr)
        sys.exit(CRASHED)

    def note(self, outcome: str, **more: object) -> None:
        """The line of this attempt in the ledger."""
        usd = {} if self.usd is None else {"usd": self.usd * int(str(more.get("completion_tokens", 1)))}
        sent = outcome not in ("error", "hung")
        self.ledger.write(what="answer", **self.line, outcome=outcome, sent=sent, right=self.drawn.right, **usd, **more)

    def report(self, tokens: int, **more: object) -> None:
        """The last line, which is JSON."""
        usd = None if self.usd is None else self.usd * tokens
        print(repr({"tokens": tokens, "usd": usd, **more}).replace("'", '"').replace("None", "null"))


def _asked(line: dict[str, object]) -> tuple[object, ...]:
    return line["model"], line["question"], line["seed"]


if __name__ == "__main__":
    place = os.path.abspath(sys.argv[1])  # noqa: PTH100
    lock = os.open(os.path.join(os.path.dirname(place), RUNNING), os.O_RDWR | os.O_CREAT, 0o600)  # noqa: PTH118, PTH120
    os.set_inheritable(lock, True)
    fcntl.flock(lock, fcntl.LOCK_SH)
    CommandModel(place, *sys.argv[2:]).main()
