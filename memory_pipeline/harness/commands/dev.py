"""`memory-pipeline dev`: the Dagster UI and daemon over the stack."""

from __future__ import annotations

import contextlib
import fcntl
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import click
import psutil

from memory_pipeline.core.errors import ConfigurationError
from memory_pipeline.harness.control_room import dagster_environment, deployed
from memory_pipeline.harness.output import say
from memory_pipeline.harness.setup import start
from memory_pipeline.settings import Settings

_LEFT_ALONE_SECONDS = 5.0
"""A code server of Dagster's ends by itself only when it has missed its parent's heartbeat for 45 seconds."""

# Dagster says that another tool supersedes its dev command: one that the project does not need.
_QUIET = "ignore::FutureWarning"


class DevRefused(ConfigurationError):
    """The UI cannot be started: its port is taken, or another one runs on this state folder."""


@click.command()
@click.option("--port", default=3000, show_default=True, help="Port of the UI, on loopback.")
def dev(port: int) -> None:
    """Start the stack, then serve the Dagster UI and run its daemon, until Ctrl-C.

    Servers that this command started are stopped with it; those that ran before stay.
    """
    from memory_pipeline.embedded.stack import EmbeddedStack

    settings = Settings()
    _require_free(port)
    stack = EmbeddedStack(settings.state)
    ran_before = any(server.state == "running" for server in stack.status().servers)
    with _only_one(stack.state):
        settings = start(settings, say)
        environment = dagster_environment(settings)
        command = [sys.executable, "-m", "dagster", "dev", "-w", str(deployed("workspace.yaml").resolve())]
        say(f"the UI will be at http://127.0.0.1:{port}")
        try:
            code = _run([*command, "-h", "127.0.0.1", "-p", str(port)], environment)
        finally:
            if not ran_before:
                stack.down(say=say)
    if code:
        raise DevRefused(f"Dagster ended with code {code}", hint="read what it printed above")


def _require_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise DevRefused(
                f"port {port} is taken: {error.strerror}", hint="choose another one with --port"
            ) from error


@contextlib.contextmanager
def _only_one(state: Path) -> Iterator[None]:
    """Two daemons on one instance would work against each other."""
    state.mkdir(parents=True, exist_ok=True)
    with (state / "dev.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DevRefused(f"the UI of {state} runs already", hint="use that one, or stop it first") from error
        yield


def _run(command: list[str], environment: dict[str, str]) -> int:
    """Run in the foreground; what stops this process stops the others, and they are waited for.

    Returns 0 where it was stopped by a signal: that is how it is meant to end. The handlers come first: the child then
    starts with the default ones, also where a shell that put this into the background had the interrupt ignored.
    """
    process: subprocess.Popen[bytes] | None = None
    family: list[psutil.Process] = []

    def forward(_: int, __: FrameType | None) -> None:
        if process is not None and not family:
            with contextlib.suppress(psutil.NoSuchProcess):
                family.extend(psutil.Process(process.pid).children(recursive=True))
            process.send_signal(signal.SIGINT)

    previous = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        # In the folder of the instance, for Dagster warns of a dagster.yaml in the present one that it does not use;
        # in a session of its own, so that Ctrl-C reaches it once.
        process = subprocess.Popen(
            command,
            env={**environment, "PYTHONWARNINGS": _QUIET},
            cwd=environment["DAGSTER_HOME"],
            start_new_session=True,
        )
        code = process.wait()
    finally:
        _end(family)
        for number, handler in previous.items():
            signal.signal(number, handler)
    return 0 if family else code


def _end(family: list[psutil.Process]) -> None:
    """End what outlived its parent."""
    _, alive = psutil.wait_procs(family, timeout=_LEFT_ALONE_SECONDS)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    _, alive = psutil.wait_procs(alive, timeout=_LEFT_ALONE_SECONDS)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
