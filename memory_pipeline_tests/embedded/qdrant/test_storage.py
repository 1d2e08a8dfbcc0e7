"""The storage with the real engine, within this process: panics, faults, bounds, and crashes between two writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import qdrant_edge as edge

from memory_pipeline.embedded.qdrant.errors import AlreadyExists, EngineFailed, NotFound, WrongInput
from memory_pipeline.embedded.qdrant.registry import Registry, RegistryUnreadable, State
from memory_pipeline.embedded.qdrant.schema import Collection, SparseVector, read_collection
from memory_pipeline.embedded.qdrant.storage import Storage

pytestmark = pytest.mark.embedded

CONFIG: Any = {
    "vectors": {"dense": {"size": 2, "distance": "Cosine"}},
    "sparse_vectors": {"bm25": {"modifier": "idf"}},
}


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Storage]:
    opened = Storage(tmp_path)
    yield opened
    opened.close()


def collection() -> Collection:
    return read_collection(CONFIG)


def upsert(*numbers: int) -> Any:
    sparse = edge.SparseVector([1, 2], [1.0, 2.0])
    points = [edge.Point(n, {"dense": [1.0, float(n)], "bm25": sparse}, {"n": n}) for n in numbers]
    return edge.UpdateOperation.upsert_points(points)


def malformed(number: int) -> Any:
    """What no request can become, for it is refused first: indices and values of different length."""
    return edge.UpdateOperation.upsert_points([edge.Point(number, {"bm25": edge.SparseVector([1, 2], [1.0])})])


def panicking_query() -> Any:
    return edge.QueryRequest(limit=1, query=edge.Query.Nearest(edge.SparseVector([1, 2], [1.0]), "bm25"))


def numbers(storage: Storage, name: str) -> list[int]:
    request = edge.ScrollRequest(limit=10_000, with_payload=True)
    return sorted(point.payload["n"] for point in storage.read(name, lambda shard: shard.scroll(request))[0])


def test_a_panic_in_a_write_costs_only_that_write(storage: Storage, tmp_path: Path) -> None:
    storage.create("a", collection())
    storage.create("b", collection())
    storage.set_index("a", "n", "integer")
    for start in range(1, 1201, 300):  # more than one page when they are moved
        storage.write("a", upsert(*range(start, start + 300)))
    with pytest.raises(EngineFailed, match="the engine failed on collection `a`"):
        storage.write("a", malformed(9999))
    assert numbers(storage, "a") == list(range(1, 1201))
    storage.write("a", upsert(1201))
    assert numbers(storage, "a") == list(range(1, 1202))
    assert list(storage.read("a", lambda shard: shard.info().payload_schema)) == ["n"]
    (point,) = storage.read("a", lambda shard: shard.retrieve([7], True, True))
    assert point.vector["bm25"].values == [1.0, 2.0]
    storage.write("b", upsert(1))
    storage.close()
    again = Storage(tmp_path)
    assert numbers(again, "a") == list(range(1, 1202))
    assert numbers(again, "b") == [1]
    assert len(list((tmp_path / "collections").iterdir())) == 2
    again.close()


def test_a_point_that_a_panic_left_malformed_is_left_out(storage: Storage) -> None:
    storage.create("a", collection())
    storage.write("a", upsert(1, 2, 3))
    with pytest.raises(EngineFailed):
        storage.write("a", malformed(2))
    assert numbers(storage, "a") == [1, 3]
    storage.write("a", upsert(2))
    assert numbers(storage, "a") == [1, 2, 3]


def test_a_panic_in_a_query_costs_only_that_query(storage: Storage) -> None:
    storage.create("a", collection())
    storage.write("a", upsert(1, 2))
    for _ in range(3):
        with pytest.raises(EngineFailed):
            storage.read("a", lambda shard: shard.query(panicking_query()))
        assert numbers(storage, "a") == [1, 2]
    storage.write("a", upsert(3))
    assert numbers(storage, "a") == [1, 2, 3]


def test_a_shard_that_panicked_and_was_not_saved_is_named(storage: Storage, tmp_path: Path) -> None:
    """As if the process had been killed right after the panic: the log brings it back at the next opening."""
    storage.create("a", collection())
    storage.write("a", upsert(1))
    storage.close()
    shard = edge.EdgeShard.load(str(tmp_path / "collections" / storage.collection("a").folder))
    with pytest.raises(BaseException, match="index out of bounds"):
        shard.update(malformed(9999))
    shard.close()
    again = Storage(tmp_path)
    again.create("b", collection())
    with pytest.raises(
        EngineFailed, match="collection `a` cannot be opened; if it stays so, delete it and index it again"
    ):
        numbers(again, "a")
    assert numbers(again, "b") == []
    assert again.delete("a")
    again.create("a", collection())
    assert numbers(again, "a") == []
    again.close()


def test_a_fault_of_the_engine_is_got_over(storage: Storage) -> None:
    """A folder that cannot be made leaves the engine refusing every write until the shard is opened anew."""
    storage.create("a", collection())
    storage.write("a", upsert(1))
    folder_of_a_name_too_long = edge.UpdateOperation.create_sparse_vector("x" * 300)
    with pytest.raises(EngineFailed):
        storage.write("a", folder_of_a_name_too_long)
    with pytest.raises(EngineFailed, match="cannot be opened"):
        storage.write("a", upsert(2))
    storage.create("b", collection())
    storage.write("b", upsert(1))
    assert numbers(storage, "b") == [1]


def test_only_so_many_shards_stay_open(tmp_path: Path) -> None:
    storage = Storage(tmp_path, max_open=3)
    names = [f"c-{n}" for n in range(8)]
    for position, name in enumerate(names):
        storage.create(name, collection())
        storage.write(name, upsert(position + 1))
        assert len(storage._pool) <= 3
    for position, name in enumerate(names):
        assert numbers(storage, name) == [position + 1]
        assert len(storage._pool) <= 3
    storage.close()
    assert len(storage._pool) == 0


def test_the_shard_that_was_used_longest_ago_is_closed(tmp_path: Path) -> None:
    storage = Storage(tmp_path, max_open=2)
    for name in ("a", "b"):
        storage.create(name, collection())
    numbers(storage, "a")
    storage.create("c", collection())
    open_folders = set(storage._pool._open)
    assert open_folders == {storage.collection("a").folder, storage.collection("c").folder}
    storage.close()


def test_idle_shards_are_closed_and_opened_again(tmp_path: Path) -> None:
    storage = Storage(tmp_path, idle_seconds=0.0)
    storage.create("a", collection())
    storage.write("a", upsert(1))
    storage.flush()
    assert len(storage._pool) == 0
    assert numbers(storage, "a") == [1]
    storage.close()


def test_an_index_that_never_reached_the_registry_is_dropped(storage: Storage, tmp_path: Path) -> None:
    """As if killed between the two writes; and one that the shard lacks is made."""
    storage.create("a", collection())
    storage.set_index("a", "n", "integer")
    storage.close()
    folder = tmp_path / "collections" / storage.collection("a").folder
    shard = edge.EdgeShard.load(str(folder))
    shard.update(edge.UpdateOperation.create_field_index("late", edge.PayloadSchemaType.Keyword))
    shard.update(edge.UpdateOperation.delete_field_index("n"))
    shard.close()
    again = Storage(tmp_path)
    assert list(again.read("a", lambda opened: opened.info().payload_schema)) == ["n"]
    again.close()


def test_a_vector_that_never_reached_the_registry_gives_way(storage: Storage, tmp_path: Path) -> None:
    storage.create("a", collection())
    storage.close()
    shard = edge.EdgeShard.load(str(tmp_path / "collections" / storage.collection("a").folder))
    shard.update(edge.UpdateOperation.create_sparse_vector("late"))
    shard.close()
    again = Storage(tmp_path)
    again.add_vector("a", "late", SparseVector(idf=True))
    point = edge.Point(1, {"late": edge.SparseVector([1], [1.0])}, {"n": 1})
    again.write("a", edge.UpdateOperation.upsert_points([point]))
    query = edge.QueryRequest(limit=1, query=edge.Query.Nearest(edge.SparseVector([1], [1.0]), "late"))
    (hit,) = again.read("a", lambda opened: opened.query(query))
    assert hit.score == pytest.approx(0.287682, rel=1e-4)  # ln(4/3): the weight by rarity is on
    again.close()


def test_the_registry_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "registry.json"
    registry = Registry(path)
    state = State().with_collection("a", collection()).with_alias("one", "a")
    registry.commit(state)
    path.with_suffix(".tmp").write_text("a write that a kill cut short")
    assert Registry(path).state == state
    for content in ("", "{", "[]", '{"format": 2}', '{"collections": {"a": {}}}'):
        path.write_text(content)
        with pytest.raises(RegistryUnreadable, match="index again"):
            Registry(path)


def test_names_in_the_registry() -> None:
    state = State().with_collection("a", collection()).with_collection("b", collection()).with_alias("one", "a")
    assert state.resolve("one") == state.resolve("a") == "a"
    with pytest.raises(NotFound):
        state.resolve("two")
    with pytest.raises(AlreadyExists):
        state.refuse_taken("a")
    with pytest.raises(WrongInput):
        state.refuse_taken("one")
    with pytest.raises(AlreadyExists):
        state.with_renamed_alias("one", "b")
    assert state.with_alias("one", "b").aliases == {"one": "b"}
    assert state.with_renamed_alias("one", "two").aliases == {"two": "a"}
    assert state.without_collection("a").aliases == {}
    assert state.without_alias("absent") == state
