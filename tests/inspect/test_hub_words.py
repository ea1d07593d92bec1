"""Whether a task loads data from the Hugging Face hub, by the words of its files."""

from pathlib import Path

import pytest

from adaptive_eval.inspect.process import _loads_from_hub

FILES = {
    "hub_evals/__init__.py": "raise SystemExit('the package was imported')\n",
    "hub_evals/away/task.py": "@task\ndef away(): ...\n",
    "hub_evals/away/data.py": "hf_dataset('x/y')\n",
    "hub_evals/here.py": "@task(name='given')\ndef here(): ...\n",
    "mine.py": "@task\ndef sums(): load_dataset('x/y')\n",
}


@pytest.mark.parametrize(
    ("task", "is_from_hub"),
    [
        ("hub_evals/away", True),
        ("hub_evals/here", False),
        ("hub_evals/given", False),
        ("hub_evals/nothing", False),
        ("mine.py@sums", True),
        ("other.py@sums", False),
        ("../x/y", False),
    ],
)
def test_a_task_is_from_the_hub_if_files_beside_it_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str, is_from_hub: bool
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert _loads_from_hub(task, tmp_path) is is_from_hub
