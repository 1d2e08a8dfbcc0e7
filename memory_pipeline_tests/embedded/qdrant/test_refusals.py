"""What the embedded server does not do, it refuses by name; and nothing that a client sends brings it down."""

from __future__ import annotations

import json
import socket
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from qdrant_client import models
from qdrant_client.http.exceptions import UnexpectedResponse

from memory_pipeline_tests.embedded.qdrant.conftest import Target, hybrid_config, status_error

pytestmark = pytest.mark.embedded

VECTOR = [1.0, 0.0, 0.0, 0.0]
DENSE = {"size": 4, "distance": "Cosine"}
NEAREST = {"query": VECTOR, "using": "dense"}


@pytest.fixture
def name(embedded: Target) -> str:
    made = embedded.collection()
    point = models.PointStruct(id=1, vector={"dense": VECTOR}, payload={"text": "one", "n": 1})
    embedded.client.upsert(made, [point], wait=True)
    return made


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/collections/{name}/snapshots"),
        ("GET", "/collections/{name}/snapshots"),
        ("PUT", "/collections/{name}/snapshots/recover"),
        ("POST", "/collections/{name}/points/query/groups"),
        ("POST", "/collections/{name}/points/search"),
        ("POST", "/collections/{name}/points/recommend"),
        ("POST", "/collections/{name}/points/search/matrix/pairs"),
        ("POST", "/collections/{name}/facet"),
        ("GET", "/collections/{name}/cluster"),
        ("PUT", "/collections/{name}/shards"),
        ("GET", "/cluster"),
        ("GET", "/telemetry"),
        ("GET", "/metrics"),
        ("GET", "/nowhere"),
        ("DELETE", "/collections"),
    ],
)
def test_other_paths(embedded: Target, name: str, method: str, path: str) -> None:
    path = path.format(name=name)
    response = embedded.http.request(method, path, json={} if method != "GET" else None)
    assert response.status_code == 501
    assert status_error(response) == f"The embedded server does not serve {method} {path}; use a real Qdrant"


def test_the_client_shows_the_refusal(embedded: Target, name: str) -> None:
    with pytest.raises(UnexpectedResponse, match=r"501 \(Not Implemented\)(.|\n)*does not serve POST .*/snapshots"):
        embedded.client.create_snapshot(name)


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"vectors": {"dense": {**DENSE, "datatype": "uint8"}}}, "datatype"),
        ({"vectors": {"dense": {**DENSE, "multivector_config": {"comparator": "max_sim"}}}}, "multivector_config"),
        ({"vectors": {"dense": {**DENSE, "quantization_config": {"scalar": {"type": "int8"}}}}}, "quantization_config"),
        ({"vectors": DENSE, "quantization_config": {"scalar": {"type": "int8"}}}, "quantization_config"),
        ({"vectors": DENSE, "strict_mode_config": {"enabled": True}}, "strict_mode_config"),
        ({"vectors": DENSE, "shard_number": 2}, "shard_number"),
        ({"vectors": DENSE, "replication_factor": 2}, "replication_factor"),
        ({"vectors": DENSE, "sharding_method": "custom"}, "sharding_method"),
        ({"sparse_vectors": {"s": {"index": {"datatype": "float16"}}}}, "datatype"),
        ({"vectors": {}}, "collections without any vector"),
    ],
)
def test_configuration(embedded: Target, config: dict[str, Any], named: str) -> None:
    response = embedded.post(f"/collections/{embedded.name()}", config, "PUT")
    assert response.status_code == 501
    assert named in status_error(response)
    assert not embedded.client.collection_exists(embedded.names[-1])


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ({"query": 1, "using": "dense"}, "queries by the id of a point"),
        ({"query": {"nearest": VECTOR, "mmr": {"diversity": 0.5}}, "using": "dense"}, "mmr"),
        ({"query": {"recommend": {"positive": [1]}}, "using": "dense"}, "recommendation queries"),
        ({"query": {"discover": {"target": 1, "context": []}}, "using": "dense"}, "discovery queries"),
        ({"query": {"context": []}, "using": "dense"}, "context queries"),
        ({"query": {"text": "one"}, "using": "text"}, "text queries"),
        ({"query": {"text": "one", "model": "qdrant/bm25"}, "using": "dense"}, "inference"),
        ({"query": {"nearest": {"text": "one", "model": "qdrant/bm25"}}, "using": "dense"}, "inference"),
        ({"query": [VECTOR, VECTOR], "using": "dense"}, "multivectors"),
        ({"query": [VECTOR] * 4, "using": "dense"}, "multivectors"),
        ({**NEAREST, "lookup_from": {"collection": "other"}}, "lookup_from"),
        ({**NEAREST, "shard_key": "a"}, "shard keys"),
        ({**NEAREST, "params": {"quantization": {"rescore": True}}}, "params.quantization"),
        ({**NEAREST, "params": {"acorn": {"enable": True}}}, "params.acorn"),
    ],
)
def test_queries(embedded: Target, name: str, query: dict[str, Any], named: str) -> None:
    response = embedded.post(f"/collections/{name}/points/query", query)
    assert response.status_code == 501, response.text
    assert named in status_error(response)
    within = {
        "prefetch": {key: value for key, value in query.items() if key != "shard_key"},
        "query": {"fusion": "rrf"},
    }
    if "shard_key" not in query:
        assert embedded.post(f"/collections/{name}/points/query", within).status_code == 501


