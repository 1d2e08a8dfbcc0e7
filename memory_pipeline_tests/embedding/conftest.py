"""The Ollama servers of these tests: a scripted one for faults, and a real one.

The real one is the one that `MEMORY_OLLAMA_URL` names, else the embedded one as it ships.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from memory_pipeline_tests.embedding.scripted_ollama import ScriptedOllama, serve


@pytest.fixture
def scripted() -> Iterator[ScriptedOllama]:
    with serve() as server:
        yield server


@pytest.fixture(scope="session")
def ollama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real server."""
    if url := os.environ.get("MEMORY_OLLAMA_URL"):
        yield url
        return
    ready = tmp_path_factory.mktemp("ollama") / "ready.json"
    command = [sys.executable, "-m", "memory_pipeline.embedded.ollama", "--host", "127.0.0.1", "--port", "0"]
    process = subprocess.Popen([*command, "--ready-file", str(ready)])
    try:
        yield f"http://127.0.0.1:{_port(process, ready)}"
    finally:
        process.terminate()
        process.wait(timeout=30)


def _port(process: subprocess.Popen[bytes], ready: Path) -> int:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the embedded Ollama server ended with {process.returncode}"
        if ready.exists():
            return int(json.loads(ready.read_text(encoding="utf-8"))["port"])
        time.sleep(0.05)
    raise AssertionError("the embedded Ollama server was not ready within 60 s")
