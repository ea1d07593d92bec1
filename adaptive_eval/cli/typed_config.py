"""The configuration that `--model` and other options stand for, for a file of questions or a task of Inspect.

A model's name on its server may be left out. It is then taken from the stored run, so that a resume needs no server, or
else from the server's list of models.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import typer

from adaptive_eval.base.errors import ConfigError, EndpointError
from adaptive_eval.base.lists import first_few
from adaptive_eval.cli.typed_options import ConfigOptions
from adaptive_eval.config.document import escape_variables, read_environment
from adaptive_eval.config.load import CONFIGURATIONS, config_from_mapping, load_config
from adaptive_eval.config.prepare import stored_config
from adaptive_eval.config.run import ModelConfig, RunConfig
from adaptive_eval.config.settings_text import settings_text
from adaptive_eval.endpoints.failures import Refusal
from adaptive_eval.endpoints.secrets import LONG_WORD, looks_secret
from adaptive_eval.graders.choice import Choice
from adaptive_eval.graders.keyed import KEYED_GRADERS
from adaptive_eval.graders.numeric import Numeric
from adaptive_eval.graders.reported import Reported
from adaptive_eval.questions import Question, load_questions
from adaptive_eval.questions.types import FORMATS
from adaptive_eval.report.lines import safe_line, safe_name
from adaptive_eval.report.reader import RunReader
from adaptive_eval.running.chosen import ChosenRun, choose_run, remembered_note
from adaptive_eval.store.locate import newest_directory

_ALIAS = re.compile(r"(?P<name>[^=/]+)=(?P<model>.+)")
"""A name, and a model of Inspect or the address of a server."""
_ADDRESS = re.compile(r"(?P<url>https?://[^#\s@?]+)(?:#(?P<served>.+))?")
"""The address of a server, and the name of a model on it."""
_NAMED_COMMAND = re.compile(r"(?P<name>[^=/\s]+)=(?P<command>.*\S.*)", re.DOTALL)
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
LOCATING = ("name", "store", "seed", "questions", "models")
"""Sections that say where the run, its questions and its servers are."""
KEYS = {"--grader": "grader", "--objective": "objective", "--max-trials": "trials.max"}
"""Options that stand for a single key of a configuration."""
MAX_LISTED = 10
MAX_NAME = 100
OTHER_GRADER = " (another one: --grader)"
SCORES = f"the last line of each command has its score{OTHER_GRADER}"
CHOICES_TEMPLATE = "{prompt}\n\n{choices}"


class TypedConfig(NamedTuple):
    """The settings that options stand for."""

    settings: Mapping[str, object]
    overrides: Sequence[str] = ()
    """Settings that are written like those of `--set`."""
    notes: Sequence[str] = ()
    """Choices that were made for the user."""

    def load(self, overrides: Sequence[str]) -> RunConfig:
        """The configuration, with the settings of `--set`."""
        return config_from_mapping(self.settings, [*self.overrides, *overrides])

    def text(self, overrides: Sequence[str]) -> str:
        """The same as the text of a file."""
        return settings_text(self.settings, [*self.overrides, *overrides])


def read_run(
    config: Path, options: ConfigOptions, overrides: Sequence[str], run_dir: Path | None = None, *, fresh: bool = False
) -> tuple[TypedConfig | None, ChosenRun]:
    """What the options stand for, None beside a configuration; and the run with these settings.

    Prints what was chosen. May ask servers for their models.
    """
    typed = _read_options(config, options, overrides, run_dir, fresh=fresh)
    for note in () if typed is None else typed.notes:
        typer.echo(note, err=True)
    load = partial(load_config, config) if typed is None else typed.load
    chosen = choose_run(load, overrides, run_dir, fresh)
    if chosen.remembered:
        typer.echo(remembered_note(chosen.remembered), err=True)
    return typed, chosen


def _read_options(
    file: Path, options: ConfigOptions, overrides: Sequence[str], run_dir: Path | None, *, fresh: bool
) -> TypedConfig | None:
    """The settings that the options stand for; None if `file` is a configuration."""
    suffix = file.suffix.lower()
    if suffix in FORMATS and (suffix not in CONFIGURATIONS or options.models or options.commands):
        return _rank_on_questions(file, options, overrides, run_dir, fresh=fresh)
    is_task = suffix == ".py" or "@" in file.name or (len(file.parts) == 2 and not file.exists())
    if suffix in CONFIGURATIONS or not (options.models or options.commands or is_task):
        if options.typed:
            option, text, *_ = options.typed
            key = KEYS.get(option)
            hint = f"set `{key}` there, or use `--set {key}={text}` instead" if key else "set it there instead"
            rule = f"{option} is for files of questions and tasks of Inspect, but {file} is a configuration"
            raise ConfigError(f"{rule}; {hint}")
        return None
    return _rank_on_task(file, options)


def _rank_on_task(task: Path, options: ConfigOptions) -> TypedConfig:
    """The settings of a run on a task of Inspect."""
    if options.commands:
        raise ConfigError(
            f"--command is for files of questions, and {task} is a task of Inspect; run a task in a command"
        )
    if not options.models:
        raise ConfigError(f"{task} is a task of Inspect; name the models to rank: --model openai/gpt-x --model ...")
    if options.keys or options.grader is not None:
        wrong = "--key" if options.keys else "--grader"
        raise ConfigError(
            f"{wrong} is for files of questions: {task} is a task of Inspect, which reads keys and grades itself"
        )
    prices = dict(map(_parse_price, options.prices or ()))
    models = []
    for text in options.models or ():
        name, inspect = _parse_alias(text)
        if "://" in inspect:
            hint = f"a file of questions ends in {', '.join(FORMATS)}, and a model of Inspect is like openai/gpt-x"
            raise ConfigError(f"{task} would be a task of Inspect, which has no address as --model; {hint}")
        given = [prices.pop(key) for key in dict.fromkeys((name or inspect, inspect)) if key in prices]
        models.append({"name": name or inspect, "inspect": inspect} | ({"price": given[0]} if given else {}))
    settings = {
        "name": _run_name(re.split("[@/]", str(task).removesuffix(".py"))[-1]),
        "benchmark": {"inspect": str(task)} | ({"prices": prices} if prices else {}),
        "models": models,
        **options.sections,
    }
    return TypedConfig(settings, [f"benchmark.args.{argument}" for argument in options.args or ()])


# -- a file of questions -----------------------------------------------------------------------------------------


class TypedModel(NamedTuple):
    """A model on a server, as typed: `[NAME=]URL[#MODEL]`."""

    name: str | None
    url: str
    served: str | None
    """The model's name on its server."""


