"""What a finish reason means: only an answer that its server says is finished is one (DESIGN 3.10).

The reasons are those of the OpenAI API and of who speaks it: vLLM, SGLang, llama.cpp, TGI, Azure, OpenRouter, DeepSeek,
Mistral, Zhipu and Together, and those of Anthropic, Cohere and Gemini that gateways pass on. Case and hyphens mean
nothing. What is known neither as finished nor as failed is graded only where the configuration declares it.

A choice whose reason is null is unfinished: that is what it is in each event of a stream but the last, and what
gateways send when their upstream breaks off. A choice without the field says nothing, so that only the configuration
can: `finish_reasons: [none]` declares both as finished.
"""

from adaptive_eval.endpoints.types import Signal

NO_REASON = "none"
"""Stands for a missing reason in the configuration."""

FILTERED = frozenset(
    {"content_filter", "content_filtered", "sensitive", "safety", "recitation", "blocklist", "prohibited_content"}
)
TRUNCATED = frozenset(
    {"length", "max_tokens", "model_length", "max_length", "model_context_window_exceeded", "repetition"}
)
"""The last is vLLM's, where a server is told to cut off what repeats itself."""
REFUSED = frozenset({"refusal"})
_ENDED = frozenset(
    {"stop", "eos", "eos_token", "stop_sequence", "end_turn", "complete", "tool_calls", "tool_use", "function_call"}
)
FINISHED = _ENDED | TRUNCATED | FILTERED | REFUSED
FAILED = frozenset(
    {
        *("abort", "aborted", "cancel", "cancelled", "canceled", "error", "error_toxic", "error_limit"),
        *("insufficient_system_resource", "network_error", "timeout", "time_out", "server_error", "internal_error"),
        *("overloaded", "interrupted", "null"),
    }
)
"""The server gave up in the middle; Qwen's API writes `null` while it goes on."""


def finish_word(reason: str) -> str:
    """A finish reason as it is compared."""
    return reason.strip().lower().replace("-", "_")


def signals_of_finish(reason: str) -> frozenset[Signal]:
    """The signals that a finish reason shows by itself."""
    word = finish_word(reason)
    told: dict[Signal, frozenset[str]] = {"truncated": TRUNCATED, "content_filter": FILTERED, "refusal": REFUSED}
    return frozenset(signal for signal, words in told.items() if word in words)


def declares(reason: str) -> str:
    """The option that says that a reason is one of a finished answer."""
    return f"`finish_reasons: [{reason}]` on this model"
