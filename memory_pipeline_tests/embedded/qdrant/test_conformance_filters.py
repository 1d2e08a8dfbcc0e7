"""Filters: what each condition finds, with and without a payload index. Runs against any Qdrant."""

from __future__ import annotations

from typing import Any

import pytest
from qdrant_client import models

from memory_pipeline_tests.embedded.qdrant.conftest import Target, status_error

pytestmark = pytest.mark.integration

UUID = "550e8400-e29b-41d4-a716-446655440000"
POINTS: dict[int | str, dict[str, Any]] = {
    1: {"kind": "memory", "scope": "esercizi 2023", "n": 1, "paths": ["a", "a/b"], "at": "2024-01-01T00:00:00Z"},
    2: {"kind": "memory", "scope": None, "n": 2, "paths": ["c"], "x": 1.5, "at": "2024-06-01T12:00:00+02:00"},
    3: {"kind": "evidence", "n": 3, "paths": [], "text": "pazienti ricoverati in reparto", "place": [12.5, 41.9]},
    4: {"kind": "exemplar", "n": -4, "paths": ["a", "c", "d"], "text": "reparto di cardiologia", "x": -2.0},
    UUID: {"kind": ["memory", "evidence"], "n": [10, 20], "deps": [{"db": "x", "t": "u"}, {"db": "y", "t": "v"}]},
}
INDEXES = {
    "kind": models.PayloadSchemaType.KEYWORD,
    "scope": models.PayloadSchemaType.KEYWORD,
    "paths": models.PayloadSchemaType.KEYWORD,
    "n": models.PayloadSchemaType.INTEGER,
    "x": models.PayloadSchemaType.FLOAT,
    "at": models.PayloadSchemaType.DATETIME,
    "deps[].db": models.PayloadSchemaType.KEYWORD,
}


def key(name: str, **predicate: Any) -> dict[str, Any]:
    return {"key": name, **predicate}


def value(name: str, wanted: str | int) -> dict[str, Any]:
    return key(name, match={"value": wanted})


FILTERS: dict[str, tuple[dict[str, Any], set[int | str]]] = {
    "no condition": ({}, set(POINTS)),
    "keyword": ({"must": [value("kind", "memory")]}, {1, 2, UUID}),
    "a condition alone, not in a list": ({"must": value("kind", "memory")}, {1, 2, UUID}),
    "integer": ({"must": [value("n", 2)]}, {2}),
    "integer, negative, and in an array": ({"should": [value("n", -4), value("n", 20)]}, {4, UUID}),
    "any keyword": ({"must": [key("paths", match={"any": ["b", "c", "a/b"]})]}, {1, 2, 4}),
    "any integer": ({"must": [key("n", match={"any": [1, 3, 99]})]}, {1, 3}),
    "any of none": ({"must": [key("n", match={"any": []})]}, set()),
    "except": ({"must": [key("kind", match={"except": ["memory"]})]}, {3, 4, UUID}),
    "except leaves out points without the field": ({"must": [key("x", match={"except": [7]})]}, {2, 4}),
    "must, all of them": ({"must": [value("kind", "memory"), value("paths", "a")]}, {1}),
    "should, one of them": ({"should": [value("paths", "d"), value("paths", "a/b")]}, {1, 4}),
    "must_not": ({"must_not": [value("kind", "memory")]}, {3, 4}),
    "must_not, none of them": ({"must_not": [value("kind", "memory"), value("n", 3)]}, {4}),
    "must and should and must_not": (
        {
            "must": [value("kind", "memory")],
            "should": [value("n", 1), value("n", 2)],
            "must_not": [value("paths", "c")],
        },
        {1},
    ),
    "min_should": (
        {"min_should": {"conditions": [value("kind", "memory"), value("paths", "a"), value("n", 1)], "min_count": 2}},
        {1},
    ),
    "a filter in a filter": ({"must": [{"should": [value("n", 1), value("n", 3)]}, value("kind", "memory")]}, {1}),
    "not a filter": ({"must_not": [{"must": [value("kind", "memory"), value("n", 1)]}]}, {2, 3, 4, UUID}),
    "has_id": ({"must": [{"has_id": [1, UUID, 77]}]}, {1, UUID}),
    "has_vector": ({"must": [{"has_vector": "bm25"}]}, {1, 3}),
    "is_empty: null, [] and absent": ({"must": [{"is_empty": {"key": "scope"}}]}, {2, 3, 4, UUID}),
    "is_empty of an array": ({"must": [{"is_empty": {"key": "paths"}}]}, {3, UUID}),
    "is_null is not absent": ({"must": [{"is_null": {"key": "scope"}}]}, {2}),
    "equal, or without": ({"should": [value("scope", "esercizi 2023"), {"is_empty": {"key": "scope"}}]}, set(POINTS)),
    "field is_empty true": ({"must": [key("paths", is_empty=True)]}, {3, UUID}),
    "field is_empty false": ({"must": [key("paths", is_empty=False)]}, {1, 2, 4}),
    "field is_null true": ({"must": [key("scope", is_null=True)]}, {2}),
    "range": ({"must": [key("n", range={"gt": 1, "lte": 3})]}, {2, 3}),
    "range of floats": ({"must": [key("x", range={"lt": 1.5})]}, {4}),
    "range over an array": ({"must": [key("n", range={"gte": 15})]}, {UUID}),
    "range of dates": ({"must": [key("at", range={"gte": "2024-01-01T00:00:01Z", "lt": "2024-06-01T10:00:01Z"})]}, {2}),
    "values_count": ({"must": [key("paths", values_count={"gte": 2})]}, {1, 4}),
    "a path into an array of objects": ({"must": [value("deps[].db", "y")]}, {UUID}),
    "a path into an array combines objects": ({"must": [value("deps[].db", "y"), value("deps[].t", "u")]}, {UUID}),
    "nested does not": (
        {"must": [{"nested": {"key": "deps", "filter": {"must": [value("db", "y"), value("t", "u")]}}}]},
        set(),
    ),
    "nested, of one object": (
        {"must": [{"nested": {"key": "deps", "filter": {"must": [value("db", "y"), value("t", "v")]}}}]},
        {UUID},
    ),
    "an unknown field": ({"must": [value("nowhere", "memory")]}, set()),
}


