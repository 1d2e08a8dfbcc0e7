"""`memory-pipeline dev`: the Dagster UI and daemon over the stack."""

from __future__ import annotations

import signal
import subprocess
import sys
from types import FrameType

import click

from memory_pipeline.harness.control_room import dagster_environment, deployed
from memory_pipeline.harness.output import say
from memory_pipeline.harness.setup import start
from memory_pipeline.settings import Settings


@click.command()
@click.option("--port", default=3000, show_default=True, help="Port of the UI, on loopback.")
def dev(port: int) -> int:
    """Start the stack, then the Dagster UI and daemon, until Ctrl-C.

    Servers that this command started are stopped with it; those that ran before stay.
    """
    from memory_pipeline.embedded.stack import EmbeddedStack

    settings = Settings()
    stack = EmbeddedStack(settings.state)
    ran_before = any(server.state == "running" for server in stack.status().servers)
    settings = start(settings, say)
    command = [sys.executable, "-m", "dagster", "dev", "-w", str(deployed("workspace.yaml"))]
    say(f"the UI will be at http://127.0.0.1:{port}")
    try:
        return _run([*command, "-h", "127.0.0.1", "-p", str(port)], dagster_environment(settings))
    finally:
        if not ran_before:
            stack.down(say=say)


def _run(command: list[str], environment: dict[str, str]) -> int:
    """Run in the foreground; what stops this process stops the other, and is waited for.

    The handlers come first: the child then starts with the default ones, also where a shell that put this into the
    background had the interrupt ignored.
    """
    process: subprocess.Popen[bytes] | None = None

    def forward(number: int, _: FrameType | None) -> None:
        if process is not None:
            process.send_signal(number)

    previous = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        process = subprocess.Popen(command, env=environment)
        return process.wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
