"""Collections, aliases, indexes and points as Qdrant has them. Runs against any Qdrant.

By default against an embedded server that the fixture starts; against the server that `MEMORY_QDRANT_URL` names (its
key in `MEMORY_SECRETS_DIR/qdrant_api_key`) where that is set.
"""

from __future__ import annotations

import importlib.metadata
import math
import uuid
from typing import Any

import pytest
from qdrant_client import models
from qdrant_client.common.version_check import is_compatible
from qdrant_client.http.exceptions import UnexpectedResponse

from memory_pipeline_tests.embedded.qdrant.conftest import Target, status_error

pytestmark = pytest.mark.integration

VECTOR = [1.0, 0.0, 0.0, 0.0]
UUID = "550e8400-e29b-41d4-a716-446655440000"


def point(number: int | str, **payload: Any) -> models.PointStruct:
    return models.PointStruct(id=number, vector={"dense": VECTOR}, payload=payload)


def payloads(target: Target, name: str) -> dict[int | str, Any]:
    records, _ = target.client.scroll(name, limit=100)
    return {record.id if isinstance(record.id, int) else str(record.id): record.payload for record in records}


def create_alias(alias: str, collection: str) -> models.CreateAliasOperation:
    return models.CreateAliasOperation(create_alias=models.CreateAlias(alias_name=alias, collection_name=collection))


def delete_alias(alias: str) -> models.DeleteAliasOperation:
    return models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=alias))


def test_the_client_is_greeted(target: Target) -> None:
    greeting = target.http.get("/").json()
    assert greeting["title"].startswith("qdrant - vector search engine")
    assert is_compatible(importlib.metadata.version("qdrant-client"), greeting["version"])
    for path in ("/healthz", "/readyz", "/livez"):
        assert target.http.get(path).status_code == 200


def test_a_collection_is_shown_as_it_was_made(target: Target) -> None:
    name = target.name()
    assert not target.client.collection_exists(name)
    assert target.client.create_collection(
        name,
        vectors_config={
            "dense": models.VectorParams(size=4, distance=models.Distance.COSINE),
            "other": models.VectorParams(size=2, distance=models.Distance.DOT, on_disk=True),
        },
        sparse_vectors_config={"bm25": models.SparseVectorParams(modifier=models.Modifier.IDF)},
        hnsw_config=models.HnswConfigDiff(m=32),
        metadata={"format": 2},
    )
    assert target.client.collection_exists(name)
    assert name in [one.name for one in target.client.get_collections().collections]
    info = target.client.get_collection(name)
    assert info.status == models.CollectionStatus.GREEN
    assert info.points_count == 0
    vectors = info.config.params.vectors
    assert isinstance(vectors, dict)
    assert {n: (v.size, v.distance) for n, v in vectors.items()} == {
        "dense": (4, models.Distance.COSINE),
        "other": (2, models.Distance.DOT),
    }
    assert info.config.params.sparse_vectors is not None
    assert info.config.params.sparse_vectors["bm25"].modifier == models.Modifier.IDF
    assert info.config.hnsw_config.m == 32
    assert info.config.optimizer_config.deleted_threshold == 0.2
    assert info.config.metadata == {"format": 2}
    assert info.payload_schema == {}


def test_metadata_is_merged_and_a_null_removes_its_key(target: Target) -> None:
    name = target.collection()
    target.client.upsert(name, [point(1)], wait=True)
    assert target.client.get_collection(name).config.metadata is None
    assert target.client.update_collection(name, metadata={"a": 1, "b": {"c": 2}})
    assert target.client.update_collection(name, metadata={"a": 3, "d": "4"})
    assert target.client.get_collection(name).config.metadata == {"a": 3, "b": {"c": 2}, "d": "4"}
    assert target.client.update_collection(name, metadata={"b": None})
    assert target.client.get_collection(name).config.metadata == {"a": 3, "d": "4"}
    assert target.client.count(name).count == 1
    with pytest.raises(UnexpectedResponse) as refused:
        target.client.update_collection(target.name(), metadata={"a": 1})
    assert refused.value.status_code == 404


