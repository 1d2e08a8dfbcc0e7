"""A server that is down, slow, strict or talking nonsense: one named error each, and nothing done twice."""

from __future__ import annotations

import json
import socket
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from memory_pipeline.core.errors import CollectionMissing, ConfigurationError, IndexUnavailable
from memory_pipeline.core.projection import point_id
from memory_pipeline.index import connection
from memory_pipeline.index.vector_index import VectorIndex
from memory_pipeline_tests.index.samples import DIMENSIONS, ScriptedServer, point, query, serve

Call = Callable[[VectorIndex], object]
CALLS: list[tuple[str, Call]] = [
    ("describe", lambda index: index.shape("memory__a__1")),
    ("describe", lambda index: index.create("memory__a__1", dimensions=DIMENSIONS)),
    ("delete", lambda index: index.drop("memory__a__1")),
    ("list the aliases of", lambda index: index.alias_target("memory__a__1")),
    ("write 1 points to", lambda index: index.upsert("memory__a__1", [point(1)])),
    ("write 1 payloads to", lambda index: index.set_payload("memory__a__1", [point(1).projection])),
    ("read 1 points of", lambda index: index.read("memory__a__1", [point_id("mem-0001")])),
    ("delete 1 points of", lambda index: index.delete("memory__a__1", [point_id("mem-0001")])),
    ("count", lambda index: index.count("memory__a__1")),
    ("scroll", lambda index: list(index.scroll("memory__a__1", 5))),
    ("search", lambda index: index.search("memory__a__1", query())),
    ("search", lambda index: index.search_branch("memory__a__1", query(), "dense")),
    ("score hits of", lambda index: index.branch_scores("memory__a__1", [point_id("mem-0001")], query())),
]
NONSENSE = "the answer is not one of Qdrant's"
every_call = pytest.mark.parametrize(("operation", "call"), CALLS, ids=[f"{n}-{c[0]}" for n, c in enumerate(CALLS)])


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_FIRST_PAUSE", 0.01)


@pytest.fixture
def faulty(scripted: ScriptedServer) -> Iterator[VectorIndex]:
    with VectorIndex(scripted.url, api_key=None, timeout=5) as made:
        yield made


def refused(operation: str, index: VectorIndex, call: Call) -> IndexUnavailable:
    with pytest.raises(IndexUnavailable) as caught:
        call(index)
    assert type(caught.value) is IndexUnavailable
    assert f"did not {operation} collection 'memory__a__1'" in caught.value.message
    return caught.value


@every_call
def test_a_server_that_is_down_is_named(operation: str, call: Call) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    with VectorIndex(f"http://user:hush@127.0.0.1:{port}", api_key="hush", timeout=5) as index:
        error = refused(operation, index, call)
    assert f"Qdrant at http://127.0.0.1:{port}" in error.message
    assert error.message.endswith(": no connection")
    assert "hush" not in str(error)


@every_call
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param((500, b'{"status": {"error": "Service internal error: disk"}}'), "disk", id="500"),
        pytest.param((503, b"<html>busy</html>"), "status 503, <html>busy</html>", id="503 of a proxy"),
        pytest.param((502, b""), "status 502, nothing more", id="502 without a word"),
        pytest.param((404, b"404 page not found"), "status 404, 404 page not found", id="404 of another server"),
        pytest.param((200, b"not json"), NONSENSE, id="not json"),
        pytest.param((200, b"{}"), NONSENSE, id="no result"),
        pytest.param((200, b'{"result": null}'), NONSENSE, id="null"),
        pytest.param((200, b'{"result": {"x": 1}}'), NONSENSE, id="another shape"),
        pytest.param((200, b'[{"result": []}]'), NONSENSE, id="a list"),
    ],
)
def test_a_server_that_fails_is_asked_once_and_named(
    scripted: ScriptedServer, operation: str, call: Call, answer: tuple[int, bytes], reason: str
) -> None:
    scripted.status, scripted.content = answer
    with VectorIndex(scripted.url, api_key=None, timeout=5) as index:
        assert reason in refused(operation, index, call).message
    assert len(scripted.requests) == 1


@pytest.mark.parametrize("operation", ["search", "write 1 points to", "describe"])
def test_a_server_that_never_answers_is_given_up_after_the_time_limit(scripted: ScriptedServer, operation: str) -> None:
    scripted.content = None
    with VectorIndex(scripted.url, api_key=None, timeout=1) as index:
        assert "no answer within 1 s" in refused(operation, index, dict(CALLS)[operation]).message
    assert len(scripted.requests) == 1


