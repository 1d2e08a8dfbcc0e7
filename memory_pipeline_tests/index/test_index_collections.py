"""Collections and aliases: made once, never replaced unasked, switched in one step."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from qdrant_client import QdrantClient, models

from memory_pipeline.core.epoch import Epoch
from memory_pipeline.core.errors import CollectionMissing, IncompatibleCollection
from memory_pipeline.index.shape import INDEXED
from memory_pipeline.index.vector_index import VectorIndex
from memory_pipeline_tests.index.samples import DIMENSIONS, point, query

pytestmark = pytest.mark.integration


def sized(dimensions: int, distance: models.Distance = models.Distance.COSINE) -> models.VectorParams:
    return models.VectorParams(size=dimensions, distance=distance)


DENSE = sized(DIMENSIONS)
IDF = models.SparseVectorParams(modifier=models.Modifier.IDF)


@pytest.fixture
def collection(index: VectorIndex, name: str) -> str:
    """An empty collection of the test's own."""
    index.create(name, dimensions=DIMENSIONS)
    return name


@pytest.fixture
def alias(raw: QdrantClient) -> Iterator[str]:
    free = f"alias__{uuid.uuid4().hex}"
    yield free
    if any(entry.alias_name == free for entry in raw.get_aliases().aliases):
        delete = models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=free))
        raw.update_collection_aliases([delete])


def test_a_collection_is_made_with_its_vectors_and_payload_indexes(index: VectorIndex, name: str) -> None:
    assert index.shape(name) is None
    index.create(name, dimensions=DIMENSIONS)
    shape = index.shape(name)
    assert shape is not None
    assert (shape.dense, shape.bm25, shape.others) == (f"{DIMENSIONS} Cosine", "idf", ())
    assert shape.indexes == {field: kind.value for field, kind in INDEXED.items()}
    assert index.require_compatible(name, DIMENSIONS) == shape
    assert index.count(name) == 0


def test_making_it_again_keeps_what_is_in_it(index: VectorIndex, collection: str) -> None:
    index.upsert(collection, [point(1)])
    index.create(collection, dimensions=DIMENSIONS)
    assert index.count(collection) == 1


def test_one_that_was_left_without_indexes_is_finished(index: VectorIndex, raw: QdrantClient, name: str) -> None:
    raw.create_collection(name, vectors_config={"dense": DENSE}, sparse_vectors_config={"bm25": IDF})
    before = index.require_compatible(name, DIMENSIONS)
    assert before.missing_indexes() == tuple(INDEXED)
    index.create(name, dimensions=DIMENSIONS)
    assert index.require_compatible(name, DIMENSIONS).missing_indexes() == ()