def test_a_collection_with_one_unnamed_vector(target: Target) -> None:
    name = target.collection(vectors_config=models.VectorParams(size=2, distance=models.Distance.DOT))
    vectors = target.client.get_collection(name).config.params.vectors
    assert isinstance(vectors, models.VectorParams)
    assert vectors.size == 2
    target.client.upsert(name, models.Batch(ids=[1, 2], vectors=[[1, 2], [3, 4]], payloads=[{"a": 1}, {"a": 2}]))
    (record,) = target.client.retrieve(name, [2], with_vectors=True)
    assert (record.payload, record.vector) == ({"a": 2}, [3.0, 4.0])


def test_a_taken_name_is_a_conflict(target: Target) -> None:
    name = target.collection()
    with pytest.raises(UnexpectedResponse) as refused:
        target.client.create_collection(name, vectors_config=models.VectorParams(size=2, distance=models.Distance.DOT))
    assert refused.value.status_code == 409
    assert "already exists" in refused.value.structured()["status"]["error"]


def test_deleting_tells_whether_it_was_there(target: Target) -> None:
    name = target.collection()
    assert target.client.delete_collection(name) is True
    assert target.client.collection_exists(name) is False
    assert target.client.delete_collection(name) is False


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None),
        ("PUT", "/index", {"field_name": "k", "field_schema": "keyword"}),
        ("DELETE", "/index/k", None),
        ("PUT", "/points", {"points": [{"id": 1, "vector": VECTOR}]}),
        ("POST", "/points", {"ids": [1]}),
        ("GET", "/points/1", None),
        ("POST", "/points/scroll", {}),
        ("POST", "/points/count", {}),
        ("POST", "/points/delete", {"points": [1]}),
        ("POST", "/points/payload", {"payload": {"a": 1}, "points": [1]}),
        ("POST", "/points/query", {"query": VECTOR}),
    ],
)
def test_an_unknown_collection_is_not_found(target: Target, method: str, path: str, body: Any) -> None:
    name = f"absent-{uuid.uuid4().hex}"
    response = target.http.request(method, f"/collections/{name}{path}", json=body)
    assert response.status_code == 404
    assert f"Collection `{name}` doesn't exist!" in status_error(response)


def test_an_alias_stands_for_its_collection(target: Target) -> None:
    name, alias = target.collection(), target.name()
    assert target.client.update_collection_aliases([create_alias(alias, name)])
    target.client.upsert(alias, [point(1, a=1)], wait=True)
    assert target.client.count(name).count == 1
    assert target.client.retrieve(alias, [1])[0].payload == {"a": 1}
    assert target.client.query_points(alias, query=VECTOR, using="dense").points[0].id == 1
    assert target.client.collection_exists(alias)
    assert target.client.get_collection(alias).points_count == 1
    assert [(a.alias_name, a.collection_name) for a in target.client.get_collection_aliases(name).aliases] == [
        (alias, name)
    ]
    assert alias in [a.alias_name for a in target.client.get_aliases().aliases]


def test_an_alias_is_switched_in_one_call(target: Target) -> None:
    old, new, alias = target.collection(), target.collection(), target.name()
    target.client.upsert(old, [point(1)], wait=True)
    target.client.upsert(new, [point(1), point(2)], wait=True)
    target.client.update_collection_aliases([create_alias(alias, old)])
    assert target.client.count(alias).count == 1
    target.client.update_collection_aliases([delete_alias(alias), create_alias(alias, new)])
    assert target.client.count(alias).count == 2
    target.client.update_collection_aliases([create_alias(alias, old)])
    assert target.client.count(alias).count == 1


def test_an_alias_is_renamed(target: Target) -> None:
    name, before, after = target.collection(), target.name(), target.name()
    target.client.update_collection_aliases([create_alias(before, name)])
    rename = models.RenameAliasOperation(rename_alias=models.RenameAlias(old_alias_name=before, new_alias_name=after))
    target.client.update_collection_aliases([rename])
    assert [a.alias_name for a in target.client.get_collection_aliases(name).aliases] == [after]
    assert not target.client.collection_exists(before)


def test_a_collection_takes_its_aliases_with_it(target: Target) -> None:
    name, alias = target.collection(), target.name()
    target.client.update_collection_aliases([create_alias(alias, name)])
    target.client.delete_collection(name)
    assert alias not in [a.alias_name for a in target.client.get_aliases().aliases]


