"""A stored run as one value, computed again from its trials; and its configuration as reports show it."""

import json
from pathlib import Path
from zlib import crc32

import orjson
import pytest
from gated import GatedServer
from hypothesis import given
from hypothesis import strategies as st
from live_runs import MODELS, EndedRuns, Site, kill, small_world, wait_until
from played import Played, prepared
from result_rows import rows_of

from adaptive_eval.base.errors import StoreError
from adaptive_eval.config.document import read_document
from adaptive_eval.report.published import to_yaml
from adaptive_eval.report.question_rows import as_json
from adaptive_eval.report.results_file import RESULTS_FILE, read_results
from adaptive_eval.report.view import RunView, read_view
from adaptive_eval.simulate.server import serving
from adaptive_eval.store.lock import is_held

TIMES = {"updated", "active_seconds"}


def worked_out(view: RunView) -> dict[str, object]:
    """What was read, in the same form."""
    return without_times(json.loads(orjson.dumps(view.results, default=as_json)))


def without_times(results: dict[str, object]) -> dict[str, object]:
    run = results["run"]
    assert isinstance(run, dict)
    results = {key: value for key, value in results.items() if key != "checksum"}  # it goes by the times, too
    return results | {"run": {key: value for key, value in run.items() if key not in TIMES}}


def test_posteriors_of_questions_and_z_of_pairs_are_those_the_run_published(site: Site, ended_runs: EndedRuns) -> None:
    view = read_view(ended_runs.copy(site))
    assert view.results is not None
    ranked = [view.models.index(model.name) for model in view.results.models]
    for at, question in enumerate(rows_of(view.results)):
        posteriors = [view.posteriors[view.posterior_of[model][at]] for model in ranked]
        assert tuple(sum(posterior.counts) for posterior in posteriors) == question.trials
        for name in ("mean", "lo", "hi"):
            assert [getattr(posterior, name) for posterior in posteriors] == pytest.approx(getattr(question, name))
    assert len(set(view.posteriors)) == len(view.posteriors)
    place = {model.name: at for at, model in enumerate(view.results.models)}
    for pair in view.results.pairs:
        assert pair.second is not None
        assert view.z[place[pair.first]][place[pair.second]] == pytest.approx(pair.z)
        assert view.z[place[pair.second]][place[pair.first]] == pytest.approx(-(pair.z or 0.0))


@pytest.mark.slow
def test_a_run_that_was_killed_is_read_up_to_its_last_commit(site: Site) -> None:
    """One model has some answers more than the first look takes, and the run waits for the others."""
    undecided = {"stopping": {"rule": "published", "confidence": 1 - 1e-15}}  # it goes on for long
    with serving(GatedServer(small_world(), 60)) as url:
        models = [{"name": name, "base_url": url if name == MODELS[0] else site.base_url} for name in MODELS]
        process = site.start(site.write(concurrency=4, models=models, **undecided))
        wait_until(lambda: read_results(site.directory()), process)
        assert is_held(site.directory())
        live = read_view(site.directory())
        assert live.results is not None and live.results.run.status == "running"
        kill(process)
    assert not is_held(site.directory())
    view = read_view(site.directory())
    assert view.results is not None and view.results.run.status == "killed" and view.results.run.kills == 1
    assert live.looks == view.looks[: len(live.looks)]
    assert site.run(site.write(concurrency=64, **undecided)).exit_code in (0, 3)
    assert worked_out(read_view(site.directory())) == without_times(site.results())


def test_results_come_from_the_database_and_not_from_results_json(site: Site, ended_runs: EndedRuns) -> None:
    ended_runs.copy(site)
    path = site.directory() / RESULTS_FILE
    as_published = path.read_text()
    body = as_published[: as_published.index(',"checksum"')].replace('"tier":2', '"tier":1')
    path.write_text(f'{body},"checksum":{crc32(f"{body}}}".encode())}}}\n')
    assert '"tier":1' in as_published and "tier: 2" not in path.read_text()
    assert worked_out(read_view(site.directory())) == without_times(json.loads(as_published))
    path.write_text("{")
    view = read_view(site.directory())
    assert view.results.run.status == "finished" and view.models == MODELS
    assert sum(map(sum, view.trials)) == view.used.spent.trials == view.results.cost.trials
    assert view.used.spent.tokens == view.results.cost.tokens == sum(model.tokens for model in view.results.models)
    assert [look.look for look in view.looks] == list(range(1, len(view.results.looks) + 1))
    assert sum(view.looks[-1].trials) == view.results.looks[-1].trials
    assert sum(server.trials for server in view.traffic) == view.results.cost.trials
    plain = orjson.dumps(view, default=as_json).decode()
    assert str(site.folder) not in plain, "plain values throughout, and not where they came from"


def test_before_the_first_look_there_are_no_results_and_perhaps_no_trials(site: Site, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="has no run"):
        read_view(tmp_path)
    site.run(site.write(budget={"trials": 1}))
    view = read_view(site.directory())
    assert view.results is None and view.used.spent.trials == 0 and view.traffic == ()
    run = Played(tmp_path / "begun", prepared(tmp_path))
    assert not run.step(5)
    run.close()
    view = read_view(run.directory)
    assert view.results is None and view.z == ()
    assert sum(map(sum, view.trials)) == 5


AWKWARD = ["no", "12:30", "1e5", "a: b", "- x", "#", "", " x", "x ", "~", "0x1f", "'", ".inf", "<<"]
AWKWARD += ["\u2028", "${HOME}"]
LINES = ["a\nb", "\na", "a\n", "a\n  b\n\nc", "{prompt}\n  \\boxed{}", "$${A:-b}\n${C}"]
TEXTS = st.text(max_size=20) | st.sampled_from([*AWKWARD, *LINES])
LEAVES = st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(-1e9, 1e9) | TEXTS
KEYS = st.text(st.characters(exclude_characters="$"), max_size=20)
VALUES = st.dictionaries(
    KEYS,
    st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3)),
    min_size=1,
    max_size=4,
)


@given(VALUES)
def test_a_run_reads_its_published_configuration_as_it_was(value: dict[str, object]) -> None:
    document = read_document(to_yaml(value), {})
    assert not document.problems
    assert document.tree == value
