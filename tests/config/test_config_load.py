"""From a file to a `RunConfig`: short forms, inheritance, overrides, and every mistake told at once with its line."""

from pathlib import Path
from typing import Any

import pytest
from checked_text import FILE, check_text, config_in, problems_in

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.config.load import config_from_mapping, load_config
from adaptive_eval.graders.mathematics import Math
from adaptive_eval.graders.numeric import Numeric
from adaptive_eval.graders.registry import GRADERS
from adaptive_eval.questions.types import Question

BASE = """\
questions: q.jsonl
models:
  - {name: a, base_url: http://a/v1}
  - {name: b, base_url: http://b/v1}
grader: math
"""


ONE = BASE.replace("  - {name: b, base_url: http://b/v1}\n", "")
COUPLED = "trials: {seeds: coupled}\nobjective: {kind: baseline, baseline: a}"
RUBRIC = "rubric: {categories: [{name: a, weight: 1, when: {%s}}, {name: b, weight: 0}]}"


def of(questions: str) -> str:
    return BASE.replace("q.jsonl", questions)


def only(text: str, *overrides: str, **environment: str) -> str:
    (problem,) = problems_in(text, *overrides, **environment)
    return problem


def test_a_world_may_be_asked_at_an_address_of_this_machine() -> None:
    text = of("{world: coins}").replace("http://a", "http://127.0.0.1:8000")
    config = config_in(text.replace("http://b", "http://localhost"))
    assert not any(model.simulate for model in config.models)


class TestDefaults:
    def test_the_smallest_configuration(self) -> None:
        config = config_in(BASE)
        assert config.name == "bench"
        (problem,) = check_text(BASE, Path("my bench.yaml"), (), {}).problems
        assert str(problem).startswith("the file's name: name must consist of letters")
        assert config.folder == FILE.parent.absolute()
        chosen = (config.objective.kind, config.stopping.rule, config.trials.policy)
        assert chosen == ("ranking", "optimal", "weighted")
        assert (config.stopping.confidence, config.stopping.delta) == (0.95, 0.0)
        assert (config.trials.min, config.trials.max) == (4, 80)
        assert [config_in(BASE, f"trials.max={cap}").trials.min for cap in (16, 11, 5, 2, 1)] == [4, 3, 2, 2, 1]
        assert config.rubric.name == "binary"
        assert config.grader == Math()
        assert [model.model for model in config.models] == ["a", "b"]


class TestShortForms:
    def test_one_value_for_a_section(self) -> None:
        config = config_in(
            BASE
            + "prompt: 'Q: {prompt}'\nrubric: binary\nobjective: best\nstopping: anytime\ntrials: {policy: uniform}\n"
            + "store: elsewhere\nconcurrency: 7\n"
        )
        assert config.prompt.template == "Q: {prompt}"
        assert (config.objective.kind, config.stopping.rule, config.trials.policy) == ("best", "anytime", "uniform")
        assert (str(config.store), config.concurrency.in_flight) == ("elsewhere", 7)

    def test_a_missing_file_is_reported_with_the_other_mistakes(self, tmp_path: Path) -> None:
        path = tmp_path / "two.yaml"
        path.write_text(BASE + "trials: {mx: 3}")
        with pytest.raises(ConfigError) as refused:
            load_config(path)
        assert "line 6: trials.mx is not a known key" in str(refused.value)
        assert f"line 1: questions is {tmp_path / 'q.jsonl'}, which does not exist" in str(refused.value)


