"""The projection of a card into the index: two texts, a payload for filters, and the hash that shows it is current."""

from __future__ import annotations

import json
import uuid

from pydantic import BaseModel, ConfigDict

from memory_pipeline.core.cards import CardKind, CardStatus, MemoryRecord, scope_key
from memory_pipeline.core.dependencies import prefixes
from memory_pipeline.core.errors import NotReusable
from memory_pipeline.core.ledger import REUSABLE_TYPES
from memory_pipeline.core.profile import profile_named
from memory_pipeline.core.text import fold, sha256

FORMAT = 1
"""Version of the payload. A change makes a rebuild due."""

PRESENT = "yes"
"""Flags are keywords, for the engine of the embedded server matches booleans wrongly."""

_POINTS = uuid.UUID("6f2f5f0e-6a0c-5d57-9a0b-3a5b7a1f4e11")


class IndexFormat(BaseModel):
    """How a generation was built. Points of two formats cannot be compared."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int = FORMAT
    profile: str
    profile_version: int
    model: str
    model_digest: str
    dimensions: int
    analyser: str
    language: str

    def key(self) -> str:
        """One hash over all of it."""
        return sha256(self.model_dump_json())


class FilterPayload(BaseModel):
    """What the index filters on: flat keywords, since a nested condition costs some thirty times as much."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: CardKind
    concepts: tuple[str, ...]
    scope: str
    dep_none: str | None
    dep_paths: tuple[str, ...]
    dep_prefixes: tuple[str, ...]


class Projection(BaseModel):
    """What the index must hold for one card at one revision, under one format."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    card_id: str
    point_id: uuid.UUID
    revision: int
    dense_text: str
    lexical_text: str
    filters: FilterPayload
    sha256: str

    @property
    def dense_sha256(self) -> str:
        """Key of the stored embedding: unchanged text is never embedded again."""
        return sha256(self.dense_text)

    @property
    def lexical_sha256(self) -> str:
        """Key of the stored sparse vector."""
        return sha256(self.lexical_text)

    def payload(self) -> dict[str, object]:
        """The payload of the point."""
        fields = self.filters.model_dump(mode="json", exclude_none=True)
        return {"ref": self.card_id, "revision": self.revision, "projection_sha256": self.sha256, **fields}


def point_id(card_id: str) -> uuid.UUID:
    """The point of a card, whatever its kind: UUIDv5, since ids such as `mem-0001` are refused by the server."""
    return uuid.uuid5(_POINTS, f"memory:{card_id}")


def is_projected(card: MemoryRecord) -> bool:
    """Whether a card has a point at all."""
    return card.status is CardStatus.ACTIVE


def project(card: MemoryRecord, index: IndexFormat) -> Projection:
    """Derive a card's projection.

    Raises:
        NotReusable: a memory of a type that is not reusable; it is never projected.
    """
    if card.kind is CardKind.MEMORY and card.type not in REUSABLE_TYPES:
        raise NotReusable(card.type)
    profile = profile_named(index.profile)
    dense_text, lexical_text = profile.dense_text(card), profile.lexical_text(card)
    filters = _filters(card)
    parts = [index.key(), dense_text, lexical_text, filters.model_dump(mode="json")]
    return Projection(
        card_id=card.id,
        point_id=point_id(card.id),
        revision=card.revision,
        dense_text=dense_text,
        lexical_text=lexical_text,
        filters=filters,
        sha256=sha256(json.dumps(parts, ensure_ascii=False, sort_keys=True)),
    )


def _filters(card: MemoryRecord) -> FilterPayload:
    paths = sorted({dependency.path() for dependency in card.dependencies})
    return FilterPayload(
        kind=card.kind,
        concepts=tuple(sorted({fold(concept) for concept in card.concepts} - {""})),
        scope=scope_key(card.scope),
        dep_none=None if paths else PRESENT,
        dep_paths=tuple(paths),
        dep_prefixes=tuple(sorted({prefix for path in paths for prefix in prefixes(path)})),
    )