def _parse_model(text: str) -> TypedModel:
    name, address = _parse_alias(text)
    if (match := _ADDRESS.fullmatch(address)) is None:
        expected = "as in http://localhost:8000/v1, or small=http://localhost:8000/v1#org/small-7b"
        hint = f"{expected}, without user, password and query" if "://" in text else f"{expected}, but got {text!r}"
        name, _, rest = text.partition("=")
        if rest.startswith("http") and "/" in name and "://" not in name:
            raise ConfigError(
                f"--model: the name {name!r} must not contain '/'; choose another, or use a configuration"
            )
        raise ConfigError(f"--model must be the address of a server, {hint}")
    return TypedModel(name, match["url"], match["served"])


def _rank_on_questions(
    file: Path, options: ConfigOptions, overrides: Sequence[str], run_dir: Path | None, *, fresh: bool
) -> TypedConfig:
    """The settings of a run on a file of questions."""
    if options.args:
        raise ConfigError(f"--task-arg is for tasks of Inspect, and {file} is a file of questions; remove it")
    if not options.models and not options.commands:
        example = "--model http://localhost:8000/v1 --model large=http://localhost:8001/v1"
        hint = f"{example}, or commands: --command new='./agent --skill v2'"
        raise ConfigError(f"{file} is a file of questions; name the servers of the models to rank: {hint}")
    if not file.exists():
        raise ConfigError(f"{file} does not exist; give the path of a file of questions")
    typed, prices = [_parse_model(text) for text in options.models or ()], dict(map(_parse_price, options.prices or ()))
    keys = _parse_keys(options.keys or ())
    commands = _parse_commands(options.commands or (), keys)
    located = {"name": _run_name(file.stem), "questions": {"path": escape_variables(str(file))}}
    # decisions may refer to names that are not known yet
    undecided = {"grader": "exact", "objective": {"kind": "precision", "half_width": 0.5}}
    with_value = [text for text in overrides if text.partition("=")[2].strip()]  # others undo one of an earlier start
    locating = [text for text in with_value if re.split(r"[.\[=]", text.strip())[0] in LOCATING]
    draft: list[Mapping[str, object]] = []
    for number, model in enumerate(typed, start=1):
        key = keys.get(model.name or _short(model.served or ""))
        name = escape_variables(model.name or f"--model {number}")
        draft.append({"name": name, "base_url": model.url, "api_key_env": key})
    place = config_from_mapping({**located, **undecided, "models": [*draft, *commands]}, locating)
    grading, notes = _choose_grading(file, place, options, overrides)  # a file with mistakes asks no server
    directory = run_dir or newest_directory(place.store, place.name)
    identified = _identify(typed, place, () if fresh else _stored_models(directory))
    names = [name for name, _ in identified] + [str(command["name"]) for command in commands]
    if priced := prices.keys() & {command["name"] for command in commands}:
        raise ConfigError(f"--price: {min(priced)} is a command; let it print the usd of each answer")
    for option, given in (("--key", keys), ("--price", prices)):
        if unknown := given.keys() - set(names):
            raise ConfigError(f"{option}: no model has the name {min(unknown)!r}; the names are {', '.join(names)}")
    models = []
    for (name, served), model in zip(identified, typed, strict=True):
        optional = {"api_key_env": keys.get(name), "price": prices.get(name)}
        # a server may have any name for its model
        name_on_server = {"name": escape_variables(name), "model": escape_variables(served)}
        settings = {**name_on_server, "base_url": model.url, **optional}
        models.append({key: value for key, value in settings.items() if value is not None})
        if None in (model.name, model.served):
            both = safe_name(name, MAX_NAME) + ("" if name == served else f" is {safe_line(served, MAX_NAME)}")
            notes.append(f"model: {both} at {model.url}")
    return TypedConfig({**located, "models": [*models, *commands], **grading, **options.sections}, notes=notes)


