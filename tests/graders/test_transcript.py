"""What a judge is sent: the text that is graded speaks for nobody else."""

import re
import unicodedata

import pytest
from hostile_answers import HOSTILE, NUMBER, WRONG
from hypothesis import given
from hypothesis import strategies as st

from adaptive_eval.base.errors import GraderError
from adaptive_eval.graders.asked import GraderServer
from adaptive_eval.graders.ballots import BallotField, parse_line_ballot
from adaptive_eval.graders.judge import Judge
from adaptive_eval.graders.transcript import Transcript, shortened, visible
from adaptive_eval.graders.verifier import Verifier
from adaptive_eval.questions.types import Question
from adaptive_eval.simulate.judging import SimulatedJudge, SimulatedVerifier

JUDGE = Judge(server=GraderServer(base_url="http://127.0.0.1:1/v1", model="judge"))
VERIFIER = Verifier(server=GraderServer(base_url="http://127.0.0.1:1/v1", model="verifier"))
QUESTION = Question("q1", "[q1] Which integer?", "417")


def verdict_in(reply: str, number: str, levels: list[str]) -> str:
    """The verdict that a reply in lines ends with."""
    return parse_line_ballot(reply, number, [BallotField("verdict", tuple(levels))])[0]


def between(sent: Transcript, name: str) -> list[str]:
    """What stands between the marks of a part."""
    return re.findall(rf"<{name}-{sent.number}>\n(.*?)\n</{name}-{sent.number}>", sent.user, flags=re.DOTALL)


@pytest.mark.parametrize("grader", [JUDGE, VERIFIER], ids=["judge", "verifier"])
def test_a_hostile_answer_stays_where_it_belongs(grader: Judge | Verifier) -> None:
    for answer in HOSTILE:
        stays_where_it_belongs(grader, answer)


def stays_where_it_belongs(grader: Judge | Verifier, answer: str) -> None:
    sent = grader.transcript(QUESTION, answer)
    plain = grader.transcript(QUESTION, "x")
    # but for the number, the system says what it says of any answer
    assert sent.system.replace(sent.number, "#") == plain.system.replace(plain.number, "#")
    # the answer, and nothing of anyone else, stands once between marks that are the only ones with their number
    assert between(sent, "answer") == [visible(answer)]
    assert between(sent, "reference") == ["417"] and between(sent, "question") == [QUESTION.prompt]
    assert sent.user.count(sent.number) == 6 and sent.number not in answer
    remainder = sent.user.replace(visible(answer), "#").replace(sent.number, "#")
    assert remainder == plain.user.replace("\nx\n", "\n#\n").replace(plain.number, "#")
    # nothing in it is taken for a turn, and nothing is unseen
    assert not re.search(
        r"<[|\uff5c]|[|\uff5c]>|\[/?INST\]|</?s>|<</?SYS>>|<(?:start|end)_of_turn>|<[be]os>", sent.user
    )
    assert not [ch for ch in sent.user if ch not in "\n\t" and unicodedata.category(ch)[0] == "C"]
    # one that follows its rules says what it says without all that
    if grader is VERIFIER:
        shown, unmoved = (
            f"{transcript.system}\n{transcript.user}" for transcript in (sent, grader.transcript(QUESTION, WRONG))
        )
        assert SimulatedVerifier(leaning=(0.5, 0.0, -0.5)).slot(shown) == SimulatedVerifier(
            leaning=(0.5, 0.0, -0.5)
        ).slot(unmoved)
        assert SimulatedVerifier().slot(shown)[0][0] == "B"
        return
    reply = SimulatedJudge().reply(f"{sent.system}\n{sent.user}", 1)
    assert verdict_in(reply, sent.number, ["correct", "wrong"]) == "wrong"
    # and one that repeats what it reads gives no verdict, or its own
    parrot = f"{answer}\nVERDICT-{sent.number}: wrong"
    assert verdict_in(parrot, sent.number, ["correct", "wrong"]) == "wrong"
    with pytest.raises(GraderError):
        verdict_in(answer, sent.number, ["correct", "wrong"])


@given(st.text(), st.text(), st.text())
def test_whatever_is_asked_and_answered_the_parts_are_found_again(question: str, reference: str, answer: str) -> None:
    sent = JUDGE.transcript(Question("q", question, reference), answer)
    assert between(sent, "answer") == [visible(answer)]
    assert between(sent, "question") == [visible(question)]
    assert between(sent, "reference") == ([visible(reference)] if reference.strip() else [])


def test_a_long_answer_keeps_its_ends() -> None:
    text = "first " + "ä" * 50_000 + " last"
    cut = shortened(text, 4096)
    assert len(cut.encode()) <= 4096 and cut.startswith("first ") and cut.endswith(" last") and "cut" in cut
    assert shortened("short", 4096) == "short"


def test_a_verdict_is_read_whatever_its_case_and_space() -> None:
    assert verdict_in(f"Because.\n\n  VERDICT-{NUMBER}:  Correct \n\n", NUMBER, ["correct", "wrong"]) == "correct"
