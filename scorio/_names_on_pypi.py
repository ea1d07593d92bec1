"""Public names that only the other package called scorio has, the one on PyPI (version 0.2.3)."""

ONLY_ON_PYPI = {
    "scorio": "agg aggregate utils",
    "scorio.eval": "tailpass tailpass_empirical",
    "scorio.rank": """
        CauchyPrior CustomPrior EmpiricalPrior GaussianPrior LaplacePrior Prior UniformPrior alpharank baldwin
        bayesian_mcmc borda bradley_terry bradley_terry_davidson bradley_terry_davidson_map bradley_terry_luce
        bradley_terry_luce_map bradley_terry_map copeland davidson_luce davidson_luce_map dynamic_irt elo glicko
        hodge_rank inverse_difficulty kemeny_young majority_judgment minimax mirt nanson nash pagerank plackett_luce
        plackett_luce_map rank_centrality ranked_pairs rao_kupper rao_kupper_map rasch rasch_2pl rasch_2pl_map
        rasch_3pl rasch_3pl_map rasch_map rasch_mml rasch_mml_credible schulze serial_rank spectral thompson trueskill
        win_rate
    """,
    "scorio.categorical": "BINARY_SIGNALS FileResult SIGNAL_TO_COLUMN evaluate_all evaluate_schema load_records",
}
"""By module, names separated by white space."""


def missing_attribute(module: str, name: str) -> AttributeError:
    """The error for an attribute that a module does not have."""
    problem = f"module {module!r} has no attribute {name!r}"
    if name in ONLY_ON_PYPI.get(module, "").split():
        problem += (
            ": this scorio is a part of adaptive-eval, and only the package scorio on PyPI has it. "
            "The two overwrite each other, so install that one in another environment"
        )
    return AttributeError(problem, name=name)
