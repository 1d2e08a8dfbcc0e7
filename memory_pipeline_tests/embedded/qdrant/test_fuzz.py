"""Requests that are almost right: each is answered or refused, none fails within, and the data stays whole."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

import pytest

from memory_pipeline_tests.embedded.qdrant.conftest import Target

pytestmark = pytest.mark.embedded

VECTOR = [1.0, 0.0, 0.0, 0.0]
SPARSE = {"indices": [1, 2], "values": [1.0, 2.0]}
NESTED = {"nested": {"key": "a", "filter": {"must": [{"key": "b", "match": {"value": 1}}]}}}
FILTER = {
    "must": [{"key": "k", "match": {"value": "x"}}, {"key": "n", "range": {"gte": 1, "lt": 5}}],
    "should": [{"is_empty": {"key": "z"}}, {"has_id": [1, 2]}, NESTED],
    "must_not": [{"key": "t", "match": {"text": "x"}}, {"key": "a", "values_count": {"gte": 9}}],
    "min_should": {
        "conditions": [{"has_vector": "bm25"}, {"key": "d", "range": {"gte": "2024-01-01"}}],
        "min_count": 0,
    },
}
FORMULA = {
    "sum": [
        "$score[0]",
        {"mult": [0.5, {"div": {"left": "$score[1]", "right": {"sum": ["$score[1]", 5.0]}, "by_zero_default": 0}}]},
        {"pow": {"base": "n", "exponent": 2}},
        {"exp_decay": {"x": "n", "target": 1, "scale": 2, "midpoint": 0.5}},
        {"geo_distance": {"origin": {"lon": 1, "lat": 1}, "to": "p"}},
        {"abs": {"neg": 1}},
        {"key": "k", "match": {"value": "x"}},
    ]
}
PREFETCH = [
    {"query": VECTOR, "using": "dense", "limit": 5, "filter": FILTER},
    {"query": SPARSE, "using": "bm25", "limit": 5, "params": {"exact": True, "hnsw_ef": 10, "idf": {"corpus": FILTER}}},
]
DEFAULTS = {"n": 1.0, "p": {"lon": 1, "lat": 1}, "$score[0]": 0, "$score[1]": 0}
POINT = {"id": 1, "vector": {"dense": VECTOR, "bm25": SPARSE}, "payload": {"k": "x", "n": 1, "a": [{"b": 1}]}}

REQUESTS: list[tuple[str, str, Any]] = [
    ("PUT", "points", {"points": [POINT], "update_filter": FILTER, "update_mode": "upsert"}),
    ("PUT", "points", {"batch": {"ids": [1], "vectors": {"dense": [VECTOR]}, "payloads": [{"k": "x"}]}}),
    ("POST", "points/query", {"prefetch": PREFETCH, "query": {"formula": FORMULA, "defaults": DEFAULTS}, "limit": 5}),
    ("POST", "points/query", {"prefetch": PREFETCH, "query": {"rrf": {"k": 60, "weights": [1.0, 2.0]}}}),
    ("POST", "points/query", {"query": VECTOR, "using": "dense", "filter": FILTER, "with_payload": {"include": ["k"]}}),
    ("POST", "points/query", {"query": {"order_by": {"key": "n", "direction": "asc", "start_from": 1}}}),
    ("POST", "points/query/batch", {"searches": [{"query": {"nearest": VECTOR}, "using": "dense"}]}),
    ("POST", "points/scroll", {"filter": FILTER, "limit": 5, "offset": 1, "with_vector": True}),
    ("POST", "points/count", {"filter": FILTER, "exact": True}),
    ("POST", "points", {"ids": [1, 2], "with_payload": ["k"], "with_vector": ["dense"]}),
    ("POST", "points/payload", {"payload": {"x": 1}, "points": [1], "key": "a.b"}),
    ("PUT", "points/payload", {"payload": {"k": "x", "n": 2}, "filter": FILTER}),
    ("POST", "points/payload/delete", {"keys": ["x"], "points": [1]}),
    ("PUT", "points/vectors", {"points": [{"id": 1, "vector": {"bm25": SPARSE}}], "update_filter": FILTER}),
    ("POST", "points/vectors/delete", {"points": [1], "vector": ["bm25"]}),
    ("POST", "points/delete", {"filter": FILTER}),
    ("PUT", "index", {"field_name": "n", "field_schema": {"type": "integer", "lookup": True, "range": True}}),
]
VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2**32, 2**63, 2**64, -(2**70), 0.5, 1e39, 1e308),
    *("", "x", "$score", "$score[5]", "a[", "é", "\0", "x" * 300, "2024-01-01"),
    *([], {}, [[]], [None], ["a"], [{}], {"": 1}, VECTOR, SPARSE, FILTER, FORMULA),
]


@pytest.mark.parametrize("seed", range(4))
def test_requests_that_are_almost_right(embedded: Target, seed: int) -> None:
    name = embedded.collection()
    keeper = {"id": 77, "vector": {"dense": VECTOR}, "payload": {"kept": True}}
    assert embedded.post(f"/collections/{name}/points", {"points": [keeper]}, "PUT").status_code == 200
    chance = random.Random(seed)
    answered = 0
    for _ in range(300):
        method, path, good = chance.choice(REQUESTS)
        body = mutated(good, chance)
        response = embedded.post(f"/collections/{name}/{path}", body, method)
        assert response.status_code in {200, 400, 404, 422, 501}, (method, path, body, response.text)
        answered += response.status_code == 200
    assert answered > 0
    assert embedded.http.get(f"/collections/{name}").status_code == 200


@pytest.mark.parametrize(("method", "path", "body"), REQUESTS)
def test_the_requests_that_they_come_from_are_right(embedded: Target, method: str, path: str, body: Any) -> None:
    name = embedded.collection()
    assert embedded.post(f"/collections/{name}/points", {"points": [POINT]}, "PUT").status_code == 200
    index = {"field_name": "n", "field_schema": "integer"}
    assert embedded.post(f"/collections/{name}/index", index, "PUT").status_code == 200
    response = embedded.post(f"/collections/{name}/{path}", body, method)
    assert response.status_code == 200, response.text


def mutated(good: Any, chance: random.Random) -> Any:
    """The request with one to three of its parts replaced, removed or joined by another."""
    body = copy.deepcopy(good)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        path = chance.choice([path for path in paths(body) if path])
        holder = body
        for step in path[:-1]:
            holder = holder[step]
        value = copy.deepcopy(chance.choice(VALUES))
        match chance.choice(("replace", "replace", "replace", "remove", "add")):
            case "replace":
                holder[path[-1]] = value
            case "remove" if len(path) > 1:
                del holder[path[-1]]
            case _ if isinstance(holder, dict):
                holder[chance.choice(("other", "key", "match", "must", "query", "filter", "id", "vector"))] = value
            case _:
                holder.append(value)
    return body


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, child in children:
        yield from paths(child, (*path, step))
