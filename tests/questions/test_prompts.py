"""Templates: names are filled in, everything else is sent as it was written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from adaptive_eval.base.errors import ConfigError
from adaptive_eval.endpoints.types import Message, Prompt
from adaptive_eval.questions.prompts import (
    QUESTION_FIELDS,
    FewShotExample,
    PromptConfig,
    fill,
    render,
    template_problems,
)
from adaptive_eval.questions.types import Question

QUESTION = Question("q1", "What is \\frac{1}{2} of {x}?", "2", ("one", "two"), "set", {"year": 2025, "prize": None})
names = st.from_regex(r"[a-z_][a-z_0-9]{0,5}", fullmatch=True)


class TestFill:
    @pytest.mark.parametrize(
        ("template", "text"),
        [
            ("{prompt}", "P"),
            (r"\boxed{}", r"\boxed{}"),
            (r"\boxed{\frac{1}{2}}", r"\boxed{\frac{1}{2}}"),
            ('{"queue": "..."}', '{"queue": "..."}'),
            ("{{prompt}}", "{prompt}"),
            ("{{{prompt}}}", "{{prompt}}"),
            ("{ prompt }", "{ prompt }"),
            ("{0} {} {1x}", "{0} {} {1x}"),
            ("{unknown}", "{unknown}"),
            *[("{prompt.__class__} {prompt!r} {prompt[0]} {prompt:>9}",) * 2],
        ],
    )
    def test_examples(self, template: str, text: str) -> None:
        assert fill(template, {"prompt": "P"}) == text

    @given(st.dictionaries(names, st.text(), min_size=1), st.text() | st.text(alphabet="{}ab "), st.text(), st.text())
    def test_values_go_in_and_are_not_filled(self, values: dict[str, str], value: str, before: str, after: str) -> None:
        name, before, after = next(iter(values)), before.replace("{", "("), after.replace("{", "(")
        assert fill(f"{before}{{{name}}}{after}", {**values, name: value}) == f"{before}{value}{after}"


class TestProblems:
    @pytest.mark.parametrize(
        "template", [r"{prompt} \boxed{}", r"{prompt} \boxed{{letter}}", "{id}: {prompt} {choices}"]
    )
    def test_sound_templates(self, template: str) -> None:
        assert list(template_problems(template, QUESTION_FIELDS)) == []

    @pytest.mark.parametrize("more", [".x", "[0]", "!r", ":>10", ".__class__.__mro__"])
    def test_anything_beyond_the_name_of_a_field(self, more: str) -> None:
        (problem,) = template_problems(f"{{prompt{more}}}", QUESTION_FIELDS)
        assert problem == f"{{prompt{more}}} is more than a name; write {{prompt}}"

    def test_what_a_template_names_must_be_there(self) -> None:
        with pytest.raises(ValidationError, match=r"write \{prompt\} where the question should go"):
            PromptConfig(template="Answer!")
        with pytest.raises(ConfigError, match=r"has \{choices\}, but question 'q' has none"):
            render(PromptConfig(template="{prompt} {choices}"), Question("q", "?", "A"))


class TestRender:
    def test_chat(self) -> None:
        config = PromptConfig(
            template="{prompt}\n{choices}",
            system="Be {brief}.",
            few_shot=(FewShotExample(prompt="1+1?", answer="B", choices=("1", "2")),),
        )
        assert render(config, QUESTION).messages == (
            Message("system", "Be {brief}."),
            Message("user", "1+1?\nA. 1\nB. 2"),
            Message("assistant", "B"),
            Message("user", "What is \\frac{1}{2} of {x}?\nA. one\nB. two"),
        )

    def test_completions(self) -> None:
        config = PromptConfig(
            template="Q: {prompt}\nA:", system="Rules.", few_shot=(FewShotExample(prompt="1+1?", answer="2"),)
        )
        text = "Rules.\n\nQ: 1+1?\nA: 2\n\nQ: What is \\frac{1}{2} of {x}?\nA:"
        assert render(config, QUESTION, "completions") == Prompt(text=text)
        config = PromptConfig(template="{prompt}\n", few_shot=(FewShotExample(prompt="a", answer="b"),))
        text = render(config, Question("q", "c", "d"), "completions").text
        assert text == "a\nb\n\nc\n", "a template that ends with space gets no second one"

    def test_metadata_fields(self) -> None:
        config = PromptConfig(template="{prompt} ({year}, {prize}, {cluster}, {id})")
        assert "(2025, , set, q1)" in str(render(config, QUESTION).messages)