@pytest.mark.parametrize(
    ("path", "request_body", "named"),
    [
        ("points/query", {**NEAREST, "limits": 1}, "limits"),
        ("points/query", {**NEAREST, "params": {"hnsw_eff": 1}}, "hnsw_eff"),
        ("points/query", {"query": {"nearest": VECTOR, "neerest": 1}, "using": "dense"}, "neerest"),
        ("points/query", {"query": {"best": VECTOR}, "using": "dense"}, "best"),
        ("points/query", {"prefetch": [{**NEAREST, "offset": 1}], "query": {"fusion": "rrf"}}, "offset"),
        ("points/query", {"prefetch": NEAREST, "query": {"rrf": {"weight": [1]}}}, "weight"),
        ("points/query", {"prefetch": NEAREST, "query": {"formula": "$score", "default": {}}}, "default"),
        ("points/query", {"prefetch": NEAREST, "query": {"formula": {"sums": [1]}}}, "sums"),
        ("points/query", {"prefetch": NEAREST, "query": {"formula": {"neg": 1.0, "also": 1}}}, "also"),
        ("points/query", {"prefetch": NEAREST, "query": {"formula": {"div": {"left": 1, "right": 1, "by": 0}}}}, "by"),
        ("points/query/batch", {"searches": [], "search": []}, "search"),
        ("points/query/batch", {"searches": [{**NEAREST, "limits": 1}]}, "limits"),
        ("points/scroll", {"limits": 1}, "limits"),
        ("points/scroll", {"order_by": {"key": "n", "order": "asc"}}, "order"),
        ("points/scroll", {"with_payload": {"only": ["n"]}}, "only"),
        ("points/count", {"filters": {}}, "filters"),
        ("points", {"ids": [1], "with_payloads": True}, "with_payloads"),
        ("points/delete", {"points": [1], "ids": [1]}, "ids"),
        ("points/payload", {"payload": {}, "points": [1], "keys": []}, "keys"),
        ("points/payload/delete", {"keys": [], "points": [1], "key": "a"}, "key"),
        ("points/payload/clear", {"points": [1], "key": "a"}, "key"),
        ("points/vectors/delete", {"points": [1], "vector": ["dense"], "vectors": []}, "vectors"),
    ],
)
def test_unknown_keys_in_bodies(
    embedded: Target, name: str, path: str, request_body: dict[str, Any], named: str
) -> None:
    response = embedded.post(f"/collections/{name}/{path}", request_body)
    assert response.status_code == 400
    assert f"unknown field `{named}`" in status_error(response)
    assert embedded.client.count(name).count == 1


@pytest.mark.parametrize(
    ("path", "request_body", "named"),
    [
        ("", {"vectors": DENSE, "vector": DENSE}, "vector"),
        ("", {"vectors": {"a": {**DENSE, "sise": 1}}}, "sise"),
        ("", {"vectors": DENSE, "hnsw_config": {"mm": 1}}, "mm"),
        ("", {"sparse_vectors": {"s": {"modifiers": "idf"}}}, "modifiers"),
        ("/index", {"field_name": "a", "field_schema": "keyword", "wait": True}, "wait"),
        ("/index", {"field_name": "a", "field_schema": {"type": "keyword", "tokenizer": "word"}}, "tokenizer"),
        ("/points", {"points": [{"id": 2, "vector": {}, "payloads": {}}]}, "payloads"),
        ("/points", {"points": [], "update_filters": {}}, "update_filters"),
        ("/points", {"batch": {"ids": [], "vectors": {}, "payload": []}}, "payload"),
        ("/points/vectors", {"points": [{"id": 1, "vector": {}, "payload": {}}]}, "payload"),
        ("/vectors/new", {"sparse": {"modifier": "idf", "index": {}, "idf": 1}}, "idf"),
    ],
)
def test_unknown_keys_in_what_is_put(
    embedded: Target, name: str, path: str, request_body: dict[str, Any], named: str
) -> None:
    where = f"/collections/{name}{path}" if path else f"/collections/{embedded.name()}"
    response = embedded.post(where, request_body, "PUT")
    assert response.status_code == 400, response.text
    assert f"unknown field `{named}`" in status_error(response)