def test_deleting_an_alias_as_a_collection_leaves_both(target: Target) -> None:
    name, alias = target.collection(), target.name()
    target.client.update_collection_aliases([create_alias(alias, name)])
    assert target.client.delete_collection(alias) is False
    assert target.client.collection_exists(name)
    assert target.client.collection_exists(alias)


def test_names_of_aliases_and_collections_do_not_collide(target: Target) -> None:
    name, other, alias = target.collection(), target.collection(), target.name()
    target.client.update_collection_aliases([create_alias(alias, name)])
    actions = {"actions": [{"create_alias": {"alias_name": other, "collection_name": name}}]}
    response = target.post("/collections/aliases", actions)
    assert response.status_code == 409
    assert "already exists" in status_error(response)
    with pytest.raises(UnexpectedResponse) as refused:
        target.client.create_collection(alias, vectors_config=models.VectorParams(size=2, distance=models.Distance.DOT))
    assert refused.value.status_code == 400
    assert "Alias with the same name already exists" in refused.value.structured()["status"]["error"]


def test_an_alias_of_nothing_is_not_found(target: Target) -> None:
    alias = target.name()
    actions = {"actions": [{"create_alias": {"alias_name": alias, "collection_name": f"absent-{alias}"}}]}
    assert target.post("/collections/aliases", actions).status_code == 404
    rename = {"actions": [{"rename_alias": {"old_alias_name": alias, "new_alias_name": f"{alias}-new"}}]}
    assert target.post("/collections/aliases", rename).status_code == 404


def test_an_index_is_shown_with_its_type_and_points(target: Target) -> None:
    name = target.collection()
    target.client.create_payload_index(name, "kind", models.PayloadSchemaType.KEYWORD, wait=True)
    text = models.TextIndexParams(type=models.TextIndexType.TEXT, tokenizer=models.TokenizerType.WORD, lowercase=True)
    target.client.create_payload_index(name, "text", text, wait=True)
    target.client.upsert(name, [point(1, kind="memory"), point(2, kind="evidence", text="due"), point(3)], wait=True)
    schema = target.client.get_collection(name).payload_schema
    assert {field: (index.data_type, index.points) for field, index in schema.items()} == {
        "kind": (models.PayloadSchemaType.KEYWORD, 2),
        "text": (models.PayloadSchemaType.TEXT, 1),
    }
    assert isinstance(schema["text"].params, models.TextIndexParams)
    assert schema["text"].params.tokenizer == models.TokenizerType.WORD
    target.client.delete_payload_index(name, "kind", wait=True)
    assert list(target.client.get_collection(name).payload_schema) == ["text"]


@pytest.mark.parametrize("schema", list(models.PayloadSchemaType))
def test_each_type_of_index_can_be_made(target: Target, schema: models.PayloadSchemaType) -> None:
    name = target.collection()
    target.client.create_payload_index(name, "field", schema, wait=True)
    assert target.client.get_collection(name).payload_schema["field"].data_type == schema


def test_a_missing_sparse_vector_is_added(target: Target) -> None:
    name = target.collection(vectors_config={"dense": models.VectorParams(size=4, distance=models.Distance.COSINE)})
    target.client.upsert(name, [point(1, a=1)], wait=True)
    config = models.SparseVectorNameConfig(sparse=models.SparseVectorConfig(modifier=models.Modifier.IDF))
    target.client.create_vector_name(name, "bm25", config)
    params = target.client.get_collection(name).config.params
    assert params.sparse_vectors is not None
    assert params.sparse_vectors["bm25"].modifier == models.Modifier.IDF
    vector = {"bm25": models.SparseVector(indices=[5], values=[2.0])}
    target.client.update_vectors(name, [models.PointVectors(id=1, vector=vector)], wait=True)
    response = target.client.query_points(
        name, query=models.SparseVector(indices=[5], values=[1.0]), using="bm25", with_payload=True
    )
    (hit,) = response.points
    assert hit.score == pytest.approx(2 * math.log(1 + 0.5 / 1.5), rel=1e-5)
    assert hit.payload == {"a": 1}


