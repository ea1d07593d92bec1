"""The lock of the development environment holds what pyproject.toml asks for."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
WHOLE = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = WHOLE["project"]
LOCK = (ROOT / "requirements-dev.lock").read_text()
RELEASE_LOCK = (ROOT / "requirements-release.lock").read_text()
LOCKED = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)(?: ; .*)? \\$", re.MULTILINE)


def asked_for() -> list[Requirement]:
    """The dependencies, and those of the extras that a developer has."""
    extras, names, lines = PROJECT["optional-dependencies"], ["dev"], list(PROJECT["dependencies"])
    for extra in names:
        for line in extras[extra]:
            requirement = Requirement(line)
            if requirement.name == PROJECT["name"]:
                names.extend(sorted(requirement.extras))
            else:
                lines.append(line)
    return [Requirement(line) for line in lines]


@pytest.mark.parametrize("requirement", asked_for(), ids=lambda requirement: requirement.name)
def test_the_lock_has_it(requirement: Requirement) -> None:
    versions = {canonicalize_name(name): version for name, version in LOCKED.findall(LOCK)}
    assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)], prereleases=True)


@pytest.mark.parametrize(
    "requirement", [*map(Requirement, WHOLE["dependency-groups"]["release"])], ids=lambda requirement: requirement.name
)
def test_the_lock_of_a_release_has_what_its_recipe_calls(requirement: Requirement) -> None:
    versions = {canonicalize_name(name): version for name, version in LOCKED.findall(RELEASE_LOCK)}
    assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)], prereleases=True)


@pytest.mark.parametrize("lock", [LOCK, RELEASE_LOCK], ids=["dev", "release"])
def test_every_version_comes_with_hashes_and_no_host_is_named(lock: str) -> None:
    entries = re.split(r"^(?=[A-Za-z0-9])", lock, flags=re.MULTILINE)[1:]
    assert entries and all("--hash=sha256:" in entry for entry in entries)
    assert "://" not in lock and "--index-url" not in lock


@pytest.mark.parametrize("name", ["aiohttp", "numpy", "pydantic", "httpx2", "openai", "scipy"])
def test_what_has_broken_its_callers_before_is_bounded_above(name: str) -> None:
    (requirement,) = [Requirement(line) for line in PROJECT["dependencies"] if Requirement(line).name == name]
    assert any(part.operator == "<" for part in requirement.specifier)
