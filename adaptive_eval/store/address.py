"""Addresses of databases and of runs in them: postgresql://host[:port]/database[/run].

A run's address is handled as a path, `Path("postgresql://host/database/run")`, so that whatever takes the directory of
a run takes an address as well; nothing is ever looked for at that path on a disk.

An address has no user and no password, and nothing behind a question mark: it is stored and shown, and these are not.
They come from the variables that every program of PostgreSQL reads (PGUSER, PGPASSWORD, PGPASSFILE, PGSSLMODE ...).

A run directory may come from a stranger. A database that it names is opened only where the user has named it as well:
in the configuration of a run that is started, or in the variable ADAPTIVE_EVAL_LEDGERS, by spaces.
"""

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from adaptive_eval.base.errors import ConfigError

SCHEMES = ("postgresql:", "postgres:")
VARIABLE = "ADAPTIVE_EVAL_LEDGERS"
FORM = "postgresql://host/database"
_HOST = r"(?:[A-Za-z0-9._-]+|%2[Ff][A-Za-z0-9._%-]+|\[[0-9A-Fa-f:.]+\])"
_ADDRESS = re.compile(
    rf"postgres(?:ql)?:/{{1,2}}({_HOST})(?::(\d{{1,5}}))?/([^/?#@\s\\]{{1,63}})(?:/([^/?#@\s\\]{{1,200}}))?/?"
)
MEND = (
    f"write it as {FORM}, or {FORM}/run for one run, and give user and password in PGUSER and PGPASSWORD or ~/.pgpass, "
    "and options in the other variables of PostgreSQL, such as PGSSLMODE"
)


@dataclass(frozen=True, slots=True)
class LedgerAddress:
    """The address of a database, or of a run in it."""

    host: str
    port: int | None
    database: str
    run: str | None = None

    @classmethod
    def parse(cls, text: str) -> "LedgerAddress":
        """Parse an address; the `ConfigError` for a malformed one omits the text, which may contain a password."""
        found = _ADDRESS.fullmatch(text)
        if found is None or ".." in (found[3], found[4]):
            secret = "@" in text or "?" in text
            what = "has a user, a password or options in it, which would be stored" if secret else "is not of that form"
            raise ConfigError(f"the address of a database {what}; {MEND}")
        return cls(found[1], None if found[2] is None else int(found[2]), found[3], found[4])

    @property
    def whole_database(self) -> "LedgerAddress":
        """The address of the database, without the run."""
        return replace(self, run=None)

    def run_at(self, name: str) -> "LedgerAddress":
        """The address of a run in this database."""
        return replace(self, run=name)

    @property
    def path(self) -> Path:
        """The address as a path, as commands take it."""
        return Path(str(self))

    @property
    def is_given(self) -> bool:
        """Whether the user has named this database in the environment variable."""
        return any(one.rstrip("/") == str(self.whole_database) for one in os.environ.get(VARIABLE, "").split())

    def __str__(self) -> str:
        port = "" if self.port is None else f":{self.port}"
        run = "" if self.run is None else f"/{self.run}"
        return f"postgresql://{self.host}{port}/{self.database}{run}"


def is_address(path: Path) -> bool:
    """Whether a path is the address of a database or of a run in one."""
    return bool(path.parts) and path.parts[0] in SCHEMES


def is_place_of_runs(path: Path) -> bool:
    """Whether a path may hold runs: a directory or a database, not a file."""
    return path.is_dir() or is_address(path)


def parse_address(path: Path) -> LedgerAddress | None:
    """Parse a path as an address; None for an ordinary path. Raises `ConfigError` if it is malformed."""
    return LedgerAddress.parse(str(path)) if is_address(path) else None


def absolute_path(path: Path) -> Path:
    """The absolute path without links; an address is returned unchanged."""
    return path if is_address(path) else path.resolve()


def default_path(path: Path, name: str) -> Path:
    """The default path of a file about a run: in its directory, or in the current one if the run is in a database."""
    return Path(f"{path.name}.{name}") if is_address(path) else path / name


def require_directory(path: Path) -> None:
    """Raise `ConfigError` if a command that writes beside a run was given an address."""
    if is_address(path):
        raise ConfigError(f"{shown(path)} is read here, and this command writes beside the run: give its directory")


def shown(path: Path) -> str:
    """A path as a person writes it: `Path` turns the two slashes of an address into one."""
    return str(LedgerAddress.parse(str(path))) if is_address(path) else str(path)