def _stored_models(directory: Path) -> tuple[ModelConfig, ...]:
    """The models of the run in a directory; empty if it has no trials."""
    with RunReader.if_begun(directory) as reader:
        return () if reader is None or not reader.trial_count() else stored_config(reader.header()).models


def _identify(typed: Sequence[TypedModel], place: RunConfig, stored: Sequence[ModelConfig]) -> list[tuple[str, str]]:
    """The unique name of each model, and its name on the server; those of the stored run stay as they are."""
    served = [model.served for model in typed]
    configs = place.models[: len(typed)]  # the others are commands
    for number, (model, config) in enumerate(zip(typed, configs, strict=True)):
        same_server = [old for old in stored if old.base_url == config.base_url and model.name in (None, old.name)]
        if served[number] is None and len({old.model for old in same_server}) == 1:
            served[number] = same_server[0].model
    unknown = [config for config, name in zip(configs, served, strict=True) if name is None]
    answers = iter(asyncio.run(_ask_servers(unknown, place.folder)) if unknown else ())
    names_on_servers = [name or next(answers) for name in served]
    names_in_run = {(old.base_url, old.model): old.name for old in reversed(stored)}
    used_names = {model.name for model in typed}
    forms: list[tuple[str, ...]] = []
    """Possible names of each model, the shortest first."""
    for model, config, name in zip(typed, configs, names_on_servers, strict=True):
        earlier = names_in_run.get((config.base_url, name))
        fixed = model.name or (None if earlier in used_names else earlier)
        forms.append((fixed,) if fixed else (_short(name), name, f"{_short(name)}@{urlsplit(model.url).netloc}"))
        used_names.add(fixed)
    for _ in range(2):
        uses = Counter(form[0] for form in forms)
        forms = [form[1:] if uses[form[0]] > 1 and form[1:] else form for form in forms]
    return [(form[0], name) for form, name in zip(forms, names_on_servers, strict=True)]