class TestInheritance:
    TEXT = """\
questions: q.jsonl
sampling: {temperature: 0.6, max_tokens: 100, extra_body: {a: 1, b: {c: 2}}}
prompt: {template: "Run: {prompt}", system: S}
concurrency: {in_flight: 8, retry_for: 60}
models:
  - {name: a, base_url: http://a/v1}
  - name: b
    base_url: http://b/v1
    model: served-b
    sampling: {temperature: 1.0, extra_body: {b: 3}}
    prompt: "Own: {prompt}"
    concurrency: {requests_per_minute: 2}
grader: math
"""

    def test_models_start_from_the_run(self) -> None:
        first, second = config_in(self.TEXT).models
        assert (first.sampling.temperature, first.sampling.max_tokens) == (0.6, 100)
        assert (first.prompt.template, first.prompt.system, first.concurrency.in_flight) == ("Run: {prompt}", "S", 8)
        assert (second.sampling.temperature, second.sampling.max_tokens) == (1.0, 100)
        assert second.sampling.extra_body == {"a": 1, "b": 3}
        assert (second.prompt.template, second.prompt.system) == ("Own: {prompt}", "S")
        assert (second.concurrency.in_flight, second.concurrency.requests_per_minute) == (8, 2)
        assert second.model == "served-b"

    def test_retries_hold_for_the_run(self) -> None:
        config = config_in(self.TEXT)
        limits = config.concurrency.with_limits(config.models[1].concurrency)
        assert (limits.in_flight, limits.requests_per_minute, limits.retry_for) == (8, 2, 60)
        assert "retry_for is not a known key" in only(self.TEXT.replace("{requests_per_minute: 2}", "{retry_for: 2}"))
        judge = "{kind: judge, server: {base_url: http://c/v1, model: c}, concurrency: {retry_for: 2}}"
        assert "retry_for is not a known key" in only(self.TEXT.replace("grader: math", f"grader: {judge}"))

    def test_examples_hold_for_all_models(self) -> None:
        text = self.TEXT.replace("system: S}", "system: S, few_shot: [{prompt: '1+1?', answer: '2'}]}")
        config = config_in(text)
        prompt = config.prompt_of(config.models[1], Question("q", "2+2?", "4"))
        assert (prompt.template, prompt.few_shot[0].answer) == ("Own: {prompt}", "2")
        assert "few_shot is not a known key" in only(text.replace('"Own: {prompt}"', "{few_shot: []}"))
        for template in ("Own: ", "Run: "):
            assert "has year, which prompt.few_shot has not" in str(problems_in(text.replace(template, "{year} ")))

    def test_examples_fill_the_templates_of_all_benchmarks(self) -> None:
        part = "{name: x, questions: {path: q.jsonl, fields: {metadata: [year]}}, grader: math}"
        parts = (part, part.replace("name: x", "name: y"))
        text = "prompt: {few_shot: [{prompt: '1+1?', answer: '2'}]}\nbenchmarks: [" + ", ".join(parts) + "]\nmodels:\n"
        text += (
            "  - {name: a, base_url: http://a/v1}\n  - {name: b, base_url: http://b/v1, prompt: '{year}: {prompt}'}\n"
        )
        assert "models[1].prompt has year, which few_shot has not" in str(problems_in(text))

    def test_base_url_from_the_environment(self) -> None:
        text = BASE.replace("{name: a, base_url: http://a/v1}", "name: a")
        assert config_in(text, OPENAI_BASE_URL="http://e/v1").models[0].replicas == ("http://e/v1",)
        assert only(text) == "line 3: models[0].base_url must be given; add `base_url:`"

    def test_a_misspelt_key_is_one_mistake(self) -> None:
        """What is missing because of it is not told besides; another one that is missing is."""
        assert only(BASE.replace("{name: a,", "{nmae: a,")).endswith("nmae is not a known key; did you mean `name`?")
        misspelt = BASE.replace("{name: a, base_url:", "{name: a, bse_url:")
        assert only(misspelt).endswith("bse_url is not a known key; did you mean `base_url`?")
        assert only(BASE.replace("{name: a, ", "{")) == "line 3: models[0].name must be given; add `name:`"
        assert only(BASE.replace("{name: a, ", "{name: 'a ', ")) == (
            "line 3: models[0].name must be one line of text without control characters or spaces at its ends, "
            "but got 'a '"
        )
        judge = "{kind: judge, server: {base_url: 'http://a/v1', model: b}, verdicts: [{name: 'a, b'}, {name: c}]}"
        assert "must have up to 40 letters, digits, spaces" in only(BASE.replace("grader: math", f"grader: {judge}"))


