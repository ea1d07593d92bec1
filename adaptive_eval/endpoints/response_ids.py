"""Detects responses to other requests: a proxy sent a response twice, so that it arrived instead of the next one.

Every response has its own id. A second response with the same id and content was not made for its request, and would
count one answer as two independent answers. So the request is sent again. If the same response comes back, the server
has no other, like a cache that ignores seeds. Where answers must be independent it never counts, and a few of them
prove that the model cannot be sampled.

Some servers use one id for all responses, or number them anew after a restart. A replica's ids are ignored once two of
its responses differ under one id.
"""

from collections.abc import Callable

import orjson

from adaptive_eval.base.errors import Copied
from adaptive_eval.base.json_objects import as_object
from adaptive_eval.endpoints.failures import Failure, FailureKind
from adaptive_eval.endpoints.traffic import AttemptedRequest
from adaptive_eval.endpoints.types import Notice

MAX_IDS = 16_384
"""Number of ids remembered per replica: a repeated response follows soon."""
CONTENT = ("choices", "usage", "created")
REPEATED = Notice(
    "repeated_response",
    "its server, or a proxy in front of it, answered a request with the response to another one; such requests are "
    "sent again",
)
OF_ANOTHER = "the response is the one to another request, by id and content"
CACHED = (
    "its server, or a proxy in front of it, answers requests with responses to earlier ones, by their ids, and does so "
    "again if they are sent again: switch off its cache, since its answers are no independent samples"
)


class ResponseIds:
    """The ids of the newest responses to one model's requests; `note` receives the notice of a repeated one."""

    def __init__(self, note: Callable[[Notice], None], most_copies: int | None = None) -> None:
        """`most_copies`: how often the response to another request may come again; None if it counts then."""
        self._note, self._copies_left = note, most_copies
        self._contents: dict[str, dict[str, int] | None] = {}
        """By replica, a hash of the content of each id's response; None where ids are ignored."""

    def require_new(self, replica: str, payload: object, request: AttemptedRequest) -> None:
        """Remember a response to this request; raises `Failure` if it was the response to another one,
        and `Copied` if others come back too often."""
        response, contents = as_object(payload), self._contents.setdefault(replica, {})
        response_id = response.get("id")
        if not isinstance(response_id, str) or not response_id or contents is None:
            return
        content = hash(orjson.dumps([response.get(key) for key in CONTENT]))
        if response_id not in contents:
            if len(contents) == MAX_IDS:
                del contents[next(iter(contents))]
            contents[response_id] = content
        elif contents[response_id] != content:
            self._contents[replica] = None
        elif request.repeated_id != response_id:
            request.repeated_id = response_id
            self._note(REPEATED)
            raise Failure(FailureKind.BAD_RESPONSE, OF_ANOTHER)
        elif self._copies_left is not None and len(contents) > 1:  # else its id may be that of all responses
            self._copies_left -= 1
            if self._copies_left < 0:
                raise Copied(CACHED)
            raise Failure(FailureKind.BAD_RESPONSE, OF_ANOTHER)
