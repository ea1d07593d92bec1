r"""Builds prompts from questions.

A template is text with `{field}` for a field of the question: `{prompt}`, `{choices}` (lettered, one per line), `{id}`,
`{cluster}`, and every field named in `questions.fields.metadata`. Attributes, indices, formats and code are not
supported. Braces around anything but a name are text, so LaTeX needs no escapes (`\boxed{}`, `\frac{1}{2}`); an unknown
name is an error, and `{{name}}` writes `{name}`. The value of a field is inserted unchanged and not expanded again.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from string import ascii_uppercase
from typing import Literal

from pydantic import field_validator

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.base.sections import Section, config_error
from adaptive_eval.endpoints.types import Message, Prompt
from adaptive_eval.questions.load import as_text
from adaptive_eval.questions.types import Question

QUESTION_FIELDS = ("id", "prompt", "choices", "cluster")
PLACE = re.compile(r"\{\{(?P<literal>[^\W\d]\w*)\}\}|\{(?P<field>[^\W\d]\w*)(?P<more>[.\[!:][^{}]*)?\}")
"""Matches `{{name}}`, or `{name}` with the suffixes of Python's format strings."""


class FewShotExample(Section):
    """An example question with its answer."""

    prompt: str
    """The question of the example."""
    answer: str
    """The answer of the example."""
    choices: tuple[str, ...] = ()
    """The choices, if any."""


class TemplateConfig(Section):
    """How to build a prompt from a question; the run's examples hold for all models."""

    template: str = "{prompt}"
    r"""Text with `{prompt}`, `{choices}` or other fields of the question; braces of LaTeX are text."""
    system: str | None = None
    """System message of a chat; first paragraph of a completion."""

    @field_validator("template")
    @classmethod
    def _check_template(cls, template: str) -> str:
        if not template_fields(template):
            raise config_error("must have a field of the question", "write {prompt} where the question should go")
        return template


class PromptConfig(TemplateConfig):
    """How to build a prompt from a question."""

    few_shot: tuple[FewShotExample, ...] = ()
    """Examples, rendered with the template, each followed by its answer."""

    def with_template(self, other: TemplateConfig) -> "PromptConfig":
        """The same examples with another template."""
        return self.model_copy(update={"template": other.template, "system": other.system})


def template_fields(template: str) -> frozenset[str]:
    """The names in single braces in a template."""
    return frozenset(match["field"] for match in PLACE.finditer(template) if match["field"] and not match["more"])


def template_problems(template: str, fields: Collection[str]) -> Iterator[str]:
    """Problems with the braces of a template, given the fields of questions."""
    for field, more in dict.fromkeys((match["field"], match["more"]) for match in PLACE.finditer(template)):
        if field in fields and more:
            yield f"{{{field}{more}}} is more than a name; write {{{field}}}"
        elif field is not None and field not in fields and not more:
            rule = f"{{{field}}} is none of {', '.join(f'{{{name}}}' for name in fields)}"
            yield f"{rule}: name it in questions.fields.metadata, or write {{{{{field}}}}} for the text itself"


def fill(template: str, values: Mapping[str, str]) -> str:
    """Replace every `{name}` in `values` in a template, in a single pass."""

    def text(match: re.Match[str]) -> str:
        if match["literal"] is not None:
            return f"{{{match['literal']}}}"
        is_known_field = not match["more"] and match["field"] in values
        return values[match["field"]] if is_known_field else match[0]

    return PLACE.sub(text, template)


def render(prompt: PromptConfig, question: Question, api: Literal["chat", "completions"] = "chat") -> Prompt:
    """The prompt for a question."""
    asked = _fill_template(prompt.template, question)
    examples = [Question("few_shot", example.prompt, example.answer, example.choices) for example in prompt.few_shot]
    shown = [(_fill_template(prompt.template, example), example.answer) for example in examples]
    if api == "chat":
        system = [Message("system", prompt.system)] if prompt.system is not None else []
        turns = [turn for ask, answer in shown for turn in (Message("user", ask), Message("assistant", answer))]
        return Prompt(messages=(*system, *turns, Message("user", asked)))
    blocks = [prompt.system] if prompt.system is not None else []
    blocks += [f"{ask}{'' if ask[-1:].isspace() else ' '}{answer}" for ask, answer in shown]
    return Prompt(text="\n\n".join([*blocks, asked]))


def _fill_template(template: str, question: Question) -> str:
    if "choices" in template_fields(template) and not question.choices:
        raise ConfigError(
            f"prompt.template has {{choices}}, but question {question.id!r} has none; set questions.fields.choices"
        )
    return fill(template, _values(question))


def _values(question: Question) -> dict[str, str]:
    lettered = (f"{letter}. {choice}" for letter, choice in zip(ascii_uppercase, question.choices, strict=False))
    return {
        **{name: as_text(value) for name, value in question.metadata.items()},
        "id": question.id,
        "prompt": question.prompt,
        "choices": "\n".join(lettered),
        "cluster": question.cluster or "",
    }