class TestOverrides:
    @pytest.mark.parametrize(
        ("override", "value"),
        [
            ("trials.max=40", lambda c: c.trials.max == 40),
            ("models.0.sampling.temperature=0.7", lambda c: c.models[0].sampling.temperature == 0.7),
            ("models[1].name=z", lambda c: c.models[1].name == "z"),
            ("sampling.top_p=0.5", lambda c: c.models[0].sampling.top_p == 0.5),
            ("objective=best", lambda c: c.objective.kind == "best"),
            ("objective={kind: top_k, k: 1}", lambda c: c.objective.k == 1),
            ("grader=exact", lambda c: c.grader.kind == "exact"),
            ("grading.timeout=3", lambda c: c.grading.timeout == 3.0),
            ("grader={kind: numeric, tolerance: 1}", lambda c: c.grader == Numeric(tolerance=1.0)),
            ("stopping=mine.rules:Strict", lambda c: c.stopping.rule == "mine.rules:Strict"),
            ("stopping.delta=2%", lambda c: c.stopping.delta == 0.02),
            ("stopping.delta='0.5 %'", lambda c: c.stopping.delta == pytest.approx(0.005)),
            ("stopping.delta=0.02", lambda c: c.stopping.delta == 0.02),
            ("budget.usd=null", lambda c: c.budget.usd is None),
            ("budget.wall_time=2h30m", lambda c: c.budget.wall_time == 9000),
            ("budget.wall_time=1d", lambda c: c.budget.wall_time == 86400),
            ("budget.wall_time=1.5h", lambda c: c.budget.wall_time == 5400),
            ("budget.wall_time=45 m", lambda c: c.budget.wall_time == 2700),
            ("budget.wall_time=3s", lambda c: c.budget.wall_time == 3),
            ("budget.trials=2e3", lambda c: c.budget.trials == 2000),
            ("name=${WHO:-x}-run", lambda c: c.name == "x-run"),
            ("prompt.template=a=b {prompt}", lambda c: c.models[0].prompt.template == "a=b {prompt}"),
        ],
    )
    def test_values_are_yaml_and_the_last_one_counts(self, override: str, value: Any) -> None:
        assert value(config_in(BASE, override))
        assert value(config_in(BASE, "name=first", "stopping.delta=1%", override))

    @pytest.mark.parametrize(
        ("override", "problem"),
        [
            ("trials.mx=3", "--set trials.mx: trials.mx is not a known key; did you mean `max`?"),
            ("trial.max=3", "--set trial.max: trial is not a known key"),
            ("models.7.name=x", "models has 2 entries, from 0 to 1"),
            ("models.first.name=x", "models has 2 entries, from 0 to 1"),
            ("models.0.base_url=http://a:80000/v1", "must have a port from 1 to 65535"),
            ("models.0.base_url=http://a:0/v1", "must have a port from 1 to 65535"),
            ("models.0.base_url=http://a:eighty/v1", "must have a port from 1 to 65535"),
            ("models.1.name=a", "models must have different names, but a is there twice; rename one of the two"),
            ("sampling.temperature=hot", "--set sampling.temperature: sampling.temperature must be a number"),
            ("grader.kind.x=1", "grader.kind has no keys to set, but got 'math'"),
            ("trials.max", "--set: needs a path and a value, but got 'trials.max'"),
            ("=3", "--set: needs a path and a value"),
            ("trials.max=", "--set trials.max: trials.max has no value, which would undo a --set of an earlier start"),
            ("budget.usd= ", "give one, or null if the key may have none (--set budget.usd=null)"),
            ("trials.max=[1", "--set trials.max: trials.max is not YAML"),
            ("prompt.template={prompt}!", "put such a text in its own quotes"),
            ("seed=${GONE}", "--set seed: seed needs the environment variable GONE"),
        ],
    )
    def test_mistakes_are_reported_like_those_of_a_file(self, override: str, problem: str) -> None:
        assert problem in only(BASE, override)

    def test_names_that_only_differ_in_their_form_of_unicode_are_the_same(self) -> None:
        problem = only(BASE.replace("name: a,", "name: \u00e9,"), "models.1.name=e\u0301")
        assert "\u00e9 is there twice, in two Unicode forms that look the same; rename one" in problem


