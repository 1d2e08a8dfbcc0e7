"""Points: written in batches behind a fence of revisions, read back, scrolled and deleted."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest
from qdrant_client import QdrantClient, models

from memory_pipeline.core.errors import IndexUnavailable, UselessVector
from memory_pipeline.core.projection import point_id
from memory_pipeline.index import vector_index
from memory_pipeline.index.points import IndexPoint, PointState, PointTooLarge
from memory_pipeline.index.vector_index import VectorIndex
from memory_pipeline_tests.index.samples import EAST, NORTH, UP, Sparse, card, point, projection, query, words

pytestmark = pytest.mark.integration


def state_of(written: IndexPoint) -> PointState:
    source = written.projection
    return PointState(source.point_id, source.card_id, source.filters.kind, source.revision, source.sha256)


def stored(raw: QdrantClient, collection: str, number: int) -> models.Record:
    (record,) = raw.retrieve(collection, [str(point_id(f"mem-{number:04d}"))], with_payload=True, with_vectors=True)
    return record


# --- upsert and its fence ----------------------------------------------------------------------------------------


def test_a_point_holds_the_projection_and_both_vectors(index: VectorIndex, raw: QdrantClient, collection: str) -> None:
    written = point(7, NORTH, Sparse((3, 9), (0.5, 1.5)), concepts=("Ablazione",), scope=("Cardiologia",))
    index.upsert(collection, [written])
    record = stored(raw, collection, 7)
    assert record.payload == written.projection.payload()
    assert record.payload["concepts"] == ["ablazione"]
    assert record.vector["dense"] == NORTH.tolist()
    assert (record.vector["bm25"].indices, record.vector["bm25"].values) == ([3, 9], [0.5, 1.5])


def test_nothing_is_written_for_no_points(index: VectorIndex, collection: str) -> None:
    index.upsert(collection, [])
    index.set_payload(collection, [])
    index.delete(collection, [])
    assert index.read(collection, []) == {}
    assert index.count(collection) == 0


def test_an_older_revision_never_overwrites_a_newer_one(index: VectorIndex, raw: QdrantClient, collection: str) -> None:
    newer = point(1, NORTH, words(2), revision=3, concepts=("nuovo",))
    index.upsert(collection, [newer])
    index.upsert(collection, [point(1, EAST, words(1), revision=2, concepts=("vecchio",))])
    record = stored(raw, collection, 1)
    assert record.payload == newer.projection.payload()
    assert record.vector["dense"] == NORTH.tolist()
    assert record.vector["bm25"].indices == [2]


def test_an_equal_revision_is_written_again_so_that_repair_works(
    index: VectorIndex, raw: QdrantClient, collection: str
) -> None:
    index.upsert(collection, [point(1, EAST, revision=2)])
    raw.set_payload(collection, {"projection_sha256": "spoiled"}, points=[str(point_id("mem-0001"))], wait=True)
    index.upsert(collection, [point(1, EAST, revision=2)])
    index.upsert(collection, [point(1, EAST, revision=2)])
    assert index.read(collection, [point_id("mem-0001")]) == {point_id("mem-0001"): state_of(point(1, revision=2))}
    assert index.count(collection) == 1


def test_a_newer_revision_replaces_all_of_an_older_one(index: VectorIndex, raw: QdrantClient, collection: str) -> None:
    index.upsert(collection, [point(1, EAST, words(1), concepts=("vecchio",))])
    newer = point(1, NORTH, Sparse(), revision=2)
    index.upsert(collection, [newer])
    record = stored(raw, collection, 1)
    assert record.payload == newer.projection.payload()
    assert set(record.vector) == {"dense"}


def test_one_call_with_many_revisions_keeps_each_point_behind_its_own_fence(
    index: VectorIndex, collection: str
) -> None:
    """A batch has one fence: had all shared the highest revision, the late write to card 1 would win."""
    index.upsert(collection, [point(1, revision=5), point(2, revision=1)])
    index.upsert(collection, [point(1, revision=4), point(2, revision=9), point(3, revision=2)])
    states = index.read(collection, [point_id(f"mem-{number:04d}") for number in (1, 2, 3)])
    assert [state.revision for state in states.values()] == [5, 9, 2]


def test_of_two_revisions_of_a_card_in_one_call_the_newer_stays(index: VectorIndex, collection: str) -> None:
    index.upsert(collection, [point(1, revision=3), point(1, revision=2), point(1, revision=1)])
    assert index.read(collection, [point_id("mem-0001")])[point_id("mem-0001")].revision == 3


@pytest.mark.parametrize("spoiled", [{}, {"revision": "two", "ref": 5}])
def test_a_damaged_point_is_repaired(
    index: VectorIndex, raw: QdrantClient, collection: str, spoiled: dict[str, object]
) -> None:
    index.upsert(collection, [point(1, revision=2)])
    raw.overwrite_payload(collection, spoiled, points=[str(point_id("mem-0001"))], wait=True)
    damaged = PointState(point_id("mem-0001"), "", "", 0, "")
    assert index.read(collection, [point_id("mem-0001")]) == {point_id("mem-0001"): damaged}
    index.upsert(collection, [point(1, revision=2)])
    assert index.read(collection, [point_id("mem-0001")]) == {point_id("mem-0001"): state_of(point(1, revision=2))}


def test_writers_at_once_leave_the_newest_revision(index: VectorIndex, collection: str) -> None:
    revisions = list(range(1, 25))
    random.Random(5).shuffle(revisions)

    def write(own: list[int]) -> None:
        for revision in own:
            index.upsert(collection, [point(1, revision=revision)])

    threads = [threading.Thread(target=write, args=(revisions[part::4],)) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert index.read(collection, [point_id("mem-0001")])[point_id("mem-0001")] == state_of(point(1, revision=24))


# --- batches -----------------------------------------------------------------------------------------------------


def test_many_points_are_written_in_batches_bounded_by_count_and_bytes(
    index: VectorIndex, collection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_index, "_BATCH_POINTS", 7)
    points = [point(number, revision=1 + number % 2) for number in range(1, 41)]
    assert [len(batch) for batch in vector_index._batches(points)] == [7, 7, 6, 7, 7, 6]
    index.upsert(collection, points)
    assert index.count(collection) == 40
    monkeypatch.setattr(vector_index, "_BATCH_BYTES", 1500)
    assert max(len(batch) for batch in vector_index._batches(points)) < 7
    assert sum(len(batch) for batch in vector_index._batches(points)) == 40


def test_a_point_that_no_server_takes_is_named_before_anything_is_written(index: VectorIndex, collection: str) -> None:
    huge = point(2, concepts=tuple(f"{'concetto' * 100_000}{number}" for number in range(50)))
    with pytest.raises(PointTooLarge, match="the point of mem-0002 takes") as caught:
        index.upsert(collection, [point(1), huge, point(3)])
    assert caught.value.card_id == "mem-0002"
    assert index.count(collection) == 0


def test_the_size_of_a_point_is_never_taken_too_small(index: VectorIndex, raw: QdrantClient) -> None:
    generator = np.random.default_rng(3)
    for number in range(1, 20):
        dense = generator.normal(size=50).astype(np.float32) * np.float32(10.0 ** float(generator.integers(-30, 30)))
        lexical = Sparse(tuple(range(2**31 - 40, 2**31)), tuple(float(x) for x in generator.normal(size=40) / 3e7))
        sized = point(number, dense, lexical, concepts=("è" * 50, "病" * 50, '"\\'), scope=("\x01",))
        body = models.PointsList(points=[vector_index.wire.to_point(sized)])
        assert len(body.model_dump_json().encode()) <= vector_index._size(sized)


@pytest.mark.parametrize(
    "dense",
    [
        pytest.param(np.zeros(4, dtype=np.float32), id="zero"),
        pytest.param(np.array([1, np.nan, 0, 0], dtype=np.float32), id="nan"),
        pytest.param(np.array([1, np.inf, 0, 0], dtype=np.float32), id="infinite"),
        pytest.param(np.ones((2, 2), dtype=np.float32), id="two dimensions"),
        pytest.param(np.ones(0, dtype=np.float32), id="empty"),
    ],
)
def test_a_useless_vector_never_becomes_a_point(dense: np.ndarray) -> None:
    with pytest.raises(UselessVector, match="mem-0001"):
        point(1, dense)


def test_a_vector_of_another_length_is_refused_and_nothing_of_its_batch_is_written(
    index: VectorIndex, collection: str
) -> None:
    with pytest.raises(IndexUnavailable, match=f"did not write 2 points to collection '{collection}': status 400"):
        index.upsert(collection, [point(1), point(2, np.ones(5, dtype=np.float32))])
    assert index.count(collection) == 0


# --- payload only ------------------------------------------------------------------------------------------------


def test_a_payload_is_replaced_whole_and_the_vectors_stay(
    index: VectorIndex, raw: QdrantClient, collection: str
) -> None:
    index.upsert(collection, [point(1, NORTH, words(2), concepts=("vecchio",), scope=("a",))])
    newer = projection(1, revision=2, scope=("b",))
    index.set_payload(collection, [newer])
    record = stored(raw, collection, 1)
    assert record.payload == newer.payload()
    assert record.vector["dense"] == NORTH.tolist()
    assert record.vector["bm25"].indices == [2]


def test_a_payload_is_fenced_as_a_point_is(index: VectorIndex, collection: str) -> None:
    index.upsert(collection, [point(1, revision=3), point(2, revision=3)])
    index.set_payload(collection, [projection(1, revision=2), projection(2, revision=3, scope=("b",))])
    states = index.read(collection, [point_id("mem-0001"), point_id("mem-0002")])
    assert states[point_id("mem-0001")] == state_of(point(1, revision=3))
    assert states[point_id("mem-0002")].projection_sha256 == projection(2, revision=3, scope=("b",)).sha256


def test_many_payloads_are_written_in_requests_bounded_by_count_and_bytes(
    index: VectorIndex, collection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.upsert(collection, [point(number) for number in range(1, 9)])
    monkeypatch.setattr(vector_index, "_BATCH_PAYLOADS", 3)
    monkeypatch.setattr(vector_index, "_BATCH_BYTES", 2 * 1024)
    wanted = [projection(number, revision=2, scope=("x" * 900,)) for number in range(1, 9)]
    sent: list[int] = []
    overwriting = vector_index._overwriting
    monkeypatch.setattr(
        vector_index, "_overwriting", lambda name, part: (sent.append(len(part)), overwriting(name, part))[1]
    )
    index.set_payload(collection, wanted)
    assert sum(sent) == 8
    assert max(sent) == 1, "two of them are above the bytes"
    states = index.read(collection, [item.point_id for item in wanted])
    assert {state.projection_sha256 for state in states.values()} == {item.sha256 for item in wanted}


def test_a_payload_alone_makes_no_point(index: VectorIndex, collection: str) -> None:
    index.set_payload(collection, [projection(1)])
    assert index.count(collection) == 0


# --- read, delete, scroll ----------------------------------------------------------------------------------------


def test_read_leaves_out_what_is_not_there_and_takes_more_than_a_request_holds(
    index: VectorIndex, collection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_index, "_READ_IDS", 4)
    points = [point(number) for number in range(1, 11)]
    index.upsert(collection, points)
    ids = [point_id(f"mem-{number:04d}") for number in range(1, 16)]
    assert index.read(collection, ids) == {written.projection.point_id: state_of(written) for written in points}


def test_delete_removes_by_id_whatever_the_revision(index: VectorIndex, collection: str) -> None:
    index.upsert(collection, [point(number, revision=number) for number in range(1, 51)])
    index.delete(collection, [point_id(f"mem-{number:04d}") for number in range(1, 51)])
    assert index.count(collection) == 0
    index.delete(collection, [point_id("mem-0001")])
    assert index.count(collection) == 0


def test_the_kind_does_not_change_the_point(index: VectorIndex, collection: str) -> None:
    index.upsert(collection, [point(1, kind="exemplar", type="exemplar")])
    index.upsert(collection, [point(1, revision=2, kind="memory")])
    assert index.count(collection) == 1
    assert index.search(collection, query(kinds=("exemplar",))) == []
    assert [hit.ref for hit in index.search(collection, query(kinds=("memory",)))] == ["mem-0001"]


def test_scroll_gives_every_point_once_in_pages(index: VectorIndex, collection: str) -> None:
    assert list(index.scroll(collection, 5)) == []
    points = [point(number) for number in range(1, 24)]
    index.upsert(collection, points)
    pages = list(index.scroll(collection, 5))
    assert [len(page) for page in pages] == [5, 5, 5, 5, 3]
    assert {state.ref: state for page in pages for state in page} == {
        written.projection.card_id: state_of(written) for written in points
    }


def test_scroll_shows_points_that_somebody_else_put_there(
    index: VectorIndex, raw: QdrantClient, collection: str
) -> None:
    raw.upsert(
        collection, [models.PointStruct(id=42, vector={"dense": UP.tolist()}, payload={"ref": ["x"]})], wait=True
    )
    assert list(index.scroll(collection, 5)) == [[PointState(42, "", "", 0, "")]]
    index.delete(collection, [42])
    assert index.count(collection) == 0


def test_cards_of_this_module_are_what_the_registry_would_hold() -> None:
    assert card(1).id == "mem-0001"
    assert state_of(point(1)).kind == "memory"
