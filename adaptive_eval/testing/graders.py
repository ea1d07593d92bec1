"""Contract of a grader: any text gets marks, the same ones each time."""

import copy
import math
import os
import pickle
import re
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import Any

from adaptive_eval.graders.function import Python, make_marks
from adaptive_eval.graders.types import GraderOptions, Marks
from adaptive_eval.questions.types import Question
from adaptive_eval.testing.reaching import check_reach
from adaptive_eval.testing.runs import check_elsewhere, fail_unless, told_elsewhere

AnyGrader = GraderOptions | Callable[..., object]
"""A grader of this package, or a function of the author's."""
RAN = "ADAPTIVE_EVAL_RAN_AN_ANSWER"
"""The variable that is set where somebody runs the texts that set it."""
_SETS_IT = f"__import__('os').environ.__setitem__({RAN!r},'1')"
LONGEST_CPU = 20.0
"""Seconds of the processor for one text: a worker of a run is ended long before."""
DRAWS = 30
"""Number of times that each answer known to be right or wrong is graded, which finds a grader that draws."""
EMPTY = ("", " \n\t ")
NO_KEYS = ("?", "no key", "")
"""Keys that few graders can read."""
REPEATED = 2_000
WORDS = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigma tau 7 8 9"
"""Many different words: whoever makes a set of them has another order in each process."""
MORE = "777"
"""Digits that make another number, and another word, before or behind a key."""
NO_NUMBER = ("nan", "-NaN")
"""Texts that Python reads as a number with which every comparison is false: `not abs(said - key) > slack` is true."""
HOSTILE = (
    *EMPTY,
    *NO_NUMBER,
    "inf",
    "a" * 40 + "!",  # patterns such as (\w+\s?)*$ take 2^40 steps to find that these end otherwise
    "a " * 40 + "!",
    "1" * 40 + "!",
    " " * 40 + "!",
    "\x00\x01",
    "\ud800",
    "４",
    "\\boxed{" * 50,
    "\\boxed{}" * 50,
    "{" * 500,
    "[" * 500,
    "((((" * 200,
    "1" * 5000,
    "1/0",
    "1e999999999999",
    "10^1000000000",
    "\\frac{1}{0}",
    "$" * 100,
    "<think>" * 10,
    "-" * 1000 + "4",
    "\\" * 999,
    '{"a": {"b": NaN}}',
    '{"a": ' * 200 + "1" + "}" * 200,
    "{" * 20_000,
    "(" * 5_000 + "4" + ")" * 5_000,
    "a " * 20_000,
    "4," * 5_000 + "x",
    _SETS_IT,
    f"```python\n{_SETS_IT}\n```",
)
"""Texts that a model may have written."""