class TestMistakes:
    def test_all_of_them_at_once_in_the_order_of_lines(self) -> None:
        text = """\
name: my run
questions: {path: q.txt, limt: 3}
models:
  - {name: a, base_url: ftp://a}
  - {name: a, base_url: http://b/v1, temperature: 1}
grader: {kind: maths, tolerance: 1}
objective: {kind: top_k, baseline: a}
stopping: {confidence: 2, rule: optimal, options: {threshold: 1.6}}
trials: {min: 9, max: 8}
sampling: {top_p: 3}
"""
        starts = [
            "line 1: name must consist of letters",
            "line 2: questions.limt is not a known key; did you mean `limit`?",
            "line 2: questions.path must end in one of .jsonl, .ndjson, .json, .csv, .parquet, but got 'q.txt'",
            "line 4: models[0].base_url",
            "line 5: models[1].temperature is not a known key; did you mean models[1].sampling.temperature?",
            "line 6: grader.kind must be one of exact, choice",
            "line 7: objective.k must be given for the objective top_k",
            "line 7: objective.baseline is only for the objective baseline, not for top_k, but got 'a'",
            "line 8: stopping.confidence must be between 0.5 and 1, but got 2; for 95 percent write 0.95 or 95%",
            "line 8: stopping.options must not have threshold, which is not an option of optimal",
            "line 9: trials.max must be at least trials.min, which is 9, but got 8",
            "line 10: sampling.top_p must be less than or equal to 1, but got 3",
        ]
        lines = problems_in(text)
        for start in starts:
            assert any(line.startswith(start) for line in lines), (start, lines)
        assert len(lines) == len(starts)
        numbers = [int(line.split(":")[0].removeprefix("line ")) for line in lines]
        assert numbers == sorted(numbers)

    @pytest.mark.parametrize(
        ("line", "problem"),
        [
            ("seed: '3'", "seed must be a whole number, but got '3'; write it without quotes"),
            ("seed: true", "seed must be a whole number, but got true"),
            ("folder: data", "folder is not a known key; write paths relative to"),
            ("budget: {wall_time: 90}", "must have a unit; write 90s, or a time such as 2h30m"),
            ("budget: {wall_time: 1e6}", "must have a unit; write 1000000s, or a time such as 2h30m"),
            *((f"budget: {{wall_time: {time}}}", "must have a unit; write a time such as") for time in (-1, 0)),
            *((f"budget: {{wall_time: '{time}'}}", "write it like 2h30m") for time in ("1x", "h", "-1h", "2:30")),
            ("budget: {trials: 2.5}", "must be a whole number"),
            ("sampling: {max_token: 64}", "sampling.max_token is not a known key; did you mean `max_tokens`?"),
            ("stopping: {confidence: 95}", "for 95 percent write 0.95 or 95%"),
            ("name: two words", "as in `name: my-benchmark`"),
            ("trials: 5", "trials must be a mapping, but got 5; write {KEY: VALUE}; its keys are draw, max, min"),
            ("trials: {max: 10000000000}", "trials.max must be less than or equal to 1000000000"),
            ("trials: {max: yes}", "trials.max must be a whole number, but got 'yes'"),
            ("stopping: {rule: optimum}", "must be optimal, published"),
            ("stopping: {familywise: holm, rule: published}", "needs a rule with a valid p-value, which published"),
            ("trials: {policy: best}", "must be weighted, unresolved_pairs"),
            ("objective: {kind: pairs, pairs: [[a, a]]}", "must not compare 'a' with itself"),
            ("objective: {kind: pairs, pairs: [[a, b], [b, a]]}", "must not have a pair twice"),
            ("objective: {kind: pairs, pairs: []}", "objective.pairs must not be empty"),
            ('sampling: {temperature: "\\0"}', "sampling.temperature must be a number, but got '\\x00'"),
            ("budget: {tokens: 1e308}", "budget.tokens must be a whole number, but got 1e+308"),
            ("sampling: {max_tokens: 9223372036854775807}", "sampling.max_tokens must be less than or equal to 100000"),
            (
                "sampling: {extra_body: {max_completion_tokens: 10000000000}}",
                "max_completion_tokens must be at most 10000",
            ),
            ("sampling: {extra_body: {top_n: 9223372036854775808}}", "extra_body.top_n is too large for a number"),
            ("objective: {kind: rankin}", "did you mean `ranking`?"),
            ("trials: {seeds: random}", "trials.seeds must be one of hashed, consecutive, coupled"),
            ("models: []", "is given twice"),
            ("rubric: {categories: [{name: x, weight: 1, when: {a: {belw: 1}}}]}", "did you mean `below`?"),
            ("unknown: 1", "unknown is not a known key; known keys are benchmark, benchmarks, budget, concurrency"),
            ("temperature: 1", "temperature is not a known key; did you mean sampling.temperature?"),
            ("objective: {kind: 'mine:Against', k: 1}", "objective.k is an option of top_k, not of a plug-in"),
            ("stopping: {rule: optimal, options: {wort: 4}}", "options must not have wort, which is not an option"),
            ("stopping: {rule: optimal, options: {worth: 99}}", "options has an invalid value: input should be less"),
            ("trials: {options: {share: 1}}", "trials.options must not have share, which is not an option of weighted"),
            ("stopping: {rule: [published]}", "stopping.rule must be a text"),
            ("trials: {policy: weigthed}", "did you mean `weighted`?"),
            ("delta: 2%", "delta is not a known key; did you mean objective.delta or stopping.delta?"),
            ("max_trials: 1", "max_trials is not a known key"),
            ("prompt: {template: no field}", "prompt.template must have a field of the question"),
            ("prompt: 'no field'", "line 6: prompt must have a field of the question"),
            ("grader: {kind: regex}", "is given twice"),
        ],
    )
    def test_single_ones(self, line: str, problem: str) -> None:
        lines = problems_in(BASE + line)
        assert any(message.startswith("line 6: ") and problem in message for message in lines), lines

    @pytest.mark.parametrize(
        ("grader", "mend"),
        [
            ("maths", "did you mean `math`?"),
            ("'mine:grade'", 'write {kind: python, function: "mine:grade"}'),
            ("{kind: 'my.own:grade'}", 'write {kind: python, function: "my.own:grade"}'),
        ],
    )
    def test_a_grader_that_there_is_not(self, grader: str, mend: str) -> None:
        (line,) = problems_in(BASE.replace("grader: math", f"grader: {grader}"))
        rule, _, mending = line.partition("; ")
        assert f"must be one of {', '.join(GRADERS)}, judge, verifier, reported, but got" in rule
        assert mending == mend

    def test_a_grader_without_what_it_needs(self) -> None:
        text = BASE.replace("grader: math", "grader: {kind: regex, tolerance: 3}")
        assert [line.partition("; ")[0] for line in problems_in(text)] == [
            "line 5: grader.pattern must be given",
            "line 5: grader.tolerance is not a known key",
        ]
        assert "grader.kind must be given" in only(BASE.replace("grader: math", "grader: {tolerance: 3}"))

    def test_a_given_key_of_one_kind_of_grader_is_not_missing_from_another(self) -> None:
        text = BASE.replace("grader: math", "grader: {kind: judge, judge: {base_url: http://j/v1}}")
        assert all("must be given or" not in line for line in problems_in(text))
        assert any("grader.judge is not a known key" in line for line in problems_in(text)), problems_in(text)

    def test_missing_sections(self) -> None:
        assert [line.partition(" must")[0] for line in problems_in("seed: 1")] == [
            "line 1: questions",
            "line 1: models",
            "line 1: grader",
        ]


