"""The seed of each trial.

Seeds of one (model, question) are consecutive, so a request for n answers with seed s, which a server gives the seeds s
.. s+n-1, is the same as n requests for one. They depend on names, never on positions: a model that joins a run later,
or a question list in another order, changes no seed.
"""

from hashlib import blake2b

SEED_SPAN = 2**31
"""Seeds are below this: the signed 32-bit range that every server accepts."""

SHARED = ""
"""The name, impossible for a model, that stands for all models if they share their seeds."""


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
