"""Why no more trials of a model were asked for, in a sentence."""

from adaptive_eval.results.types import Results


def why_stopped(name: str, results: Results | None) -> str:
    """The end of the run, and what became of this model's comparisons."""
    if results is None:
        return "the run has not come to its first look"
    row = next((row for row in results.models if row.name == name), None)
    if row is None:
        return "the model has left the run"
    if row.set_aside is not None:
        return f"the model was set aside: {row.set_aside}"
    verdicts = [pair.verdict for pair in results.pairs if name in (pair.better, pair.worse)]
    counted = ", ".join(f"{verdicts.count(one)} {one.replace('_', ' ')}" for one in dict.fromkeys(verdicts))
    ended = "the run has not ended" if results.run.reason is None else f"the run ended ({results.run.reason})"
    return f"{ended}; comparisons of this model: {counted or 'none'}"