def test_a_dense_vector_is_added_and_removed(target: Target) -> None:
    name = target.collection()
    config = models.DenseVectorNameConfig(dense=models.DenseVectorConfig(size=2, distance=models.Distance.DOT))
    target.client.create_vector_name(name, "second", config)
    target.client.upsert(name, [models.PointStruct(id=1, vector={"dense": VECTOR, "second": [1.0, 2.0]})], wait=True)
    assert target.client.query_points(name, query=[1.0, 1.0], using="second").points[0].score == pytest.approx(3.0)
    target.client.delete_vector_name(name, "second")
    with pytest.raises(UnexpectedResponse) as refused:
        target.client.query_points(name, query=[1.0, 1.0], using="second")
    assert refused.value.status_code == 400
    (record,) = target.client.retrieve(name, [1], with_vectors=True)
    assert isinstance(record.vector, dict)
    assert set(record.vector) == {"dense"}


def test_a_point_is_replaced_as_a_whole(target: Target) -> None:
    name = target.collection()
    vectors = {"dense": VECTOR, "bm25": models.SparseVector(indices=[9, 3], values=[1.0, 2.0])}
    target.client.upsert(name, [models.PointStruct(id=UUID, vector=vectors, payload={"a": 1, "b": 2})], wait=True)
    (record,) = target.client.retrieve(name, [UUID], with_vectors=True)
    assert record.payload == {"a": 1, "b": 2}
    assert isinstance(record.vector, dict)
    assert record.vector["bm25"] == models.SparseVector(indices=[3, 9], values=[2.0, 1.0])
    target.client.upsert(name, [point(UUID, b=3)], wait=True)
    (record,) = target.client.retrieve(name, [UUID], with_vectors=True)
    assert record.payload == {"b": 3}
    assert isinstance(record.vector, dict)
    assert set(record.vector) == {"dense"}


def test_the_batch_form(target: Target) -> None:
    name = target.collection()
    batch = models.Batch(
        ids=[1, UUID],
        vectors={
            "dense": [VECTOR, [0, 1, 0, 0]],
            "bm25": [models.SparseVector(indices=[n], values=[1]) for n in (1, 2)],
        },
        payloads=[{"a": 1}, {"a": 2}],
    )
    target.client.upsert(name, batch, wait=True)
    assert payloads(target, name) == {1: {"a": 1}, UUID: {"a": 2}}
    response = target.client.query_points(name, query=models.SparseVector(indices=[2], values=[1]), using="bm25")
    assert [str(hit.id) for hit in response.points] == [UUID]


def test_payloads_of_every_kind_come_back(target: Target) -> None:
    name = target.collection()
    payload = {
        "text": 'è "ciò" \\ \n\t\u0000 😀',
        "numbers": [0, -1, 2**63 - 1, -(2**63), 1.5, 1e-300],
        "others": [True, False, None, [], {}, [[1], [{"a": [{}]}]]],
        "": "no name",
        "a.b": {"c d": 1},
    }
    target.client.upsert(name, [models.PointStruct(id=2**64 - 1, vector={"dense": VECTOR}, payload=payload)], wait=True)
    (record,) = target.client.retrieve(name, [2**64 - 1])
    assert record.id == 2**64 - 1
    assert record.payload == payload


def test_a_conditional_upsert_keeps_what_does_not_match_and_inserts_what_is_absent(target: Target) -> None:
    """The fence of the projection: an older revision does not overwrite a newer one, an equal one is written again."""
    name = target.collection()
    target.client.upsert(name, [point(1, revision=5, text="five"), point(2, revision=1, text="one")], wait=True)
    for revision in (3, 5):
        fence = models.Filter(must=[models.FieldCondition(key="revision", range=models.Range(lte=revision))])
        late = [point(n, revision=revision, text=f"written as {revision}") for n in (1, 2, 3)]
        target.client.upsert(name, late, wait=True, update_filter=fence)
        first = "five" if revision < 5 else "written as 5"
        others = f"written as {revision}"
        texts = {number: payload["text"] for number, payload in payloads(target, name).items()}
        assert texts == {1: first, 2: others, 3: others}


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (models.UpdateMode.UPSERT, {1: "new", 2: "new"}),
        (models.UpdateMode.INSERT_ONLY, {1: "old", 2: "new"}),
        (models.UpdateMode.UPDATE_ONLY, {1: "new"}),
    ],
)
def test_update_modes(target: Target, mode: models.UpdateMode, expected: dict[int, str]) -> None:
    name = target.collection()
    target.client.upsert(name, [point(1, text="old")], wait=True)
    target.client.upsert(name, [point(1, text="new"), point(2, text="new")], wait=True, update_mode=mode)
    assert {number: payload["text"] for number, payload in payloads(target, name).items()} == expected