class TestBetweenSections:
    @pytest.mark.parametrize(
        ("lines", "problem"),
        [
            ("objective: {kind: baseline, baseline: aa}", "must be the name of a model, but got 'aa'; did you"),
            ("objective: {kind: baseline, baseline: zz}", "the models are a, b"),
            ("objective: {kind: pairs, pairs: [[a, c]]}", "objective.pairs[0][1] must be the name of a model, but got"),
            ("objective: {kind: top_k, k: 2}", "objective.k must be below the number of models, which is 2, but got 2"),
            ("stopping: near_best", "near_best is for the objectives best and top_k"),
            ("stopping: {delta: 5}", "stopping.delta must be a difference of scores, which run from 0 to 1, but got 5"),
            ("objective: {kind: precision, half_width: 3}", "must be a difference of scores"),
            ("objective: {kind: threshold, value: 60}", "must be a score, from 0 to 1, but got 60; for 60 percent"),
            ("prompt: '{prompt} {hint}'", "{hint} is none of {id}, {prompt}, {choices}, {cluster}"),
            ("budget: {usd: 5}", "budget.usd counts nothing, since every model is on a server of your own"),
            ("budget: {gpu_hours: 5}", "budget.gpu_hours needs gpus of every model"),
            ("trials: {seeds: coupled}", "is for the objectives baseline, pairs, precision and threshold, but got"),
            (f"{COUPLED}\nstopping: {{rule: published}}", "compares Bayes@N, and `trials.seeds: coupled`"),
            (f"{COUPLED}\nprior: {{run: earlier}}", "prior cannot be combined with `trials.seeds: coupled`"),
            ("rubric: verifier_only", "needs the signal verifier_a, which no answer will have"),
            ("rubric: conf_wrong_penalty\nsampling: {logprobs: true}", "rubric.thresholds must be given: the rubric"),
            (RUBRIC % "is_corect: true", "needs the signal is_corect, which no answer will have; did you mean `is_c"),
            (RUBRIC % "completion_bpt: 1", "sampling.logprobs must be true: the rubric needs completion_bpt"),
            (RUBRIC % "prompt_bpt: {below: 1}", "models[0].prompt_logprobs must be given: the rubric needs prompt_bpt"),
            (
                RUBRIC % "completion_tokens: 9" + "\nconcurrency: {samples_per_request: 4}",
                "samples_per_request must be 1: the rubric needs completion_tokens",
            ),
            ("sampling: {temperature: '${HOT}'}", "but got '${HOT}'"),
        ],
    )
    def test_each_rule(self, lines: str, problem: str) -> None:
        assert problem in "\n".join(problems_in(BASE + lines, HOT="very hot"))

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            (ONE, "models must be two or more for the objective ranking"),
            (of("{path: q.jsonl, fields: {answer: null}}"), "this grader compares with an answer key"),
            (of("{world: coins}"), "a world's questions mean nothing to a real model"),
            (of("{world: coin}"), "did you mean `coins`?"),
            (of("{world: coins, name: coins}"), "known keys are"),
            (of("{path: q.jsonl, world: coins}"), "must be the only source, but path and world are set"),
            (of("{limit: 3}"), "add `path: questions.jsonl`"),
            (BASE.replace("name: a,", "name: a, simulate: true,"), "needs the questions of a world"),
            (of("{world: coins}").replace("b,", "coin-99, simulate: true,"), "needs a model of the world coins, but"),
        ],
    )
    def test_rules_about_what_is_needed(self, text: str, problem: str) -> None:
        messages = problems_in(text)
        assert any(problem in line for line in messages), messages
        one = config_in(ONE + "objective: {kind: precision, half_width: 2%}")
        assert one.objective.half_width == 0.02, "a single model is enough for it"

    def test_they_are_reported_with_mistakes_elsewhere(self) -> None:
        text = (
            BASE.replace("http://b/v1", "nowhere")
            + "objective: {kind: baseline, baseline: c}\nprompt: '{promt}'\ntrials: {min: x}"
        )
        lines = problems_in(text)
        assert [line.split(" ")[1].rstrip(":") for line in lines] == ["4", "6", "7", "8"], lines

    def test_a_python_grader_may_give_any_signal(self) -> None:
        text = BASE.replace("grader: math", "grader: {kind: python, function: 'g:f'}")
        rubric = "rubric: {categories: [{name: a, weight: 1, when: {style: dry}}, {name: b, weight: 0}]}"
        assert config_in(text + rubric).rubric.categories[0].when == {"style": "dry"}
        declared = text.replace("'g:f'", "'g:f', signals: [is_correct]")
        assert "needs the signal style" in only(declared + rubric)


