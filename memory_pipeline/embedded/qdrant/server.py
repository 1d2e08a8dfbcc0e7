"""The process: one server per storage folder, told by its ready file, stopped by a signal."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from memory_pipeline.embedded.qdrant.app import make_app
from memory_pipeline.embedded.qdrant.registry import RegistryUnreadable
from memory_pipeline.embedded.qdrant.storage import Storage
from memory_pipeline.embedded.serving import StartRefused, listening, run


@dataclass(frozen=True)
class Options:
    """Where to listen (port 0: any that is free), where to keep data, and which files to write and read."""

    host: str
    port: int
    storage: Path
    ready_file: Path
    api_key_file: Path | None


def serve(options: Options) -> None:
    """Serve until SIGTERM or SIGINT, then answer what is under way, flush every shard and return.

    Raises:
        StartRefused: the folder is in use or cannot be read, the port is taken, or the key file is missing or empty.
    """
    api_key = _api_key(options.api_key_file)
    if not options.ready_file.parent.is_dir():
        raise StartRefused(f"the folder of the ready file {options.ready_file} does not exist")
    with _only_one(options.storage), listening(options.host, options.port) as listener:
        try:
            storage = Storage(options.storage)
        except (RegistryUnreadable, OSError) as error:
            raise StartRefused(str(error)) from error
        try:
            run(make_app(storage, api_key), listener, options.ready_file)
        finally:
            storage.close()


@contextmanager
def _only_one(storage: Path) -> Iterator[None]:
    """Hold the storage folder's lock, which the kernel lets go of when the process ends, however it ends."""
    try:
        storage.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = (storage / "lock").open("a")
    except OSError as error:
        raise StartRefused(f"the storage folder {storage} cannot be used: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StartRefused(f"the storage folder {storage} is in use by another server") from error
        yield


def _api_key(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        key = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise StartRefused(f"the key file {path} cannot be read: {error.strerror}") from error
    if not key:
        raise StartRefused(f"the key file {path} is empty")
    return key
