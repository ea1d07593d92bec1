"""What is said of models with the same seeds that are compared trial by trial (`trials.seeds: coupled`).

A server that draws by Gumbel-max, with noise keyed by seed and position, gives models with the same vocabulary the same
random numbers if prompts and seeds are the same. Near copies then err together, and their difference is known better
than from independent trials. `scorio.sinf.coupling` has the formula.
"""

from collections.abc import Sequence

from adaptive_eval.record.results import PairRow


def pairing_in_words(variance: float) -> str:
    """Say which share of the trials a comparison trial by trial takes."""
    much = "takes" if variance <= 1.0 else "takes, since they go against each other,"
    return f"compared trial by trial, which {much} {variance:.2f} of the trials that independent models would"


def pairing_sentences(pairs: Sequence[PairRow]) -> tuple[str, ...]:
    """A sentence for each comparison that is judged by trials with the same seeds."""
    return tuple(
        f"{pair.better} and {pair.worse} are {pairing_in_words(pair.variance_by_trial)}."
        for pair in pairs
        if pair.variance_by_trial is not None
    )