def check_grader(grader: AnyGrader, question: Question, right: Sequence[str], wrong: Sequence[str]) -> None:
    """Raise AssertionError unless the grader, or the function of your own, keeps to its contract.

    Args:
        grader: One of this package, or a function as `grader: {kind: python}` calls it.
        question: With its answer key.
        right: Answers to it that are right.
        wrong: Answers that are not, and that it has to tell from those.

    Raises:
        AssertionError: It does not; the message says what is broken, and for which answer.

    Example:
        A function `grade(text, question)` of your own:

            check_grader(grade, Question("q1", "2 + 2?", "4"), right=["It is 4."], wrong=["It is 5."])
    """
    function = getattr(grader, "func", grader)  # a partial hands options to a function of another name
    name = getattr(function, "__name__", type(grader).__name__)
    before, fresh = copy.deepcopy(question), _copied(grader)
    called = _by_other_keys(grader, question, (*EMPTY, *right, *wrong), (*wrong, *NO_KEYS), name)
    texts = (*right, *wrong, *HOSTILE, *_at_length(right))
    os.environ.pop(RAN, None)
    found = [_graded(grader, text, question, name) for text in texts]
    fail_unless(os.environ.pop(RAN, None) is None, f"{name} runs what a model has written as code")
    for text, marks in zip(texts, found, strict=True):
        _check_marks(marks, text, name)
    fail_unless(question == before, f"{name} changes the question that it is given")
    for texts_of, wanted in ((right, True), (wrong, False)):
        for text in texts_of:
            said = [_graded(grader, text, question, name).signals.get("is_correct") for _ in range(DRAWS)]
            drawn = len(set(said)) > 1
            fail_unless(not drawn, f"{name} gives {text!r:.80} other marks at times, so it remembers or draws")
            if said[0] is not wanted:
                must = f"{name} must find {text!r:.80} {'right' if wanted else 'wrong'}, but says {said[0]!r}"
                kept = _said_at_first(fresh, text, question, name) == repr(wanted)
                why = "; questions with other keys came before: are marks or keys kept?" * kept
                raise AssertionError(must + why)
    _check_almost_right(grader, question, right, name)
    for key, text in called:
        nothing = text in EMPTY and bool(key.strip())
        fail_unless(not nothing, f"{name} calls an empty answer right where the key is {key!r:.80}: is None == None?")
    for one in right[:1]:
        check_reach(lambda text: _graded(grader, text, question, name), one, name)
    for text, marks in reversed(list(zip(texts, found, strict=True))):
        again = _graded(grader, text, question, name)
        fail_unless(again == marks, f"{name} gives other marks the second time, so it remembers or draws: {text!r:.80}")
    if not callable(grader):
        _check_section(grader, question, texts, found, name)
        _check_thoughts(grader, question, right[0], wrong[0], name)
    check_elsewhere(_marks_of_all, (grader, question, (*right, *wrong, f"{WORDS} {' '.join((*right, *wrong))}")), name)


def _copied(grader: AnyGrader) -> AnyGrader:
    try:
        return copy.deepcopy(grader)
    except Exception:  # whatever it holds, such as a lock
        return grader


def _said_at_first(fresh: AnyGrader, text: str, question: Question, name: str) -> str | None:
    """What the grader says of this answer if nothing came before, as far as that can be tried."""
    asked = (fresh, text, question, name)
    try:
        alone = told_elsewhere(_said_of, asked)
        return _said_of(*asked) if alone is None else alone
    except AssertionError:
        return None


def _said_of(grader: AnyGrader, text: str, question: Question, name: str) -> str:
    return repr(_graded(grader, text, question, name).signals.get("is_correct"))


def _marks_of_all(grader: AnyGrader, question: Question, texts: Sequence[str]) -> str:
    found = [_graded(grader, text, question, "it") for text in texts]
    return repr([(sorted(marks.signals.items()), marks.extracted) for marks in found])


def _by_other_keys(
    grader: AnyGrader,
    question: Question,
    texts: Sequence[str],
    keys: Sequence[str],
    name: str,
) -> list[tuple[str, str]]:
    """Grades the same answers for other questions, so that whoever keeps a key or marks gives them to the next one.

    Gives the keys by which an answer is called right, and the answer; a key that it cannot read is no bug.
    """
    found = []
    for number, key in enumerate(keys):
        other = replace(question, id=f"{question.id}, with another key {number}", answer=key)
        for text in texts:
            try:
                right = _graded(grader, text, other, name).signals.get("is_correct") is True
            except AssertionError:
                continue
            found += [(key, text)] * right
    return found


def _check_almost_right(grader: AnyGrader, question: Question, right: Sequence[str], name: str) -> None:
    """Check that empty answers, what is no number, and longer words with the key in them are not right."""
    calls = {text: f"calls an empty answer right: {text!r}" for text in EMPTY}
    calls |= {text: f"calls what is no number right: {text!r}" for text in NO_NUMBER}
    key = f"finds the key {question.answer!r:.80} in a longer word"
    calls |= {text: f"{key}, and calls {text!r:.80} right" for text in _with_longer_keys(right, question.answer)}
    for text, problem in calls.items():
        if text not in right:
            is_right = _graded(grader, text, question, name).signals.get("is_correct") is True
            fail_unless(not is_right, f"{name} {problem}")


