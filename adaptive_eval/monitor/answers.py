"""The answers of one model to one question, a page at a time."""

from contextlib import closing
from pathlib import Path

from adaptive_eval.graders.rubric import open_rubric
from adaptive_eval.reading import StoredRun
from adaptive_eval.reading.types import QuestionView
from adaptive_eval.store import RunReader, TrialRecord

MOST_TRIALS = 20
MOST_CHARACTERS = 1_000_000
"""Of all texts of a page together; the first answer is there even if longer, each of its two texts cut at this."""


def answers(directory: Path, stored: StoredRun, question: int, model: int, after: int) -> dict[str, object]:
    """The trials beyond `after`, as plain values, and whether there are more."""
    config, questions, _ = stored
    name, asked = config.models[model].name, questions[question]
    weights = open_rubric(config.rubric).weights
    trials: list[dict[str, object]] = []
    characters, more = 0, False
    with closing(RunReader.open(directory)) as reader:
        for record in reader.cell(name, asked.id, after):
            characters += len(record.answer.text) + len(record.answer.reasoning or "")
            if trials and (len(trials) == MOST_TRIALS or characters > MOST_CHARACTERS):
                more = True
                break
            trials.append(_trial(record, weights))
    shown = QuestionView(asked.id, asked.prompt, asked.answer, asked.choices, asked.cluster)
    return {"question": shown, "model": name, "trials": trials, "more": more}


def _trial(record: TrialRecord, weights: tuple[float, ...]) -> dict[str, object]:
    answer = record.answer
    return {
        "trial": record.trial,
        "seed": answer.seed,
        "category": record.category,
        "value": None if record.category is None else weights[record.category],
        "signals": {**{str(signal): True for signal in sorted(answer.signals)}, **record.signals},
        "extracted": record.extracted,
        "grader_error": record.grader_error,
        "finish_reason": answer.finish_reason,
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.completion_tokens,
        "latency": answer.latency,
        "replica": answer.replica,
        "attempts": answer.attempts,
        "text": _cut(answer.text),
        "reasoning": None if answer.reasoning is None else _cut(answer.reasoning),
        "completion_bpt": answer.completion_bpt,
    }


def _cut(text: str) -> str:
    """The text, or its beginning with a word on how much is missing."""
    missing = len(text) - MOST_CHARACTERS
    return text if missing <= 0 else f"{text[:MOST_CHARACTERS]}\n[{missing:,} more characters are in run.sqlite]"
