"""`memory-pipeline dev`: the UI answers, and what stops the command stops everything that it started."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from memory_pipeline.embedded.stack import EmbeddedStack
from memory_pipeline.harness.control_room import dagster_instance
from memory_pipeline.settings import Settings
from memory_pipeline_tests.conftest import Cli
from memory_pipeline_tests.flows import closed_port

NODES = "{ assetNodes { assetKey { path } isPartitioned } }"

pytestmark = pytest.mark.embedded


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "state"
    EmbeddedStack(tmp_path / "state").down(purge=True, say=lambda _: None)


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)], ids=lambda number: number.name
)
def test_the_ui_answers_and_a_signal_stops_everything(state: Path, number: signal.Signals) -> None:
    port = closed_port()
    with (state.parent / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "memory_pipeline", "dev", "--port", str(port)],
            env={**os.environ, "MEMORY_STATE": str(state)},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        assert "memory_collection" in _asset_names(port, process)
        family = psutil.Process(process.pid).children(recursive=True)
        assert family
        process.send_signal(number)
        process.wait(timeout=60)
        gone, alive = psutil.wait_procs(family, timeout=30)
        assert not alive
        assert len(gone) == len(family)
        assert not [server for server in EmbeddedStack(state).status().servers if server.state == "running"]
    finally:
        if process.poll() is None:
            process.kill()


def _asset_names(port: int, process: subprocess.Popen[bytes]) -> set[str]:
    """Names of the assets that the UI knows, once it does."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        try:
            answer = httpx.post(f"http://127.0.0.1:{port}/graphql", json={"query": NODES}, timeout=10).json()
        except (httpx.HTTPError, ValueError):
            time.sleep(0.2)
            continue
        if nodes := answer.get("data", {}).get("assetNodes"):
            return {node["assetKey"]["path"][-1] for node in nodes}
        time.sleep(0.2)
    raise AssertionError(f"the UI did not answer; the command ended with {process.poll()}")


def test_a_port_that_is_taken_is_refused_before_anything_starts(state: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        told = _dev(state, port)

    assert told.returncode == 20
    assert f"port {port} is taken" in told.stderr
    assert not (state / "stack.json").exists()


def test_a_second_one_on_the_same_state_is_refused(state: Path) -> None:
    state.mkdir()
    with (state / "dev.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        told = _dev(state, closed_port())

    assert told.returncode == 20
    assert "runs already" in told.stderr


@pytest.mark.parametrize(
    ("service", "address", "told"),
    [
        ("code", True, "the code location at 127.0.0.1:{port} is not well: Unable to connect"),
        ("webserver", True, "http://127.0.0.1:{port}/server_info does not answer"),
        ("daemon", False, "the daemon is not well: Daemon(s) not running"),
    ],
)
def test_a_service_that_is_not_well_is_one_named_error(
    cli: Cli, settings: Settings, service: str, address: bool, told: str
) -> None:
    with dagster_instance(settings) as instance:
        instance.wipe_daemon_heartbeats()  # of a daemon that another test has stopped
    port = closed_port()

    checked = cli("service", "check", service, *(("--port", str(port)) if address else ()))

    assert checked.returncode == 60
    assert f"ControlRoomUnavailable: {told.format(port=port)}" in checked.stderr
    assert "StatusCode" not in checked.stderr


def _dev(state: Path, port: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "memory_pipeline", "dev", "--port", str(port)],
        env={**os.environ, "MEMORY_STATE": str(state)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
