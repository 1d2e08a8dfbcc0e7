"""Files of the state folder: written whole or not at all, locked, and secret where they are secrets."""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from memory_pipeline.embedded.errors import SecretUnusable

LOG_LIMIT = 8 * 1024 * 1024  # bytes, from which a log is put aside when its server starts


@dataclass(frozen=True, slots=True)
class Secret:
    """A password or key and its file; `created` where there was none before."""

    value: str
    path: Path
    created: bool


def ensure_secret(folder: Path, name: str) -> Secret:
    """Read the secret `name`, or make a random one. Folder and file are readable by their owner alone.

    Raises:
        SecretUnusable: the file holds what no password or header can be.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)
    path = folder / name
    if path.exists():
        path.chmod(0o600)
        value = path.read_bytes().decode("ascii", "replace").strip()
        if not (value.isascii() and value.isprintable()):
            raise SecretUnusable(path)
        if value:
            return Secret(value, path, created=False)
    value = secrets.token_urlsafe(32)
    write_atomically(path, value)
    return Secret(value, path, created=True)


def write_atomically(path: Path, text: str) -> None:
    """Replace `path` by a file with `text` that only its owner may read; a reader sees the old or the new one."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def locked(path: Path, seconds: float, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock of `path`, made with its folder where they are not there. `waiting` is called if it is not free.

    Raises:
        TimeoutError: someone else has held it for `seconds`.
        OSError: the file cannot be made.
    """
    deadline = time.monotonic() + seconds
    descriptor = _try_lock(path)
    if descriptor is None:
        waiting()
    while descriptor is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} is locked")
        time.sleep(0.05)
        descriptor = _try_lock(path)
    try:
        yield
    finally:
        os.close(descriptor)


def _try_lock(path: Path) -> int | None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Whoever held it may have removed the file: then this is the lock of a file that no one else will find.
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None


def put_aside_if_large(log: Path) -> None:
    """Begin a log anew when it has grown large; the old one stays beside it, replacing the one before."""
    if log.exists() and log.stat().st_size > LOG_LIMIT:
        log.replace(log.with_name(f"{log.name}.1"))


def end_of(log: Path, since: int = 0, lines: int = 15) -> str:
    """The last lines that a log got after byte `since`."""
    try:
        with log.open("rb") as file:
            file.seek(since)
            written = file.read()
    except FileNotFoundError:
        return ""
    return "\n".join(written.decode("utf-8", "replace").splitlines()[-lines:])
