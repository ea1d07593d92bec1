"""Answers on S3: a run keeps its texts there, outlives the storage's absence, and is read where the user has said."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from live_runs import ENDED, Found, Site
from typer.testing import CliRunner

from adaptive_eval.base.errors import StoreError
from adaptive_eval.cli import app
from adaptive_eval.endpoints.types import Answer
from adaptive_eval.store import (
    AnswersKept,
    CommitBatch,
    RunHeader,
    RunReader,
    Store,
    TrialRecord,
    events_of_kind,
)
from adaptive_eval.store.integrity import Integrity
from adaptive_eval.store.segments import moving

pytestmark = [pytest.mark.storage, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

URL = "s3://bench/answers"


class Storage:
    """An S3 server of this test's own, that can go away and come back with what it has, on a port held for it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        from moto.server import ThreadedMotoServer

        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=self._port)
        self._server.start()

    def stop(self) -> None:
        self._server.stop()


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int) -> Iterator[Storage]:
    import boto3
    import s3fs

    for name in [one for one in os.environ if one.startswith("AWS_") or one.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    storage = Storage(unused_tcp_port)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-a-secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", storage.url)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr(moving, "SEGMENT_TRIALS", 50)
    monkeypatch.setattr(moving, "SHORTEST_MOVED", 1)
    urlopen(
        Request(f"{storage.url}/moto-api/reset", method="POST")
    ).close()  # servers of one process share what they have
    client = boto3.client("s3")
    client.create_bucket(Bucket="bench")
    s3fs.S3FileSystem.clear_instance_cache()
    yield storage
    s3fs.S3FileSystem.clear_instance_cache()
    storage.stop()


def objects() -> list[str]:
    import boto3

    return [one["Key"] for one in boto3.client("s3").list_objects_v2(Bucket="bench").get("Contents", [])]


def read(directory: Path) -> list[TrialRecord]:
    with closing(RunReader.open(directory)) as reader:
        return sorted(reader.trials(), key=lambda one: (one.model, one.question, one.trial))


def same(one: TrialRecord) -> tuple[object, ...]:
    return one.model, one.question, one.trial, one.answer.text, one.category


def test_a_run_keeps_its_answers_there_and_every_command_reads_them(
    site: Site, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, kept = site.directory("plain"), site.directory("kept")
    assert site.run(site.write("plain"), "--run-dir", str(plain)).exit_code in ENDED
    config = site.write("kept", store={"answers": URL})
    done = site.run(config, "--run-dir", str(kept))
    assert done.exit_code in ENDED, done.output
    assert objects() and all(name.startswith("answers/kept-") for name in objects())
    assert "not-a-secret" not in (kept / "run.sqlite").read_bytes().decode("latin-1")
    assert Found.of(kept) == Found.of(plain)
    with pytest.raises(StoreError, match=f"set ADAPTIVE_EVAL_ANSWERS={URL}"):
        read(kept)
    monkeypatch.setenv("ADAPTIVE_EVAL_ANSWERS", URL)
    assert list(map(same, read(kept))) == list(map(same, read(plain)))
    table = site.folder / "trials.jsonl"
    for words in (
        ["verify", str(kept)],
        ["report", str(kept)],
        ["export", str(kept), "--format", "jsonl", "--output", str(table)],
        ["regrade", str(kept)],
    ):
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, (words, done.output)
    assert table.stat().st_size > 0
    assert Found.of(kept).outcomes == Found.of(plain).outcomes
    longer = site.write("kept", store={"answers": URL}, trials={"min": 4, "max": 40})
    assert site.run(longer, "--run-dir", str(kept)).exit_code in ENDED
    assert Integrity.check(kept).damages == ()


HEADER = RunHeader("s3", {"seed": 7}, {"seed": 7}, {"small": {}}, {"q1": {"prompt": "?"}})


def trials(number: int, first: int = 0) -> list[TrialRecord]:
    answers = (Answer(f"answer {trial} " * 9, "stop", trial, "here", 1.0) for trial in range(first, first + number))
    return [TrialRecord("small", "q1", first + at, 0, answer, 1) for at, answer in enumerate(answers)]


def test_a_storage_that_goes_away_loses_nothing(
    tmp_path: Path, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "SEGMENT_TRIALS", 4)
    store = Store.open(tmp_path / "run", HEADER, URL).store
    store.commit(CommitBatch(trials(5)))
    assert store._mover is not None
    store._mover.wait()
    store.commit(CommitBatch())
    assert len(objects()) == 1
    storage.stop()
    store.commit(CommitBatch(trials(5, first=5)))
    store._mover.wait()
    store.commit(CommitBatch())
    assert any(isinstance(one, AnswersKept) for one in store.take_pending_events())
    store.close()
    storage.start()
    store = Store.open(tmp_path / "run", HEADER, URL).store
    store.close()
    monkeypatch.setenv("ADAPTIVE_EVAL_ANSWERS", URL)
    assert [one.answer.text for one in read(tmp_path / "run")] == [one.answer.text for one in trials(10)]
    assert Integrity.check(tmp_path / "run").damages == ()
    assert len(objects()) > 1
    with closing(RunReader.open(tmp_path / "run")) as reader:
        assert len(events_of_kind(reader.events(), AnswersKept)) == 1


def test_a_bucket_that_is_not_there_is_told_and_nothing_is_lost(tmp_path: Path, storage: Storage) -> None:
    store = Store.open(tmp_path / "run", HEADER, "s3://no-such-bucket/answers").store
    store.commit(CommitBatch(trials(60)))
    assert store._mover is not None
    store._mover.wait()
    store.commit(CommitBatch())
    (told,) = store.take_pending_events()
    assert isinstance(told, AnswersKept) and "s3://no-such-bucket/answers" in told.reason
    store.close()
    assert len(read(tmp_path / "run")) == 60