def test_made_by_several_at_once_it_is_made_once(index: VectorIndex, name: str) -> None:
    failures: list[Exception] = []

    def make() -> None:
        try:
            index.create(name, dimensions=DIMENSIONS)
        except Exception as error:  # noqa: BLE001 - whatever a thread raises fails the test
            failures.append(error)

    threads = [threading.Thread(target=make) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert index.require_compatible(name, DIMENSIONS).missing_indexes() == ()


@pytest.mark.parametrize(
    ("configuration", "difference"),
    [
        pytest.param(
            {"vectors_config": {"dense": sized(5)}, "sparse_vectors_config": {"bm25": IDF}},
            "the vector 'dense' is 5 Cosine, not 4 Cosine",
            id="another length",
        ),
        pytest.param(
            {
                "vectors_config": {"dense": sized(DIMENSIONS, models.Distance.DOT)},
                "sparse_vectors_config": {"bm25": IDF},
            },
            "the vector 'dense' is 4 Dot, not 4 Cosine",
            id="another distance",
        ),
        pytest.param(
            {"vectors_config": {"dense": DENSE}}, "the sparse vector 'bm25' is missing", id="without sparse vectors"
        ),
        pytest.param(
            {"vectors_config": {"dense": DENSE}, "sparse_vectors_config": {"bm25": models.SparseVectorParams()}},
            "the sparse vector 'bm25' is without IDF",
            id="without idf",
        ),
        pytest.param(
            {"vectors_config": {"dense": DENSE, "other": DENSE}, "sparse_vectors_config": {"bm25": IDF}},
            "it has a further vector 'other'",
            id="a further vector",
        ),
        pytest.param(
            {"vectors_config": DENSE, "sparse_vectors_config": {"bm25": IDF}},
            "the vector 'dense' is missing, not 4 Cosine; it has a further vector ''",
            id="a vector without a name",
        ),
        pytest.param(
            {"sparse_vectors_config": {"bm25": IDF}}, "the vector 'dense' is missing, not 4 Cosine", id="sparse only"
        ),
    ],
)
def test_one_that_differs_is_refused_by_name_and_left_alone(
    index: VectorIndex, raw: QdrantClient, name: str, configuration: dict[str, Any], difference: str
) -> None:
    raw.create_collection(name, **configuration)
    before = index.shape(name)
    with pytest.raises(IncompatibleCollection) as caught:
        index.create(name, dimensions=DIMENSIONS)
    assert difference in caught.value.message
    assert repr(name) in caught.value.message
    with pytest.raises(IncompatibleCollection):
        index.require_compatible(name, DIMENSIONS)
    assert index.shape(name) == before


def test_one_that_lacks_its_sparse_vector_alone_can_be_given_it(
    index: VectorIndex, raw: QdrantClient, name: str
) -> None:
    raw.create_collection(name, vectors_config={"dense": DENSE})
    old = models.PointStruct(id=7, vector={"dense": [1.0] * DIMENSIONS}, payload={"ref": "mem-0007"})
    raw.upsert(name, [old], wait=True)
    lacking = index.shape(name)
    assert lacking is not None
    assert lacking.lacks_lexical_alone(DIMENSIONS)
    assert not lacking.lacks_lexical_alone(DIMENSIONS + 1)
    index.add_lexical(name)
    index.add_lexical(name)
    index.create(name, dimensions=DIMENSIONS)
    assert not index.require_compatible(name, DIMENSIONS).lacks_lexical_alone(DIMENSIONS)
    index.upsert(name, [point(1)])
    assert [hit.ref for hit in index.search_branch(name, query(), "bm25")] == ["mem-0001"]
    assert index.count(name) == 2


def test_an_epoch_is_noted_on_a_collection_and_what_is_none_is_taken_for_none(
    index: VectorIndex, raw: QdrantClient, collection: str
) -> None:
    def noted() -> Epoch | None:
        shape = index.shape(collection)
        assert shape is not None
        return shape.epoch

    assert noted() is None
    first = Epoch(str(uuid.uuid4()), 3)
    index.stamp(collection, first)
    assert noted() == first
    index.stamp(collection, first._replace(counter=4))
    assert noted() == first._replace(counter=4)
    for damaged in ({"registry_counter": "4"}, {"registry_counter": 4, "registry_lineage": "x"}):
        raw.update_collection(collection, metadata=damaged)
        assert noted() is None


def test_an_index_of_another_type_is_a_difference(index: VectorIndex, raw: QdrantClient, name: str) -> None:
    raw.create_collection(name, vectors_config={"dense": DENSE}, sparse_vectors_config={"bm25": IDF})
    raw.create_payload_index(name, "revision", field_schema=models.PayloadSchemaType.KEYWORD, wait=True)
    with pytest.raises(IncompatibleCollection, match="the index on 'revision' is keyword, not integer"):
        index.create(name, dimensions=DIMENSIONS)


def test_a_collection_that_is_not_there_is_named(index: VectorIndex, name: str) -> None:
    with pytest.raises(CollectionMissing, match=name):
        index.require_compatible(name, DIMENSIONS)
    for call in (
        lambda: index.upsert(name, [point(1)]),
        lambda: index.set_payload(name, [point(1).projection]),
        lambda: index.read(name, [point(1).projection.point_id]),
        lambda: index.delete(name, [point(1).projection.point_id]),
        lambda: index.count(name),
        lambda: list(index.scroll(name, 10)),
        lambda: index.search(name, query()),
        lambda: index.search_branch(name, query(), "dense"),
        lambda: index.branch_scores(name, [point(1).projection.point_id], query()),
        lambda: index.point_alias("alias__of_nothing", name),
    ):
        with pytest.raises(CollectionMissing) as caught:
            call()
        assert repr(name) in caught.value.message
    assert index.alias_target("alias__of_nothing") is None


def test_dropping_says_whether_there_was_one(index: VectorIndex, collection: str) -> None:
    assert index.drop(collection)
    assert not index.drop(collection)
    assert index.shape(collection) is None


def test_an_alias_is_made_and_switched(index: VectorIndex, collection: str, alias: str) -> None:
    second = f"{collection}__2"
    index.create(second, dimensions=DIMENSIONS)
    try:
        index.upsert(collection, [point(1)])
        assert index.alias_target(alias) is None
        index.point_alias(alias, collection)
        assert index.alias_target(alias) == collection
        assert index.count(alias) == 1
        index.point_alias(alias, collection)
        index.point_alias(alias, second)
        assert index.alias_target(alias) == second
        assert index.count(alias) == 0
    finally:
        index.drop(second)
    assert index.alias_target(alias) is None


def test_who_searches_by_an_alias_sees_one_of_the_two_during_a_switch(
    index: VectorIndex, collection: str, alias: str
) -> None:
    second = f"{collection}__2"
    index.create(second, dimensions=DIMENSIONS)
    found: list[int] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            found.append(len(index.search(alias, query())))

    try:
        index.upsert(collection, [point(1)])
        index.upsert(second, [point(1), point(2)])
        index.point_alias(alias, collection)
        thread = threading.Thread(target=look)
        thread.start()
        for target in (second, collection) * 5:
            index.point_alias(alias, target)
        done.set()
        thread.join()
        assert found
        assert set(found) <= {1, 2}
    finally:
        done.set()
        index.drop(second)