def _with_longer_keys(right: Sequence[str], key: str) -> Iterator[str]:
    """The right answers with a longer word or number where the key stood as one."""
    whole = re.compile(rf"(?<![\w.]){re.escape(key)}(?!\w)")
    before = (MORE + key,) * key[:1].isalnum()  # a sign before a number begins a word of its own
    behind = (key + MORE,) * key[-1:].isalnum()
    for text in right:
        for longer in (*before, *behind):
            if whole.search(text):
                yield whole.sub(longer, text)


def _at_length(right: Sequence[str]) -> tuple[str, ...]:
    """Right answers again and again: what looks for their words may take a way back for each of them."""
    return tuple(text for one in right[:1] for text in (f"{one} " * REPEATED, one[:-1] * REPEATED))


def _check_thoughts(grader: GraderOptions, question: Question, right: str, wrong: str, name: str) -> None:
    """Check that text before `</think>` is no answer, and that thoughts which never end leave none."""
    if isinstance(grader, Python):
        return  # its function is given the text as the model wrote it
    for text, wanted in (
        (f"<think>{wrong}</think>{right}", True),
        (f"{right}</think>{wrong}", False),
        (f"<think>{right}", False),
    ):
        said = _graded(grader, text, question, name).signals.get("is_correct")
        fail_unless(said is wanted, f"{name} takes thoughts for the answer in {text!r:.80}; read `final_text(text)`")


def _check_section(
    grader: GraderOptions, question: Question, texts: Sequence[str], found: Sequence[Marks], name: str
) -> None:
    """Check what only a grader of this package has: its quick way, its names of signals, its way to a worker."""
    for text, marks in zip(texts, found, strict=True):
        quick = grader.quick(text, question)
        fail_unless(quick is None or quick == marks, f"{name}: quick says otherwise than grade of {text!r:.80}")
    sent = pickle.loads(pickle.dumps(grader))
    fail_unless(sent == grader, f"{name} does not come to a worker process as it was")
    for text, marks in zip(texts, found, strict=True):
        named = set(marks.signals)
        fail_unless(
            not grader.gives or named == grader.gives,
            f"{name}: gives names {sorted(grader.gives)}, not {sorted(named)}, which {text!r:.80} gets",
        )
    fail_unless(grader.key_problem(question) is None, f"{name} refuses the key: {grader.key_problem(question)}")


def _graded(grader: AnyGrader, text: str, question: Question, name: str) -> Marks:
    try:
        with _bounded_cpu(f"{name} takes more than {LONGEST_CPU:g} s of the processor for the answer {text!r:.80}"):
            if callable(grader):
                return make_marks(grader(text, question), name)
            return grader.grade(text, question)
    except AssertionError:
        raise
    except (Exception, SystemExit) as error:  # whatever it is: no text that a model wrote may be an error
        raise AssertionError(f"{name} raises {error!r:.200} for the answer {text!r:.80}") from error


@contextmanager
def _bounded_cpu(said: str) -> Iterator[None]:
    """End what takes too long, by the clock of the processor: how busy the machine is does not count."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise AssertionError(said)

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST_CPU)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)


def _check_marks(marks: Any, text: str, name: str) -> None:
    fail_unless(isinstance(marks, Marks), f"{name} must give marks, but gives {marks!r:.80} for {text!r:.80}")
    fail_unless("is_correct" in marks.signals, f"{name} gives no signal is_correct for {text!r:.80}")
    said = marks.signals["is_correct"]
    fail_unless(
        isinstance(said, bool), f"{name}: is_correct must be true or false, but is {said!r:.80} for {text!r:.80}"
    )
    fail_unless(
        not said or marks.signals.get("has_answer", True) is True,
        f"{name} finds {text!r:.80} right, and says by has_answer that it is no answer",
    )
    for key, value in marks.signals.items():
        sound = isinstance(value, bool | str) or (isinstance(value, int | float) and math.isfinite(value))
        fail_unless(sound, f"{name}: signal {key} must be true, false, a finite number or a text, but is {value!r:.80}")
    extracted = marks.extracted is None or isinstance(marks.extracted, str)
    fail_unless(extracted, f"{name}: extracted must be a text or None, but is {marks.extracted!r:.80}")
