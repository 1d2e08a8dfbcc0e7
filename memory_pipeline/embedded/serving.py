"""What a local HTTP server's process does: listen, say so in its ready file, stop on a signal."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

log = logging.getLogger(__name__)

# Longer than any client keeps an idle connection, so that it is never closed under a request that is on its way.
KEEP_ALIVE_SECONDS = 3600
SHUTDOWN_SECONDS = 5


class StartRefused(Exception):
    """The server cannot start; the message is one line that says why."""


def serve(app: ASGIApp, host: str, port: int, ready_file: Path) -> None:
    """Serve until SIGTERM or SIGINT, then answer what is under way and return.

    Args:
        port: 0 for any that is free.
        ready_file: written once it listens, as JSON `{"pid": ..., "port": ...}`; removed at the end.

    Raises:
        StartRefused: the port is taken, or the folder of the ready file does not exist.
    """
    if not ready_file.parent.is_dir():
        raise StartRefused(f"the folder of the ready file {ready_file} does not exist")
    with listening(host, port) as listener:
        run(app, listener, ready_file)


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A bound socket, closed in the end. Raises `StartRefused` where the port is taken or cannot be."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns off Nagle's algorithm only where the protocol is named; with it, answers may wait 40 ms.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except (OSError, OverflowError) as error:
            raise StartRefused(f"cannot listen on {host}:{port}: {error}") from error
        yield listener


def run(app: ASGIApp, listener: socket.socket, ready_file: Path) -> None:
    """Serve on a socket until a signal; the ready file is there as long as requests are taken."""
    ready_file.unlink(missing_ok=True)
    try:
        _run(app, listener, ready_file)
    finally:
        ready_file.unlink(missing_ok=True)


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
