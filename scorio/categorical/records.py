"""The base signals of trials that were recorded one by one, as the paper's inference files have them.

    {"seed": 1234, "data_id": 6, "model": "...",
     "output": {"finish_reason": "stop", "num_completion_tokens": 22818},
     "tokens": {"completion_avg_logprob": -0.09, "prompt_avg_logprob": -4.2},
     "processed_results": {"is_correct": 0, "has_box": 1}}

Log-probabilities are natural; instead of a mean a record may have the perplexity, `completion_ppl` or `prompt_ppl`.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from scorio.categorical.signals import Signals, token_ratio

Record = Mapping[str, Any]
NAN = math.nan


def signals_of(records: Iterable[Record]) -> Signals:
    """One value a record; what a record does not have is NaN, and a signal that none of them has is not recorded."""
    rows = [_row(record) for record in records]
    if not rows:
        raise ValueError("records must hold at least one trial, got none")
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    known = {name: values for name, values in columns.items() if not all(map(math.isnan, values))}
    return Signals(**known)  # type: ignore[arg-type]


def _row(record: Record) -> dict[str, float]:
    output, tokens = record.get("output") or {}, record.get("tokens") or {}
    results, reason = record.get("processed_results") or {}, output.get("finish_reason")
    return {
        "has_box": _number(results.get("has_box")),
        "is_correct": _number(results.get("is_correct")),
        "token_ratio": float(token_ratio(_number(output.get("num_completion_tokens")))),
        "repeated_pattern": NAN if reason is None else float(reason != "stop"),
        "prompt_bpt": _bits(tokens, "prompt"),
        "completion_bpt": _bits(tokens, "completion"),
    }


def _bits(tokens: Mapping[str, Any], part: str) -> float:
    """-mean(ln p) / ln 2 = log2(perplexity)."""
    mean, perplexity = tokens.get(f"{part}_avg_logprob"), tokens.get(f"{part}_ppl")
    if mean is not None:
        return -float(mean) / math.log(2.0)
    return NAN if perplexity is None else math.log2(perplexity)


def _number(value: float | None) -> float:
    return NAN if value is None else float(value)
