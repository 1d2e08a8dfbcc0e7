"""Servers for the tests of this folder.

`target` is any Qdrant: the one that `MEMORY_QDRANT_URL` names, else an embedded one. Tests that use it keep to
collections of their own and remove them. `embedded` is always the embedded one.
"""

from __future__ import annotations

import os
import uuid
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from qdrant_client import QdrantClient, models

from memory_pipeline_tests.embedded.qdrant.server import EmbeddedQdrant


@dataclass(frozen=True)
class Target:
    """A Qdrant server under test, by its client and by plain HTTP."""

    url: str
    api_key: str | None
    client: QdrantClient
    http: httpx.Client
    names: list[str] = field(default_factory=list)

    def name(self) -> str:
        """A name for a collection or alias that no one else has; a collection of that name is removed at the end."""
        self.names.append(f"conformance-{uuid.uuid4().hex}")
        return self.names[-1]

    def collection(self, **config: Any) -> str:
        """A new collection; by default with `dense` (4, cosine) and `bm25` (sparse, IDF)."""
        name = self.name()
        self.client.create_collection(name, **(config or hybrid_config()))
        return name

    def post(self, path: str, body: Any, method: str = "POST") -> httpx.Response:
        """One request with a JSON body."""
        return self.http.request(method, path, json=body)


def hybrid_config() -> dict[str, Any]:
    """The kind of collection that the pipeline makes."""
    return {
        "vectors_config": {"dense": models.VectorParams(size=4, distance=models.Distance.COSINE)},
        "sparse_vectors_config": {"bm25": models.SparseVectorParams(modifier=models.Modifier.IDF)},
    }


def status_error(response: httpx.Response) -> str:
    """The message in an error answer, whose shape is checked on the way."""
    answer = response.json()
    assert isinstance(answer["time"], float)
    assert "result" not in answer or answer["result"] is None
    message = answer["status"]["error"]
    assert isinstance(message, str)
    return message


@pytest.fixture(scope="session")
def embedded_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedQdrant]:
    with EmbeddedQdrant(tmp_path_factory.mktemp("qdrant")) as server:
        yield server


@pytest.fixture(scope="session")
def _target_session(request: pytest.FixtureRequest) -> Iterator[Target]:
    url = os.environ.get("MEMORY_QDRANT_URL")
    key_file = Path(os.environ.get("MEMORY_SECRETS_DIR", "")) / "qdrant_api_key"
    key = key_file.read_text(encoding="utf-8").strip() if url and key_file.is_file() else None
    if url is None:
        url = request.getfixturevalue("embedded_session").url
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a key goes over plain HTTP
        client = QdrantClient(url=url, api_key=key, timeout=60)
    with httpx.Client(base_url=url, headers={"api-key": key} if key else {}, timeout=60) as http:
        yield Target(url, key, client, http)


@pytest.fixture
def target(_target_session: Target) -> Iterator[Target]:
    """The server under test. What a test made there is gone after it."""
    yield _target_session
    while _target_session.names:
        _target_session.client.delete_collection(_target_session.names.pop())


@pytest.fixture
def embedded(embedded_session: EmbeddedQdrant) -> Iterator[Target]:
    """The embedded server, shared by the tests that do not end it."""
    with embedded_session.http() as http:
        target = Target(embedded_session.url, None, embedded_session.client(), http)
        yield target
        for name in target.names:
            target.client.delete_collection(name)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., EmbeddedQdrant]]:
    """Starts servers of a test's own, in folders of their own, and ends them after it."""
    servers: list[EmbeddedQdrant] = []

    def start_one(**options: Any) -> EmbeddedQdrant:
        folder = tmp_path / f"server-{len(servers)}"
        folder.mkdir()
        server = EmbeddedQdrant(folder, **options)
        servers.append(server)
        server.start()
        return server

    yield start_one
    for server in servers:
        server.kill()
