"""Detects responses to other requests: a proxy sent a response twice, so that it arrived instead of the next one.

Every response has its own id. A second response with the same id and content was not made for its request, and would
count one answer as two independent answers. So the request is sent again, once: a server that returns the same response
again has no other, like a cache that ignores seeds; repeated answers are detected elsewhere (`store.repeats`).

Ids are not reliable on every server: some use one id for all responses, or restart numbering after a restart.

    the same id, other content              ids mean nothing at this server, and are ignored from now on
    no other id has been seen               the same, after `MAX_ALIKE` repeated responses
    the same id and content, same request   the answer to a request that was sent again; it counts
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from adaptive_eval.endpoints.failures import Failure, FailureKind
from adaptive_eval.endpoints.types import Notice, Prompt

MAX_IDS = 16_384
"""Number of ids remembered per replica: a repeated response follows soon."""
MAX_ALIKE = 8
"""Repeated responses after which a replica with a single id is assumed to have no other."""
CONTENT = ("choices", "usage", "created")
REPEATED = Notice(
    "repeated_response",
    "its server, or a proxy in front of it, answered a request with the response to another one; such requests are "
    "sent again",
)


class _Response(NamedTuple):
    """A response, by hashes."""

    request: int
    content: int


@dataclass
class _ReplicaIds:
    """The ids of a replica's newest responses."""

    responses: dict[str, _Response] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    """Id of the response for which a request was sent again, by request."""
    repeated: int = 0
    are_unique: bool = True
    """Whether each id has belonged to one response so far."""

    def repeats(self, response_id: str, response: _Response) -> bool:
        """Remember a response; returns whether it was the response to another request."""
        previous = self.responses.get(response_id)
        if previous is None:
            _add(self.responses, response_id, response)
        elif previous.content != response.content:
            self._disregard()
        elif previous.request != response.request and self.refused.pop(response.request, None) != response_id:
            self.repeated += 1
            if len(self.responses) > 1 or self.repeated < MAX_ALIKE:
                _add(self.refused, response.request, response_id)
                return True
            self._disregard()
        return False

    def _disregard(self) -> None:
        """Ignore ids from now on."""
        self.are_unique = False
        self.responses.clear()
        self.refused.clear()


def _add(entries: dict[Any, Any], key: object, value: object) -> None:
    """Add an entry; it replaces the oldest one if there are `MAX_IDS`."""
    if len(entries) >= MAX_IDS:
        del entries[next(iter(entries))]
    entries[key] = value


class ResponseIds:
    """The ids of the newest responses to one model's requests; `note` receives the notice of a repeated one."""

    def __init__(self, note: Callable[[Notice], None]) -> None:
        self._note = note
        self._replicas: dict[str, _ReplicaIds] = {}

    def require_new(self, replica: str, payload: object, prompt: Prompt, seeds: range) -> None:
        """Remember a response to this request; raises `Failure` if it was the response to another one."""
        response_id = payload.get("id") if isinstance(payload, dict) else None
        if not isinstance(payload, dict) or not isinstance(response_id, str) or not response_id:
            return
        if (ids := self._replicas.get(replica)) is None:
            ids = self._replicas[replica] = _ReplicaIds()
        if not ids.are_unique:
            return
        content = hash(orjson.dumps([payload.get(key) for key in CONTENT]))
        if ids.repeats(response_id, _Response(hash((prompt, seeds.start, len(seeds))), content)):
            self._note(REPEATED)
            raise Failure(FailureKind.BAD_RESPONSE, "the response is the one to another request, by id and content")