@pytest.mark.parametrize(
    ("formula", "defaults", "said"),
    [
        ("$score[1]", {}, "beyond the 1 prefetches"),
        ({"sum": ["$score[0]", {"neg": "$score[7]"}]}, {}, "beyond the 1 prefetches"),
        ("$score", {"$score[1]": 1.0}, "beyond the 1 prefetches"),
        ("$score[x]", {}, "invalid reserved variable"),
        ("$rank", {}, "invalid reserved variable"),
        ("a[", {}, "query.formula"),
        ("absent", {}, "give its variables `defaults`"),
        ("text", {}, "give its variables `defaults`"),
        ({"ln": {"neg": "n"}}, {}, "no finite value"),
        ({"div": {"left": 1.0, "right": 0.0}}, {}, "no finite value"),
        ({"max": []}, {}, "at least one operand"),
        ({"exp_decay": {"x": "n", "scale": -1.0}}, {}, "scale"),
        ({"exp_decay": {"x": "n", "midpoint": 2.0}}, {}, "midpoint"),
        ({"key": "b", "match": {"value": True}}, {}, "a match on booleans"),
        (None, {}, "missing field `formula`"),
        (True, {}, "expected a number"),
        ({}, {}, "an empty object"),
        ("n", {"n": "text"}, ""),
    ],
)
def test_formulas_that_cannot_be_computed(
    embedded: Target, name: str, formula: Any, defaults: dict[str, Any], said: str
) -> None:
    request = {"prefetch": NEAREST, "query": {"formula": formula, "defaults": defaults}}
    response = embedded.post(f"/collections/{name}/points/query", request)
    if said == "":
        assert response.status_code in {200, 400}
        return
    assert response.status_code == (501 if "booleans" in said else 400), response.text
    assert said in status_error(response)


@pytest.mark.parametrize("opening", ["[", '{"must":[', '{"must":', '{"a":'])
def test_bottomless_nesting_is_refused(embedded: Target, name: str, opening: str) -> None:
    closing = {"[": "]", '{"must":[': "]}", '{"must":': "}", '{"a":': "}"}[opening]
    for depth in (90, 150, 199, 1_000, 100_000):
        nested = opening * depth + "[]" + closing * depth
        for path, content in (
            ("scroll", f'{{"filter":{nested}}}'),
            ("query", f'{{"query":{{"formula":{nested}}},"prefetch":{{}}}}'),
            ("query", f'{{"prefetch":{nested}}}'),
        ):
            headers = {"content-type": "application/json"}
            url = f"/collections/{name}/points/{path}"
            response = embedded.http.post(url, content=content, headers=headers)
            assert response.status_code in {200, 400}
            assert depth < 1_000 or response.status_code == 400
    assert embedded.client.count(name).count == 1


def test_filters_as_deep_as_a_person_would_write_are_served(embedded: Target, name: str) -> None:
    condition: Any = {"key": "n", "match": {"value": 1}}
    for _ in range(40):
        condition = {"must": [condition]}
    assert embedded.post(f"/collections/{name}/points/count", {"filter": condition}).json()["result"]["count"] == 1


