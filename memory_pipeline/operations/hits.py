"""Hits of the index, checked against the registry: fetched further until enough are left, within bounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from memory_pipeline.core.cards import CardKind, CardStatus, MemoryRecord
from memory_pipeline.core.context import SearchContext
from memory_pipeline.core.ledger import REUSABLE_TYPES
from memory_pipeline.core.projection import point_id
from memory_pipeline.core.references import cards_of
from memory_pipeline.index.points import IndexHit, PointId
from memory_pipeline.store.generations import ProjectionState
from memory_pipeline.store.recall import Reading

MOST_FETCHED = 10_000
"""Hits that one search looks at, however many of them are dropped."""

_GROWTH = 4
_READ_CARDS = 250

Fetch = Callable[[int], list[IndexHit]]
Read = Callable[[Sequence[str]], Mapping[str, Reading]]


class Drop(StrEnum):
    """Why a hit of the index was not proposed."""

    MISSING = "missing"
    NOT_ACTIVE = "not_active"
    NOT_CURRENT = "not_current"
    NOT_REUSABLE = "not_reusable"
    OUT_OF_CONTEXT = "out_of_context"
    SUPERSEDED = "superseded"


class Hit(NamedTuple):
    """A hit that may be proposed."""

    score: float
    reading: Reading


@dataclass
class Gathered:
    """What the index found, best first, and what was dropped of it."""

    kept: dict[str, Hit] = field(default_factory=dict)
    dropped: dict[PointId, Drop] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    """Cards whose own point was dropped."""
    short: bool = False
    """The bound was reached with places left."""

    @property
    def counts(self) -> Counter[Drop]:
        """What was dropped, by reason."""
        return Counter(self.dropped.values())


def gather(fetch: Fetch, read: Read, context: SearchContext, *, limit: int) -> Gathered:
    """Fetch until `limit` hits stand or nothing is left.

    Every round asks for the best of all again, and for more of them: a page would be one of another ranking, for a
    deeper look into the branches changes scores. Only what is new is read of the registry.

    Args:
        fetch: the best so many hits.
        read: the rows of these cards.
        limit: hits wanted. One that is superseded may give its place away, so it does not count.
    """
    found, size = Gathered(), limit + min(limit, 10)
    while True:
        hits = fetch(size)
        _take(found, hits, read, context)
        standing = sum(not hit.reading.superseded_by for hit in found.kept.values())
        if standing >= limit or len(hits) < size:
            break
        if size == MOST_FETCHED:
            found.short = True
            break
        size = min(size * _GROWTH, MOST_FETCHED)
    found.kept = dict(sorted(found.kept.items(), key=lambda item: _order(item[1], context)))
    return found


def reason_to_drop(
    hit: IndexHit, card: MemoryRecord | None, state: ProjectionState | None, context: SearchContext
) -> Drop | None:
    """Why a hit cannot be shown, judged by the registry's current row; none where it can.

    Args:
        card: the row that the hit points to.
        state: what the hit's generation must hold for it.
    """
    if card is None:
        return Drop.MISSING
    if card.status is not CardStatus.ACTIVE:
        return Drop.NOT_ACTIVE
    if state is None or hit.projection_sha256 != state.expected_sha256 or hit.revision != card.revision:
        return Drop.NOT_CURRENT
    if hit.point_id != point_id(card.id):  # somebody's copy of it
        return Drop.NOT_CURRENT
    if card.kind is CardKind.MEMORY and card.type not in REUSABLE_TYPES:
        return Drop.NOT_REUSABLE
    return None if context.allows(card) else Drop.OUT_OF_CONTEXT


def _take(found: Gathered, hits: Sequence[IndexHit], read: Read, context: SearchContext) -> None:
    """Check the hits that are new, and give those that are known the score of the deeper look."""
    fresh = []
    for hit in hits:
        known = found.kept.get(hit.ref)
        if known and hit.point_id == point_id(hit.ref):
            found.kept[hit.ref] = known._replace(score=hit.score)
        elif hit.point_id not in found.dropped:
            fresh.append(hit)
    if not fresh:
        return
    ids = [hit.ref for hit in fresh if cards_of(hit.ref) == (hit.ref,)]  # what else is there is nobody's card
    readings: dict[str, Reading] = {}
    for start in range(0, len(ids), _READ_CARDS):
        readings.update(read(ids[start : start + _READ_CARDS]))
    for hit in fresh:
        reading = readings.get(hit.ref)
        reason = reason_to_drop(hit, reading and reading.card, reading and reading.state, context)
        if reading and reason is None:
            found.kept[hit.ref] = Hit(hit.score, reading)
            continue
        found.dropped[hit.point_id] = reason or Drop.MISSING
        if reading and hit.point_id == point_id(hit.ref):
            found.refused.add(hit.ref)


def _order(hit: Hit, context: SearchContext) -> tuple[float, int, str]:
    return -hit.score, -context.specificity(hit.reading.card), hit.reading.card.id
