"""Classifies requests without an answer: failures to retry, answers without text, and errors that no retry can fix.

an unfinished answer, an error within a 200    repeat
429                                            wait as the server asks (`retry_after`), and send fewer at a time
503, 529                                       repeat, and send fewer at a time
408, 409, 425, 5xx, a body that is no answer   repeat
connection refused, reset, stalled, timed out  repeat
prompt longer than the context, content filter an answer with its own signal
any other 3xx and 4xx, a used-up quota         no retry fixes it, if it is final (`replica`); no redirect is followed
an unknown finish reason                       repeat; if the first answers all end so, only a setting can fix it

`retry` decides when a request is sent again, `replica` what a failure does to its replica.

An answer counts only if its server says that it is finished. The finish reasons are those of the OpenAI API and of
compatible servers: vLLM, SGLang, llama.cpp, TGI, Azure, OpenRouter, DeepSeek, Mistral, Zhipu and Together, and those of
Anthropic, Cohere and Gemini that gateways pass on. Case and hyphens are ignored. An answer with an unknown reason is
graded only if the configuration declares the reason as finished.

A choice whose reason is null is unfinished: it is null in every event of a stream but the last, and gateways send null
when their upstream breaks off. `finish_reasons: [none]` in the configuration declares null, and a missing field, as
finished.
"""

import re
import time
from codecs import BOM_UTF8
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

import orjson

from adaptive_eval.base.errors import Rejected, Retryable
from adaptive_eval.base.json_objects import as_object, objects_in
from adaptive_eval.endpoints.redaction import EMPTY_REDACTOR, Redactor
from adaptive_eval.endpoints.types import Signal

NO_REASON = "none"
"""Stands for a missing finish reason in the configuration."""

FILTERED = frozenset(
    {"content_filter", "content_filtered", "sensitive", "safety", "recitation", "blocklist", "prohibited_content"}
)
TRUNCATED = frozenset(
    {"length", "max_tokens", "model_length", "max_length", "model_context_window_exceeded", "repetition"}
)
"""The last is vLLM's, for text that it cut off because it repeats itself."""
REFUSED = frozenset({"refusal"})
ENDED = frozenset(
    {"stop", "eos", "eos_token", "stop_sequence", "end_turn", "complete", "tool_calls", "tool_use", "function_call"}
)
FINISHED = ENDED | TRUNCATED | FILTERED | REFUSED
MAY_BE_NULL = TRUNCATED | FILTERED | REFUSED | {"tool_calls", "tool_use", "function_call"}
"""Reasons for which an answer may have no text although tokens were generated."""
FAILED = frozenset(
    {
        *("abort", "aborted", "cancel", "cancelled", "canceled", "error", "error_toxic", "error_limit"),
        *("insufficient_system_resource", "network_error", "timeout", "time_out", "server_error", "internal_error"),
        *("overloaded", "interrupted", "null"),
    }
)
"""The server stopped in the middle; Qwen's API writes `null` while it goes on."""
CUT = (FAILED - {"null"}) | TRUNCATED | FILTERED | REFUSED
"""An `ENDED` after these in a stream is that of a gateway, which ends every stream so."""


def finish_word(reason: str) -> str:
    """A finish reason in the form used for comparison."""
    return reason.strip().lower().replace("-", "_")


_REASONS_BY_SIGNAL: dict[Signal, frozenset[str]] = {
    "truncated": TRUNCATED,
    "content_filter": FILTERED,
    "refusal": REFUSED,
}
_SIGNALS = {word: frozenset({signal}) for signal, words in _REASONS_BY_SIGNAL.items() for word in words}


def signals_of_finish(reason: str) -> frozenset[Signal]:
    """Signals that follow from a finish reason alone."""
    return _SIGNALS.get(finish_word(reason), frozenset())


def finish_reason_option(reason: str) -> str:
    """The configuration option that declares a reason as one of a finished answer."""
    return f"`finish_reasons: [{reason}]` on this model"


