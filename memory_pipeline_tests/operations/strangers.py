"""Collections that are not ours on the same server, and what shows that nobody touched them."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from qdrant_client import QdrantClient, models

from memory_pipeline.operations.services import Services


@contextmanager
def raw_client(services: Services) -> Iterator[QdrantClient]:
    """The client itself, for what others do on the server."""
    key = services.settings.optional_secret("qdrant_api_key")
    client = QdrantClient(
        url=services.settings.qdrant_url,
        headers={"api-key": key.get_secret_value()} if key else None,
        check_compatibility=False,
        timeout=30,
    )
    try:
        yield client
    finally:
        client.close()


@contextmanager
def planted(client: QdrantClient, workspace: str) -> Iterator[list[str]]:
    """A reference, another product's collection under whose name our alias stands, and two that look like ours."""
    unnamed = models.VectorParams(size=3, distance=models.Distance.DOT)
    named = {"dense": models.VectorParams(size=512, distance=models.Distance.COSINE)}
    sparse = {"bm25": models.SparseVectorParams(modifier=models.Modifier.IDF)}
    names = [f"reference-{uuid.uuid4().hex}", f"product-{uuid.uuid4().hex}"]
    names += [f"memory__{workspace}__2", f"memory__{workspace}__4"]
    try:
        for name in names[:2]:
            client.create_collection(name, vectors_config=unnamed, metadata={"owner": "somebody"})
            points = [models.PointStruct(id=n, vector=[n, 1, 0], payload={"ref": f"mem-000{n}"}) for n in (1, 2)]
            client.upsert(name, points, wait=True)
        for name in names[2:]:
            client.create_collection(name, vectors_config=named, sparse_vectors_config=sparse)
            point = models.PointStruct(id=str(uuid.uuid4()), vector={"dense": [1.0] * 512}, payload={"ref": "mem-0001"})
            client.upsert(name, [point], wait=True)
        alias = models.CreateAlias(collection_name=names[1], alias_name=f"memory__{workspace}")
        client.update_collection_aliases([models.CreateAliasOperation(create_alias=alias)])
        yield names
    finally:
        for name in names:
            with suppress(Exception):
                client.delete_collection(name)


def digests(client: QdrantClient, names: list[str]) -> dict[str, str]:
    """A hash over the configuration and every point of each collection, vectors and payload."""
    return {name: _digest(client, name) for name in names}


def _digest(client: QdrantClient, name: str) -> str:
    info = client.get_collection(name)
    points, rest = client.scroll(name, limit=1000, with_payload=True, with_vectors=True)
    assert rest is None
    told = [info.config.model_dump(mode="json"), {key: str(value) for key, value in info.payload_schema.items()}]
    told += [point.model_dump(mode="json") for point in points]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
