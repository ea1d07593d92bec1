"""Writes a first configuration: a commented file that lists the choices of the registry."""

import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from textwrap import wrap
from typing import Any

from adaptive_eval.core.entries import Entry
from adaptive_eval.core.registry import OBJECTIVES, POLICIES, RULES
from adaptive_eval.questions.benchmark import NamedBenchmark

COLUMN = 22
"""Column of descriptions."""
WIDTH = 110
"""Columns of wrapped text."""


def short_starter() -> str:
    """A first configuration with the ten keys that most runs set."""
    return files("adaptive_eval.config").joinpath("starter_short.yaml").read_text(encoding="utf-8")


def starter(benchmark: NamedBenchmark | None = None) -> str:
    """A configuration with every choice, for questions in a file or for a named benchmark."""
    text = files("adaptive_eval.config").joinpath("starter.yaml").read_text(encoding="utf-8")
    lists = {
        "# @objectives": _section_choices("objective", "kind", OBJECTIVES),
        "  # @rules": (f"  #   {line}" for line in _choices(RULES)),
        "  # @policies": (f"  #   {line}" for line in _choices(POLICIES)),
    }
    for mark, lines in lists.items():
        text = text.replace(mark, "\n".join(lines))
    return text if benchmark is None else _for_benchmark(text, benchmark)


def _for_benchmark(text: str, benchmark: NamedBenchmark) -> str:
    """Replace the sections on questions, prompts and graders by the benchmark."""
    package, _, task = benchmark.name.partition("/")
    is_inspect = package != "lm_eval"
    head, *sections = re.split(r"^(?=[a-z_]+:)", text, flags=re.MULTILINE)
    about = [benchmark.about, *([] if benchmark.questions is None else [f"{benchmark.questions:,} questions"])]
    words = ". ".join(filter(None, [", ".join(about), benchmark.description]))
    comment = "".join(f"# {line}\n" for line in wrap(words, WIDTH))
    sections_of_task = _inspect_sections(benchmark) if is_inspect else f"benchmark:\n  lm_eval: {task}{LM_EVAL_OPTIONS}"
    replaced = {"questions", "prompt", "grader", *(("sampling", "models") if is_inspect else ())}
    by_name = {section.partition(":")[0]: section for section in sections}
    others = "".join(section for name, section in by_name.items() if name not in {"seed", *replaced})
    return f"{head}{by_name['seed']}{comment}{sections_of_task}\n{others}"


LM_EVAL_OPTIONS = """
  # num_fewshot: 8          # examples before each question; default: the task's own number
  # metric: exact_match     # which metric counts if the task has several; default: the first

# questions: {shuffle: true, limit: 200}   # some of the documents
"""
INSPECT_MODELS = """  # sandbox: docker         # overrides the task's own sandbox
  # roles: {grader: openai/gpt-x}      # other models that the task calls
  # limits: {message_limit: 50, time_limit: 600}   # a sample at its limit is scored as it is

# questions: {shuffle: true, limit: 100}   # some of the samples

models:                     # at least two models to rank, named and configured as in Inspect
  - {name: model-a, inspect: {model: openai/model-a, temperature: 0.6, max_tokens: 32768}}
  - {name: model-b, inspect: {model: vllm/model-b, args: {base_url: "http://localhost:8001/v1"}}, concurrency: 32}

# Scores between 0 and 1 need categories, in place of the rubric below:
# rubric:
#   categories:
#     - {name: right, weight: 1, when: {score: 1.0}}
#     - {name: partial, weight: 0.5, when: {score: {above: 0}}}
#     - {name: wrong, weight: 0}
"""


def _inspect_sections(benchmark: NamedBenchmark) -> str:
    lines = ["benchmark:", f"  inspect: {benchmark.name}"]
    if benchmark.args:
        args = ", ".join(f"{name}: {value}" for name, value in benchmark.args.items())
        lines += [f"  # args: {{}}{'':<16}# arguments of the task, with their defaults in Python:"]
        lines += (f"  #   {line}" for line in wrap(args, WIDTH))
    if len(benchmark.scorers) > 1:
        lines.append(f"  scorer: {benchmark.scorers[0]:<17} # which scorer counts: {', '.join(benchmark.scorers)}")
    else:
        example = benchmark.scorers[0] if benchmark.scorers else "match"
        lines.append(f"  # scorer: {example:<15} # which scorer counts if the task has several")
    if benchmark.sandbox not in (None, "no"):
        lines.append(f"  # The task needs a sandbox for its {benchmark.sandbox}.")
    return "\n".join([*lines, INSPECT_MODELS])


def _choices(entries: Mapping[str, Entry[Any]]) -> Iterator[str]:
    """All entries with their options, except the first, which the file sets."""
    for entry in list(entries.values())[1:]:
        options = ", ".join(f"{option.name}: {_format_example(option.example)}" for option in entry.options)
        given = f" ({options})" if options else ""
        yield f"{entry.name:<{COLUMN}}{entry.summary}{given}"


def _section_choices(section: str, key: str, entries: Mapping[str, Entry[Any]]) -> Iterator[str]:
    """All choices except the first, as alternative sections."""
    lines = {}
    for entry in list(entries.values())[1:]:
        options = "".join(f", {option.name}: {_format_example(option.example)}" for option in entry.options)
        value = f"{{{key}: {entry.name}{options}}}" if options else entry.name
        lines[f"# {section}: {value}"] = entry.summary
    width = max(map(len, lines)) + 2
    yield from (f"{line:<{width}}# {gist}" for line, gist in lines.items())


def _format_example(value: object) -> str:
    return f"[{', '.join(map(_format_example, value))}]" if isinstance(value, tuple) else str(value)
