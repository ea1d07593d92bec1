"""Runs in the kernel of a real notebook: what its cells show, and what they leave behind.

One notebook is executed, cell by cell; the tests read what has become of it. `test_from_python.py` has what the
functions do apart from that, with a stand-in for IPython.
"""

import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from live_runs import MODELS, Site, wait_for_trials

pytestmark = pytest.mark.slow  # a kernel and four runs: seconds

HOSTILE = "<img src=x onerror=alert(1)>"
CELLS = {
    "process": "import os, adaptive_eval\nos.getpid()",
    "run": "record = adaptive_eval.run('run.yaml', ['trials.max=8'])",
    "record": "record",
    "refused": "adaptive_eval.run('run.yaml', ['trials.maximum=8'])",
    "awaited": """
import asyncio

turns = 0

async def others():
    global turns
    while True:
        turns += 1
        await asyncio.sleep(0.001)

beside = asyncio.create_task(others())
awaited = await adaptive_eval.run_async("run.yaml", ["trials.max=4"], directory="runs/awaited")
beside.cancel()
turns > 1, awaited.results.run.status
""",
    "read": "again = adaptive_eval.read_run('runs/run')\nagain.results == record.results",
    "frames": "frames = again.to_pandas(texts=True)\nframes.ranking[['name', 'tier', 'score']]",
    "counted": "len(frames.trials) == record.results.cost.trials, bool(frames.trials['text'].str.len().min() > 0)",
    "hostile": "adaptive_eval.run('hostile.yaml', ['trials.max=4'])",
    "interrupted": "adaptive_eval.run('long.yaml')",
    "afterwards": "adaptive_eval.read_run('runs/long').view.events[-1].kind",
}
FAIL = {"refused", "interrupted"}


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory, base_url: str) -> dict[str, Any]:
    """The cells after they were executed, in the folder of their configurations."""
    import nbclient  # here, since each process that runs tests imports this module
    import nbformat

    drawn: dict[int, list[str]] = {}

    class Watching(nbclient.NotebookClient):  # type: ignore[misc]
        """Keeps everything that an output showed before it was drawn anew."""

        def process_message(self, msg: Any, cell: Any, cell_index: int) -> Any:
            if msg["msg_type"] in ("display_data", "update_display_data"):
                drawn.setdefault(cell_index, []).append(msg["content"]["data"]["text/html"])
            return super().process_message(msg, cell, cell_index)

    site = Site.make(tmp_path_factory.mktemp("notebook"), base_url)
    models = [{"name": name, "base_url": base_url, "model": name} for name in MODELS]
    site.write()
    site.write("hostile", models=[models[0] | {"name": HOSTILE}, *models[1:]])
    site.write("long", trials={"min": 4, "max": 20_000, "policy": "uniform"})
    code_cells = {name: nbformat.v4.new_code_cell(source) for name, source in CELLS.items()}
    for name in FAIL:
        code_cells[name].metadata["tags"] = ["raises-exception"]
    book = nbformat.v4.new_notebook(cells=list(code_cells.values()))
    client = Watching(book, timeout=None, resources={"metadata": {"path": str(site.folder)}})
    with client.setup_kernel(), ThreadPoolExecutor(1) as beside:
        for at, (name, cell) in enumerate(code_cells.items()):
            if name == "interrupted":
                beside.submit(interrupt, int(value(code_cells["process"])), site.directory("long"))
            client.execute_cell(cell, at)
    for at, cell in enumerate(book.cells):
        cell.metadata["drawn"] = drawn.get(at, [])
    return dict(zip(code_cells, book.cells, strict=True))


def interrupt(process: int, directory: Path) -> None:
    """What the button of a notebook does, once a run has answers."""
    wait_for_trials(directory, 1)
    os.kill(process, signal.SIGINT)


def value(cell: Any) -> str:
    """What a cell shows as text."""
    return str(output(cell, "execute_result")["data"]["text/plain"])


def html(cell: Any, kind: str) -> str:
    """The markup that it shows."""
    return str(output(cell, kind)["data"]["text/html"])


def output(cell: Any, kind: str) -> Any:
    """The only output of that kind that a cell has."""
    (only,) = [item for item in cell["outputs"] if item["output_type"] == kind]
    return only


def test_a_run_shows_a_bar_in_one_output_that_ends_with_why_it_ended(cells: dict[str, Any]) -> None:
    first, *_, last_bar, _ = cells["run"].metadata["drawn"]
    assert "<progress" in first and "<progress" in last_bar and all(name in last_bar for name in MODELS)
    assert [item["output_type"] for item in cells["run"]["outputs"]] == ["display_data"], "drawn anew, not once more"
    assert re.match("<p>(Finished|Ended)", html(cells["run"], "display_data"))


def test_the_value_of_a_run_is_shown_as_a_table(cells: dict[str, Any]) -> None:
    shown = html(cells["record"], "execute_result")
    assert shown.count("<tr>") == 1 + len(MODELS) and all(name in shown for name in MODELS)
    assert value(cells["record"]).startswith("<RunRecord 'run' in 'runs/run'")


def test_a_refusal_is_the_error_of_its_cell(cells: dict[str, Any]) -> None:
    error = output(cells["refused"], "error")
    assert error["ename"] == "ConfigError" and "maximum" in error["evalue"]


def test_a_run_can_be_awaited_beside_other_tasks(cells: dict[str, Any]) -> None:
    assert re.fullmatch(r"\(True, '(finished|spent)'\)", value(cells["awaited"]))


def test_a_stored_run_is_read_and_becomes_data_frames(cells: dict[str, Any]) -> None:
    assert value(cells["read"]) == "True" and value(cells["counted"]) == "(True, True)"
    table = html(cells["frames"], "execute_result")
    assert 'class="dataframe"' in table and all(name in table for name in MODELS)


def test_no_name_becomes_markup(cells: dict[str, Any]) -> None:
    for kind in ("display_data", "execute_result"):
        assert "<img" not in html(cells["hostile"], kind)
    assert "&lt;img src=x" in html(cells["hostile"], "execute_result")


def test_a_cell_that_is_interrupted_leaves_a_run_that_was_stopped_in_order(cells: dict[str, Any]) -> None:
    assert output(cells["interrupted"], "error")["ename"] == "KeyboardInterrupt"
    assert value(cells["afterwards"]) == "'stopped'"
