"""The server as a process: its ready file, lock, key, signals, and its behaviour under many clients and collections."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import UnexpectedResponse

from memory_pipeline_tests.embedded.qdrant.conftest import hybrid_config
from memory_pipeline_tests.embedded.qdrant.server import EmbeddedQdrant, environment
from memory_pipeline_tests.privileges import bind_child

pytestmark = pytest.mark.embedded

Start = Callable[..., EmbeddedQdrant]

KEY = "k-3kHq9"
VECTOR = [1.0, 0.0, 0.0, 0.0]


def fill(client: QdrantClient, name: str, count: int = 3) -> None:
    client.create_collection(name, **hybrid_config())
    client.upsert(name, points(range(1, count + 1)), wait=True)


def points(numbers: range) -> list[models.PointStruct]:
    return [models.PointStruct(id=n, vector={"dense": VECTOR}, payload={"n": n}) for n in numbers]


def refused_start(command: list[str]) -> str:
    """The one line that a server writes which does not start."""
    ended = subprocess.run(  # bound, for root may write everywhere
        command, env=environment(), capture_output=True, text=True, timeout=60, check=False, preexec_fn=bind_child
    )
    assert ended.returncode == 2, ended.stderr
    assert ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    return line


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_and_nothing_is_lost(start: Start, number: signal.Signals) -> None:
    server = start()
    assert json.loads(server.ready_file.read_text()) == {"pid": server.pid, "port": server.port}
    client = server.client()
    fill(client, "kept")
    assert server.stop(number) == 0
    assert not server.ready_file.exists()
    server.start()
    assert server.client().count("kept").count == 3
    assert "Traceback" not in server.log()


def test_it_ends_although_clients_keep_their_connections(start: Start) -> None:
    server = start()
    with server.http() as http:
        assert http.get("/collections").status_code == 200
        assert server.stop() == 0


def test_a_ready_file_of_before_is_not_believed(start: Start) -> None:
    server = start()
    server.kill()
    assert server.ready_file.exists()
    server.start()
    assert json.loads(server.ready_file.read_text())["pid"] == server.pid


def test_a_second_server_on_the_storage_does_not_start_and_harms_nothing(start: Start) -> None:
    server = start()
    line = refused_start(server.command())
    assert f"the storage folder {server.storage} is in use by another server" in line
    assert server.ready_file.exists()
    fill(server.client(), "still")
    assert server.client().count("still").count == 3


def test_what_cannot_start_says_why_in_one_line(start: Start, tmp_path: Path) -> None:
    server = start()
    base = [*server.command()[:3], "--storage", str(tmp_path / "other"), "--ready-file", str(tmp_path / "other.json")]
    assert f"cannot listen on 127.0.0.1:{server.port}" in refused_start([*base, "--port", str(server.port)])
    no_key = [*base, "--port", "0", "--api-key-file", str(tmp_path / "absent")]
    assert "key file" in refused_start(no_key)
    (tmp_path / "empty").write_text("\n")
    assert "is empty" in refused_start([*no_key[:-1], str(tmp_path / "empty")])
    (tmp_path / "file").write_text("")
    in_the_way = [*base, "--port", "0", "--storage", str(tmp_path / "file" / "storage")]
    assert "cannot be used" in refused_start(in_the_way)
    no_folder = [*base, "--port", "0", "--ready-file", str(tmp_path / "absent" / "ready.json")]
    assert "does not exist" in refused_start(no_folder)


def test_a_registry_that_cannot_be_read_is_not_taken_for_an_empty_one(start: Start) -> None:
    server = start()
    fill(server.client(), "kept")
    server.stop()
    registry = server.storage / "registry.json"
    good = registry.read_bytes()
    registry.write_bytes(good[: len(good) // 2])
    assert "registry.json cannot be read" in refused_start(server.command())
    registry.write_bytes(good)
    server.start()
    assert server.client().count("kept").count == 3


def test_a_key_is_asked_of_everyone(start: Start) -> None:
    server = start(api_key=KEY)
    assert server.client().get_collections().collections == []
    with server.http() as http:
        assert http.get("/collections", headers={"api-key": KEY}).status_code == 200
    with EmbeddedQdrant.http(_without_key(server)) as http:
        for headers in ({}, {"api-key": ""}, {"api-key": KEY[:-1]}, {"api-key": f"{KEY}x"}, {"authorization": KEY}):
            for method, path in (("GET", "/collections"), ("PUT", "/collections/x"), ("GET", "/nowhere")):
                assert http.request(method, path, headers=headers).status_code == 401
        bearer = {"authorization": f"Bearer {KEY}"}
        assert http.get("/collections", headers=bearer).status_code == 200
        for path in ("/", "/healthz", "/readyz", "/livez"):
            assert http.get(path).status_code == 200
    with pytest.raises(UnexpectedResponse) as refused:
        QdrantClient(url=server.url, check_compatibility=False).get_collections()
    assert refused.value.status_code == 401
    assert KEY not in server.log()


def _without_key(server: EmbeddedQdrant) -> EmbeddedQdrant:
    """The same server, as it looks to someone without the key."""
    other = EmbeddedQdrant(server.storage.parent)
    other.port = server.port
    return other


def test_folders_that_no_collection_names_are_swept_at_the_start(start: Start) -> None:
    server = start()
    fill(server.client(), "kept")
    server.stop()
    orphan = server.storage / "collections" / "11111111-2222-3333-4444-555555555555"
    (orphan / "segments").mkdir(parents=True)
    server.start()
    assert not orphan.exists()
    assert server.client().count("kept").count == 3


def test_deleting_a_collection_frees_its_folder(start: Start) -> None:
    server = start()
    client = server.client()
    fill(client, "gone")
    fill(client, "kept")
    client.delete_collection("gone")
    assert len(list((server.storage / "collections").iterdir())) == 1


def test_missing_data_is_an_error_and_not_an_empty_collection(start: Start) -> None:
    server = start()
    fill(server.client(), "lost")
    fill(server.client(), "kept")
    server.stop()
    registry = json.loads((server.storage / "registry.json").read_text())
    folder = server.storage / "collections" / registry["collections"]["lost"]["folder"]
    folder.rename(server.storage / "elsewhere")
    server.start()
    client = server.client()
    with pytest.raises(UnexpectedResponse) as failed:
        client.count("lost")
    assert failed.value.status_code == 500
    assert "delete it and index it again" in failed.value.structured()["status"]["error"]
    assert client.count("kept").count == 3
    assert client.delete_collection("lost")
    fill(client, "lost")
    assert client.count("lost").count == 3


def test_damaged_data_is_an_error_of_that_collection_only(start: Start) -> None:
    server = start()
    fill(server.client(), "damaged")
    fill(server.client(), "kept")
    server.stop()
    registry = json.loads((server.storage / "registry.json").read_text())
    folder = server.storage / "collections" / registry["collections"]["damaged"]["folder"]
    for file in folder.rglob("segment.json"):
        file.write_bytes(b"not json")
    server.start()
    client = server.client()
    for _ in range(2):
        with pytest.raises(UnexpectedResponse) as failed:
            client.count("damaged")
        assert failed.value.status_code == 500
    assert client.count("kept").count == 3


def test_indexes_survive_a_restart(start: Start) -> None:
    server = start()
    client = server.client()
    fill(client, "kept")
    client.create_payload_index("kept", "n", models.PayloadSchemaType.INTEGER, wait=True)
    client.create_payload_index("kept", "kind", models.PayloadSchemaType.KEYWORD, wait=True)
    client.delete_payload_index("kept", "kind", wait=True)
    server.restart()
    client = server.client()
    schema = client.get_collection("kept").payload_schema
    assert {name: (index.data_type, index.points) for name, index in schema.items()} == {
        "n": (models.PayloadSchemaType.INTEGER, 3)
    }
    records, _ = client.scroll("kept", order_by=models.OrderBy(key="n", direction=models.Direction.DESC))
    assert [record.id for record in records] == [3, 2, 1]


@pytest.mark.parametrize("count", [50, pytest.param(200, marks=pytest.mark.slow)])
def test_many_collections_cost_little(start: Start, count: int) -> None:
    """More than stay open, all in use, in bounded memory and with a bounded number of open files."""
    server = start()
    client = server.client()
    names = [f"c-{n}" for n in range(count)]
    for name in names:
        fill(client, name)
    server.restart()
    client = server.client()
    for name in names:
        assert client.count(name).count == 3
    process = psutil.Process(server.pid)
    assert process.memory_info().rss < 1_000_000_000
    assert process.num_fds() < 900
    for name in reversed(names):
        client.upsert(name, points(range(4, 5)), wait=True)
    for name in names:
        assert client.count(name).count == 4
    assert len(client.get_collections().collections) == count


def test_eight_readers_and_a_writer(start: Start) -> None:
    """No reader ever sees an error, a half-written point, or fewer points than were acknowledged before it asked."""
    server = start()
    fill(server.client(), "busy", count=100)
    stop = threading.Event()
    failures: list[BaseException] = []
    written = [100]

    def read() -> None:
        client = server.client()
        while not stop.is_set():
            before = written[0]
            assert client.count("busy").count >= before
            query = models.Filter(must=[models.FieldCondition(key="n", range=models.Range(gte=0))])
            hits = client.query_points("busy", query=VECTOR, using="dense", query_filter=query, with_payload=True)
            assert len(hits.points) == 10
            assert all(hit.payload == {"n": hit.id} for hit in hits.points)

    def guarded() -> None:
        try:
            read()
        except BaseException as failure:
            failures.append(failure)
            raise

    threads = [threading.Thread(target=guarded) for _ in range(8)]
    for thread in threads:
        thread.start()
    writer = server.client()
    for _ in range(20):
        first = written[0] + 1
        writer.upsert("busy", points(range(first, first + 50)), wait=True)
        written[0] += 50
    stop.set()
    for thread in threads:
        thread.join(60)
    assert not failures
    assert server.client().count("busy").count == 1100


def test_a_slow_request_does_not_break_the_connections_that_wait(start: Start) -> None:
    """Requests are served one after another; one that takes long makes the others late, not lost."""
    server = start()
    client = server.client()
    client.create_collection("slow", vectors_config=models.VectorParams(size=256, distance=models.Distance.DOT))
    waiting = [server.http() for _ in range(4)]
    for http in waiting:
        assert http.get("/collections").status_code == 200
    batch = [models.PointStruct(id=n, vector=[float(n % 7)] * 256, payload={"n": n}) for n in range(1, 4001)]
    done: list[Any] = []
    slow = threading.Thread(target=lambda: done.append(client.upsert("slow", batch, wait=True)))
    slow.start()
    while slow.is_alive():
        for http in waiting:
            assert http.get("/collections").status_code == 200
    slow.join()
    for http in waiting:
        assert http.post("/collections/slow/points/count", json={}).json()["result"]["count"] == 4000
        http.close()
    assert done[0].status == models.UpdateStatus.COMPLETED


def test_what_was_acknowledged_is_on_the_disk_soon(start: Start) -> None:
    """The engine never flushes by itself, so the server does: the file of versions is what a flush writes last."""
    server = start()
    fill(server.client(), "kept")
    deadline = time.monotonic() + 30
    while not list((server.storage / "collections").rglob("mutable_id_tracker.versions")):
        assert time.monotonic() < deadline, "nothing was flushed"
        time.sleep(0.05)


def test_a_folder_that_may_not_be_written_is_refused(start: Start, tmp_path: Path) -> None:
    server = start()
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    command = [*server.command(), "--storage", str(closed / "storage")]
    assert "cannot be used" in refused_start(command)