class TestFiles:
    def test_the_environment_goes_before_dot_env(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        current, beside = tmp_path / "here", tmp_path / "beside"
        for folder in (current, beside):
            folder.mkdir()
        monkeypatch.chdir(current)
        monkeypatch.setenv("AE_ONE", "environment")
        (current / ".env").write_text("AE_ONE=here\nAE_TWO=here\n")
        (beside / ".env").write_text("AE_ONE=beside\nAE_TWO=beside\nAE_THREE='beside'\n")
        text = BASE + "prompt: {template: '{prompt}', system: '${AE_ONE} ${AE_TWO} ${AE_THREE}'}"
        (beside / "c.yaml").write_text(text)
        assert load_config(beside / "c.yaml").prompt.system == "environment here beside"

    def test_what_is_no_configuration_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="cannot be read: No such file or directory; `adaptive-eval init`"):
            load_config(tmp_path / "none.yaml")
        (tmp_path / "quickstart.yaml").write_bytes(b"name: \xff")
        for slip in ("quickstrt.yaml", "quickstart"):
            with pytest.raises(ConfigError, match=rf"; did you mean {tmp_path / 'quickstart.yaml'}\?$"):
                load_config(tmp_path / slip)
        with pytest.raises(ConfigError, match="is not UTF-8"):
            load_config(tmp_path / "quickstart.yaml")
        with pytest.raises(ConfigError, match="is a folder; give the path of the configuration, a YAML file"):
            load_config(tmp_path)

    def test_all_problems_are_in_one_error(self, tmp_path: Path) -> None:
        path = tmp_path / "c.yaml"
        (tmp_path / "q.jsonl").touch()
        path.write_bytes(b"\xef\xbb\xbf" + BASE.replace("\n", "\r\n").encode() + b"seed: -1\r\nsed: 2\r\n")
        with pytest.raises(ConfigError) as caught:
            load_config(path)
        assert str(caught.value).splitlines() == [
            f"{path}: 2 problems",
            "  line 6: seed must be greater than or equal to 0, but got -1",
            "  line 7: sed is not a known key; did you mean `seed`?",
        ]