async def _ask_servers(models: Sequence[ModelConfig], folder: Path) -> list[str]:
    """The only model of each server."""
    keys = read_environment(folder)
    return await asyncio.gather(*(_ask_server(model, keys, folder) for model in models))


async def _ask_server(model: ModelConfig, keys: Mapping[str, str], folder: Path) -> str:
    # imported here: only servers that are asked need it
    from adaptive_eval.endpoints.endpoint import list_models

    url = model.replicas[0]
    try:
        names = await list_models(model, keys=keys, folder=folder)
    except EndpointError as error:
        hint = f"start it, or name its model: --model NAME={url}#MODEL"
        if isinstance(error, Refusal) and error.status in (401, 403):
            hint = f"name the variable with its key: --model NAME={url} --key NAME=VARIABLE"
        raise EndpointError(f"{url} does not say which model it serves ({error}); {hint}") from error
    if not names:
        raise ConfigError(f"{url} has no list of its models; name the model: --model {url}#MODEL")
    if len(names) > 1:
        shown = [safe_line(name, MAX_NAME) for name in names]
        hint = f"name one for each --model, as in --model {url}#{shown[0]}"
        raise ConfigError(f"{url} serves several models: {first_few(shown, MAX_LISTED)}; {hint}")
    return names[0]


def _choose_grading(
    file: Path, place: RunConfig, options: ConfigOptions, overrides: Sequence[str]
) -> tuple[dict[str, object], list[str]]:
    """The sections `grader` and `prompt` where neither options nor overrides give them, with notes on the choices."""
    are_commands, grader, notes = not options.models, options.grader, list[str]()
    keyless = ("",) if are_commands else ()
    questions = load_questions(place.questions, folder=place.folder, seed=place.seed, keyless=keyless)
    given = {text.partition("=")[0].strip() for text in overrides}
    settings: dict[str, object] = {} if grader is None else {"grader": grader}
    if grader is None and not given & {"grader", "grader.kind"}:
        grader, why = _grader_of_commands(questions) if are_commands else _plain_grader(file, questions)
        settings["grader"] = grader
        notes.append(f"grader: {grader}, since {why}")
    shown = all(choice in question.prompt for question in questions for choice in question.choices)
    if grader == "choice" and not shown and not any(key.startswith("prompt") for key in given):
        settings["prompt"] = CHOICES_TEMPLATE
        notes.append("prompt: the question, then its choices (another one: --set prompt=...)")
    return settings, notes


def _grader_of_commands(questions: Sequence[Question]) -> tuple[str, str]:
    """The grader for commands: the one that fits the form of all answers, or else what they report; and why."""
    if not all(question.answer.strip() for question in questions):
        return Reported().kind, f"some questions have no answer: {SCORES}"
    try:
        grader, why = _plain_grader(Path(), questions)
    except ConfigError:
        return Reported().kind, f"not all answers are numbers or letters: {SCORES}"
    return grader, why.replace(OTHER_GRADER, "; it grades what each command answers (its score: --grader reported)")


