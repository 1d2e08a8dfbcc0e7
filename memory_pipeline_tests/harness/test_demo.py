"""The demo as a newcomer runs it: it shows what it should, in bounded time, and heals after a server was killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from memory_pipeline.embedded.stack import EmbeddedStack
from memory_pipeline.harness.commands.demo import _serve
from memory_pipeline.harness.control_room import deployed

LONGEST_SECONDS = 180
"""A demo that takes longer is broken for a newcomer."""

pytestmark = pytest.mark.embedded


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "state"
    EmbeddedStack(tmp_path / "state" / "demo").down(purge=True, say=lambda _: None)


def _start(state: Path) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MEMORY_")}
    return subprocess.Popen(
        [sys.executable, "-u", "-m", "memory_pipeline", "demo"],
        env={**environment, "MEMORY_STATE": str(state)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    told, _ = process.communicate(timeout=LONGEST_SECONDS)
    return process.returncode, told


@pytest.mark.slow  # the demo after a killed one, below, shows the same
def test_the_demo_shows_the_whole_path(state: Path) -> None:
    _require_whole_path(*_finish(_start(state)), state)


def _require_whole_path(code: int, told: str, state: Path) -> None:
    assert code == 0, told
    took = re.search(r"The demo did what it should in (\d+) s", told)
    assert took is not None
    assert int(took.group(1)) < LONGEST_SECONDS
    for shown in ("created mem-0001", "declined", "the name of a table is no concept", "line 13: not JSON"):
        assert shown in told
    assert told.count("as expected among") == 12
    assert "memory-pipeline dev" in told
    assert not [server for server in EmbeddedStack(state / "demo").status().servers if server.state == "running"]


@pytest.mark.parametrize(
    ("server", "step", "codes"),
    [
        ("qdrant", "4. Materialise", {31}),
        pytest.param("ollama", "4. Materialise", {32}, marks=pytest.mark.slow),
        pytest.param("postgres", "3. Preview", {30}, marks=pytest.mark.slow),
    ],
)
def test_a_server_killed_in_the_middle_is_a_clear_error_and_the_next_demo_succeeds(
    state: Path, server: str, step: str, codes: set[int]
) -> None:
    process = _start(state)
    assert process.stdout is not None
    for line in process.stdout:
        if step in line:
            break
    pid = json.loads((state / "demo" / "stack.json").read_text())["servers"][server]["pid"]
    os.kill(pid, signal.SIGKILL)
    code, told = _finish(process)

    assert code in codes, told
    assert "Traceback" not in told
    assert re.search(r"^\w+: .+\n  .+$", told, re.MULTILINE), "an error's name, what happened, what to do"

    _require_whole_path(*_finish(_start(state)), state)


def test_the_target_of_the_makefile_is_named_only_where_it_serves_this_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = deployed("Makefile").parent
    usual = checkout / ".memory_pipeline" / "demo"

    monkeypatch.chdir(checkout)
    assert _serve(usual) == "make dev-demo   (MEMORY_STATE=.memory_pipeline/demo memory-pipeline dev)"
    assert _serve(tmp_path / "demo") == f"MEMORY_STATE={tmp_path}/demo memory-pipeline dev"
    monkeypatch.chdir(tmp_path)
    assert _serve(usual) == f"MEMORY_STATE={usual} memory-pipeline dev"


@pytest.mark.parametrize("variable", ["MEMORY_POSTGRES_HOST", "MEMORY_QDRANT_URL"])
def test_the_demo_never_empties_a_server_of_somebody_else(state: Path, variable: str) -> None:
    told = subprocess.run(
        [sys.executable, "-m", "memory_pipeline", "demo"],
        env={**os.environ, "MEMORY_STATE": str(state), variable: "http://127.0.0.1:1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert told.returncode == 20
    assert variable in told.stderr
