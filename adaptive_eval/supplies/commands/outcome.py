"""What goes into a command, and what comes out: from a question to a line of JSON, from its output to an answer."""

import json
from collections.abc import Collection
from typing import NamedTuple

from adaptive_eval.config.commands import ANSWER_KEY
from adaptive_eval.core.types import Cost
from adaptive_eval.endpoints.answers import text_signals
from adaptive_eval.endpoints.redaction import Redactor
from adaptive_eval.endpoints.types import Answer, Prompt
from adaptive_eval.graders.reported import ReportedResult, UnusableResult, result_of, split_output
from adaptive_eval.graders.types import with_marks
from adaptive_eval.launch.process import last_lines
from adaptive_eval.questions.types import Question
from adaptive_eval.supplies.commands.process import EndedCommand

SHOWN_LINES, SHOWN_CHARS = 4, 160
"""Last lines of standard error in a message, and characters of each."""


class CommandOutcome(NamedTuple):
    """The result of a process."""

    body: str
    """What it has printed, without its result."""
    result: ReportedResult
    problem: str | None
    """Why it is no answer, after "it"; None if it is one."""
    seconds: float


def question_text(question: Question, prompt: Prompt, trial: int, seed: int, names: Collection[str]) -> bytes:
    """The line of JSON that a command is given; `names` are those of further fields."""
    text = prompt.text if prompt.text is not None else "\n\n".join(turn.content for turn in prompt.messages or ())
    values: dict[str, object] = {name: value for name, value in question.metadata.items() if name in names}
    further = {"choices": question.choices, "cluster": question.cluster, ANSWER_KEY: question.answer}
    values |= {name: value for name, value in further.items() if name in names and value}
    values |= {"id": question.id, "prompt": text, "trial": trial, "seed": seed}
    return json.dumps(values).encode() + b"\n"


def read_outcome(ended: EndedCommand, redactor: Redactor, *, needs_score: bool) -> CommandOutcome:
    """Read the result of a process that has ended; `needs_score`: its score is the grade."""
    unusable, result, body = None, ReportedResult(), ended.output.rstrip()
    try:
        body, result = split_output(ended.output)
    except UnusableResult as error:
        unusable = f"printed a result that cannot be used: {error}"
    problem = ended.problem or unusable
    if problem is None and needs_score and result.score is None:
        last = "".join(last_lines(ended.output, redactor)[-1:])[:SHOWN_CHARS]
        problem = f"reported no score: its last line is {last!r}, and must be like {ReportedResult(score=1).line}"
    if problem is None and not body and result.answer is None and result.score is None:
        problem = "printed no answer"
    if problem is not None:
        problem = redactor.message(problem)
        words = [line[-SHOWN_CHARS:] for line in last_lines(ended.errors, redactor)[-SHOWN_LINES:]]
        if words:  # a display of one line has the last one, which says most
            problem += f"; its standard error ends with: {words[-1]}"
            problem += "\n  ".join(["", *words]) if len(words) > 1 else ""
    return CommandOutcome(body, result, problem, ended.seconds)


def make_answer(outcome: CommandOutcome, seed: int, replica: str, attempts: int, *, is_graded: bool) -> Answer:
    """The answer of a command; what is not its text is stored as its reasoning, with the result in the last line.

    `is_graded`: its score is the grade.
    """
    body, result, *_ = outcome
    text, rest = (body, "") if result.answer is None else (result.answer, body)
    lines = [*([rest] if rest else []), *([result.line] if result != ReportedResult() else [])]
    plain = Answer(
        text=text,
        finish_reason="stop",
        seed=seed,
        replica=replica,
        latency=outcome.seconds,
        reasoning="\n".join(lines) or None,
        completion_tokens=result.tokens or 0,
        attempts=attempts,
        signals=text_signals(text, "stop", used_tools=result.score is not None),
    )
    marks = result.marks if is_graded else None
    return plain if marks is None else with_marks(plain, marks)


def answer_cost(answer: Answer) -> Cost:
    """The cost of an answer, as the command reports it."""
    result = result_of(answer)
    return Cost(result.tokens or 0, result.usd or 0.0)
