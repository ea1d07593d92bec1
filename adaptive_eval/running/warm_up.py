"""Slow computations that would stop the loop of a run for a moment, done before it begins."""

from dataclasses import replace

from adaptive_eval.core import Bench, Budget, Controller, Outcome, Plan
from adaptive_eval.core.objectives import Ranking
from adaptive_eval.core.policies import UnresolvedPairs


def warm_up(plan: Plan) -> None:
    """Take one look at a toy: a rule's boundary is solved for at its first look, which takes up to half a second."""
    bench = Bench(models=2, questions=plan.drawn or 1, weights=plan.bench.weights)
    plain = replace(plan, bench=bench, objective=Ranking(), policy=UnresolvedPairs(), budget=Budget(), first=None)
    toy = Controller(plain)
    while not toy.looks:
        toy.tell([Outcome(ask.model, ask.question, ask.trial, ask.trial % 2) for ask in toy.ask(plan.trials.max)])
