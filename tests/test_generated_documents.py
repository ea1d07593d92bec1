"""Pages of the guide that are made of the program are what it makes of them now, and the site has no warning."""

import subprocess
import sys

import pytest
from document_blocks import ROOT


@pytest.mark.parametrize(
    "words", [["documents/write.py", "--check"], ["documents/site.py"]], ids=lambda words: words[0]
)
def test_documents_are_up_to_date(words: list[str]) -> None:
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
