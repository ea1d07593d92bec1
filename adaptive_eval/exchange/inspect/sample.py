"""Converts trials to samples of an Inspect log."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from adaptive_eval.endpoints.types import Answer, AnswerLogprobs, Prompt
from adaptive_eval.exchange.samples import GRADE_ONLY
from adaptive_eval.questions import Question
from adaptive_eval.store import TrialRecord
from adaptive_eval.store.rows import valid_text

Json = dict[str, Any]

STOP_REASONS = {
    "stop": "stop",
    "length": "max_tokens",
    "context_length": "model_length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
}
"""Inspect's names of finish reasons; others become unknown."""
SUMMARISED = (
    *("id", "epoch", "input", "choices", "target", "scores", "metadata", "model_usage"),
    *("total_time", "working_time", "uuid"),
)
SHOWN = 1000
"""Characters of a text in a summary."""


@dataclass(frozen=True, slots=True)
class InspectScale:
    """How categories are written: as letters if all weights are 0, 1/2 or 1, else as numbers."""

    scorer: str
    names: tuple[str, ...]
    weights: tuple[float, ...]

    @property
    def categories(self) -> dict[str, float]:
        """The weight of each category."""
        return dict(zip(self.names, self.weights, strict=True))

    @property
    def lettered(self) -> bool:
        """Whether Inspect's letters can express all weights: C is 1, P is 1/2, I and N are 0."""
        return set(self.weights) <= {0.0, 0.5, 1.0}

    def value(self, record: TrialRecord, category: int) -> str | float:
        """The score: a letter for correct, partially correct, no answer or incorrect; or the weight."""
        weight = self.weights[category]
        if not self.lettered:
            return float(weight)
        if weight:
            return "C" if weight == 1.0 else "P"
        return "N" if record.signals.get("has_answer") is False else "I"


def usage(answer: Answer) -> dict[str, int]:
    """The tokens of an answer."""
    total = answer.prompt_tokens + answer.completion_tokens
    return {"input_tokens": answer.prompt_tokens, "output_tokens": answer.completion_tokens, "total_tokens": total}


def inspect_sample(record: TrialRecord, question: Question, prompt: Prompt, scale: InspectScale) -> Json:
    """Convert a trial; an ungraded one has an error instead of a score, and one without text has no choice."""
    answer, asked = record.answer, _messages(prompt)
    said = {"role": "assistant", "content": _content(answer), "source": "generate", "model": record.model}
    choices = [
        {
            "message": said,
            "stop_reason": STOP_REASONS.get(answer.finish_reason, "unknown"),
            **_logprobs(answer.token_logprobs),
        }
    ]
    if answer.finish_reason == GRADE_ONLY:
        choices = []
    sample: Json = {
        "id": question.id,
        "epoch": record.trial + 1,
        "input": asked[0]["content"] if len(asked) == 1 else asked,
        "target": question.answer,
        "messages": [*asked, *(choice["message"] for choice in choices)],
        "output": {
            "model": record.model,
            "choices": choices,
            "completion": valid_text(answer.text),
            "usage": usage(answer),
            "time": answer.latency,
        },
        "metadata": _metadata(record, question),
        "model_usage": {record.model: usage(answer)},
        "total_time": answer.latency,
        "working_time": answer.latency,
        "uuid": f"{record.model}/{question.id}/{record.trial + 1}",
    }
    if question.choices:
        sample["choices"] = list(question.choices)
    if record.category is None:
        message = f"the grader failed: {record.grader_error}"
        sample["error"] = {"message": message, "traceback": message, "traceback_ansi": message}
    else:
        sample["scores"] = {scale.scorer: _score(record, record.category, scale)}
    return sample


def sample_summary(sample: Mapping[str, Any]) -> Json:
    """The summary of a sample."""
    summary: Json = {key: sample[key] for key in SUMMARISED if key in sample}
    if isinstance(asked := sample["input"], str):
        summary["input"] = asked[:SHOWN]
    if "error" in sample:
        summary["error"] = sample["error"]["message"]
    return summary | {"completed": True, "message_count": len(sample["messages"])}


def _score(record: TrialRecord, category: int, scale: InspectScale) -> Json:
    return {
        "value": scale.value(record, category),
        "answer": record.extracted,
        "explanation": None,
        "metadata": {"category": category, "label": scale.names[category], "signals": dict(record.signals)},
    }


def _messages(prompt: Prompt) -> list[Json]:
    if prompt.messages is None:
        return [{"role": "user", "content": prompt.text, "source": "input"}]
    return [{"role": one.role, "content": one.content, "source": "input"} for one in prompt.messages]


def _content(answer: Answer) -> object:
    if answer.reasoning is None:
        return valid_text(answer.text)
    return [
        {"type": "reasoning", "reasoning": valid_text(answer.reasoning)},
        {"type": "text", "text": valid_text(answer.text)},
    ]


def _logprobs(told: AnswerLogprobs | None) -> Json:
    """The log-probabilities of an answer's tokens, without tokens that have none."""
    if told is None:
        return {}
    each = zip(told.tokens, told.values, strict=True)
    return {"logprobs": {"content": [{"token": valid_text(one), "logprob": p} for one, p in each if p is not None]}}


def _metadata(record: TrialRecord, question: Question) -> Json:
    """Facts for which Inspect has no field."""
    answer = record.answer
    return {
        **question.metadata,
        "seed": answer.seed,
        "round": record.round,
        "replica": answer.replica,
        "attempts": answer.attempts,
        "finish_reason": answer.finish_reason,
        "flags": sorted(answer.signals),
        "tokens": record.cost.tokens,
        "usd": record.cost.usd,
        "gpu_seconds": record.cost.gpu_seconds,
        "ttft": answer.ttft,
        "completion_bpt": answer.completion_bpt,
        "prompt_bpt": answer.prompt_bpt,
        "grader_error": record.grader_error,
    }
