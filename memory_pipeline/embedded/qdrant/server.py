"""The process: one server per storage folder, told by its ready file, stopped by a signal."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from memory_pipeline.embedded.qdrant.app import make_app
from memory_pipeline.embedded.qdrant.registry import RegistryUnreadable
from memory_pipeline.embedded.qdrant.storage import Storage

log = logging.getLogger(__name__)

# Longer than any client keeps an idle connection, so that it is never closed under a request that is on its way.
KEEP_ALIVE_SECONDS = 3600
SHUTDOWN_SECONDS = 5


@dataclass(frozen=True)
class Options:
    """Where to listen (port 0: any that is free), where to keep data, and which files to write and read."""

    host: str
    port: int
    storage: Path
    ready_file: Path
    api_key_file: Path | None


class StartRefused(Exception):
    """The server cannot start; the message is one line that says why."""


def serve(options: Options) -> None:
    """Serve until SIGTERM or SIGINT, then answer what is under way, flush every shard and return.

    Raises:
        StartRefused: the folder is in use or cannot be read, the port is taken, or the key file is missing or empty.
    """
    api_key = _api_key(options.api_key_file)
    if not options.ready_file.parent.is_dir():
        raise StartRefused(f"the folder of the ready file {options.ready_file} does not exist")
    with _only_one(options.storage), _listening(options.host, options.port) as listener:
        options.ready_file.unlink(missing_ok=True)
        try:
            storage = Storage(options.storage)
        except (RegistryUnreadable, OSError) as error:
            raise StartRefused(str(error)) from error
        try:
            _run(make_app(storage, api_key), listener, options.ready_file)
        finally:
            storage.close()
            options.ready_file.unlink(missing_ok=True)


def _run(app: ASGIApp, listener: socket.socket, ready_file: Path) -> None:
    config = uvicorn.Config(
        app,
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )
    server = _Server(config, lambda: _write_ready(ready_file, listener.getsockname()[1]))
    # uvicorn sends itself the signal again once it has stopped; with these handlers it then returns.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stop())
    server.run(sockets=[listener])


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    def stop(self) -> None:
        self.should_exit = True


def _write_ready(path: Path, port: int) -> None:
    beside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    beside.write_text(json.dumps({"pid": os.getpid(), "port": port}), encoding="utf-8")
    beside.replace(path)
    log.info("listening on port %s", port)


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


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns off Nagle's algorithm only where the protocol is named; with it, answers may wait 40 ms.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            raise StartRefused(f"cannot listen on {host}:{port}: {error.strerror}") from error
        yield listener


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
