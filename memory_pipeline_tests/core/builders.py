"""Short ways to make what the domain works on. Every field that a test is not about has an ordinary value."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from memory_pipeline.core.cards import CardContent, CardKind, CardStatus, Link, MemoryRecord, Relation
from memory_pipeline.core.dependencies import Dependency
from memory_pipeline.core.ledger import LedgerEntry
from memory_pipeline.core.projection import IndexFormat
from memory_pipeline.core.workspace import Workspace

MOMENT = datetime(2026, 9, 9, 8, 15, tzinfo=UTC)

WORKSPACE = Workspace(
    slug="cardiologia", title="Cardiologia", language="it", default_database="cardio", default_schema="public"
)

FORMAT = IndexFormat(
    profile="sentence-encoder",
    profile_version=1,
    model="universal-sentence-encoder",
    model_digest="d1",
    dimensions=512,
    analyser="qdrant-edge-bm25-1",
    language="italian",
)


def entry(seq: int, type_: str = "concept_clarified", subject: str | None = "ablazione", **fields: Any) -> LedgerEntry:
    """A decision of phase F1."""
    return LedgerEntry(**{"seq": seq, "ts": MOMENT, "type": type_, "subject": subject, "phase": "F1", **fields})


def content(**fields: Any) -> CardContent:
    """What a card on ablations says."""
    return CardContent(
        **{
            "type": "concept_clarified",
            "subject": "ablazione",
            "detail": "procedura con ablazione_transcatetere = TRUE",
            **fields,
        }
    )


def card(**fields: Any) -> MemoryRecord:
    """An active memory on ablations."""
    return MemoryRecord(
        **{
            "workspace": WORKSPACE.slug,
            "id": "mem-0001",
            "kind": CardKind.MEMORY,
            "revision": 1,
            "status": CardStatus.ACTIVE,
            "created_at": MOMENT,
            "created_by": "memory_reviewer",
            "updated_at": MOMENT,
            "updated_by": "memory_reviewer",
            "type": "concept_clarified",
            "subject": "ablazione",
            "detail": "procedura con ablazione_transcatetere = TRUE",
            **fields,
        }
    )


def place(database: str, schema: str | None = None, table: str | None = None, column: str | None = None) -> Dependency:
    """A dependency, outermost part first."""
    return Dependency(database=database, schema_=schema, table=table, column=column)


def requires(target: str) -> Link:
    """A link that requires its target."""
    return Link(relation=Relation.REQUIRES, target=target)
