"""Loads plug-ins (`package.module:attribute`) and packages of extras, and fingerprints plug-ins without loading them.

Loading a plug-in runs its code, so it is only done for a configuration given on the command line. A fingerprint covers
the source files of the module and, recursively, of its imports from the same folder, or for an installed package, from
that package. Dynamic imports and data files are not included.

Optional packages are imported when they are used; if one is missing, the error has the command to install it.
"""

import ast
import hashlib
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from adaptive_eval.base.errors import ConfigError


def load_extra(module: str, extra: str, what: str) -> Any:
    """Import a module of an extra for the features `what`; raises `ConfigError` if it is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(f"{what} need an extra; pip install 'adaptive-eval[{extra}]'") from error


def load_pyarrow() -> tuple[Any, Any]:
    """pyarrow, and its module for Parquet files."""
    parquet = load_extra("pyarrow.parquet", "parquet", "Parquet files")
    return import_module("pyarrow"), parquet


def python_command(code: str) -> list[str]:
    """The command for a process that runs this code, with the absolute import paths of this process as arguments."""
    return [sys.executable, "-c", code, *(str(Path(entry).absolute()) for entry in sys.path)]


SPECIFICATION = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$"
DIGITS = 16
"""Hexadecimal digits of a fingerprint."""
MAX_DESCRIPTION = 200
"""Maximum characters of a plug-in's description."""


def load_attribute(specification: str, folder: Path) -> object:
    """The attribute `package.module:attribute` from `folder` or from an installed package."""
    module_name, _, attribute = specification.partition(":")
    if (place := str(folder.resolve())) not in sys.path:
        sys.path.insert(0, place)
    try:
        module = import_module(module_name)
    except Exception as error:  # user code may raise anything
        raise ConfigError(
            f"{specification}: module {module_name} could not be imported from {folder}: {error!r}"
        ) from error
    try:
        value: object = getattr(module, attribute)
    except AttributeError:
        raise ConfigError(f"{specification}: module {module_name} has no attribute {attribute}") from None
    return value


def fingerprints(specification: str, folder: Path) -> Mapping[str, str]:
    """Digests of a plug-in's source files by relative path; nothing is imported."""
    module = specification.partition(":")[0]
    source_folder = _PluginFolder.of(module, folder)
    if source_folder is None:
        return {}
    files: dict[Path, str] = {}
    waiting = list(source_folder.files(module))
    while waiting:
        file = waiting.pop()
        if file in files or (body := _read(file)) is None:
            continue
        files[file] = f"sha256 {hashlib.sha256(body).hexdigest()[:DIGITS]}"
        package = file.parent.relative_to(source_folder.root).parts  # the base of its relative imports
        waiting += [imported for name in _imports(body, package) for imported in source_folder.files(name)]
    return {file.relative_to(source_folder.root).as_posix(): files[file] for file in sorted(files)}


def docstring_summary(specification: str, folder: Path) -> str | None:
    """The first line of a plug-in's docstring; nothing is imported."""
    module, _, attribute = specification.partition(":")
    source_folder = _PluginFolder.of(module, folder)
    for file in () if source_folder is None else source_folder.files(module):
        for node in getattr(_parsed(_read(file) or b""), "body", ()):
            named = isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == attribute
            if named and (docstring := ast.get_docstring(node)):
                return docstring.splitlines()[0][:MAX_DESCRIPTION]
    return None


class _PluginFolder:
    """A folder from which modules of a plug-in are imported."""

    def __init__(self, root: Path, only: str | None) -> None:
        self.root, self._only = root, only

    @classmethod
    def of(cls, module: str, folder: Path) -> "_PluginFolder | None":
        """The first folder of `folder` and the import path with the module; limited to its package if installed."""
        top = module.partition(".")[0]
        shared = {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib", "stdlib", "platstdlib")}
        for entry in (folder, *map(Path, sys.path)):
            root = entry.resolve()
            place = cls(root, top if root in shared else None)
            if any(place.files(top)):
                return place
        return None

    def files(self, module: str) -> Iterator[Path]:
        """The files of a module and of its parent packages in this folder."""
        parts, path = module.split("."), [str(self.root)]
        if self._only is not None and parts[0] != self._only:
            return
        for depth in range(len(parts)):
            spec = PathFinder.find_spec(".".join(parts[: depth + 1]), path)
            if spec is None:
                return
            if spec.has_location and spec.origin is not None:
                yield Path(spec.origin).absolute()
            path = list(spec.submodule_search_locations or ())


def _read(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except OSError:
        return None


def _parsed(body: bytes) -> ast.Module | None:
    """The parsed source; None if it is not source, such as a compiled module."""
    try:
        return ast.parse(body)
    except (SyntaxError, ValueError, RecursionError):
        return None


def _imports(body: bytes, package: tuple[str, ...]) -> Iterator[str]:
    """All modules that a source may import; a name imported from a package may also be a module."""
    tree = _parsed(body)
    for node in () if tree is None else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            base_name = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{base_name}.{alias.name}" if base_name else alias.name for alias in node.names)
