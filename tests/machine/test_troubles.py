"""Troubles of servers, as they are told while requests are retried."""

from adaptive_eval.endpoints.types import EndpointStats
from adaptive_eval.machine.troubles import RETRYING_SECONDS, ServerWatch


def test_a_judge_of_which_all_requests_fail_is_told_once_until_it_replies() -> None:
    watch = ServerWatch()

    def told(errors: int, tokens: int, now: float) -> list[object]:
        stats = EndpointStats(errors={"reset": errors}, prompt_tokens=tokens, last_error="it hung up")
        notes = list(watch.grading_notes((), {"strict": stats, "mild": EndpointStats(prompt_tokens=9)}, now))
        assert {(note.kind, note.model) for note in notes} <= {("retrying", None)}
        return [(note.body["judge"], note.body["errors"], note.body["last"]) for note in notes]

    assert told(1, 0, 0.0) == told(1, 0, RETRYING_SECONDS) == []
    assert told(2, 0, RETRYING_SECONDS) == [("strict", {"reset": 2}, "it hung up")]
    assert told(3, 0, 2 * RETRYING_SECONDS) == []
    assert told(3, 8, 2 * RETRYING_SECONDS) == told(4, 8, 2 * RETRYING_SECONDS) == []
    assert told(5, 8, 3 * RETRYING_SECONDS) == [("strict", {"reset": 5}, "it hung up")]
