"""The grader of a run, and whether it finds the answer keys right: before anything is asked."""

from contextlib import chdir

from adaptive_eval.config.document import read_environment
from adaptive_eval.config.normalise import LM_EVAL_GRADE
from adaptive_eval.config.planning import worst_verdict
from adaptive_eval.config.prepare import PreparedRun
from adaptive_eval.config.run import RunConfig
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.graders.asked import AskedGrader
from adaptive_eval.graders.by_benchmark import ByBenchmark, graders_by_benchmark, graders_that_ask
from adaptive_eval.graders.function import Python
from adaptive_eval.graders.keys import KeyCheck, require_right_keys
from adaptive_eval.graders.pool import Grading, GradingPool
from adaptive_eval.graders.rubric import Rubric
from adaptive_eval.graders.types import GraderOptions
from adaptive_eval.graders.verifier import Verifier


def open_run_graders(prepared: PreparedRun) -> Grading:
    """Open the graders of a run, to be closed in the end."""
    return open_graders(prepared.config, prepared.rubric, worst_verdict(prepared.config, prepared.questions))


def open_graders(config: RunConfig, rubric: Rubric, lost: Cost = NO_COST) -> Grading:
    """Open the graders of a configuration, to be closed in the end; `lost` is the most that a verdict may cost."""
    if not graders_that_ask(config.grader):
        return GradingPool(config.grader, rubric, config.worker_settings)
    # imported here: they load what endpoints need, which `validate` does not
    from adaptive_eval.graders.asking import AskingPool, VerifierPool

    grader: GraderOptions = config.grader
    keyed = grader.keyed if isinstance(grader, Verifier) else grader if isinstance(grader, ByBenchmark) else None
    others = None if keyed is None else GradingPool(keyed, rubric, config.worker_settings)
    keys = read_environment(config.folder)
    pool = VerifierPool if isinstance(grader, Verifier) else AskingPool
    limits = config.concurrency
    return pool(grader, rubric, folder=config.folder, keys=keys, limits=limits, lost=lost, others=others)


async def check_keys(prepared: PreparedRun) -> KeyCheck:
    """Have the grader read every answer key; raises `ConfigError` where it cannot be loaded, or finds one wrong."""
    config = prepared.config
    grader: GraderOptions = config.grader
    if isinstance(grader, Verifier) and grader.keyed is not None:
        grader = grader.keyed
    _require_metric_directions(prepared)
    if isinstance(grader, AskedGrader):
        return KeyCheck(0, f"the grader is a {grader.kind}", tried=False)
    async with GradingPool(grader, prepared.rubric, config.worker_settings) as pool:
        return await require_right_keys(grader, pool, prepared.questions)


def _require_metric_directions(prepared: PreparedRun) -> None:
    """Raise `ConfigError` if the rubric prefers the worse values of a metric of lm-evaluation-harness."""
    for grader in graders_by_benchmark(prepared.config.grader).values():
        if isinstance(grader, Python) and grader.function == LM_EVAL_GRADE:
            # imported here: an extra
            from adaptive_eval.lm_eval.tasks import require_direction

            with chdir(prepared.config.folder):
                require_direction(prepared.rubric, **grader.options)
