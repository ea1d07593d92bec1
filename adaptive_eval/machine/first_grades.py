"""Whether the grader has graded anything yet: a run whose grader fails on all of its first answers is ended."""

from collections import Counter
from collections.abc import Iterable, Sequence

from adaptive_eval.machine.events import Setting
from adaptive_eval.machine.follow_up import FIRST_ANSWERS, FIRST_IN_FLIGHT
from adaptive_eval.machine.trial import Trial


class FirstGrades:
    """By benchmark: whether an answer has a grade, and on how many the grader has failed."""

    def __init__(self, *, has_grades: bool) -> None:
        """`has_grades`: an earlier start has graded answers to the first benchmark."""
        self._graded: set[int] = {0} if has_grades else set()
        self._graded_of: set[tuple[int, int]] = set()
        """Models whose answers come with grades, each with a benchmark in which an answer has one."""
        self._failures: Counter[int] = Counter()
        """By benchmark: answers on which the grader has failed in this start."""

    def use(self, setting: Setting) -> None:
        """Go on under other settings."""
        self._own_grades, self._benchmark_of = setting.own_grades, setting.benchmarks
        self._benchmarks = frozenset(setting.benchmarks) or frozenset({0})

    def on_grade(self, trial: Trial) -> None:
        """An answer has a grade."""
        benchmark = self._benchmark(trial.question)
        self._graded.add(benchmark)
        if trial.model in self._own_grades:
            self._graded_of.add((trial.model, benchmark))

    def has_failed_on_all(self, trial: Trial) -> bool:
        """Count a failure of the grader; True once it has failed on all of the first answers to a benchmark."""
        benchmark = self._benchmark(trial.question)
        self._failures[benchmark] += 1
        return self._failures[benchmark] == FIRST_ANSWERS and benchmark not in self._graded

    def are_awaited(self, model: int) -> bool:
        """Whether answers of a model come with their grades, and none has come in some benchmark."""
        if model not in self._own_grades:
            return False
        return any((model, benchmark) not in self._graded_of for benchmark in self._benchmarks)

    def first_to_send(self, queued: Sequence[Trial], held: Iterable[Trial]) -> Trial | None:
        """The next trial of a model that may be sent while its grades are awaited; None: its answers come first.

        `held`: its trials in flight. Few answers are in flight to a benchmark without a grade, to different questions
        if there are.
        """
        asked = [trial.question for trial in held]
        for is_repeated in (False, True):
            for trial in queued:
                benchmark = self._benchmark(trial.question)
                alike = [question for question in asked if self._benchmark(question) == benchmark]
                is_first = len(alike) < FIRST_IN_FLIGHT and (is_repeated or trial.question not in alike)
                if is_first or (trial.model, benchmark) in self._graded_of:
                    return trial
        return None

    def _benchmark(self, question: int) -> int:
        return self._benchmark_of[question] if self._benchmark_of else 0