@pytest.mark.parametrize(("depth", "served"), [(90, True), (99, True), (101, False), (150, False)])
def test_a_payload_is_kept_only_as_deep_as_it_can_be_read_again(
    embedded: Target, name: str, depth: int, served: bool
) -> None:
    """The engine writes deeper payloads without a word, and then neither reads them nor opens the shard again."""
    payload: Any = {}
    for _ in range(depth):
        payload = {"a": payload}
    point = {"id": 2, "vector": {"dense": VECTOR}, "payload": payload}
    response = embedded.post(f"/collections/{name}/points", {"points": [point]}, "PUT")
    assert response.status_code == (200 if served else 400)
    set_on = embedded.post(f"/collections/{name}/points/payload", {"payload": payload, "points": [1]})
    assert set_on.status_code == (200 if served else 400)
    if served:
        found = embedded.http.get(f"/collections/{name}/points/2").json()["result"]
        assert found["payload"] == payload


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1" + "0" * 400, "1" * 5000, "NaN", "Infinity"])
def test_numbers_that_are_none_are_refused(embedded: Target, name: str, number: str) -> None:
    bodies = {
        "points?wait=true": f'{{"points":[{{"id":2,"vector":{{"dense":[1,2,3,{number}]}}}}]}}',
        "points/vectors": f'{{"points":[{{"id":1,"vector":{{"bm25":{{"indices":[1],"values":[{number}]}}}}}}]}}',
    }
    headers = {"content-type": "application/json"}
    for path, content in bodies.items():
        response = embedded.http.put(f"/collections/{name}/{path}", content=content, headers=headers)
        assert response.status_code == 400, response.text
        assert status_error(response)
    range_filter = f'{{"filter":{{"must":[{{"key":"n","range":{{"gte":{number}}}}}]}}}}'
    response = embedded.http.post(f"/collections/{name}/points/scroll", content=range_filter, headers=headers)
    assert response.status_code == 400, response.text
    assert embedded.client.count(name).count == 1


def test_a_number_beyond_32_bits_is_refused(embedded: Target, name: str) -> None:
    body = {"points": [{"id": 2, "vector": {"dense": [1.0, 2.0, 3.0, 1e39]}}]}
    response = embedded.post(f"/collections/{name}/points", body, "PUT")
    assert response.status_code == 400
    assert "32-bit" in status_error(response)


@pytest.mark.parametrize("vector", ["", ".", "..", "../../evil", "a/b", "x" * 201, "é" * 101, "a\0b"])
def test_vector_names_that_would_break_a_shard_are_refused(embedded: Target, name: str, vector: str) -> None:
    """The engine makes folders of them."""
    config = {"vectors": {"dense": DENSE}, "sparse_vectors": {vector: {}}}
    response = embedded.post(f"/collections/{embedded.name()}", config, "PUT")
    assert response.status_code == 422
    if vector not in ("", ".", ".."):  # these cannot stand in a path
        added = embedded.http.put(f"/collections/{name}/vectors/{quote(vector, safe='')}", json={"sparse": {}})
        assert added.status_code == 422
    assert embedded.client.count(name).count == 1


def test_a_body_must_say_that_it_is_json(embedded: Target, name: str) -> None:
    """A web page can make a browser send a form or plain text to this machine, but not JSON that says so."""
    for content_type in ("text/plain", "application/x-www-form-urlencoded", None):
        headers = {"content-type": content_type} if content_type else {}
        url = f"/collections/{name}/points/delete"
        response = embedded.http.post(url, content=b'{"points": [1]}', headers=headers)
        assert response.status_code == 400
        assert "Content type error" in status_error(response)
    assert embedded.client.count(name).count == 1


@pytest.mark.parametrize(("parameters", "said"), [({"wait": "maybe"}, "wait"), ({"ordering": "random"}, "ordering")])
def test_parameters_that_are_none_are_refused(
    embedded: Target, name: str, parameters: dict[str, str], said: str
) -> None:
    response = embedded.http.post(f"/collections/{name}/points/delete", params=parameters, json={"points": [1]})
    assert response.status_code == 400
    assert said in status_error(response)
    assert embedded.client.count(name).count == 1


def test_an_aliases_call_is_all_or_nothing(embedded: Target, name: str) -> None:
    alias = embedded.name()
    actions = [
        {"create_alias": {"alias_name": alias, "collection_name": name}},
        {"create_alias": {"alias_name": f"{alias}-2", "collection_name": "absent"}},
    ]
    assert embedded.post("/collections/aliases", {"actions": actions}).status_code == 404
    assert embedded.client.get_collection_aliases(name).aliases == []
    bad: Any
    for bad in ({"actions": [{"make_alias": {}}]}, {"actions": [{}]}, {"actions": [actions[0], {"delete_alias": {}}]}):
        assert embedded.post("/collections/aliases", bad).status_code == 400
    named = {"actions": [{"create_alias": {"alias_name": "a/b", "collection_name": name}}]}
    assert embedded.post("/collections/aliases", named).status_code == 422
    assert embedded.client.get_collection_aliases(name).aliases == []


def test_a_write_to_points_of_which_one_is_absent_writes_none(embedded: Target, name: str) -> None:
    body = {"payload": {"text": "changed"}, "points": [1, 99]}
    assert embedded.post(f"/collections/{name}/points/payload?wait=true", body).status_code == 404
    assert embedded.client.retrieve(name, [1])[0].payload == {"text": "one", "n": 1}


