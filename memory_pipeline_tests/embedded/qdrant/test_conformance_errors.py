"""What Qdrant refuses, with which status and in which shape, and that nothing was written. Runs against any Qdrant."""

from __future__ import annotations

import json
from typing import Any

import pytest
from qdrant_client import models

from memory_pipeline_tests.embedded.qdrant.conftest import Target, status_error

pytestmark = pytest.mark.integration

VECTOR = [1.0, 0.0, 0.0, 0.0]
GOOD = {"id": 1, "vector": {"dense": VECTOR}}


def sparse(indices: list[Any], values: list[Any]) -> dict[str, Any]:
    return {"id": 2, "vector": {"bm25": {"indices": indices, "values": values}}}


BAD_POINTS: dict[str, tuple[Any, int, str]] = {
    "too short": ({"id": 2, "vector": {"dense": [1.0]}}, 400, "expected dim: 4, got 1"),
    "too long": ({"id": 2, "vector": {"dense": [1.0] * 5}}, 400, "expected dim: 4, got 5"),
    "unknown vector": ({"id": 2, "vector": {"other": VECTOR}}, 400, "Not existing vector name error: other"),
    "unnamed vector": ({"id": 2, "vector": VECTOR}, 400, "vector name"),
    "dense for sparse": ({"id": 2, "vector": {"bm25": VECTOR}}, 400, ""),
    "sparse for dense": ({"id": 2, "vector": {"dense": {"indices": [1], "values": [1.0]}}}, 400, ""),
    "text in a vector": ({"id": 2, "vector": {"dense": [1, 2, 3, "4"]}}, 400, "Format error in JSON body"),
    "null in a vector": ({"id": 2, "vector": {"dense": [1, 2, 3, None]}}, 400, "Format error in JSON body"),
    "boolean in a vector": ({"id": 2, "vector": {"dense": [1, 2, 3, True]}}, 400, "Format error in JSON body"),
    "no vector": ({"id": 2}, 400, ""),
    "no id": ({"vector": {"dense": VECTOR}}, 400, ""),
    "sparse of different lengths": (sparse([1, 2], [1.0]), 422, "must be the same length as indices"),
    "sparse index twice": (sparse([1, 1], [1.0, 2.0]), 422, "must be unique"),
    "sparse index negative": (sparse([-1], [1.0]), 400, "Format error in JSON body"),
    "sparse index too large": (sparse([2**32], [1.0]), 400, "Format error in JSON body"),
    "sparse index fractional": (sparse([1.5], [1.0]), 400, "Format error in JSON body"),
    "sparse value of text": (sparse([1], ["1"]), 400, "Format error in JSON body"),
    "id of text": ({**GOOD, "id": "memory:mem-0001"}, 400, "is not a valid point ID"),
    "id negative": ({**GOOD, "id": -1}, 400, ""),
    "id fractional": ({**GOOD, "id": 1.5}, 400, ""),
    "id too large": ({**GOOD, "id": 2**64}, 400, ""),
    "id boolean": ({**GOOD, "id": True}, 400, ""),
    "payload not an object": ({**GOOD, "id": 2, "payload": [1]}, 400, "Format error in JSON body"),
    "not an object": ("point", 400, "Format error in JSON body"),
}


@pytest.mark.parametrize("kind", BAD_POINTS)
def test_one_bad_point_and_none_of_the_batch_is_written(target: Target, kind: str) -> None:
    bad, status, said = BAD_POINTS[kind]
    name = target.collection()
    for points in ([GOOD, bad], [bad, GOOD]):
        response = target.post(f"/collections/{name}/points?wait=true", {"points": points}, "PUT")
        assert response.status_code == status, response.text
        assert said in status_error(response)
    assert target.client.count(name).count == 0
    response = target.post(f"/collections/{name}/points?wait=true", {"points": [GOOD]}, "PUT")
    assert response.status_code == 200
    assert target.client.count(name).count == 1


