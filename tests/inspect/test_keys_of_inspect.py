"""A provider that hands the key back in all that it says, to Inspect: no file of the run and no output has it."""

import gzip
import json
import zipfile
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml
import zipfile_zstd  # noqa: F401 (reads the logs of Inspect, whatever the version of Python)
from command_line import typed
from contrary_server import Asked, Reply, answer, listening
from inspect_logs import read_log
from live_runs import ENDED
from stored_runs import stored_events, stored_header, stored_trials

KEY = "sk/a1b2c3d4+e5f6g7h8i9j0k1l2m3n4o5p6"
TASK = """
import json, logging, os, sys
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import Score, mean, scorer
from inspect_ai.solver import solver

@solver
def talkative():
    async def solve(state, generate):
        state = await generate(state)
        said = state.output.completion
        print("printed:", said, json.dumps({"key": os.environ["SAY_API_KEY"]}))
        sys.stderr.write("in two " + said[:30])
        sys.stderr.write(said[30:] + "\\n")
        logging.getLogger("own").warning("logged: %s", said)
        state.metadata["said"] = said
        if str(state.sample_id).startswith("1#0"):
            raise ValueError("it said " + said)
        return state
    return solve

@scorer(metrics=[mean()])
def quoting():
    async def score(state, target):
        said = state.output.completion
        return Score(value="42" in said, answer=said, explanation=f"it said {said}")
    return score

@task
def echoed():
    samples = [Sample(input=f"{at}: what is 6 * 7?", target="42", metadata=dict(os.environ)) for at in range(3)]
    return Task(dataset=samples, solver=talkative(), scorer=quoting())
"""


def echo(asked: Asked) -> Reply | None:
    key = asked.headers["Authorization"].removeprefix("Bearer ")
    echoed = (key, b64encode(f"Bearer {key}".encode()).decode(), quote(key, safe=""), json.dumps(key))[asked.seed % 4]
    headers = {"X-Echo": f"Bearer {key}", "x-request-id": key}
    if asked.number == 2:
        return Reply(400, {"error": {"message": f"I will not serve {key}", "code": key, "param": echoed}}, headers)
    if asked.number == 3:
        return Reply(500, {"error": {"message": f"I stumbled over {key}"}}, headers)
    body: dict[str, Any] = answer(asked, content=f"I was sent {echoed}. 42", reasoning_content=f"it is {key}")
    body["choices"][0]["logprobs"] = {"content": [_token(part) for part in ("I was ", key[:9], key[9:], " 42")]}
    body |= {"id": key, "model": f"{asked.model}-{key}", "system_fingerprint": echoed}
    body["usage"] |= {"total_tokens": 9, "note": key}
    return Reply(body=body, headers=headers)


def _token(text: str) -> dict[str, Any]:
    return {"token": text, "logprob": -1.0, "bytes": [*text.encode()], "top_logprobs": []}


def texts(folder: Path) -> Iterator[str]:
    """Everything in the files of a folder, unpacked."""
    for path in filter(Path.is_file, folder.rglob("*")):
        data = path.read_bytes()
        yield (gzip.decompress(data) if path.suffix == ".gz" else data).decode("latin-1")
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as members:
                yield from (members.read(name).decode("latin-1") for name in members.namelist())


def shows(text: str) -> list[str]:
    """The pieces of the key, in any of its forms, that a text has."""
    forms = (KEY, quote(KEY, safe=""), *(b64encode(bytes(n) + KEY.encode()).decode()[4:-4] for n in range(3)))
    return [form[at : at + 16] for form in forms for at in range(len(form) - 16) if form[at : at + 16] in text]


@pytest.mark.slow
def test_no_file_and_no_output_has_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, traces = tmp_path / "runs" / "run", tmp_path / "data"
    monkeypatch.setenv("XDG_DATA_HOME", str(traces))
    monkeypatch.setenv("SAY_API_KEY", KEY)
    (tmp_path / "tasks.py").write_text(TASK)
    settings = {
        "benchmark": {"inspect": "tasks.py@echoed"},
        "models": [
            {"name": model, "inspect": {"model": f"openai-api/say/{model}", "logprobs": True}} for model in "ab"
        ],
        "trials": {"min": 4, "max": 4, "optimize": "cost"},
        "stopping": {"on_alarm": "never"},
        "notify": ["sh", "-c", "cat >> told.jsonl"],
    }
    (config := tmp_path / "run.yaml").write_text(yaml.safe_dump(settings))
    with listening(echo) as server:
        monkeypatch.setenv("SAY_BASE_URL", server.base_url)
        tried = typed("run", config, "--dry-run", "--run-dir", tmp_path / "other")
        ended = typed("run", config, "--display", "plain", "--run-dir", run)
    assert ended.exit_code in ENDED, ended.output
    records, events = stored_trials(run), stored_events(run)
    assert all(KEY not in str(body) for body in stored_header(run).questions.values())
    assert all("***" in record.answer.text for record in records if not record.answer.signals)
    assert {record.category for record in records} == {1, None}, "it was scored as it came"
    outputs = [tried.output, ended.output, repr(records), repr(events)]
    for form in ("html", "md", "json", "csv"):
        typed("report", run, "--format", form, "--output", tmp_path / f"report.{form}")
    for form in ("jsonl", "csv"):
        typed("export", run, "--format", form, "--output", tmp_path / f"out.{form}", code=0)
    imported = typed("import", run / "logs" / "inspect", "--to", tmp_path / "imported", code=0)
    (tmp_path / "tasks.py").unlink()
    written = [*outputs, imported.output, *texts(tmp_path)]
    assert not {piece for text in written for piece in shows(text)}
    printed = (run / "logs" / "inspect.log").read_text()
    assert 'printed: I was sent ***. 42 {"key": "***"}' in printed and "in two I was sent ***" in printed
    assert any("I will not serve ***" in text for text in texts(traces)), "the traces of Inspect are there"
    logs = [read_log(path) for path in (run / "logs" / "inspect").glob("*.eval")]
    assert len(logs) == 2 and all("***" in str(sample.messages) for log in logs for sample in log.samples or ())
