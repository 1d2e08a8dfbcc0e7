"""What the stack knows of each of its servers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import psutil

from memory_pipeline.embedded.errors import ServerFailed
from memory_pipeline.embedded.files import end_of
from memory_pipeline.embedded.processes import Launched

ServerName: TypeAlias = Literal["postgres", "qdrant", "ollama"]

_POLL_SECONDS = 0.03


@dataclass(frozen=True, slots=True)
class Started:
    """A server that answers: its process, its port on the loopback, and what a person should know about the start."""

    pid: int
    port: int
    notes: list[str] = field(default_factory=list)


class LocalServer(Protocol):
    """One server of one state folder. Every method may be called from any process that has the folder's lock."""

    @property
    def name(self) -> ServerName:
        """Its name in files and settings."""

    @property
    def title(self) -> str:
        """Its name for people."""

    @property
    def log(self) -> Path:
        """Where it writes."""

    def url(self, port: int) -> str:
        """Its address for people; no secret in it."""

    def endpoint(self, port: int) -> dict[str, str | int]:
        """The settings that tell clients of it."""

    def missing_packages(self) -> list[str]:
        """Packages that it needs and that are not installed."""

    def find(self) -> list[psutil.Process]:
        """Its living processes, recognised by what they serve."""

    def answers(self, port: int) -> bool:
        """Whether a real request, with the secret on file, gets its answer."""

    def start(self, port: int | None, cancelled: threading.Event) -> Started:
        """Start it, on `port` if that is free, and wait until it answers.

        Raises:
            EmbeddedError: it cannot start; nothing of it is left running.
        """

    def stop(self) -> bool:
        """End every process of it. False if there was none.

        Raises:
            CannotStop: a process outlived every signal, or is another user's.
        """

    def purge(self) -> None:
        """Remove what it keeps outside the state folder."""


def wait_until(
    ready: Callable[[], bool], launched: Launched, *, title: str, seconds: float, cancelled: threading.Event
) -> bool:
    """Wait until a process just launched is ready. False if it ended before.

    Raises:
        ServerFailed: it is neither ready nor ended after `seconds`, or the start was given up.
    """
    deadline = time.monotonic() + seconds
    while not ready():
        if launched.ended:
            return False
        if cancelled.is_set():
            raise ServerFailed(title, "was stopped while it was starting", launched.log, "")
        if time.monotonic() > deadline:
            raise failed(title, f"did not answer within {seconds:.0f} s", launched)
        time.sleep(_POLL_SECONDS)
    return True


def failed(title: str, what: str, launched: Launched) -> ServerFailed:
    """The error for a server that was launched in vain, with the end of what it wrote."""
    return ServerFailed(title, what, launched.log, end_of(launched.log, launched.log_start))
