"""Takes secrets out of a configuration before anything else sees it."""

from typing import Any

from adaptive_eval.config.document import Document
from adaptive_eval.config.environment import VARIABLE
from adaptive_eval.config.problems import KeyPath, Problem
from adaptive_eval.config.secrets import (
    HEADERS,
    INHERITED,
    SECRET_VARIABLE,
    holds_secret,
    looks_secret,
    path_looks_secret,
    secret_given,
)

BLANK = "***"


def remove_secrets(document: Document, value: Any, path: KeyPath) -> None:
    """Take every secret out of the document, and note the problem."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        inner = (*path, key)
        if isinstance(value[key], dict | list):
            remove_secrets(document, value[key], inner)
        elif rule := _secret_rule(document, inner, value[key]):
            mend = "give the name of an environment variable as api_key_env; without a key, leave it out"
            if set(inner) & set(HEADERS):
                mend = "write ${NAME} for an environment variable"
            elif "launch" in inner:
                mend = INHERITED
            document.problems.append(Problem(inner, rule, mend, place=document.place(inner)))
            value[key] = BLANK


def _secret_rule(document: Document, path: KeyPath, value: object) -> str | None:
    """Why a value may not stand in the file: keys come from the environment, and go into headers only."""
    if value is None:
        return None
    in_header = bool(set(path) & set(HEADERS))
    variables = document.variables.get(document.origin(path), ())
    if in_header:
        literal = VARIABLE.sub("", document.raw.get(path, str(value)))
        named = holds_secret(str(path[-1])) and not variables
        return "holds a secret, which must not stand in the file" if named or looks_secret(literal) else None
    if holds_secret(_key(path)) or looks_secret(str(value)):
        return "holds a secret, which must not stand in the file"
    if {"launch", "command"} <= set(path) and (given := secret_given(str(value))):
        return f"holds a secret ({given}), which would be stored"
    if "base_url" in path and variables and path_looks_secret(str(value)):
        return "takes in what looks like a key, which would be stored with the results"
    if path[-1] != "api_key_env" and any(SECRET_VARIABLE.search(name) for name in variables):
        return "takes in a secret, which would be stored with the results"
    return None


def _key(path: KeyPath) -> str:
    """The key that a value stands under, be it in a list."""
    return next((part for part in reversed(path) if isinstance(part, str)), "")
