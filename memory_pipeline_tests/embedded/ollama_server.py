"""A real embedded Ollama server in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

import memory_pipeline

START_SECONDS = 30.0
STOP_SECONDS = 30.0


def command(ready_file: Path, port: int = 0) -> list[str]:
    """The command that starts it."""
    module = "memory_pipeline.embedded.ollama"
    return [sys.executable, "-m", module, "--port", str(port), "--ready-file", str(ready_file)]


def environment() -> dict[str, str]:
    """This process's environment, with the package under test importable."""
    root = str(Path(memory_pipeline.__file__).resolve().parents[1])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))}


class EmbeddedOllama:
    """`with EmbeddedOllama(folder) as server:` starts a server on a free port and ends it, whatever happens within."""

    def __init__(self, folder: Path) -> None:
        self.ready_file = folder / "ready.json"
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> EmbeddedOllama:
        self.process = subprocess.Popen(command(self.ready_file), env=environment())
        deadline = time.monotonic() + START_SECONDS
        while not self.ready_file.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.__exit__(None, None, None)
                raise AssertionError("the server did not start")
            time.sleep(0.02)
        self.port = json.loads(self.ready_file.read_text(encoding="utf-8"))["port"]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(STOP_SECONDS)
            self.process = None

    def stop(self) -> int:
        """Ask it to end, wait, and return its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECONDS)
