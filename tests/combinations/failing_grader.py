"""A grader that fails on some answers while there is a file that says so."""

import re
from pathlib import Path
from typing import Any

BROKEN = Path(__file__).parent / "grader_is_broken"


def grade(text: str, question: Any) -> dict[str, bool | str | None]:
    match = re.search(r"The answer is (\d+)", text)
    case = re.search(r"/(\d+)\. ", text)
    if BROKEN.exists() and case is not None and int(case[1]) % 29 == 0:
        raise RuntimeError("the grader is broken")
    extracted = match[1] if match else None
    return {"is_correct": extracted == question.answer, "has_answer": match is not None, "extracted": extracted}