@pytest.fixture(scope="module")
def filled(_target_session: Target) -> Any:
    target = _target_session
    name = target.collection()
    points = [models.PointStruct(id=n, vector={"dense": [1, 2, 3, 4]}, payload=p) for n, p in POINTS.items()]
    target.client.upsert(name, points, wait=True)
    vectors = [models.PointVectors(id=n, vector={"bm25": models.SparseVector(indices=[1], values=[1])}) for n in (1, 3)]
    target.client.update_vectors(name, vectors, wait=True)
    target.names.remove(name)
    yield name
    target.client.delete_collection(name)


@pytest.mark.parametrize("kind", FILTERS)
def test_without_indexes(target: Target, filled: str, kind: str) -> None:
    check(target, filled, *FILTERS[kind])


@pytest.mark.parametrize("kind", FILTERS)
def test_with_indexes(target: Target, filled: str, kind: str) -> None:
    for field, schema in INDEXES.items():
        target.client.create_payload_index(filled, field, schema, wait=True)
    check(target, filled, *FILTERS[kind])


def check(target: Target, name: str, condition: dict[str, Any], expected: set[int | str]) -> None:
    """Scroll, count and query agree on what the filter finds."""
    scrolled = target.post(f"/collections/{name}/points/scroll", {"filter": condition, "limit": 100})
    assert scrolled.status_code == 200, scrolled.text
    assert {point["id"] for point in scrolled.json()["result"]["points"]} == expected
    counted = target.post(f"/collections/{name}/points/count", {"filter": condition, "exact": True})
    assert counted.json()["result"]["count"] == len(expected)
    query = {"query": [1, 0, 0, 0], "using": "dense", "filter": condition, "limit": 100}
    queried = target.post(f"/collections/{name}/points/query", query)
    assert {point["id"] for point in queried.json()["result"]["points"]} == expected


def test_full_text(target: Target, filled: str) -> None:
    schema = models.TextIndexParams(
        type=models.TextIndexType.TEXT, tokenizer=models.TokenizerType.WORD, lowercase=True, phrase_matching=True
    )
    target.client.create_payload_index(filled, "text", schema, wait=True)
    wanted: dict[str, tuple[dict[str, str], set[int | str]]] = {
        "all words": ({"text": "reparto pazienti"}, {3}),
        "any word": ({"text_any": "cardiologia pazienti"}, {3, 4}),
        "a phrase": ({"phrase": "in reparto"}, {3}),
    }
    for match, expected in wanted.values():
        check(target, filled, {"must": [key("text", match=match)]}, expected)


@pytest.mark.parametrize(
    ("condition", "named"),
    [
        ({"must": [{**value("kind", "memory"), "matsch": {}}]}, "matsch"),
        ({"must": [key("kind", match={"value": "memory", "fuzzy": True})]}, "fuzzy"),
        ({"must": [key("n", range={"gte": 1, "ge": 2})]}, "ge"),
        ({"must": [{"nested": {"key": "deps", "filter": {"must_nott": []}}}]}, "must_nott"),
        ({"must": [{"should": [{"has_ids": [1]}]}]}, "has_ids"),
        ({"musst": []}, "musst"),
    ],
)
@pytest.mark.embedded
def test_an_unknown_key_is_refused_by_name(embedded: Target, condition: dict[str, Any], named: str) -> None:
    """Dropped without a word it would widen what is found. The real server is laxer in places."""
    name = embedded.collection()
    for path, request in (
        ("scroll", {"filter": condition}),
        ("count", {"filter": condition}),
        ("delete", {"filter": condition}),
        ("query", {"query": [1, 0, 0, 0], "using": "dense", "filter": condition}),
        (
            "query",
            {"prefetch": {"query": [1, 0, 0, 0], "using": "dense", "filter": condition}, "query": {"fusion": "rrf"}},
        ),
    ):
        response = embedded.post(f"/collections/{name}/points/{path}", request)
        assert response.status_code == 400, path
        assert f"`{named}`" in status_error(response)


