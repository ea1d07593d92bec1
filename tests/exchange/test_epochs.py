"""The epochs of one model: what serves what, where a harness does as it likes."""

from adaptive_eval.exchange.epochs import ATTEMPTS, Epoch, EpochDecision, Epochs

Q1, Q2 = 0, 1


def asked(questions: int, epochs: int, *trials: tuple[int, int]) -> Epochs:
    """Epochs of which these (question, trial) were asked for."""
    made = Epochs(questions, epochs)
    for question, trial in trials:
        assert made.ask(question, trial) is None
    return made


def test_any_epoch_serves_the_next_trial_of_its_question() -> None:
    epochs = asked(2, 5, (Q1, 0), (Q1, 1))
    assert epochs.arrive(Epoch(Q1, 4)) is EpochDecision.RUN
    assert epochs.arrive(Epoch(Q2, 1)) is EpochDecision.HOLD
    assert epochs.arrive(Epoch(Q1, 2)) is EpochDecision.RUN
    assert (epochs.complete(Epoch(Q1, 2), 1), epochs.complete(Epoch(Q1, 4), 0)) == (1, 0)
    epochs.ask(Q2, 0)
    assert list(epochs.released()) == [Epoch(Q2, 1)]
    assert list(epochs.released()) == []


def test_a_lost_epoch_passes_its_trial_on_and_may_come_again() -> None:
    epochs = asked(1, 2, (Q1, 0))
    assert epochs.arrive(Epoch(Q1, 1)) is EpochDecision.RUN
    assert epochs.end(Epoch(Q1, 1))
    assert (epochs.lost, epochs.usable.tolist()) == (1, [1])
    assert epochs.arrive(Epoch(Q1, 1)) is EpochDecision.RUN
    assert epochs.usable.tolist() == [2]
    assert epochs.complete(Epoch(Q1, 1), 1) == 0
    assert not epochs.end(Epoch(Q1, 1))


def test_what_has_a_score_keeps_it() -> None:
    epochs = asked(1, 3, (Q1, 0), (Q1, 1))
    epochs.arrive(Epoch(Q1, 1))
    assert epochs.complete(Epoch(Q1, 1), 1) == 0
    assert epochs.arrive(Epoch(Q1, 1)) is EpochDecision.RUN  # run again by the harness: not for us to forbid
    assert epochs.complete(Epoch(Q1, 1), 0) is None


def test_a_score_that_came_before_it_was_asked_for_is_kept_until_then() -> None:
    epochs = Epochs(1, 3)
    assert epochs.complete(Epoch(Q1, 2), 1) is None
    assert epochs.ask(Q1, 0) == 1
    assert epochs.ask(Q1, 1) is None


def test_only_who_holds_up_what_is_needed_gives_way() -> None:
    epochs = asked(2, 4, (Q1, 0))
    assert epochs.arrive(Epoch(Q2, 1)) is EpochDecision.HOLD
    assert epochs.starved
    assert epochs.give_way() == Epoch(Q2, 1)
    assert epochs.arrive(Epoch(Q2, 2)) is EpochDecision.SKIP  # at once, until what is needed comes
    assert epochs.arrive(Epoch(Q1, 1)) is EpochDecision.RUN
    assert epochs.arrive(Epoch(Q2, 3)) is EpochDecision.HOLD
    assert epochs.give_way() is None
    assert (epochs.skipped, epochs.usable.tolist()) == (2, [4, 2])


def test_hope_is_lost_with_the_last_epoch_and_after_failures_in_succession() -> None:
    epochs = asked(2, ATTEMPTS + 1, (Q2, 0))
    for number in range(1, ATTEMPTS + 1):
        assert epochs.hopeless() is None
        epochs.arrive(Epoch(Q2, number))
        epochs.end(Epoch(Q2, number))
    assert epochs.hopeless() == (Q2, f"{ATTEMPTS} epochs in succession ended without a score")
    epochs.arrive(Epoch(Q2, ATTEMPTS + 1))
    epochs.complete(Epoch(Q2, ATTEMPTS + 1), 1)
    assert epochs.hopeless() is None
    epochs.ask(Q2, 1)
    assert epochs.hopeless() == (Q2, "no further epoch is left")


def test_what_never_came_cannot_be_had_once_the_harness_is_through() -> None:
    epochs = asked(2, 9, (Q1, 0), (Q2, 0))
    epochs.arrive(Epoch(Q1, 1))
    epochs.complete(Epoch(Q1, 1), 1)
    epochs.close()
    assert epochs.usable.tolist() == [1, 0]
    assert epochs.hopeless() == (Q2, "no further epoch is left")
