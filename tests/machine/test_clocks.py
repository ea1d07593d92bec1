"""The time for which models hold servers, one that several share once, and what is told of their troubles."""

from itertools import count

from adaptive_eval.endpoints.types import EndpointStats, ReplicaStats
from adaptive_eval.machine.clocks import ClockedModel, HeldTime, RunClock
from adaptive_eval.machine.troubles import LOST_SECONDS, RETRYING_SECONDS, ServerWatch

SHARED, OWN = "http://one:8000/v1", "http://two:8000/v1"


def held(addresses: dict[str, tuple[str, ...]], spans: dict[str, tuple[float, float]]) -> dict[str, HeldTime]:
    """Held times of models that are asked from one moment to another, by their addresses."""
    numbers, now = dict(zip(addresses, count(), strict=False)), [0.0]
    models = {numbers[name]: ClockedModel(name, 2.0, urls) for name, urls in addresses.items()}
    times = RunClock(models, 0.0, {}, lambda: now[0])
    moments = [(begin, name, times.on_sent) for name, (begin, _) in spans.items()]
    moments += [(end, name, times.on_quiet) for name, (_, end) in spans.items()]
    for moment, name, happens in sorted(moments, key=lambda entry: entry[0]):
        now[0] = moment
        happens(numbers[name])
    now[0] += 100.0
    return times.held_times()


def test_the_time_of_an_address_is_shared_only_while_several_models_hold_it() -> None:
    times = held({"ada": (SHARED,), "bob": (SHARED,), "cyd": (OWN,)}, {"ada": (0, 30), "bob": (20, 60), "cyd": (0, 60)})
    assert {name: tuple(row)[:2] for name, row in times.items()} == {"ada": (25, 50), "bob": (35, 70), "cyd": (60, 120)}
    adapters = [f"adapter-{number}" for number in range(6)]
    times = held(dict.fromkeys(adapters, (SHARED,)), dict.fromkeys(adapters, (10.0, 52.0)))
    assert [row.seconds for row in times.values()] == [42.0 / 6] * 6, "they hold it once together"


def test_a_model_at_several_addresses_has_the_mean_of_its_shares() -> None:
    times = held({"ada": (SHARED, OWN), "bob": (SHARED,)}, {"ada": (0, 40), "bob": (0, 40)})
    assert {name: row.seconds for name, row in times.items()} == {"ada": 30.0, "bob": 20.0}


def test_a_lost_server_of_a_judge_is_named_with_its_judge() -> None:
    watch = ServerWatch()

    def events(now: float, *, healthy: bool) -> list[tuple[str, object, object]]:
        stats = EndpointStats(replicas=(ReplicaStats("http://a/v1", healthy, 0, 8, "" if healthy else "refused"),))
        notes = watch.grading_notes((), {"strict": stats}, now)
        return [(note.kind, note.body["judge"], note.body.get("reason")) for note in notes]

    assert events(0.0, healthy=False) == []
    assert events(LOST_SECONDS, healthy=False) == [("replica_lost", "strict", "refused")]
    assert events(LOST_SECONDS, healthy=True) == [("replica_back", "strict", None)]


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
