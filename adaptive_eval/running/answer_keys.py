"""The grader of a run, and whether it finds the answer keys right: before anything is asked."""

from adaptive_eval.config.prepare import PreparedRun
from adaptive_eval.graders.keys import KeysFound, require_right_keys
from adaptive_eval.graders.pool import GradingPool


def grading_of(prepared: PreparedRun) -> GradingPool:
    """The graders of a run, to be closed in the end."""
    config = prepared.config
    return GradingPool(config.grader, prepared.rubric, folder=config.folder, keys=config.keys)


async def check_keys(prepared: PreparedRun) -> KeysFound:
    """Have the grader read every answer key; raises `ConfigError` where it cannot be loaded, or finds one wrong."""
    pool = grading_of(prepared)
    try:
        return await require_right_keys(prepared.config.grader, pool, prepared.questions)
    finally:
        await pool.close()