_RETRYABLE_STATUSES = frozenset({408, 409, 425})
_OVERLOADED_STATUSES = frozenset({503, 529})
_QUOTA_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
_TIER_FULL_CODES = frozenset({"resource_unavailable", "capacity_exceeded"})
_TIER_FULL_STATUSES = frozenset({429, 498})
"""A service tier without capacity, at OpenAI and at Groq."""
_FILTER_CODES = frozenset({"content_filter", "content_policy_violation", "responsibleaipolicyviolation"})
_CONTEXT_CODES = frozenset({"context_length_exceeded", "exceed_context_size_error", "string_above_max_length"})
_CONTEXT_TEXT = re.compile(
    r"maximum context length|maximum model length|context (?:window|size|length)|(?:prompt|input) is too long",
    re.IGNORECASE,
)
_CONTEXT_LIMIT = re.compile(r"maximum (?:context|model) length (?:is|of) (\d+)", re.IGNORECASE)
_FILTER_TEXT = re.compile(r"content (?:management )?(?:filter|policy)", re.IGNORECASE)
MAX_EXCERPT_CHARS = 300
MAX_READ_CHARS = 16_384
"""Characters of a text that are read in order to show `MAX_EXCERPT_CHARS` of them."""

OPTION_REFUSAL_STATUSES = frozenset({400, 405, 413, 415, 422, 501})
"""Statuses that may refuse an option of the request, such as `n` or `stream`, rather than the request."""

_HINTS = {
    403: "the key may not use this model",
    404: "check base_url (for vLLM it ends in /v1) and the served model name",
}


class FailureKind(StrEnum):
    """How a request failed."""

    RATE_LIMITED = "rate_limited"
    """Too many requests at a time: for the server (429), or for the open files of this machine."""
    TIER_FULL = "tier_full"
    """The service tier of the request has no capacity now."""
    OVERLOADED = "overloaded"
    """The server has no room for the request now (503, 529)."""
    SERVER_ERROR = "server_error"
    BAD_RESPONSE = "bad_response"
    """A success without an answer: not JSON, no choices, wrong types."""
    UNREACHABLE = "unreachable"
    """No connection was made, so nothing was sent."""
    RESET = "reset"
    STALLED = "stalled"
    """Nothing arrived for far longer than for any other answer (`late`)."""
    TIMED_OUT = "timed_out"
    REPLICA_LOST = "replica_lost"
    """A health check found the replica dead while the request was in flight."""
    REFUSED = "refused"
    """A refusal that may be temporary."""


class Handling(NamedTuple):
    """How a kind of failure is handled."""

    may_have_cost: bool
    """An answer may have been generated without arriving, and counts as lost; see also `Failure.may_have_cost`."""
    at_once: bool
    """The request is repeated without a wait: it goes to another replica, or waits for one to recover."""
    counts: bool
    """It counts towards the attempts after which a request is given up."""
    waited_out: bool
    """It is waited out for as long as one answer may take."""
    request_may_cause: bool
    """The request itself may cause it (`retry`), or a server that cannot stream."""
    halves_window: bool
    """The window of its replica is halved: fewer requests in flight may help."""
    trouble: bool
    """Its replica is in trouble until something else arrives, and gets requests one by one, after pauses."""
    health: Literal["fine", "suspect", "gone"]
    """Its replica is used as before, probed soon, or sent nothing until a probe succeeds."""


_K = FailureKind
HANDLING: Mapping[FailureKind, Handling] = {
    #                         may_have_cost  at_once  counts   waited  own    halves  trouble  health
    _K.RATE_LIMITED: Handling(False,         False,   False,   True,   False, True,   True,   "fine"),
    _K.TIER_FULL:    Handling(False,         False,   False,   True,   False, False,  False,  "fine"),
    _K.OVERLOADED:   Handling(False,         False,   True,    False,  True,  True,   True,   "suspect"),
    _K.SERVER_ERROR: Handling(False,         False,   True,    False,  True,  False,  True,   "suspect"),
    _K.BAD_RESPONSE: Handling(True,          False,   True,    False,  True,  False,  True,   "suspect"),
    _K.UNREACHABLE:  Handling(False,         True,    False,   False,  False, False,  True,   "gone"),
    _K.RESET:        Handling(True,          False,   True,    False,  True,  False,  True,   "suspect"),
    _K.STALLED:      Handling(True,          True,    False,   False,  False, False,  False,  "fine"),
    _K.TIMED_OUT:    Handling(True,          True,    False,   False,  False, False,  True,   "suspect"),
    _K.REPLICA_LOST: Handling(True,          True,    True,    False,  False, False,  False,  "fine"),
    _K.REFUSED:      Handling(False,         False,   False,   False,  False, False,  True,   "fine"),
}  # fmt: skip
"""How each kind of failure is handled."""


