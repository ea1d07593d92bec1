"""Recognises responses to other requests: a proxy sent one twice, so that it came in place of the next one.

Every response has an id of its own. A second one with the same id and content was not made for its request, and would
count one answer as two independent ones. So the request is sent again, once: a server that gives it the same response
again has no other one, as a cache that ignores seeds, and answers that are all the same are noticed elsewhere
(`store.repeats`).

Not every server means its ids: some give all responses the same one, or number them anew after a restart.

    the same id, other content              ids mean nothing at this server, and are not looked at any more
    no other id has been seen               the same, after `MAX_ALIKE` repeated responses
    the same id and content, same request   the answer to a request that was sent again, which counts
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from adaptive_eval.endpoints.failures import Failure, FailureKind
from adaptive_eval.endpoints.types import Notice, Prompt

MAX_IDS = 16_384
"""Newest ids that are remembered of a replica: a repeated response follows soon."""
MAX_ALIKE = 8
"""Repeated responses after which a replica that has shown one id is taken to have no other."""
CONTENT = ("choices", "usage", "created")
REPEATED = Notice(
    "repeated_response",
    "its server, or a proxy in front of it, answered a request with the response to another one; such requests are "
    "sent again",
)


class _Seen(NamedTuple):
    """A response, by hashes."""

    request: int
    content: int


@dataclass
class _ReplicaIds:
    """The ids of a replica's newest responses."""

    seen: dict[str, _Seen] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    """By request, the id of the response for which it was sent again."""
    repeated: int = 0
    are_unique: bool = True
    """Whether an id stands for one response, as far as is known."""

    def repeats(self, name: str, response: _Seen) -> bool:
        """Remember a response; returns whether it was the response to another request."""
        before = self.seen.get(name)
        if before is None:
            _add(self.seen, name, response)
        elif before.content != response.content:
            self._disregard()
        elif before.request != response.request and self.refused.pop(response.request, None) != name:
            self.repeated += 1
            if len(self.seen) > 1 or self.repeated < MAX_ALIKE:
                _add(self.refused, response.request, name)
                return True
            self._disregard()
        return False

    def _disregard(self) -> None:
        """Look at no id any more."""
        self.are_unique = False
        self.seen.clear()
        self.refused.clear()


def _add(known: dict[Any, Any], key: object, value: object) -> None:
    """Add an entry, in place of the oldest one if there are many."""
    if len(known) >= MAX_IDS:
        del known[next(iter(known))]
    known[key] = value


class ResponseIds:
    """The ids of the newest responses to one model's requests; `note` receives the notice of a repeated one."""

    def __init__(self, note: Callable[[Notice], None]) -> None:
        self._note = note
        self._replicas: dict[str, _ReplicaIds] = {}

    def require_new(self, replica: str, payload: object, prompt: Prompt, seeds: range) -> None:
        """Remember a response to this request; raises `Failure` if it was the response to another one."""
        name = payload.get("id") if isinstance(payload, dict) else None
        ids = self._replicas.setdefault(replica, _ReplicaIds())
        if not isinstance(payload, dict) or not isinstance(name, str) or not name or not ids.are_unique:
            return
        content = hash(orjson.dumps([payload.get(key) for key in CONTENT]))
        if ids.repeats(name, _Seen(hash((prompt, seeds.start, len(seeds))), content)):
            self._note(REPEATED)
            raise Failure(FailureKind.BAD_RESPONSE, "the response is the one to another request, by id and content")