def test_a_condition_without_a_predicate_is_refused(target: Target, filled: str) -> None:
    response = target.post(f"/collections/{filled}/points/scroll", {"filter": {"must": [{"key": "kind"}]}})
    assert response.status_code == 422
    assert "At least one field condition must be specified" in status_error(response)


@pytest.mark.embedded
@pytest.mark.parametrize(
    ("condition", "status", "said"),
    [
        (value("kind", True), 501, "a match on booleans"),
        (key("n", match={"any": [True, False]}), 400, "expected a string or an integer"),
        (key("n", match={"value": 1.5}), 400, "expected a string or an integer"),
        (key("n", match={"value": 2**63}), 400, "expected a string or an integer"),
        (key("n", match={"any": [1, "a"]}), 400, "only strings or only integers"),
        (key("n", match={"value": 1, "any": [1]}), 400, "exactly one of"),
        (key("n", match={}), 400, "exactly one of"),
        (key("n", match={"value": 1}, range={"gte": 0}), 400, "one condition per key"),
        (key("n", range={"gte": "soon"}), 400, "date"),
        (key("n", range={"gte": []}), 400, "expected a number"),
        (key("a[", is_empty=True), 400, "JSON path"),
        (key("", is_empty=True), 400, "JSON path"),
        ({"key": None, "is_empty": True}, 400, "`key`"),
        ({"is_empty": None}, 400, "`is_empty`"),
        ({"has_id": ["memory:1"]}, 400, "is not a valid point ID"),
        ({"has_id": [True]}, 400, "is not a valid point ID"),
        ({"slice": {"total": 0, "index": 0}}, 400, "greater than 0"),
        (key("p", geo_radius={"center": {"lon": 400, "lat": 0}, "radius": 1}), 400, "GeoPoint"),
        ("memory", 400, "expected a condition"),
    ],
)
def test_what_cannot_be_right_is_refused(embedded: Target, condition: Any, status: int, said: str) -> None:
    name = embedded.collection()
    for clause in ("must", "should", "must_not"):
        response = embedded.post(f"/collections/{name}/points/scroll", {"filter": {clause: [condition]}})
        assert response.status_code == status, response.text
        assert said in status_error(response)


def test_places(target: Target) -> None:
    name = target.collection()
    places = {1: {"lon": 12.5, "lat": 41.9}, 2: {"lon": 9.19, "lat": 45.46}, 3: {"lon": -0.1, "lat": 51.5}}
    target.client.upsert(
        name, [models.PointStruct(id=n, vector={}, payload={"place": place}) for n, place in places.items()], wait=True
    )
    box = {"top_left": {"lon": 6, "lat": 48}, "bottom_right": {"lon": 19, "lat": 36}}
    square = [{"lon": lon, "lat": lat} for lon, lat in ((6, 44), (19, 44), (19, 36), (6, 36), (6, 44))]
    wanted: dict[str, tuple[dict[str, Any], set[int | str]]] = {
        "box": ({"geo_bounding_box": box}, {1, 2}),
        "radius": ({"geo_radius": {"center": places[1], "radius": 1000.0}}, {1}),
        "polygon": ({"geo_polygon": {"exterior": {"points": square}}}, {1}),
    }
    for predicate, expected in wanted.values():
        check_scroll(target, name, {"must": [key("place", **predicate)]}, expected)


def check_scroll(target: Target, name: str, condition: dict[str, Any], expected: set[int | str]) -> None:
    response = target.post(f"/collections/{name}/points/scroll", {"filter": condition, "limit": 100})
    assert response.status_code == 200, response.text
    assert {point["id"] for point in response.json()["result"]["points"]} == expected


def test_slices_part_the_points(target: Target, filled: str) -> None:
    seen: list[int | str] = []
    for index in range(3):
        condition = {"must": [{"slice": {"total": 3, "index": index}}]}
        response = target.post(f"/collections/{filled}/points/scroll", {"filter": condition, "limit": 100})
        seen += [point["id"] for point in response.json()["result"]["points"]]
    assert len(seen) == len(POINTS)
    assert set(seen) == set(POINTS)