class TestMessagesOfTheFirstHour:
    @pytest.mark.parametrize(
        ("given", "mend"), [("many", ""), ("'40'", "; write it without quotes"), ("[1]", ""), ("true", "")]
    )
    def test_quotes_are_named_where_there_are_any(self, given: str, mend: str) -> None:
        problem = only(BASE, f"trials.max={given}")
        assert problem.startswith("--set trials.max: trials.max must be a whole number, but got ")
        assert ("quotes" in problem) == bool(mend) and problem.endswith(mend)

    @pytest.mark.parametrize(
        ("text", "line"),
        [
            ("sampling\n  temperature: 0.3\nseed: 1\n", 1),
            ("seed: 1\nsampling\nname: x\n", 2),
            ("seed: 1\nsampling:\n  temperature 0.3\n\n  # so\n  top_p: 0.9\n", 3),
            ("seed: 1\nname: a b: c\n", 2),
        ],
    )
    def test_a_missing_colon_is_reported_with_its_line(self, text: str, line: int) -> None:
        assert only(text).startswith(f"line {line}: is not YAML: ")


def test_settings_from_python_may_have_any_character() -> None:
    template = "🎲 {prompt}\x7f\u2028\x00"
    models = [{"name": name, "simulate": True} for name in ("coin-01", "coin-02")]
    settings = {"name": "any", "questions": {"world": "coins"}, "models": models, "grader": "exact"}
    assert config_from_mapping({**settings, "prompt": template}).prompt.template == template