def test_an_answer_to_fewer_searches_than_were_sent_is_never_used(
    faulty: VectorIndex, scripted: ScriptedServer
) -> None:
    scripted.content = b'{"result": [{"points": []}]}'
    operation, scores = CALLS[-1]
    assert NONSENSE in refused(operation, faulty, scores).message


@pytest.mark.parametrize("status", [401, 403])
def test_a_wrong_key_names_the_secret_and_not_the_key(scripted: ScriptedServer, status: int) -> None:
    scripted.status, scripted.content = status, b"Invalid API key or JWT"
    with VectorIndex(scripted.url, api_key="hush", timeout=5) as index:
        error = refused("count", index, lambda index: index.count("memory__a__1"))
    assert "the secret 'qdrant_api_key'" in error.hint
    assert "hush" not in str(error)


def test_too_many_requests_are_named(faulty: VectorIndex, scripted: ScriptedServer) -> None:
    scripted.status, scripted.headers = 429, {"Retry-After": "3"}
    scripted.content = b'{"status": {"error": "Rate limiting exceeded"}}'
    assert "Rate limiting exceeded" in refused("count", faulty, lambda index: index.count("memory__a__1")).message


@pytest.mark.parametrize("status", ["acknowledged", "wait_timeout"])
def test_a_write_that_is_only_noted_down_is_not_done(
    faulty: VectorIndex, scripted: ScriptedServer, status: str
) -> None:
    done, noted = {"operation_id": 1, "status": "completed"}, {"operation_id": 2, "status": status}
    calls: list[tuple[object, Call]] = [
        (noted, lambda index: index.upsert("memory__a__1", [point(1)])),
        (noted, lambda index: index.delete("memory__a__1", [point_id("mem-0001")])),
        ([done, noted], lambda index: index.set_payload("memory__a__1", [point(1).projection, point(2).projection])),
    ]
    for result, call in calls:
        scripted.content = json.dumps({"result": result}).encode()
        with pytest.raises(IndexUnavailable, match=f"yet: {status}"):
            call(faulty)


def test_a_missing_collection_is_told_from_a_missing_page(faulty: VectorIndex, scripted: ScriptedServer) -> None:
    scripted.status = 404
    scripted.content = b'{"status": {"error": "Not found: Collection `memory__a__1` doesn\'t exist!"}}'
    with pytest.raises(CollectionMissing):
        faulty.count("memory__a__1")


@pytest.mark.parametrize("url", ["", "127.0.0.1:6333", "ftp://host", "http://", "http://host:port", "http://[::1"])
def test_an_address_that_is_none_is_a_configuration_error(url: str) -> None:
    with pytest.raises(ConfigurationError, match="the address of Qdrant"):
        VectorIndex(url, api_key=None, timeout=5)


def test_a_connection_is_kept_and_nothing_is_asked_before_the_first_call(scripted: ScriptedServer) -> None:
    scripted.content = b'{"result": {"count": 5}}'
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a key on plain HTTP is what a server of this machine has
        index = VectorIndex(scripted.url, api_key="key", timeout=5)
    assert scripted.requests == []
    assert [index.count("a") for _ in range(3)] == [5, 5, 5]
    assert scripted.connections == 1
    index.close()


def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(
    scripted: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted.content = b'{"result": {"count": 5}}'
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    with VectorIndex(scripted.url, api_key=None, timeout=5) as index:
        assert index.count("a") == 5


@pytest.mark.integration
def test_the_server_of_these_tests_asks_for_its_key(server: tuple[str, str | None]) -> None:
    url, key = server
    if key is None:
        pytest.skip("this server has no key")
    for wrong in (None, "another"):
        with VectorIndex(url, api_key=wrong, timeout=30) as index:
            assert "'qdrant_api_key'" in refused("count", index, lambda index: index.count("memory__a__1")).hint


def test_a_server_that_comes_up_meanwhile_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused connection is tried again: nothing was sent, so nothing can happen twice."""
    with socket.socket() as taken, ExitStack() as stack:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        pauses: list[float] = []

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 2:
                taken.close()
                stack.enter_context(serve(port)).content = b'{"result": {"count": 5}}'

        monkeypatch.setattr(connection, "time", SimpleNamespace(sleep=pause))
        with VectorIndex(f"http://127.0.0.1:{port}", api_key=None, timeout=5) as index:
            assert index.count("a") == 5
        assert len(pauses) == 2