def test_deleting_by_ids_and_by_filter(target: Target) -> None:
    name = target.collection()
    target.client.upsert(name, [point(n, even=str(n % 2 == 0)) for n in range(1, 8)], wait=True)
    target.client.delete(name, [1, 99], wait=True)
    assert set(payloads(target, name)) == {2, 3, 4, 5, 6, 7}
    even = models.Filter(must=[models.FieldCondition(key="even", match=models.MatchValue(value="True"))])
    target.client.delete(name, models.FilterSelector(filter=even), wait=True)
    assert set(payloads(target, name)) == {3, 5, 7}
    assert target.client.count(name).count == 3


def test_payload_operations(target: Target) -> None:
    name = target.collection()
    client = target.client
    only_2 = models.Filter(must=[models.HasIdCondition(has_id=[2])])
    client.upsert(name, [point(1, a=1, b={"c": 1}), point(2, a=2)], wait=True)
    client.set_payload(name, {"x": 1}, points=[1, 2], wait=True)
    assert payloads(target, name) == {1: {"a": 1, "b": {"c": 1}, "x": 1}, 2: {"a": 2, "x": 1}}
    client.set_payload(name, {"d": 2}, points=[1], key="b", wait=True)
    client.set_payload(name, {"x": 5}, points=only_2, wait=True)
    assert payloads(target, name) == {1: {"a": 1, "b": {"c": 1, "d": 2}, "x": 1}, 2: {"a": 2, "x": 5}}
    client.delete_payload(name, ["b.c", "x", "absent"], points=[1], wait=True)
    assert payloads(target, name)[1] == {"a": 1, "b": {"d": 2}}
    client.overwrite_payload(name, {"only": True}, points=[1], wait=True)
    client.clear_payload(name, models.FilterSelector(filter=only_2), wait=True)
    assert payloads(target, name) == {1: {"only": True}, 2: {}}


def test_several_writes_in_one_request_are_done_in_their_order(target: Target) -> None:
    name = target.collection()
    only_1 = models.Filter(must=[models.HasIdCondition(has_id=[1])])
    results = target.client.batch_update_points(
        name,
        [
            models.UpsertOperation(upsert=models.PointsList(points=[point(1, a=1), point(2, a=2), point(3, a=3)])),
            models.SetPayloadOperation(set_payload=models.SetPayload(payload={"b": 1}, points=[2])),
            models.OverwritePayloadOperation(
                overwrite_payload=models.SetPayload(payload={"only": True}, filter=only_1)
            ),
            models.DeleteOperation(delete=models.PointIdsList(points=[3])),
        ],
        wait=True,
    )
    assert [result.status for result in results] == [models.UpdateStatus.COMPLETED] * 4
    assert payloads(target, name) == {1: {"only": True}, 2: {"a": 2, "b": 1}}
    missing = models.SetPayloadOperation(set_payload=models.SetPayload(payload={"c": 1}, points=[9]))
    with pytest.raises(UnexpectedResponse):
        target.client.batch_update_points(name, [missing], wait=True)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/points/payload", {"payload": {"a": 1}, "points": [7]}),
        ("PUT", "/points/payload", {"payload": {"a": 1}, "points": [7]}),
        ("POST", "/points/payload/delete", {"keys": ["a"], "points": [7]}),
        ("PUT", "/points/vectors", {"points": [{"id": 7, "vector": {"dense": VECTOR}}]}),
        ("GET", "/points/7", None),
    ],
)
def test_a_point_that_is_not_there_is_not_found(target: Target, method: str, path: str, body: Any) -> None:
    name = target.collection()
    response = target.http.request(method, f"/collections/{name}{path}", params={"wait": "true"}, json=body)
    assert response.status_code == 404
    assert "7" in status_error(response)


