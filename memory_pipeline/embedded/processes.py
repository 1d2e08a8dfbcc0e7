"""Server processes: started apart from the command that starts them, found again, and stopped for certain."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from memory_pipeline.embedded.errors import EmbeddedExtraMissing
from memory_pipeline.embedded.files import put_aside_if_large

try:
    import psutil
except ImportError as error:
    raise EmbeddedExtraMissing(["psutil"]) from error

LOOPBACK = "127.0.0.1"
_POLL_SECONDS = 0.02

# Signals in order, each with the seconds that it is given.
Steps = Sequence[tuple[signal.Signals, float]]

# Servers that this process started. They outlive it; while it lives, it must take note when one ends.
_children: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True, slots=True)
class Account:
    """An unprivileged user that a server is run as, by a command run as root."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Launched:
    """A process just started, and the byte of its log from which on the words are its own."""

    child: subprocess.Popen[bytes]
    log: Path
    log_start: int

    @property
    def ended(self) -> bool:
        """Whether it is over already."""
        return self.child.poll() is not None

    def kill(self) -> None:
        """End it at once."""
        self.child.kill()
        self.child.wait()


def launch(
    command: Sequence[str], *, log: Path, folder: Path, environment: Mapping[str, str], account: Account | None = None
) -> Launched:
    """Start a server in `folder` that survives this process and its terminal; what it writes is added to `log`.

    The log is opened before the account is changed, so that it may lie where only the caller can write.

    Raises:
        PermissionError: the account cannot be taken, or may not run the command.
    """
    put_aside_if_large(log)
    with log.open("ab") as output:
        start = output.tell()
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,
            env=environment,
            start_new_session=True,
            umask=0o077,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
        )
        _children.append(child)
        return Launched(child, log, start)


def find(matches: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
    """Every living process that matches; one that vanishes or may not be looked at meanwhile does not."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if matches(process) and is_alive(process):
                found.append(process)
    return found


def is_alive(process: psutil.Process) -> bool:
    """Whether it still runs. A zombie does not: it only waits for its parent to take note.

    A process whose first thread has ended looks like a zombie too, but keeps its ports until its other threads end.
    """
    try:
        if not process.is_running():
            return False
        return process.status() != psutil.STATUS_ZOMBIE or process.num_threads() > 1
    except psutil.NoSuchProcess:
        return False


def stop(processes: Iterable[psutil.Process], steps: Steps) -> list[psutil.Process]:
    """Signal processes, harder step by step, until all have ended. Returns those that have not.

    Raises:
        psutil.AccessDenied: a process is another user's.
    """
    left = [process for process in processes if is_alive(process)]
    for number, seconds in steps:
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        deadline = time.monotonic() + seconds
        while (left := [process for process in left if is_alive(process)]) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
    _children[:] = [child for child in _children if child.poll() is None]
    return left


def free_port() -> int:
    """A port of the loopback that no one listens on just now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def is_free(port: int) -> bool:
    """Whether a server could listen on this port of the loopback."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
