"""The grader of a run, and whether it finds the answer keys right: before anything is asked."""

from typing import TYPE_CHECKING

from adaptive_eval.config.document import read_environment
from adaptive_eval.config.planning import worst_verdict
from adaptive_eval.config.prepare import PreparedRun
from adaptive_eval.config.run import RunConfig
from adaptive_eval.core.types import NO_COST, Cost
from adaptive_eval.graders.asked import AskedGrader
from adaptive_eval.graders.judge import Judge
from adaptive_eval.graders.keys import KeysFound, require_right_keys
from adaptive_eval.graders.pool import GradingPool
from adaptive_eval.graders.registry import InspectScores
from adaptive_eval.graders.rubric import Rubric
from adaptive_eval.graders.verifier import Verifier

if TYPE_CHECKING:
    from adaptive_eval.graders.judging import JudgePool
    from adaptive_eval.graders.verifying import VerifierPool


def open_run_graders(prepared: PreparedRun) -> "GradingPool | JudgePool | VerifierPool":
    """Open the graders of a run, to be closed in the end."""
    return open_graders(prepared.config, prepared.rubric, worst_verdict(prepared.config, prepared.questions))


def open_graders(config: RunConfig, rubric: Rubric, lost: Cost = NO_COST) -> "GradingPool | JudgePool | VerifierPool":
    """Open the graders of a configuration, to be closed in the end; `lost` is the most that a verdict may cost."""
    if isinstance(config.grader, Judge):
        from adaptive_eval.graders.judging import JudgePool  # loads what endpoints need, which `validate` does not

        keys = read_environment(config.folder)
        return JudgePool(config.grader, rubric, folder=config.folder, keys=keys, lost=lost)
    if isinstance(config.grader, Verifier):
        from adaptive_eval.graders.verifying import VerifierPool  # the same

        keys = read_environment(config.folder)
        return VerifierPool(config.grader, rubric, folder=config.folder, keys=keys, lost=lost)
    return GradingPool(config.grader, rubric, folder=config.folder, keys=config.keys)


async def check_keys(prepared: PreparedRun) -> KeysFound:
    """Have the grader read every answer key; raises `ConfigError` where it cannot be loaded, or finds one wrong."""
    config = prepared.config
    grader = config.grader
    if isinstance(grader, InspectScores):
        return KeysFound(0, "the scorer of the task grades", tried=False)
    if isinstance(grader, AskedGrader):
        if not isinstance(grader, Verifier) or grader.beside is None:
            return KeysFound(0, f"the grader is a {grader.kind}, which is asked about answers alone", tried=False)
        grader = grader.beside
    pool = GradingPool(grader, prepared.rubric, folder=config.folder, keys=config.keys)
    try:
        return await require_right_keys(grader, pool, prepared.questions)
    finally:
        await pool.close()
