"""A stored run as a recording: its trials in their order, with the weights of its own rubric."""

from contextlib import closing
from pathlib import Path

import numpy as np

from adaptive_eval.errors import ConfigError
from adaptive_eval.graders.rubric import open_rubric
from adaptive_eval.replay.recording import Recording
from adaptive_eval.run.meaning import stored_config
from adaptive_eval.store import RunReader


def read_run(directory: Path) -> Recording:
    """The graded trials of a run; `ConfigError` where a model has none of a question."""
    with closing(RunReader.open(directory)) as reader:
        header = reader.header()
        weights = np.array(open_rubric(stored_config(header).rubric).weights, dtype=float)
        trials = [one for one in reader.outcomes() if one.category is not None]
    model_at = {name: number for number, name in enumerate(header.models)}
    question_at = {key: number for number, key in enumerate(header.questions)}
    longest = max((one.trial + 1 for one in trials), default=0)
    outcomes = np.full((len(model_at), len(question_at), longest), -1, dtype=np.int8)
    for one in trials:
        assert one.category is not None
        outcomes[model_at[one.model], question_at[one.question], one.trial] = one.category
    counts = np.stack([(outcomes == category).sum(axis=2) for category in range(len(weights))], axis=-1)
    untried = np.argwhere(counts.sum(axis=-1) == 0)
    if len(untried):
        model, question = untried[0].tolist()
        raise ConfigError(
            f"{directory}: {list(header.models)[model]} has no graded trial of question "
            f"{list(header.questions)[question]}, and nothing says what one would have given; let the run go on first"
        )
    return Recording(tuple(header.models), tuple(header.questions), counts, outcomes, weights)
