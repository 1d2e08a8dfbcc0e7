"""Killed in the middle of writing: everything that was acknowledged is there afterwards, nothing is half there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import ResponseHandlingException

from memory_pipeline_tests.embedded.qdrant.conftest import hybrid_config
from memory_pipeline_tests.embedded.qdrant.server import EmbeddedQdrant

pytestmark = pytest.mark.embedded

Start = Callable[..., EmbeddedQdrant]

ROUNDS = 5
BATCH = 20


class Writer(threading.Thread):
    """Does one step after another until the server goes away; `done` counts the steps that were acknowledged."""

    def __init__(self, step: Callable[[int], Any], first: int) -> None:
        super().__init__()
        self._step = step
        self.done = first
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            while True:
                self._step(self.done)
                self.done += 1
        except ResponseHandlingException:
            return  # the connection broke: the server is gone
        except Exception as failure:
            self.failure = failure
            raise


def kill_while_it_writes(server: EmbeddedQdrant, writer: Writer, steps: int) -> int:
    """Kill the server once so many more steps were acknowledged; how many were in the end."""
    first = writer.done
    writer.start()
    deadline = time.monotonic() + 60
    while writer.done < first + steps:
        assert time.monotonic() < deadline
        assert writer.is_alive(), writer.failure
    server.kill()
    writer.join(60)
    assert not writer.is_alive()
    assert writer.failure is None
    return writer.done


def batch(step: int) -> list[models.PointStruct]:
    return [
        models.PointStruct(
            id=step * BATCH + n + 1,
            vector={"dense": [1.0, float(n), 0.0, 0.0], "bm25": models.SparseVector(indices=[n], values=[1.0])},
            payload={"step": step, "n": n},
        )
        for n in range(BATCH)
    ]


def test_acknowledged_writes_survive_and_none_is_half_there(start: Start) -> None:
    server = start()
    server.client().create_collection("log", **hybrid_config())
    done = 0
    for round_ in range(ROUNDS):
        client = server.client()

        def write(step: int, client: QdrantClient = client) -> None:
            client.upsert("log", batch(step), wait=True)

        done = kill_while_it_writes(server, Writer(write, done), steps=5 + 7 * round_)
        server.start()
        client = server.client()
        records, _ = client.scroll("log", limit=100_000, with_vectors=True)
        by_step: dict[int, set[int]] = {}
        for record in records:
            assert record.payload is not None
            assert isinstance(record.vector, dict)
            assert set(record.vector) == {"dense", "bm25"}
            by_step.setdefault(record.payload["step"], set()).add(record.payload["n"])
        assert set(by_step) >= set(range(done))
        assert all(numbers == set(range(BATCH)) for numbers in by_step.values())
        assert set(by_step) <= set(range(done + 1))  # the one that was on its way may have arrived
        hits = client.query_points(
            "log", query=models.SparseVector(indices=[3], values=[1.0]), using="bm25", limit=100_000
        )
        assert len(hits.points) == len(by_step)


def test_acknowledged_deletes_and_payloads_survive(start: Start) -> None:
    server = start()
    client = server.client()
    client.create_collection("log", **hybrid_config())
    for step in range(20):
        client.upsert("log", batch(step), wait=True)
    done = 0
    for _ in range(3):
        client = server.client()

        def change(step: int, client: QdrantClient = client) -> None:
            client.set_payload("log", {"changed": step}, points=[step + 1], wait=True)
            client.delete("log", [400 - step], wait=True)

        done = kill_while_it_writes(server, Writer(change, done), steps=12)
        server.start()
        records = {record.id: record.payload or {} for record in server.client().scroll("log", limit=1000)[0]}
        for step in range(done):
            assert records[step + 1]["changed"] == step
            assert 400 - step not in records
        assert 400 - done - 1 in records


def test_acknowledged_alias_switches_survive(start: Start) -> None:
    """Two aliases are switched in one call: they never stand for different collections."""
    server = start()
    client = server.client()
    for name in ("a", "b"):
        client.create_collection(name, **hybrid_config())
    done = 0
    for _ in range(ROUNDS):
        client = server.client()

        def switch(step: int, client: QdrantClient = client) -> None:
            actions = [
                models.CreateAliasOperation(
                    create_alias=models.CreateAlias(alias_name=alias, collection_name="ab"[step % 2])
                )
                for alias in ("one", "two")
            ]
            client.update_collection_aliases(actions)

        done = kill_while_it_writes(server, Writer(switch, done), steps=10)
        server.start()
        aliases = {a.alias_name: a.collection_name for a in server.client().get_aliases().aliases}
        assert aliases["one"] == aliases["two"]
        assert aliases["one"] in ("ab"[(done - 1) % 2], "ab"[done % 2])
        assert server.client().count("one").count == 0


def test_collections_made_and_deleted_are_there_and_gone(start: Start) -> None:
    server = start()
    done = 0
    for _ in range(3):
        client = server.client()

        def make(step: int, client: QdrantClient = client) -> None:
            client.create_collection(f"c-{step}", **hybrid_config())
            client.create_payload_index(f"c-{step}", "kind", models.PayloadSchemaType.KEYWORD, wait=True)
            if step > 0:
                client.delete_collection(f"c-{step - 1}")

        done = kill_while_it_writes(server, Writer(make, done), steps=4)
        server.start()
        client = server.client()
        names = {one.name for one in client.get_collections().collections}
        assert f"c-{done - 1}" in names
        assert not names & {f"c-{step}" for step in range(done - 1)}
        assert list(client.get_collection(f"c-{done - 1}").payload_schema) == ["kind"]
        assert client.count(f"c-{done - 1}").count == 0
        folders = list((server.storage / "collections").iterdir())
        assert len(folders) == len(names)
        if f"c-{done}" in names:  # it was on its way; the next round makes it anew
            client.delete_collection(f"c-{done}")
