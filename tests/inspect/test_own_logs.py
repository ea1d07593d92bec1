"""What the process of Inspect gives: archives, log records and printed lines lose secrets; scores become signals."""

import io
import json
import logging
import math
import sys
import zipfile
from pathlib import Path

import pytest

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.endpoints.redaction import Redactor
from adaptive_eval.inspect.endpoint import marks_from_scores
from adaptive_eval.inspect.own_logs import MAX_UNPRINTED, RedactedStream, redact_loggers, redact_own_logs

KEY = "sk-a1b2c3d4e5f6g7h8i9"
DIGITS = "12345678901234567890"
KEYS = Redactor([KEY, DIGITS])


def redacted_process(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is printed once this process removes secrets from what it writes."""
    printed = io.StringIO()
    monkeypatch.setattr(zipfile.ZipFile, "writestr", zipfile.ZipFile.writestr)
    monkeypatch.setattr(sys, "stdout", printed)
    monkeypatch.setattr(sys, "stderr", printed)
    monkeypatch.setattr("atexit.register", lambda function: None)
    redact_own_logs(KEYS)
    return printed


def test_members_of_an_archive_stay_json(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    redacted_process(monkeypatch)
    body = {"said": f"I am {KEY}\n", KEY: [1.5, None, True], "at": 12345678901.25, "number": int(DIGITS)}
    with zipfile.ZipFile(tmp_path / "a.eval", "w") as archive:
        archive.writestr("bytes.json", json.dumps(body).encode())
        archive.writestr("text.json", json.dumps({**body, "number": 7}))
        archive.writestr("image", b"\xff\xfe" + KEY.encode())
        archive.writestr("words", f"no JSON, and {KEY}")
    with zipfile.ZipFile(tmp_path / "a.eval") as archive:
        member = {name: archive.read(name) for name in archive.namelist()}
    cleaned = {"said": "I am ***\n", "***": [1.5, None, True], "at": 12345678901.25}
    assert json.loads(member["text.json"]) == {**cleaned, "number": 7}
    assert json.loads(member["bytes.json"]) == {**cleaned, "number": int(DIGITS)}, "a number is no secret"
    assert member["words"] == b"no JSON, and ***"
    assert member["image"] == b"\xff\xfe" + KEY.encode(), "what is no text stays"


def test_printed_lines_lose_a_key_that_comes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = redacted_process(monkeypatch)
    sys.stdout.write(f"it is {KEY[:9]}")
    sys.stdout.flush()
    assert printed.getvalue() == "", "a line is printed when it has ended"
    print(KEY[9:], "and more", file=sys.stderr)
    print("next", end="")
    assert printed.getvalue() == "it is *** and more\n"
    assert isinstance(sys.stdout, RedactedStream)
    sys.stdout.print_rest()
    assert printed.getvalue() == "it is *** and more\nnext"
    print("x" * MAX_UNPRINTED + "y", end="")
    assert printed.getvalue().endswith("xy"), "a line without an end is not kept for ever"


def test_log_records_lose_keys_in_messages_fields_and_tracebacks() -> None:
    logger, out = logging.getLogger("test_own_logs"), io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(logging.Formatter("%(message)s %(detail)s"))
    logger.addHandler(handler)
    redact_loggers(KEYS)
    redact_loggers(KEYS)
    assert len(handler.filters) == 1
    try:
        raise ValueError(f"bad key {KEY}")
    except ValueError:
        logger.exception("%s failed", KEY, extra={"detail": f"sent {KEY}"})
    logger.error("no %s", "argument", extra={"detail": 7})
    text = out.getvalue()
    assert text.startswith("*** failed sent ***\nTraceback") and "ValueError: bad key ***" in text
    assert text.endswith("no argument 7\n") and KEY not in text


def scored(value: object, scorer: str | None = None, *, binary: bool = True) -> dict[str, object] | None:
    marks = marks_from_scores({"match": {"value": value, "answer": "42"}}, scorer, only_right_and_wrong=binary)
    return None if marks is None else dict(marks.signals)


@pytest.mark.parametrize(("value", "right"), [("C", 1), ("I", 0), ("N", 0), (1, 1), (0.0, 0), (True, 1), (False, 0)])
def test_right_and_wrong(value: object, right: int) -> None:
    assert scored(value) == {"score": float(right), "is_correct": bool(right), "has_answer": value != "N"}
    assert scored(math.nan) is None, "a sample without a score is no trial"
    long = marks_from_scores({"match": {"value": value, "answer": "x" * 5000}}, None, only_right_and_wrong=True)
    assert long is not None and (value == "N" or long.extracted == "x" * 1000)


@pytest.mark.parametrize(("value", "score"), [("P", 0.5), (0.7, 0.7), (2, 2.0)])
def test_other_numbers_need_a_rubric_that_knows_them(value: object, score: float) -> None:
    assert scored(value, binary=False) == {"score": score, "is_correct": False, "has_answer": True}
    with pytest.raises(ConfigError, match="the rubric only has right and wrong; declare a category for it"):
        scored(value)


@pytest.mark.parametrize("value", ["yes", "", None, [1]])
def test_what_is_no_number_is_reported(value: object) -> None:
    with pytest.raises(ConfigError, match="but a score must be a number, true or false, or C, P, I or N"):
        scored(value)


def test_one_of_several_values_is_named() -> None:
    values = {"strict": "I", "loose": 1}
    assert scored(values, "match.loose") == {"score": 1.0, "is_correct": True, "has_answer": True}
    with pytest.raises(ConfigError, match=r"a sample has no score match\.exact; it has strict, loose"):
        scored(values, "match.exact")
    with pytest.raises(ConfigError, match=r"\(strict, loose\); .* --set benchmark\.scorer=match\.strict"):
        scored(values)
