"""The seed of each trial.

Seeds of a (model, question) pair are consecutive. A server gives n answers with seed s the seeds s .. s+n-1, so such a
request equals n requests for one answer. Seeds depend on names, never on positions: a model that joins a run later, or
another order of questions, does not change any seed.
"""

from hashlib import blake2b

SEED_SPAN = 2**31
"""Upper limit of seeds: the non-negative 32-bit integers, which every server accepts."""

SHARED = ""
"""Stands for all models if they share seeds; not a valid model name."""


def hashed_base(run_seed: int, model: str, question: str) -> int:
    """h(run seed, model, question), uniform on 0 .. 2^31 - 1."""
    digest = blake2b(digest_size=8)
    for part in (str(run_seed), model, question):
        encoded = part.encode()
        # the length distinguishes ("ab", "c") from ("a", "bc")
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return int.from_bytes(digest.digest(), "big") % SEED_SPAN


def trial_seed(base: int, trial: int) -> int:
    """The seed of a trial from the base of its (model, question): (base + trial) mod 2^31."""
    return (base + trial) % SEED_SPAN
