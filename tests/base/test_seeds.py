"""Seeds are the trial's own, consecutive, and independent of positions."""

from hypothesis import given
from hypothesis import strategies as st

from adaptive_eval.base.seeds import SEED_SPAN, hashed_base, trial_seed


@given(st.integers(0, SEED_SPAN - 1), st.integers(0, 10**6))
def test_consecutive_within_31_bits(base: int, trial: int) -> None:
    assert 0 <= trial_seed(base, trial) < SEED_SPAN
    assert (trial_seed(base, trial + 1) - trial_seed(base, trial)) % SEED_SPAN == 1


@given(st.integers(0, 10**9), st.text(), st.text())
def test_every_name_counts_and_names_do_not_run_together(seed: int, model: str, question: str) -> None:
    base = hashed_base(seed, model, question)
    assert base == hashed_base(seed, model, question)
    others = {hashed_base(seed + 1, model, question), hashed_base(seed, model + "a", question)}
    others |= {hashed_base(seed, model, "a" + question)}
    assert base not in others
    assert hashed_base(seed, model + "a", question) != hashed_base(seed, model, "a" + question)


def test_the_seeds_of_a_published_run_stay_what_they_are() -> None:
    assert [hashed_base(0, "m", "q"), hashed_base(1234, "qwen", "aime-1")] == [1824618738, 1293580512]
    assert [trial_seed(SEED_SPAN - 1, trial) for trial in range(3)] == [SEED_SPAN - 1, 0, 1]
