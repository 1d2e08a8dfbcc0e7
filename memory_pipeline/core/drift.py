"""Drift: in what ways the index can differ from the registry, and what mends each.

The registry is right by definition. What is derived from it is repaired by a program; what a human decided is only put
before a human. A change that waits in the outbox is no drift: the index is about to follow it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from memory_pipeline.core.cards import CardKind
from memory_pipeline.core.projection import point_id


class DriftKind(StrEnum):
    """What can be wrong. The first ones are of one card, then come points, the collection, and the registry itself."""

    MISSING = "missing"
    """An active card without a point."""
    STALE = "stale"
    """A point that holds another revision or another projection than the card has now."""
    TEXT_CHANGED = "text_changed"
    """A card that was changed past the queue: the point holds what was expected, and the card says something else."""
    WRONG_KIND = "wrong_kind"
    """A point of another kind than its card: it would be found by whom it is not for."""
    UNACKNOWLEDGED = "unacknowledged"
    """A point that is as it must be, and that the registry does not know to be there."""
    LACKS_VECTOR = "lacks_vector"
    """A point without one of its two vectors: one branch never finds it."""
    ORPHAN = "orphan"
    """A point without an active card."""
    DUPLICATE = "duplicate"
    """A further point that names a card which has its own."""
    COLLECTION_MISSING = "collection_missing"
    WRONG_CONFIGURATION = "wrong_configuration"
    """A collection that has other vectors or payload indexes than it must."""
    WRONG_ALIAS = "wrong_alias"
    """The alias names no collection, or another one than that which serves."""
    FORBIDDEN_TYPE = "forbidden_type"
    """An active card of a type that stays with its question, such as a promoted table."""
    MARKER_WITHOUT_CARD = "marker_without_card"
    """The ledger says that a decision was promoted, and no card comes from it."""
    UNSUPPORTED_CARD = "unsupported_card"
    """An active card whose decisions were all retracted or rolled back, and that nothing else stands for."""


class Remedy(StrEnum):
    """What mends a finding."""

    QUEUE = "queue"
    """Its card is queued again, and written whole."""
    DELETE_POINT = "delete_point"
    MEND_COLLECTION = "mend_collection"
    MOVE_ALIAS = "move_alias"
    PROPOSE = "propose"
    """A human is asked."""


REMEDIES = {
    DriftKind.MISSING: Remedy.QUEUE,
    DriftKind.STALE: Remedy.QUEUE,
    DriftKind.TEXT_CHANGED: Remedy.QUEUE,
    DriftKind.WRONG_KIND: Remedy.QUEUE,
    DriftKind.UNACKNOWLEDGED: Remedy.QUEUE,
    DriftKind.LACKS_VECTOR: Remedy.QUEUE,
    DriftKind.ORPHAN: Remedy.DELETE_POINT,
    DriftKind.DUPLICATE: Remedy.DELETE_POINT,
    DriftKind.COLLECTION_MISSING: Remedy.MEND_COLLECTION,
    DriftKind.WRONG_CONFIGURATION: Remedy.MEND_COLLECTION,
    DriftKind.WRONG_ALIAS: Remedy.MOVE_ALIAS,
    DriftKind.FORBIDDEN_TYPE: Remedy.PROPOSE,
    DriftKind.MARKER_WITHOUT_CARD: Remedy.PROPOSE,
    DriftKind.UNSUPPORTED_CARD: Remedy.PROPOSE,
}


class Finding(BaseModel):
    """One difference: what it is, where, and in words what was seen."""

    model_config = ConfigDict(frozen=True)

    kind: DriftKind
    card_id: str | None = None
    point_id: str | None = None
    session_id: str | None = None
    decision_seq: int | None = None
    detail: str

    @property
    def remedy(self) -> Remedy:
        """What mends it."""
        return REMEDIES[self.kind]


class Point(Protocol):
    """What a point says of itself."""

    @property
    def point_id(self) -> UUID | int: ...

    @property
    def ref(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def revision(self) -> int: ...

    @property
    def projection_sha256(self) -> str: ...


class Wanted(BaseModel):
    """One active card as its point must show it, beside what the registry believes of that point.

    `sha256` is of the card's present content. `expected_sha256` was recorded, for `expected_revision`, when the card
    was last propagated; `acknowledged_sha256` when its point was last read back.
    """

    model_config = ConfigDict(frozen=True)

    card_id: str
    kind: CardKind
    revision: int
    sha256: str
    expected_revision: int | None
    expected_sha256: str | None
    acknowledged_sha256: str | None


class Owner(BaseModel):
    """What the registry says of a card that a point names. A forbidden one is active, and never projected."""

    model_config = ConfigDict(frozen=True)

    card_id: str
    status: str
    projectable: bool


def card_drift(wanted: Wanted, point: Point | None) -> Finding | None:
    """The one thing to say of an active card and its point; none where both agree and the registry knows it."""
    found = _difference(wanted, point)
    if found is None:
        return None
    kind, detail = found
    return Finding(kind=kind, card_id=wanted.card_id, point_id=str(point_id(wanted.card_id)), detail=detail)


def point_drift(point: Point, owner: Owner | None) -> Finding | None:
    """What to say of a point, looked at for itself; none where it is the one point of an active card."""
    named = point.ref or "no card"
    if owner is None or owner.status != "active" or not owner.projectable:
        why = "no such card" if owner is None else f"the card is {owner.status}"
        if owner is not None and not owner.projectable:
            why = "the card is of a type that is never projected"
        return _of_point(point, DriftKind.ORPHAN, f"the point names {named}: {why}")
    if point.point_id != point_id(point.ref):
        return _of_point(point, DriftKind.DUPLICATE, f"a second point that names {named}")
    return None


def _difference(wanted: Wanted, point: Point | None) -> tuple[DriftKind, str] | None:
    """What is wrong and what was seen. The order matters: what is worst is said first."""
    changed = wanted.expected_revision == wanted.revision and wanted.expected_sha256 not in (None, wanted.sha256)
    found: tuple[DriftKind, str] | None = None
    if point is None:
        known = "the registry believes that it is there" if wanted.acknowledged_sha256 else "it was never seen there"
        found = DriftKind.MISSING, f"no point; {known}"
    elif point.kind != wanted.kind:
        found = DriftKind.WRONG_KIND, f"the point is of kind {point.kind or 'none'}, the card is {wanted.kind}"
    elif changed:
        found = DriftKind.TEXT_CHANGED, f"revision {wanted.revision} was changed and never queued"
    elif point.ref != wanted.card_id:
        found = DriftKind.STALE, f"its point names {point.ref or 'no card'}"
    elif point.revision != wanted.revision:
        found = DriftKind.STALE, f"the point is at revision {point.revision}, the card at {wanted.revision}"
    elif point.projection_sha256 != wanted.sha256:
        found = DriftKind.STALE, f"the point holds another projection of revision {wanted.revision}"
    elif wanted.acknowledged_sha256 != wanted.sha256:
        found = DriftKind.UNACKNOWLEDGED, "the point is right, and the registry does not know it"
    return found


def _of_point(point: Point, kind: DriftKind, detail: str) -> Finding:
    return Finding(kind=kind, card_id=point.ref or None, point_id=str(point.point_id), detail=detail)
