"""A real embedded Qdrant server in a process of its own, for tests that start, stop, kill and restart it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from types import TracebackType

import httpx
from qdrant_client import QdrantClient

import memory_pipeline

START_SECONDS = 30.0
STOP_SECONDS = 30.0
MODULE = "memory_pipeline.embedded.qdrant"


class EmbeddedQdrant:
    """`with EmbeddedQdrant(folder) as server:` starts a server on a free port and ends it, whatever happens within."""

    def __init__(self, folder: Path, api_key: str | None = None) -> None:
        self.storage = folder / "storage"
        self.ready_file = folder / "ready.json"
        self.log_file = folder / "server.log"
        self.api_key = api_key
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None
        self._key_file = folder / "api_key"
        if api_key is not None:
            self._key_file.write_text(f"{api_key}\n", encoding="utf-8")

    def __enter__(self) -> EmbeddedQdrant:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process's number."""
        assert self.process is not None
        return self.process.pid

    @property
    def headers(self) -> dict[str, str]:
        """What every request must carry."""
        return {"api-key": self.api_key} if self.api_key is not None else {}

    def client(self, timeout: int = 60) -> QdrantClient:
        """The unmodified client, without its warning that a key goes over plain HTTP (it does, on this machine)."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return QdrantClient(url=self.url, api_key=self.api_key, timeout=timeout, check_compatibility=False)

    def http(self, timeout: float = 60.0) -> httpx.Client:
        """Plain HTTP, for what the client would not send."""
        return httpx.Client(base_url=self.url, headers=self.headers, timeout=timeout)

    def command(self) -> list[str]:
        """The command that starts it on any free port."""
        command = [sys.executable, "-m", MODULE, "--port", "0"]
        command += ["--storage", str(self.storage), "--ready-file", str(self.ready_file)]
        return [*command, "--api-key-file", str(self._key_file)] if self.api_key is not None else command

    def start(self) -> None:
        """Start it and wait until it says that it listens."""
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(self.command(), stdout=log, stderr=log, env=environment())
        deadline = time.monotonic() + START_SECONDS
        while True:
            ready = self._ready()
            if ready is not None:
                self.port = ready
                return
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"the server did not start:\n{self.log()}")
            time.sleep(0.02)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to end, wait, and return its exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(STOP_SECONDS)
        self.process = None
        return code

    def kill(self) -> None:
        """End it as a power cut of the process would (SIGKILL); nothing happens if it is not running."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(STOP_SECONDS)
            self.process = None

    def restart(self) -> None:
        """Kill it and start it again on the same storage."""
        self.kill()
        self.start()

    def log(self) -> str:
        """What it wrote so far."""
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def _ready(self) -> int | None:
        """The port, once the ready file is there and comes from this process."""
        try:
            ready = json.loads(self.ready_file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return int(ready["port"]) if ready["pid"] == self.pid else None


def environment() -> dict[str, str]:
    """This process's environment, with the package under test importable."""
    root = str(Path(memory_pipeline.__file__).resolve().parents[1])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))}
