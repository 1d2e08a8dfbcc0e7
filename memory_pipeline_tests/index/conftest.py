"""A Qdrant server for these tests: the one that `MEMORY_QDRANT_URL` names, else the embedded one as it ships."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from qdrant_client import QdrantClient

from memory_pipeline.index.vector_index import VectorIndex
from memory_pipeline.settings import Settings
from memory_pipeline_tests.index.samples import DIMENSIONS, ScriptedServer, serve


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str | None]]:
    """Address and key."""
    if url := os.environ.get("MEMORY_QDRANT_URL"):
        key = Settings().optional_secret("qdrant_api_key")
        yield url, key.get_secret_value() if key else None
        return
    folder = tmp_path_factory.mktemp("qdrant")
    ready, key_file = folder / "ready.json", folder / "key"
    key_file.write_text("open sesame", encoding="utf-8")
    command = [sys.executable, "-m", "memory_pipeline.embedded.qdrant", "--host", "127.0.0.1", "--port", "0"]
    command += ["--storage", str(folder / "storage"), "--ready-file", str(ready), "--api-key-file", str(key_file)]
    process = subprocess.Popen(command)
    try:
        yield f"http://127.0.0.1:{_port(process, ready)}", "open sesame"
    finally:
        process.terminate()
        process.wait(timeout=30)


@pytest.fixture(scope="session")
def index(server: tuple[str, str | None]) -> Iterator[VectorIndex]:
    url, key = server
    with VectorIndex(url, api_key=key, timeout=30) as made:
        yield made


@pytest.fixture
def raw(server: tuple[str, str | None]) -> Iterator[QdrantClient]:
    """The client itself, for what goes on behind the index's back."""
    url, key = server
    client = QdrantClient(url=url, headers={"api-key": key} if key else None, check_compatibility=False, timeout=30)
    yield client
    client.close()


@pytest.fixture
def name(index: VectorIndex) -> Iterator[str]:
    """A name that no collection has; whatever gets it is dropped after the test."""
    with _free_name(index) as free:
        yield free


@pytest.fixture(scope="module")
def shared(index: VectorIndex) -> Iterator[str]:
    """An empty collection for a module's tests that only search what one fixture has put there."""
    with _free_name(index) as free:
        index.create(free, dimensions=DIMENSIONS)
        yield free


@pytest.fixture(scope="module")
def _emptied(index: VectorIndex) -> Iterator[str]:
    with _free_name(index) as free:
        index.create(free, dimensions=DIMENSIONS)
        yield free


@pytest.fixture
def collection(index: VectorIndex, _emptied: str) -> Iterator[str]:
    """An empty collection, emptied again after the test: making one takes many times as long."""
    yield _emptied
    index.delete(_emptied, [state.point_id for page in index.scroll(_emptied, 100) for state in page])
    assert index.count(_emptied) == 0


@pytest.fixture
def scripted() -> Iterator[ScriptedServer]:
    with serve() as made:
        yield made


@contextmanager
def _free_name(index: VectorIndex) -> Iterator[str]:
    free = f"test__{uuid.uuid4().hex}"
    yield free
    index.drop(free)


def _port(process: subprocess.Popen[bytes], ready: Path) -> int:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the embedded Qdrant server ended with {process.returncode}"
        if ready.exists():
            return int(json.loads(ready.read_text(encoding="utf-8"))["port"])
        time.sleep(0.05)
    raise AssertionError("the embedded Qdrant server was not ready within 60 s")
