"""Cards, points and queries small enough to reason about by hand, and a Qdrant server that misbehaves as told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np

from memory_pipeline.core.cards import CardKind, CardStatus, MemoryRecord
from memory_pipeline.core.dependencies import Dependency
from memory_pipeline.core.profile import DEFAULT_PROFILE, PROFILES
from memory_pipeline.core.projection import IndexFormat, Projection, project
from memory_pipeline.index.filters import SearchFilter
from memory_pipeline.index.points import IndexPoint
from memory_pipeline.index.queries import HybridQuery, Method
from memory_pipeline_tests.http_server import Answer, Request, serving

DIMENSIONS = 4
PROFILE = PROFILES[DEFAULT_PROFILE]
FORMAT = IndexFormat(
    profile=PROFILE.name,
    profile_version=PROFILE.version,
    model="tiny:latest",
    model_digest="d1",
    dimensions=DIMENSIONS,
    analyser="words:1",
    language="it",
)
EAST, NORTH, UP = np.eye(DIMENSIONS, dtype=np.float32)[:3]


@dataclass(frozen=True)
class Sparse:
    """A sparse vector."""

    indices: tuple[int, ...] = ()
    values: tuple[float, ...] = ()


def words(*ids: int) -> Sparse:
    """A sparse vector with weight 1 for each word."""
    return Sparse(indices=tuple(sorted(ids)), values=(1.0,) * len(ids))


def card(number: int, *, revision: int = 1, kind: CardKind = CardKind.MEMORY, **content: object) -> MemoryRecord:
    moment = datetime(2026, 9, 9, tzinfo=UTC)
    fields = {"type": "concept_clarified", "subject": f"concetto {number}", "detail": "dettaglio", **content}
    return MemoryRecord(
        workspace="clinica",
        id=f"mem-{number:04d}",
        kind=kind,
        revision=revision,
        status=CardStatus.ACTIVE,
        created_at=moment,
        created_by="reviewer",
        updated_at=moment,
        updated_by="reviewer",
        **fields,
    )


def projection(number: int, **fields: object) -> Projection:
    return project(card(number, **fields), FORMAT)


def point(number: int, dense: np.ndarray = EAST, lexical: Sparse | None = None, **fields: object) -> IndexPoint:
    return IndexPoint(projection(number, **fields), dense, words(1) if lexical is None else lexical)


def depends_on(*paths: str) -> tuple[Dependency, ...]:
    """`cardio/public/t/c` as a dependency; an empty part is left out."""
    names = ("database", "schema", "table", "column")
    return tuple(
        Dependency(**{name: part for name, part in zip(names, path.split("/"), strict=False) if part}) for path in paths
    )


def query(
    dense: np.ndarray | None = EAST,
    lexical: Sparse | None = None,
    *,
    limit: int = 100,
    offset: int = 0,
    prefetch: int = 100,
    method: Method = "score",
    **conditions: object,
) -> HybridQuery:
    return HybridQuery(
        dense=dense,
        lexical=words(1) if lexical is None else lexical,
        filter=SearchFilter(**conditions),
        limit=limit,
        offset=offset,
        prefetch=prefetch,
        lexical_weight=PROFILE.lexical_weight,
        lexical_half=PROFILE.lexical_half,
        method=method,
    )


@dataclass
class ScriptedServer:
    """Answers every request with `status` and `content`; none where `content` is none."""

    status: int = 200
    content: bytes | None = b"{}"
    headers: dict[str, str] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    connections: int = 0
    released: threading.Event = field(default_factory=threading.Event)
    url: str = ""


@contextmanager
def serve(port: int = 0) -> Iterator[ScriptedServer]:
    """Run a scripted server on a port of the loopback, a free one by default."""
    script = ScriptedServer()

    def connected() -> None:
        script.connections += 1

    def answer(request: Request) -> Answer | None:
        script.requests.append(f"{request.method} {request.path}")
        if script.content is None:
            script.released.wait(60)
            return None
        return Answer(script.status, script.content, script.headers)

    with serving(answer, port=port, connected=connected) as script.url:
        try:
            yield script
        finally:
            script.released.set()
