"""A server that refuses, hangs, fails, does half or lies: nothing is taken for done, and the next drain heals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from memory_pipeline.core.workspace import Workspace
from memory_pipeline.operations.propagate import drain
from memory_pipeline.operations.services import Services
from memory_pipeline_tests.faults import scenes
from memory_pipeline_tests.faults.proxy import Fault, Forward, Proxy, in_front_of
from memory_pipeline_tests.flows import closed_port, with_settings
from memory_pipeline_tests.http_server import Answer, Request

pytestmark = pytest.mark.embedded

OK = Answer.of({"result": {"operation_id": 1, "status": "completed"}, "status": "ok", "time": 0})
BROKEN = Answer.of({"status": {"error": "disk"}, "error": "out of memory", "time": 0}, 500)


def is_upsert(request: Request) -> bool:
    return request.method == "PUT" and request.path.partition("?")[0].endswith("/points")


def is_write(request: Request) -> bool:
    tail = request.path.partition("?")[0].rpartition("/points")[2]
    return is_upsert(request) or (request.method == "POST" and tail in ("/batch", "/delete"))


def is_embedding(request: Request) -> bool:
    return request.path == "/api/embed"


Make = Callable[[Proxy], Fault]
Is = Callable[[Request], bool]


def hangs(these: Is) -> Make:
    """No answer at all, and the work is not done."""

    def make(proxy: Proxy) -> Fault:
        def fault(request: Request, forward: Forward) -> Answer | None:
            if not these(request):
                return forward(request)
            proxy.over.wait(60)
            return None

        return fault

    return make


def fails(these: Is) -> Make:
    return lambda _: lambda request, forward: BROKEN if these(request) else forward(request)


def breaks_off(these: Is) -> Make:
    """The work is done, and the answer is lost."""
    return lambda _: lambda request, forward: (forward(request), None)[1] if these(request) else forward(request)


def does_and_fails(these: Is) -> Make:
    """The work is done, and the answer says that it is not."""
    return lambda _: lambda request, forward: (forward(request), BROKEN)[1] if these(request) else forward(request)


def drops(these: Is) -> Make:
    """All is well, says the server, and does nothing."""
    return lambda _: lambda request, forward: OK if these(request) else forward(request)


def does_half(_: Proxy) -> Fault:
    """All is well, says the server, and keeps half of the points."""

    def fault(request: Request, forward: Forward) -> Answer:
        if is_upsert(request):
            points = request.content["points"]
            forward(request.with_content({**request.content, "points": points[: len(points) // 2]}))
            return OK
        return forward(request)

    return fault


def answers_first_too_late(these: Is) -> Make:
    """The first request hangs until its client has gone; it is done then, beside the one that was sent again."""

    @dataclass
    class First:
        proxy: Proxy
        seen: list[Request] = field(default_factory=list)

        def __call__(self, request: Request, forward: Forward) -> Answer | None:
            if these(request):
                self.seen.append(request)
                if len(self.seen) == 1:
                    self.proxy.over.wait(60)
            return forward(request)

    return First


def _embeddings(change: Callable[[list[list[float]]], list[list[float]]]) -> Make:
    """The embedder answers with other vectors."""

    def fault(request: Request, forward: Forward) -> Answer:
        answer = forward(request)
        if not is_embedding(request):
            return answer
        content = {**answer.content, "embeddings": change(answer.content["embeddings"])}
        return Answer.of(content, answer.status)

    return lambda _: fault


QDRANT = {
    "writes hang": hangs(is_write),
    "writes fail": fails(is_write),
    "writes are done, the answer is lost": breaks_off(is_write),
    "writes are done, the answer says no": does_and_fails(is_write),
    "writes are dropped, the answer says yes": drops(is_write),
    "half of a write is done, the answer says yes": does_half,
    "the first write is slow": answers_first_too_late(is_upsert),
    "nothing is read": fails(lambda request: request.method == "POST" and request.path.endswith("/points")),
}
OLLAMA = {
    "hangs": hangs(is_embedding),
    "fails": fails(is_embedding),
    "the answer is lost": breaks_off(is_embedding),
    "the first answer is slow": answers_first_too_late(is_embedding),
    "fewer vectors than texts": _embeddings(lambda vectors: vectors[:-1]),
    "vectors of another length": _embeddings(lambda vectors: [vector[:-1] for vector in vectors]),
    "vectors of zeros": _embeddings(lambda vectors: [[0.0] * len(vector) for vector in vectors]),
}
# These run on every change of the code, the others with make test-faults.
TELLING = {
    "writes are done, the answer says no",
    "half of a write is done, the answer says yes",
    "vectors of another length",
}


def _cases(faults: dict[str, Make]) -> list[object]:
    return [
        pytest.param(make, id=name, marks=() if name in TELLING else pytest.mark.faults)
        for name, make in faults.items()
    ]


@contextmanager
def _behind(services: Services, setting: str, make: Make) -> Iterator[Services]:
    """The stack with one server behind a proxy."""
    with in_front_of(getattr(services.settings, setting)) as proxy:
        proxy.fault = make(proxy)
        short = {"qdrant_timeout": 1, "ollama_timeout": 0.5}
        with with_settings(services, **{setting: proxy.url}, **short) as changed:
            yield changed


def _require_healed(services: Services, workspace: str, expected: scenes.Expected) -> None:
    scenes.require_never_stale(services, workspace)
    scenes.heal(services, workspace)
    scenes.require_equal(services, workspace)
    scenes.require_recalled(services, workspace, expected)


@pytest.mark.parametrize("make", _cases(QDRANT))
def test_an_index_that_misbehaves(services: Services, workspace: Workspace, make: Make) -> None:
    expected = scenes.changed(services, workspace.slug)

    with _behind(services, "qdrant_url", make) as faulty:
        report = drain(faulty, workspace.slug)

    assert not report.settled
    _require_healed(services, workspace.slug, expected)


@pytest.mark.parametrize("make", _cases(OLLAMA))
def test_an_embedder_that_misbehaves(
    services: Services, workspace: Workspace, make: Make, request: pytest.FixtureRequest
) -> None:
    expected = scenes.changed(services, workspace.slug)

    with _behind(services, "ollama_url", make) as faulty:
        report = drain(faulty, workspace.slug)

    assert report.settled is ("the first answer is slow" in request.node.name)
    assert (report.removed, report.payload_only) == (1, 2), "what needs no vector does not wait"
    _require_healed(services, workspace.slug, expected)


@pytest.mark.faults
@pytest.mark.parametrize("setting", ["qdrant_url", "ollama_url"])
def test_a_server_that_is_not_there(services: Services, workspace: Workspace, setting: str) -> None:
    expected = scenes.changed(services, workspace.slug)

    with with_settings(services, **{setting: f"http://127.0.0.1:{closed_port()}"}) as faulty:
        report = drain(faulty, workspace.slug)

    assert report.problem is not None
    assert not report.settled
    _require_healed(services, workspace.slug, expected)