BAD_QUERIES: dict[str, tuple[Any, int]] = {
    "wrong dimension": ({"query": [1.0, 2.0], "using": "dense"}, 400),
    "unknown vector": ({"query": VECTOR, "using": "other"}, 400),
    "no using": ({"query": VECTOR}, 400),
    "sparse for dense": ({"query": {"indices": [1], "values": [1.0]}, "using": "dense"}, 400),
    "dense for sparse": ({"query": VECTOR, "using": "bm25"}, 400),
    "sparse of different lengths": ({"query": {"indices": [1, 2], "values": [1.0]}, "using": "bm25"}, 422),
    "sparse index twice": ({"query": {"indices": [1, 1], "values": [1.0, 1.0]}, "using": "bm25"}, 422),
    "limit 0": ({"query": VECTOR, "using": "dense", "limit": 0}, 422),
    "limit of text": ({"query": VECTOR, "using": "dense", "limit": "10"}, 400),
    "limit negative": ({"query": VECTOR, "using": "dense", "limit": -1}, 400),
    "fusion without prefetch": ({"query": {"fusion": "rrf"}}, 400),
    "formula without prefetch": ({"query": {"formula": 1.0}}, 400),
    "prefetch without query": ({"prefetch": {"query": VECTOR, "using": "dense"}}, 400),
    "unknown fusion": ({"prefetch": {"query": VECTOR, "using": "dense"}, "query": {"fusion": "best"}}, 400),
    "rrf with k 0": ({"prefetch": {"query": VECTOR, "using": "dense"}, "query": {"rrf": {"k": 0}}}, 422),
    "order by a field without an index": ({"query": {"order_by": "n"}}, 400),
    "vector asked for that is not there": ({"query": VECTOR, "using": "dense", "with_vector": ["other"]}, 400),
    "not an object": ([], 400),
}


@pytest.mark.parametrize("kind", BAD_QUERIES)
def test_a_bad_query_is_refused_alone_and_in_a_batch(target: Target, kind: str) -> None:
    query, status = BAD_QUERIES[kind]
    name = target.collection()
    target.post(f"/collections/{name}/points?wait=true", {"points": [GOOD]}, "PUT")
    response = target.post(f"/collections/{name}/points/query", query)
    assert response.status_code == status, response.text
    assert status_error(response)
    good = {"query": VECTOR, "using": "dense"}
    batch = target.post(f"/collections/{name}/points/query/batch", {"searches": [good, query]})
    assert batch.status_code == status, batch.text


@pytest.mark.parametrize("path", ["points/query", "points/scroll", "points/count", "points/delete"])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"nonsense",
        b"[1,",
        b'{"limit": NaN}',
        b'{"limit": Infinity}',
        b"\xff\xfe",
        b'{"filter": {"must": [{"is_empty": {"key": "\\ud800"}}]}}',
        b"{} {}",
    ],
)
def test_what_is_not_json_is_refused(target: Target, path: str, content: bytes) -> None:
    name = target.collection()
    headers = {"content-type": "application/json"}
    response = target.http.post(f"/collections/{name}/{path}", content=content, headers=headers)
    assert response.status_code == 400
    assert "Format error in JSON body" in status_error(response)


@pytest.mark.embedded
def test_a_body_that_is_too_large_is_refused_with_its_size(embedded: Target) -> None:
    """With the real server's answer; it may break the connection first, this one reads to the end."""
    name = embedded.collection()
    content = json.dumps({"points": [{**GOOD, "payload": {"text": "x" * (32 * 1024 * 1024)}}]}).encode()
    headers = {"content-type": "application/json"}
    response = embedded.http.put(f"/collections/{name}/points", content=content, headers=headers)
    assert response.status_code == 400
    assert f"({len(content)} bytes) is larger than allowed (limit: 33554432 bytes)" in status_error(response)
    assert embedded.client.count(name).count == 0


@pytest.mark.parametrize(
    "name", ["a%2Fb", "a%5Cb", "a%3Ab", "a%22b", "a%3Fb", "a%2Ab", "a%7Cb", "%3Cx%3E", "a%00b", "x" * 256]
)
def test_a_name_that_cannot_be_is_refused(target: Target, name: str) -> None:
    body = {"vectors": {"size": 2, "distance": "Dot"}}
    response = target.http.put(f"/collections/{name}", json=body)
    assert response.status_code == 422
    assert "Validation error in path parameters" in status_error(response)


@pytest.mark.parametrize("name", ["è-ü-😀", "with space", "a.b", "a%b", "a#b", "a&b=c", "x" * 200])
def test_an_unusual_name_is_served(target: Target, name: str) -> None:
    name = f"{target.name()[-32:]}{name}"
    target.names.append(name)
    target.client.create_collection(name, vectors_config=models.VectorParams(size=2, distance=models.Distance.DOT))
    assert name in [one.name for one in target.client.get_collections().collections]
    target.client.upsert(name, [models.PointStruct(id=1, vector=[1.0, 2.0])], wait=True)
    assert target.client.count(name).count == 1
    assert target.client.delete_collection(name)
    assert not target.client.collection_exists(name)
