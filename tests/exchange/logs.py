"""Small logs of every kind, made from the documented formats, and an import of them."""

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import zstandard
from command_line import typed
from stored_runs import stored_trials
from typer.testing import Result

STORED, DEFLATED, ZSTANDARD = 0, 8, 93
Outcomes = dict[tuple[str, str, int], int | None]


def imported(*words: object) -> Result:
    """`adaptive-eval import`."""
    return typed("import", *words)


def taken(*words: object) -> Result:
    """An import that succeeds."""
    return typed("import", *words, code=0)


def refusal(*words: object) -> str:
    """The message of an import that is refused, of which nothing is left."""
    folder = Path(str(words[words.index("--to") + 1])).parent
    before = sorted(folder.glob("*"))
    refused = typed("import", *words, code=2)
    assert sorted(folder.glob("*")) == before
    return " ".join(refused.stderr.split())


def outcomes(run: Path) -> Outcomes:
    """The categories of a run's trials."""
    return {(trial.model, trial.question, trial.trial): trial.category for trial in stored_trials(run)}


def archive(
    path: Path, members: Sequence[tuple[str, bytes]], method: int = ZSTANDARD, claimed: int | None = None
) -> Path:
    """A zip of these members; `claimed` bytes each, where that is to be a lie."""
    pack = {STORED: bytes, DEFLATED: _deflated, ZSTANDARD: zstandard.ZstdCompressor().compress}[method]
    body, directory = b"", b""
    for name, data in members:
        packed, encoded = pack(data), name.encode()
        sizes = struct.pack("<III", zlib.crc32(data), len(packed), len(data) if claimed is None else claimed)
        common = struct.pack("<HHHHH", 63, 0, method, 0, 0x21) + sizes + struct.pack("<HH", len(encoded), 0)
        where = struct.pack("<HHHII", 0, 0, 0, 0, len(body))
        directory += b"PK\x01\x02" + struct.pack("<H", 63) + common + where + encoded
        body += b"PK\x03\x04" + common + encoded + packed
    end = struct.pack("<HHHHIIH", 0, 0, len(members), len(members), len(directory), len(body), 0)
    path.write_bytes(body + directory + b"PK\x05\x06" + end)
    return path


def _deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


def header(model: str = "openai/m", **changes: object) -> dict[str, object]:
    """What an Inspect log says of itself."""
    spec = {"task": "sums", "model": model, "model_generate_config": {"temperature": 0.5, "seed": 7}, **changes}
    return {"version": 2, "status": "success", "eval": spec, "plan": {"steps": [], "config": {"max_tokens": 99}}}


def sample(key: object = "q1", epoch: int = 1, value: object = "C", **changes: object) -> dict[str, object]:
    """An Inspect sample: an answer that was scored."""
    message = {"role": "assistant", "content": f"answer {epoch}", "source": "generate"}
    return {
        "id": key,
        "epoch": epoch,
        "input": "raw input",
        "target": "4",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"2 + {key}?"}, message],
        "output": {
            "choices": [{"message": message, "stop_reason": "stop"}],
            "usage": {"input_tokens": 10, "output_tokens": 5, "input_tokens_cache_read": 2},
            "time": 1.5,
        },
        "scores": {"match": {"value": value, "answer": "4"}},
        "uuid": f"{key}-{epoch}",
        **changes,
    }


def inspect_log(
    path: Path,
    samples: Sequence[Mapping[str, object]],
    log_header: Mapping[str, object] | None = None,
    *,
    finished: bool = True,
    method: int = ZSTANDARD,
) -> Path:
    """An `.eval` log; one that was cut short has a journal and no header."""
    head = json.dumps(log_header or header()).encode()
    names = [("_journal/start.json", head), *([("header.json", head)] if finished else [])]
    bodies = [(f"samples/{row['id']}_epoch_{row['epoch']}.json", json.dumps(row).encode()) for row in samples]
    return archive(path, [*names, *bodies], method)


def lm_eval_row(key: int, answers: Sequence[str], by: str = "none", target: str = "4") -> dict[str, object]:
    """A document as one filter has seen it."""
    turns = json.dumps([{"role": "user", "content": f"question {key}?"}])
    settings = {"temperature": 0.8, "until": ["\n\n"], "max_gen_toks": 64}
    return {
        "doc_id": key,
        "doc": {"question": f"question {key}?"},
        "target": target,
        "arguments": {"gen_args_0": {"arg_0": [turns], "arg_1": settings}},
        "resps": [list(answers)],
        "filtered_resps": list(answers)[:1],
        "filter": by,
        "exact_match": 1.0,
    }


def lines(path: Path, rows: Sequence[Mapping[str, object]]) -> Path:
    """A JSONL file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
