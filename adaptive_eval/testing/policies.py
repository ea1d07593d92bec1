"""Contract of a policy, for any view."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from adaptive_eval.core.policies import Policy, View, asks_only_open
from adaptive_eval.testing.runs import check_runs, fail_unless, no_error, read_only, with_arrays
from scorio.moments import IntArray, relative_weights

CASES = 60


def check_policy(policy: Policy) -> None:
    """Raise AssertionError if the policy, which allocates the trials of a round, breaks its contract."""
    for view in view_cases():
        check_allocation(policy, view)
    check_runs(type(policy).__name__, policy=policy)


def check_allocation(policy: Policy, view: View) -> None:
    """Check the allocation for one view."""
    name = type(policy).__name__
    given = _allocated(policy, view, name)
    shape = view.issued.shape
    must = f"{name}: allocate gives shape {given.shape}, but must give (models, questions) {shape}"
    fail_unless(given.shape == shape, must)
    fail_unless(np.issubdtype(given.dtype, np.integer), f"{name}: trials must be whole numbers, but got {given.dtype}")
    fail_unless(bool(given.min() >= 0), f"{name}: trials must not be negative, but got {given.min()}")
    out_of_play = np.flatnonzero(given.any(axis=1) & ~view.in_play)
    fail_unless(not len(out_of_play), f"{name} asks for trials of a model that is not in play: {out_of_play.tolist()}")
    over = np.flatnonzero(given.sum(axis=1) > view.sizes)
    numbers = f"{given.sum(axis=1)[over].tolist()} where view.sizes allows {view.sizes[over].tolist()}"
    fail_unless(not len(over), f"{name} gives models {over.tolist()} more trials than they may have: {numbers}")
    repeated = _allocated(policy, view, name)
    fail_unless(np.array_equal(given, repeated), f"{name} gives other trials when it is asked again")
    if asks_only_open(policy):
        members = np.append(np.zeros(len(given), dtype=bool), False)
        members[view.open_pairs.ravel()] = True
        others = np.flatnonzero(given.any(axis=1) & ~members[:-1])
        declares = f"{name} declares only_open, but asks for trials of models in no open comparison"
        fail_unless(not len(others), f"{declares}: {others.tolist()}")
    nothing = replace(view, open_pairs=view.open_pairs[:0], power=view.power[:0])
    fail_unless(not _allocated(policy, nothing, name).any(), f"{name} gives trials where no comparison is open")
    able = replace(view, sizes=np.where(view.in_play, np.maximum(view.sizes, 1), 0))
    stalled = len(view.open_pairs) > 0 and not _allocated(policy, able, name).any()
    fail_unless(not stalled, f"{name} gives nothing though a comparison is open: the run would end undecided")
    rng = np.random.default_rng(len(given))
    for model in range(len(given)):
        other = view.trial_var.copy()
        other[model] = rng.exponential(1.0, other.shape[1])
        same = np.array_equal(_allocated(policy, replace(view, trial_var=other), name)[model], given[model])
        fail_unless(same, f"{name} spreads the trials of a model by its own outcomes, which biases its score")


def view_cases(cases: int = CASES) -> Iterator[View]:
    """Reproducible views of all kinds: models set aside or at their horizon, with a fixed value or without."""
    for seed in range(cases):
        rng = np.random.default_rng(seed)
        models, questions = int(rng.integers(2, 7)), int(rng.integers(1, 9))
        in_play, order = rng.random(models) < 0.8, rng.permutation(models)
        pairs = [(a, b) for at, a in enumerate(order) for b in order[at + 1 :]]
        if rng.random() < 0.5:
            pairs = [(a, models) for a in order]
        able = np.append(in_play, True)
        open_pairs = [pair for pair in pairs if able[list(pair)].all() and rng.random() < 0.4]
        yield View(
            open_pairs=np.array(open_pairs, dtype=np.intp).reshape(-1, 2),
            power=rng.random(len(open_pairs)),
            order=order,
            in_play=in_play,
            issued=rng.integers(1, 90, (models, questions)).astype(np.int32),
            trial_var=rng.exponential(1.0, (models, questions)) ** 3 + 1e-12,
            sizes=np.where(in_play & (rng.random(models) < 0.9), rng.integers(1, 40, models), 0),
            question_weights=relative_weights(rng.uniform(0.1, 3.0, questions)) if seed % 2 else None,
        )


def _allocated(policy: Policy, view: View, name: str) -> IntArray:
    """Allocation for a copy that cannot be written to."""
    with no_error(name, lambda: f"for the view {view!r:.2000}"):
        return np.asarray(policy.allocate(with_arrays(view, read_only)))
