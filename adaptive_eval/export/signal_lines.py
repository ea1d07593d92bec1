"""The base signals of every trial as JSON lines, in the form that the paper's categorical pipeline reads.

`seed` numbers the repeats of a problem, and a table of problems by seeds is made of it: here it is the number of the
trial, which means the same for every question, and `request_seed` is the seed that was sent. `scorio.categorical`
reads a line with `signals_of`. (The package of that name on PyPI reads the lines too, but its `evaluate_schema` counts
a seed that a problem does not have as the lowest category: give it problems with equally many trials.)
"""

import math
from pathlib import Path

import orjson

from adaptive_eval.export.source import Source, Told
from adaptive_eval.store import TrialRecord


def write_signals(source: Source, path: Path, told: Told) -> None:
    """One object a trial."""
    with path.open("wb") as file:
        for number, record in enumerate(source.reader.trials(), 1):
            file.write(orjson.dumps(_line(record), option=orjson.OPT_APPEND_NEWLINE))
            told(number)


def _line(record: TrialRecord) -> dict[str, object]:
    answer, signals = record.answer, record.signals
    mean = _mean_logprob(answer.completion_bpt)
    return {
        "seed": record.trial,
        "data_id": record.question,
        "model": record.model,
        "output": {
            "finish_reason": answer.finish_reason,
            "num_prompt_tokens": answer.prompt_tokens,
            "num_completion_tokens": answer.completion_tokens,
        },
        "tokens": {
            "completion_avg_logprob": mean,
            "completion_sum_logprob": None if mean is None else mean * answer.completion_tokens,
            "completion_ppl": _perplexity(answer.completion_bpt),
            "prompt_avg_logprob": _mean_logprob(answer.prompt_bpt),
            "prompt_ppl": _perplexity(answer.prompt_bpt),
        },
        "processed_results": {
            "is_correct": _flag(signals.get("is_correct")),
            "has_box": _flag(signals.get("has_box")),
            "extracted": record.extracted,
        },
        "category": record.category,
        "request_seed": answer.seed,
    }


def _mean_logprob(bits: float | None) -> float | None:
    """In nats: mean ln p = -bpt ln 2."""
    return None if bits is None else -bits * math.log(2.0)


def _perplexity(bits: float | None) -> float | None:
    """2^bpt; beyond what a number holds there is none."""
    return None if bits is None or bits >= 1024.0 else 2.0**bits


def _flag(value: object) -> int | None:
    return None if not isinstance(value, bool | int | float) else int(value)
