"""What is said of models that are compared trial by trial."""

from dataclasses import replace

from adaptive_eval.report.finding import pairing_in_words, pairing_sentences
from adaptive_eval.report.results import PairRow

APART = PairRow("ada", "bob", "open", 0.1, 0.05, 2.0, 0.97, 2.2, 0.5, 0.8, 30.0, 1.5, None)
TOGETHER = replace(APART, second="cyd", by_trial=True, variance_by_trial=0.25)


def test_each_pair_that_is_judged_trial_by_trial_has_its_sentence() -> None:
    sentence = "ada and cyd are compared trial by trial, which takes 0.25 times the trials of independent models."
    assert pairing_sentences([APART, TOGETHER]) == (sentence,)


def test_models_that_go_against_each_other_take_more_trials() -> None:
    ending = "which takes, since they are negatively correlated, 1.20 times the trials of independent models"
    assert pairing_in_words(1.2).endswith(ending)