def test_vectors_are_updated_and_deleted_alone(target: Target) -> None:
    name = target.collection()
    target.client.upsert(name, [point(1, a=1), point(2, a=2)], wait=True)
    vectors = {"bm25": models.SparseVector(indices=[4], values=[1.0])}
    target.client.update_vectors(name, [models.PointVectors(id=1, vector=vectors)], wait=True)
    (record,) = target.client.retrieve(name, [1], with_vectors=True)
    assert isinstance(record.vector, dict)
    assert (record.payload, set(record.vector)) == ({"a": 1}, {"dense", "bm25"})
    target.client.delete_vectors(name, ["dense"], points=[1], wait=True)
    assert [hit.id for hit in target.client.query_points(name, query=VECTOR, using="dense").points] == [2]


def test_scrolling_goes_through_all_once(target: Target) -> None:
    name = target.collection()
    numbers: list[int | str] = [*range(1, 24), UUID]
    target.client.upsert(name, [point(n, n=str(n)) for n in numbers], wait=True)
    seen, offset = [], None
    while True:
        records, offset = target.client.scroll(name, limit=7, offset=offset, with_payload=["n"])
        seen += [record.payload["n"] for record in records if record.payload]
        if offset is None:
            break
    assert seen == [str(n) for n in numbers]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (None, None),
        (True, {"a": 1, "b": {"c": 2, "d": 3}}),
        (False, None),
        (["a"], {"a": 1}),
        (["b.c"], {"b": {"c": 2}}),
        ({"include": ["b.d", "zz"]}, {"b": {"d": 3}}),
        ({"exclude": ["b.d"]}, {"a": 1, "b": {"c": 2}}),
    ],
)
def test_which_payload_comes_along(target: Target, asked: Any, expected: Any) -> None:
    """Left out it means all of it in a scroll and a retrieval, none of it in a query."""
    name = target.collection()
    target.client.upsert(name, [point(1, a=1, b={"c": 2, "d": 3})], wait=True)
    extra = {} if asked is None else {"with_payload": asked}
    query = target.post(f"/collections/{name}/points/query", {"query": VECTOR, "using": "dense", **extra})
    assert query.json()["result"]["points"][0].get("payload") == expected
    everything = {"a": 1, "b": {"c": 2, "d": 3}} if asked is None else expected
    scrolled = target.post(f"/collections/{name}/points/scroll", extra)
    assert scrolled.json()["result"]["points"][0].get("payload") == everything
    retrieved = target.post(f"/collections/{name}/points", {"ids": [1], **extra})
    assert retrieved.json()["result"][0].get("payload") == everything


def test_which_vectors_come_along(target: Target) -> None:
    name = target.collection()
    vectors = {"dense": VECTOR, "bm25": {"indices": [1], "values": [1.0]}}
    target.post(f"/collections/{name}/points?wait=true", {"points": [{"id": 1, "vector": vectors}]}, "PUT")
    for asked, names in ((True, {"dense", "bm25"}), (["bm25"], {"bm25"}), (False, None)):
        response = target.post(f"/collections/{name}/points/scroll", {"with_vector": asked})
        vector = response.json()["result"]["points"][0].get("vector")
        assert (set(vector) if vector is not None else None) == names
    one = target.http.get(f"/collections/{name}/points/1").json()["result"]
    assert set(one["vector"]) == {"dense", "bm25"}


def test_retrieving_leaves_out_what_is_not_there(target: Target) -> None:
    name = target.collection()
    target.client.upsert(name, [point(1, a=1), point(UUID, a=2)], wait=True)
    records = target.client.retrieve(name, [7, UUID, 1])
    assert {str(record.id): record.payload for record in records} == {"1": {"a": 1}, UUID: {"a": 2}}


def test_an_update_says_whether_it_was_waited_for(target: Target) -> None:
    name = target.collection()
    body = {"points": [{"id": 1, "vector": {"dense": VECTOR}}]}
    waited = target.post(f"/collections/{name}/points?wait=true&ordering=strong", body, "PUT").json()
    assert (waited["status"], waited["result"]["status"]) == ("ok", "completed")
    assert isinstance(waited["time"], float)
    assert isinstance(waited["result"]["operation_id"], int)
    at_once = target.post(f"/collections/{name}/points?wait=false", body, "PUT").json()
    assert at_once["result"]["status"] == "acknowledged"