class Failure(Retryable):
    """A missing answer: the request is repeated with the same seed."""

    def __init__(
        self, kind: FailureKind, message: str, retry_after: float = 0.0, *, may_have_cost: bool = False
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.may_have_cost = may_have_cost or HANDLING[kind].may_have_cost
        """Whether an answer may have been generated; of some kinds always, of others if the response began with one."""
        self.retry_after = retry_after
        """Seconds of the wait that the server asks for."""
        self.wait = 0.0
        """Seconds for which the replica is paused because of it."""


class Refusal(Rejected):
    """A server refused a request, by its status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status

    def copy(self) -> "Refusal":
        """A copy of this refusal, for another request."""
        return Refusal(self.status, str(self))


class WebPage(Refusal):
    """A server answered with a web page: there is no model server at its address."""


class ModelNotServed(Refusal):
    """A server's list of models lacks the model, so one refusal is enough."""


class Refused(Failure):
    """A request that was refused once; `believed` if the refusal is known to be final."""

    def __init__(self, refusal: Refusal, believed: bool) -> None:
        super().__init__(FailureKind.REFUSED, str(refusal))
        self.refusal = refusal
        self.believed = believed


class UnknownFinish(Rejected):
    """An answer that may or may not be finished; `reason` is empty if the server gave none."""

    def __init__(self, reason: str) -> None:
        ending = f"with the finish reason {reason!r}" if reason else "without a finish reason"
        super().__init__(
            f"its server ends answers {ending}, and it is unknown whether such an answer is complete: if it is, "
            f"set {finish_reason_option(reason or NO_REASON)}; if not, use another server"
        )
        self.among_others = f"its server ended the answer {ending}, and other answers with a usual one"
        """What happened where others are complete: no advice, since declaring this reason would grade broken ones."""


def find_error(payload: object) -> object:
    """The error in a response: next to its choices, within a choice or its message, or the response itself; else
    None."""
    if not isinstance(payload, dict):
        return None
    if error := payload.get("error"):
        return error
    for choice in objects_in(payload.get("choices")):
        for part in (choice, choice.get("message"), choice.get("delta")):
            if error := as_object(part).get("error"):
                return error
    return payload if "error" in (payload.get("object"), payload.get("type")) else None


def error_status(error: object) -> int:
    """Status of an error within a 200 response: its own code if that is a status, else 500."""
    code = as_object(error).get("code")
    number = int(code) if isinstance(code, str) and code.isdecimal() and len(code) == 3 else code
    return number if isinstance(number, int) and 400 <= number < 600 else 500


def redirect_message(headers: Mapping[str, str], redactor: Redactor) -> str:
    """What to do about a redirect. Redirects are not followed, so that no key is sent to another server."""
    location = headers.get("location", "")
    try:
        parts = urlsplit(location)
        host = safe_excerpt(parts.netloc.rpartition("@")[2], redactor)
    except ValueError:
        host = ""
    target = f"to {host}" if host else "to another path of its own" if location else "without saying where to"
    hint = f"give the base_url at {host}" if host else "give the final address as base_url"
    return f"the server redirects {target}, and redirects are not followed: {hint}, if it is to be trusted"


_TITLE = re.compile(rb"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)


def web_page(status: int, body: bytes, redactor: Redactor) -> WebPage | None:
    """The refusal for a web page instead of an answer; None for any other body."""
    if strip_byte_order_mark(body[:MAX_READ_CHARS]).lstrip()[:1] != b"<":
        return None
    match = _TITLE.search(body[:MAX_READ_CHARS])
    title = safe_excerpt(match[1].decode("utf-8", "replace"), redactor) if match else ""
    title_note = f" ({title!r})" if title else ""
    return WebPage(
        status,
        f"HTTP {status} with a web page{title_note} instead of an answer: no model server is at this address; "
        "check base_url (for vLLM it ends in /v1)",
    )


def strip_byte_order_mark(body: bytes) -> bytes:
    """Remove the byte order mark, which JSON must not have, but some servers send."""
    return body.removeprefix(BOM_UTF8)


def _error_fields(body: bytes) -> tuple[str, frozenset[str]]:
    """The message of an error body and every code it names, in lower case; the raw text if it is not JSON."""
    try:
        data = orjson.loads(strip_byte_order_mark(body))
    except orjson.JSONDecodeError:
        return body[: 4 * MAX_READ_CHARS].decode("utf-8", "replace"), frozenset()
    error = find_error(data) or as_object(data).get("error", data)
    if not isinstance(error, dict):
        return str(error), frozenset()
    error_codes = [error.get("code"), error.get("type"), as_object(error.get("innererror")).get("code")]
    message = error.get("message", error.get("detail", ""))
    return str(message), frozenset(str(code).lower() for code in error_codes if code is not None)


def _is_context_error(message: str, codes: frozenset[str], max_tokens: int | None) -> bool:
    if not (codes & _CONTEXT_CODES or _CONTEXT_TEXT.search(message)):
        return False
    limit = _CONTEXT_LIMIT.search(message)
    # if max_tokens alone fills the context, no prompt fits: that is an error in the configuration
    return not (limit and max_tokens is not None and max_tokens >= int(limit.group(1)))


def safe_excerpt(text: str, redactor: Redactor) -> str:
    """One short line of a server's text, without secrets."""
    excerpt = text[:MAX_READ_CHARS]
    line = " ".join(redactor.message(excerpt).split())
    if len(text) > len(excerpt):  # the end may be the beginning of a secret
        line = line[: -max(redactor.longest, 1)]
    return line if len(line) <= MAX_EXCERPT_CHARS else line[:MAX_EXCERPT_CHARS] + " ..."


def read_retry_after(headers: Mapping[str, str], now: float | None = None) -> float:
    """Seconds of `retry-after-ms`, or of `Retry-After` as a number or a date; 0 if there is neither, or no such
    value."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        if (header := headers.get(name)) is not None:
            return _wait_seconds(header.strip(), unit, time.time() if now is None else now)
    return 0.0


def _wait_seconds(header: str, unit: float, now: float) -> float:
    try:
        if re.fullmatch(r"\d+(\.\d+)?", header):
            return float(header) * unit
        return max(0.0, parsedate_to_datetime(header).timestamp() - now) if unit == 1.0 else 0.0
    except (ValueError, OverflowError):
        return 0.0


def error_signal(
    status: int,
    body: bytes,
    headers: Mapping[str, str],
    *,
    max_tokens: int | None = None,
    redactor: Redactor = EMPTY_REDACTOR,
    unauthorized: str = "",
) -> Signal:
    """Signal of an error that counts as an answer; raises `Failure` or `Refusal` for any other.

    `unauthorized` says what to do if the server asks for another key.
    """
    message, codes = _error_fields(body)
    summary = f"HTTP {status}: {safe_excerpt(message, redactor) or 'no message'}"
    if status == 429 and codes & _QUOTA_CODES:
        raise Refusal(status, f"{summary} (the account's quota is used up)")
    if status in _TIER_FULL_STATUSES and codes & _TIER_FULL_CODES:
        raise Failure(FailureKind.TIER_FULL, summary, read_retry_after(headers))
    if status == 429:
        raise Failure(FailureKind.RATE_LIMITED, summary, read_retry_after(headers))
    if 400 <= status < 500 and _is_context_error(message, codes, max_tokens):
        return "context_length"
    if status == 400 and (codes & _FILTER_CODES or _FILTER_TEXT.search(message)):
        return "content_filter"
    if status >= 500 or status in _RETRYABLE_STATUSES:
        kind = FailureKind.OVERLOADED if status in _OVERLOADED_STATUSES else FailureKind.SERVER_ERROR
        raise Failure(kind, summary, read_retry_after(headers))
    hint = redirect_message(headers, redactor) if status < 400 else {**_HINTS, 401: unauthorized}.get(status, "")
    raise Refusal(status, f"{summary} ({hint})" if hint else summary)