def test_garbage_on_the_wire_harms_no_one(embedded: Target, name: str) -> None:
    address = (httpx.URL(embedded.url).host, httpx.URL(embedded.url).port)
    for garbage in (
        b"\x00" * 1000,
        b"GET / HTTP/9.9\r\n\r\n",
        b"PUT /collections/x HTTP/1.1\r\ncontent-length: 10\r\n\r\n{",
    ):
        with socket.create_connection(address, timeout=10) as connection:
            connection.sendall(garbage)
    for path in (
        f"/{'x' * 50_000}",
        f"/collections/{'%41' * 5000}/points/1",
        "/collections/%ff/exists",
        "/collections//exists",
    ):
        response = embedded.http.get(path)
        assert response.status_code in {400, 404, 414, 422, 501}
    assert embedded.client.count(name).count == 1


def test_an_id_in_the_path_is_read_like_one_in_a_body(embedded: Target, name: str) -> None:
    assert embedded.http.get(f"/collections/{name}/points/1").status_code == 200
    for text in ("memory:1", "-1", "1.0", "1" * 30, "1" * 5000, "%20"):
        response = embedded.http.get(f"/collections/{name}/points/{text}")
        assert response.status_code == 400
        assert "as point id" in status_error(response)


def test_forms_of_one_uuid_are_one_point(embedded: Target, name: str) -> None:
    forms = [
        "550e8400-e29b-41d4-a716-446655440000",
        "550E8400-E29B-41D4-A716-446655440000",
        "550e8400e29b41d4a716446655440000",
        "urn:uuid:550e8400-e29b-41d4-a716-446655440000",
        "{550e8400-e29b-41d4-a716-446655440000}",
    ]
    for form in forms:
        point = {"id": form, "vector": {"dense": VECTOR}, "payload": {"form": form}}
        assert embedded.post(f"/collections/{name}/points", {"points": [point]}, "PUT").status_code == 200
        body = {"payload": {"seen": True}, "points": [form]}
        assert embedded.post(f"/collections/{name}/points/payload", body).status_code == 200
    assert embedded.client.count(name).count == 2
    (record,) = embedded.client.retrieve(name, [forms[0]])
    assert record.payload == {"form": forms[-1], "seen": True}


def test_a_vector_that_is_there_is_not_replaced(embedded: Target, name: str) -> None:
    same = embedded.post(f"/collections/{name}/vectors/bm25", {"sparse": {"modifier": "idf"}}, "PUT")
    assert same.status_code == 200
    config: Any
    for config in ({"sparse": {}}, {"dense": {"size": 4, "distance": "Dot"}}):
        other = embedded.post(f"/collections/{name}/vectors/bm25", config, "PUT")
        assert other.status_code == 400
        assert "already exists with different parameters" in status_error(other)
    assert embedded.http.delete(f"/collections/{name}/vectors/absent").status_code == 400
    only = embedded.collection(vectors_config=hybrid_config()["vectors_config"])
    assert embedded.http.delete(f"/collections/{only}/vectors/dense").status_code == 501


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (None, "please specify `field_schema`"),
        ("json", "unknown variant `json`"),
        ({"type": "keywords"}, "unknown variant `keywords`"),
        ({}, "field_schema.type"),
        ({"type": "text", "tokenizer": "letters"}, "unknown variant `letters`"),
        ({"type": "text", "stemmer": {"type": "snowball", "language": "klingon"}}, "unknown variant `klingon`"),
        ({"type": "keyword", "is_tenant": "yes"}, "expected a boolean"),
        (5, "field_schema"),
    ],
)
def test_indexes_that_cannot_be_made(embedded: Target, name: str, schema: Any, said: str) -> None:
    response = embedded.post(f"/collections/{name}/index", {"field_name": "a", "field_schema": schema}, "PUT")
    assert response.status_code == 400, response.text
    assert said in status_error(response)
    bad_path = {"field_name": "a[", "field_schema": "keyword"}
    assert embedded.post(f"/collections/{name}/index", bad_path, "PUT").status_code == 400
    assert embedded.client.get_collection(name).payload_schema == {}


def test_a_large_integer_in_a_payload_is_kept_as_a_number(embedded: Target, name: str) -> None:
    content = json.dumps({"payload": {"big": 10**30}, "points": [1]})
    headers = {"content-type": "application/json"}
    response = embedded.http.post(f"/collections/{name}/points/payload", content=content, headers=headers)
    assert response.status_code == 200
    record = embedded.http.get(f"/collections/{name}/points/1").json()["result"]
    assert record["payload"]["big"] == 1e30