def _plain_grader(file: Path, questions: Sequence[Question]) -> tuple[str, str]:
    """The grader that fits the form of all answers, and why; raises `ConfigError` if the form is not plain."""
    numeric, choice = Numeric(), Choice()
    numbers = [numeric.key_problem(question) is None for question in questions]
    letters = [
        bool(question.choices)
        and re.fullmatch("[A-Za-z]", question.answer.strip())
        and not choice.key_problem(question)
        for question in questions
    ]
    if all(numbers) and not any(question.choices for question in questions):
        return numeric.kind, f"every answer is a number{OTHER_GRADER}"
    if all(letters):
        return choice.kind, f"every answer is the letter of a choice{OTHER_GRADER}"
    unlike = [question for question, *forms in zip(questions, numbers, letters, strict=True) if not any(forms)]
    why = "some answers are numbers, and some questions have choices"
    if unlike:
        answer = f"the answer {safe_line(unlike[0].answer, 40)!r} of question {safe_line(unlike[0].id, 40)}"
        why = f"{answer} is neither a number nor the letter of one of its choices"
        if not unlike[0].choices:
            why = f"{answer} is not a number, and the question has no choices"
    kinds = ", ".join(KEYED_GRADERS)
    raise ConfigError(f"{file}: the grader does not follow from the answers: {why}; add --grader with one of {kinds}")


# -- values of options -------------------------------------------------------------------------------------------


def _run_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", text).lstrip("._-")[:MAX_NAME] or "run"


def _short(served: str) -> str:
    """The last part of a model's name on its server: `small-7b` of `org/small-7b`."""
    return served.rstrip("/").rpartition("/")[2][:MAX_NAME] or served


def _parse_alias(text: str) -> tuple[str | None, str]:
    """A name, if there is one, and the rest."""
    match = _ALIAS.fullmatch(text)
    return (None, text) if match is None else (match["name"], match["model"])


def _parse_commands(texts: Sequence[str], keys: Mapping[str, str]) -> list[dict[str, object]]:
    """The commands as models, each with a name, and with the variable of its key."""
    models = list[dict[str, object]]()
    for text in texts:
        if (match := _NAMED_COMMAND.fullmatch(text)) is None:
            raise ConfigError(
                f"--command must be a name and a command, as in new='./agent --skill v2', but got {text!r}"
            )
        command = {"name": escape_variables(match["name"]), "command": escape_variables(match["command"])}
        models.append(command | ({"env": [keys[match["name"]]]} if match["name"] in keys else {}))
    return models


def _parse_keys(texts: Sequence[str]) -> dict[str, str]:
    """Names of environment variables by model; no message shows what has another form, since it may be a key."""
    environment, keys = read_environment(Path()) if texts else {}, dict[str, str]()
    for text in texts:
        name, _, variable = text.rpartition("=")
        if not name or not environment.get(variable):
            is_variable = name and _VARIABLE.fullmatch(variable) and not looks_secret(variable)
            if is_variable and not LONG_WORD.search(variable):
                hint = "set it, or give the name of another (the name, never the key itself)"
                raise ConfigError(f"--key: the variable {variable} is not set; {hint}")
            got = "what was given is not shown, since it may be a key"
            expected = "a model's name and the environment variable with its key, as in gpt=OPENAI_API_KEY"
            raise ConfigError(f"--key must be {expected}, never the key itself; {got}")
        keys[name] = variable
    return keys


def _parse_price(text: str) -> tuple[str, dict[str, float]]:
    """Parse a model and the price of its tokens; a task may also call models that are not ranked."""
    name, _, price = text.rpartition("=")
    try:
        read, written = map(float, price.split("/"))
    except ValueError:
        raise ConfigError(
            f"--price must be a model with USD for a million tokens read and written, as in openai/gpt-x=1.25/10, "
            f"but got {text!r}"
        ) from None
    return name, {"input": read, "output": written}
