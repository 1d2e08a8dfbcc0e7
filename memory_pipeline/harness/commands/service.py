"""`memory-pipeline service`: Dagster's three processes, each in the foreground, for containers and process managers.

`dev` runs all of them for one person; these run apart, restart apart, and may run on machines of their own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import NoReturn, TypeVar

import click

from memory_pipeline.core.errors import ConfigurationError, ControlRoomUnavailable
from memory_pipeline.harness.control_room import LOCATION, dagster_environment, deployed
from memory_pipeline.settings import Settings

_CODE_PORT, _WEB_PORT = 4000, 3000
_ANSWER_SECONDS = 10.0
_CHECK_SECONDS = 18.0
"""For a check of Dagster's own, which takes two or three to start: less than the containers' health checks wait."""

_Function = TypeVar("_Function", bound=Callable[..., object])


def _address(port: int) -> Callable[[_Function], _Function]:
    def decorate(function: _Function) -> _Function:
        function = click.option("--port", default=port, show_default=True, help="Port.")(function)
        return click.option("--host", default="127.0.0.1", show_default=True, help="Address.")(function)

    return decorate


@click.group()
def service() -> None:
    """Run one process of Dagster in the foreground; ask whether it is well."""


@service.command()
@_address(_CODE_PORT)
def code(host: str, port: int) -> None:
    """Serve the code location over gRPC. Runs are processes of this one."""
    location = ("-m", "memory_pipeline.definitions", "--location-name", LOCATION)
    _become("-m", "dagster", "code-server", "start", *location, "--host", host, "--port", str(port))


@service.command()
@_address(_WEB_PORT)
def webserver(host: str, port: int) -> None:
    """Serve the UI over the code location at MEMORY_CODE_HOST and MEMORY_CODE_PORT."""
    _become("-m", "dagster_webserver", "-w", _workspace(), "--host", host, "--port", str(port))


@service.command()
def daemon() -> None:
    """Run sensors, schedules, backfills and the queue, over the same code location."""
    _become("-m", "dagster._daemon", "run", "-w", _workspace())


@service.group()
def check() -> None:
    """Ask whether a service is well: exit code 0, or another one."""


@check.command("code")
@_address(_CODE_PORT)
def check_code(host: str, port: int) -> None:
    """Whether the code location serves."""
    address = ("--host", host, "--port", str(port))
    _ask(f"the code location at {host}:{port}", "dagster", "api", "grpc-health-check", *address)


@check.command("webserver")
@_address(_WEB_PORT)
def check_webserver(host: str, port: int) -> None:
    """Whether the UI answers."""
    import httpx

    address = f"http://{host}:{port}/server_info"
    try:
        httpx.get(address, timeout=_ANSWER_SECONDS, trust_env=False).raise_for_status()
    except httpx.HTTPError as error:
        raise ControlRoomUnavailable(
            f"{address} does not answer as the UI does: {error or type(error).__name__}",
            hint="look at what the webserver wrote, and start it again",
        ) from error


@check.command("daemon")
def check_daemon() -> None:
    """Whether every part of the daemon has given a sign of life lately."""
    _ask("the daemon", "dagster._daemon", "liveness-check")


def _workspace() -> str:
    """The file that says where the code location is."""
    missing = [name for name in ("MEMORY_CODE_HOST", "MEMORY_CODE_PORT") if not os.environ.get(name)]
    if missing:
        unset = " and ".join(missing) + (" is" if len(missing) == 1 else " are")
        raise ConfigurationError(
            f"the address of the code location is not known: {unset} not set",
            hint="set them to where memory-pipeline service code listens",
        )
    return str(deployed("workspace.compose.yaml").resolve())


def _ask(what: str, *module: str) -> None:
    """Run a check of Dagster's own as a child: it ends with 1, and tells the trouble in many lines.

    Raises:
        ControlRoomUnavailable: it did not say that all is well, or said nothing in time.
    """
    environment = dagster_environment(Settings())
    command = (sys.executable, "-m", *module)
    try:
        done = subprocess.run(
            command, env=environment, cwd=environment["DAGSTER_HOME"], capture_output=True, text=True,
            errors="replace", timeout=_CHECK_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        why = f"no answer within {_CHECK_SECONDS:.0f} s"
    else:
        if done.returncode == 0:
            return
        why = _last_line(done.stdout) or _last_line(done.stderr) or f"the check ended with {done.returncode}"
    raise ControlRoomUnavailable(f"{what} is not well: {why}", hint="look at what it wrote, and start it again")


def _last_line(written: str) -> str:
    """Where Dagster, and a traceback, name the trouble."""
    lines = [line.strip() for line in written.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def _become(*arguments: str) -> NoReturn:
    """Turn this process into Dagster's, so that a signal reaches it and its exit code is seen."""
    environment = dagster_environment(Settings())
    command = (sys.executable, *arguments)
    os.chdir(environment["DAGSTER_HOME"])  # elsewhere Dagster may take another dagster.yaml for its own
    sys.stdout.flush()
    os.execve(sys.executable, command, environment)  # noqa: S606 - no shell is wanted
