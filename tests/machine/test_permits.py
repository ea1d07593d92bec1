"""Permits to repeat lost requests."""

from adaptive_eval.machine.permits import Permits


async def test_each_part_that_waits_gets_a_permit_of_its_own_in_order() -> None:
    permits = Permits[int]()
    first, second = permits.ask(7), permits.ask(7)
    other = permits.ask(8)
    permits.give(7, True)
    assert first.result() and not second.done() and permits.is_asked(7)
    permits.give(7, False)
    assert not second.result() and not permits.is_asked(7) and not other.done()


async def test_a_permit_that_nobody_waits_for_is_no_error() -> None:
    permits = Permits[int]()
    permits.give(7, True)
    permits.ask(7).cancel()
    permits.give(7, True)
    permits.forget(7)
    assert not permits.is_asked(7)
