"""Which answers to label next."""

from collections import Counter, defaultdict
from collections.abc import Collection
from hashlib import blake2b

from adaptive_eval.core.types import Verdict
from adaptive_eval.questions.load import benchmark_named
from adaptive_eval.report.label_file import Labelled
from adaptive_eval.report.rescore import judged_rows
from adaptive_eval.report.results import Results
from adaptive_eval.report.stored import StoredRun

DECIDED = (Verdict.RESOLVED, Verdict.TIED)


def choose_answers_to_label(stored: StoredRun, labelled: Collection[Labelled], number: int) -> list[Labelled]:
    """Choose the answers whose labels help most to decide comparisons; `labelled` are those that have one.

    The next model is the one whose next label most reduces the variances of comparisons that are undecided after
    correction. Its answers come from each benchmark and each question in turn, in a pseudorandom order that depends
    only on their names, so the choice does not depend on their content.
    """
    candidates = _unlabelled_answers(stored, labelled)
    results = stored.results(running=True)
    counts = Counter(at.model for at in labelled)
    chosen: list[Labelled] = []
    while len(chosen) < number and any(candidates.values()):
        models = (name for name, answers in candidates.items() if answers)
        model = max(models, key=lambda name: _label_gain(name, counts[name], results))
        chosen.append(candidates[model].pop(0))
        counts[model] += 1
    return chosen


def _label_gain(model: str, labels_so_far: int, results: Results | None) -> tuple[float, int]:
    """Sort key of a model with this many labels: how much the next label reduces the variances of its undecided
    comparisons, then the fewest labels."""
    labelled = () if results is None or results.labelled is None else results.labelled.models
    row = next((row for row in labelled if row.name == model), None)
    if results is None or row is None or row.shift_sigma is None:
        return float("inf"), -labels_so_far
    variance_drop = row.shift_sigma**2 * row.labels * (1.0 / labels_so_far - 1.0 / (labels_so_far + 1))
    undecided = (pair for pair in results.pairs if pair.verdict not in DECIDED and model in (pair.first, pair.second))
    return sum(variance_drop / pair.sigma**2 for pair in undecided if pair.sigma), -labels_so_far


def _unlabelled_answers(stored: StoredRun, labelled: Collection[Labelled]) -> dict[str, list[Labelled]]:
    """Answers without a label, by model, in the order of labelling."""
    cells: dict[tuple[str, str], list[Labelled]] = defaultdict(list)
    for row in judged_rows(stored):
        cells[row.model, row.question].append(Labelled(row.model, row.question, row.trial))
    queues: dict[tuple[str, str], list[tuple[int, bytes, Labelled]]] = defaultdict(list)
    has_benchmarks = bool(stored.setup.config.benchmarks)
    for (model, question), answers in cells.items():
        queue = queues[model, benchmark_named(question) if has_benchmarks else ""]
        queue += [(turn, _draw_key(at), at) for turn, at in enumerate(sorted(answers, key=_draw_key))]
    by_model: dict[str, list[tuple[int, bytes, Labelled]]] = defaultdict(list)
    for (model, _), queue in queues.items():
        by_model[model] += [(place, key, at) for place, (_, key, at) in enumerate(sorted(queue))]
    return {model: [at for _, _, at in sorted(answers) if at not in labelled] for model, answers in by_model.items()}


def _draw_key(at: Labelled) -> bytes:
    """A pseudorandom sort key that never changes."""
    return blake2b("\0".join((at.model, at.question, str(at.trial))).encode("utf-8", "surrogatepass")).digest()[:16]
