"""From the hits along their links, level by level, each card once, within bounds.

A link grants nothing: every card reached is judged as a hit is, by its current row, in the search's own context. Its
point was not seen, so what counts is what the server was seen to hold of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from memory_pipeline.core.cards import CardKind, CardStatus, MemoryRecord, Relation
from memory_pipeline.core.context import SearchContext
from memory_pipeline.core.ledger import REUSABLE_TYPES
from memory_pipeline.core.ranking import Edge, Step, newest, without_circles
from memory_pipeline.core.references import decision_of
from memory_pipeline.operations.hits import Hit, Read
from memory_pipeline.store.generations import ProjectionState
from memory_pipeline.store.recall import MOST_SUPERSEDERS, Reading

DEFAULT_DEPTH = 4
MAX_DEPTH = 8
MAX_VISITS = 64
"""Cards read because a card requires them or is related to them."""
MAX_NEWER = 256
"""Cards read because they supersede another one."""

_STEPS = {Relation.REQUIRES: Step.REQUIRES, Relation.RELATED: Step.RELATED}


class Limit(StrEnum):
    """A bound that kept a search from looking further."""

    ROUNDS = "rounds"
    DEPTH = "depth"
    VISITS = "visits"


class GapReason(StrEnum):
    """Why a card that is required does not come along."""

    MISSING = "missing"
    NOT_PROMOTED = "not_promoted"
    DELETED = "deleted"
    NOT_ACTIVE = "not_active"
    PENDING = "pending"
    OTHER_KIND = "other_kind"
    OUT_OF_CONTEXT = "out_of_context"
    DEPTH = "depth"
    VISITS = "visits"


class Gap(BaseModel):
    """What a card requires and its reader does not get: without it the card says less than it should."""

    model_config = ConfigDict(frozen=True)

    target: str
    reason: GapReason


@dataclass
class Web:
    """What the links of the hits led to.

    Attributes:
        readings: the cards that may be proposed, hits among them.
        refused: those that may not, and why.
        edges: the steps between cards, without circles; one to a newer card only where that card counts.
    """

    readings: dict[str, Reading]
    refused: dict[str, GapReason]
    edges: tuple[Edge, ...] = ()
    limits: set[Limit] = field(default_factory=set)

    def card(self, card_id: str) -> MemoryRecord:
        """The current row of a card that may be proposed."""
        return self.readings[card_id].card

    def gaps(self, card: MemoryRecord, had: Collection[str]) -> tuple[Gap, ...]:
        """What a card requires and its reader has not, nor a newer card in its place.

        Args:
            had: cards that the reader has, by the answer or from before.
        """
        required = [link.target for link in card.links if link.relation is Relation.REQUIRES]
        return tuple(
            Gap(target=target, reason=self.refused.get(target, GapReason.DEPTH))
            for target in dict.fromkeys(required)
            if target not in (card.id, *had) and not any(end in had for end in newest(target, self.edges))
        )


def follow_links(
    hits: Mapping[str, Hit],
    read: Read,
    context: SearchContext,
    *,
    limit: int,
    distrusted: Iterable[str],
    decided: frozenset[str],
    depth: int,
) -> Web:
    """Follow the links of the hits that will have a place.

    Related cards are read only where there are fewer hits than places.

    Args:
        hits: those that stand, best first.
        distrusted: cards whose own point was found and dropped, whatever the registry says of it.
        decided: cards that the session settled: what requires one of them is satisfied.
        depth: steps from a hit; with 0 hits are left as the index ranks them.
    """
    walk = _Walk(
        read=read,
        context=context,
        decided=decided,
        readings={card: hit.reading for card, hit in hits.items()},
        distrusted=frozenset(distrusted),
    )
    ranked = [hit.reading for hit in hits.values()]
    if not depth:
        walk.stop(walk.best(ranked, limit))
        return replace(walk.web(), edges=())
    walk.go(walk.starts(ranked, limit), depth)
    return walk.web()


@dataclass
class _Walk:
    read: Read
    context: SearchContext
    decided: frozenset[str]
    distrusted: frozenset[str]
    readings: dict[str, Reading]
    with_related: bool = False
    refused: dict[str, GapReason] = field(default_factory=dict)
    gone: dict[str, Reading] = field(default_factory=dict)
    """Cards that are refused, but whose place a newer one may take."""
    edges: list[Edge] = field(default_factory=list)
    expanded: set[str] = field(default_factory=set)
    visits: int = 0
    newer: int = 0
    limits: set[Limit] = field(default_factory=set)

    def starts(self, hits: Sequence[Reading], limit: int) -> list[Reading]:
        """The hits that have a place, and the newer cards that have those of others.

        Which hits stand is known only once the cards that supersede them are judged: then others may have a place.
        """
        while True:
            best = self.best(hits, limit)
            starts = self._with_newer(best)
            if len(self.best(hits, limit)) == len(best):
                self.with_related = sum(map(self._stands, best)) < limit
                return starts

    def best(self, hits: Sequence[Reading], limit: int) -> list[Reading]:
        """The best hits, as many as stand in `limit` places; superseded ones among them have none of their own."""
        standing = 0
        for place, hit in enumerate(hits):
            if standing == limit:
                return list(hits[:place])
            standing += self._stands(hit)
        return list(hits)

    def go(self, level: Sequence[Reading], depth: int) -> None:
        """Level by level, until nothing new is reached or a bound is. To a newer card it is no step."""
        for _ in range(depth):
            wanted = self._expand(level)
            self._look_at(self._within_visits([card for card in wanted if not self._is_known(card)]))
            reached = [self.readings.get(card) or self.gone.get(card) for card in wanted]
            level = self._with_newer([reading for reading in reached if reading])
            if not level:
                return
        self.stop(level)

    def _stands(self, reading: Reading) -> bool:
        return not any(newer in self.readings for newer in reading.superseded_by)

    def _with_newer(self, level: Sequence[Reading]) -> list[Reading]:
        """These cards, those that supersede them, and so on to the newest: as far as they may be proposed."""
        whole = {reading.card.id: reading for reading in level}
        while True:
            newer = dict.fromkeys(card for reading in whole.values() for card in reading.superseded_by)
            self._look_at(self._within_newer([card for card in newer if not self._is_known(card)]))
            found = {card: self.readings[card] for card in newer if card in self.readings and card not in whole}
            if not found:
                break
            whole |= found
        if any(len(reading.superseded_by) >= MOST_SUPERSEDERS for reading in whole.values()):
            self.limits.add(Limit.VISITS)
        return list(whole.values())

    def web(self) -> Web:
        """What was found. A card that may not be proposed takes nobody's place."""
        edges = (e for e in self.edges if e.step is not Step.SUPERSEDED_BY or e.target in self.readings)
        return Web(self.readings, self.refused, without_circles(edges), self.limits)

    def stop(self, level: Sequence[Reading]) -> None:
        """Go no further: of the steps that are left count those to cards that were followed already."""
        steps = [edge for reading in level for edge in self._steps(reading)]
        self.expanded.update(reading.card.id for reading in level)
        self.edges += (edge for edge in steps if edge.target in self.expanded)
        if any(edge.target not in self.expanded | self.refused.keys() for edge in self._followed(steps)):
            self.limits.add(Limit.DEPTH)

    def _expand(self, level: Sequence[Reading]) -> list[str]:
        """Cards to which one step leads, each once, what is related last. Steps are noted."""
        steps = [edge for reading in level for edge in self._steps(reading)]
        self.edges += steps
        self.expanded.update(reading.card.id for reading in level)
        followed = sorted(self._followed(steps), key=lambda edge: edge.step is Step.RELATED)
        return [card for card in dict.fromkeys(edge.target for edge in followed) if card not in self.expanded]

    def _followed(self, steps: Iterable[Edge]) -> list[Edge]:
        """The steps to what a card has to have, and to what may fill a free place; newer cards are there already."""
        return [
            edge for edge in steps if edge.step is Step.REQUIRES or (edge.step is Step.RELATED and self.with_related)
        ]

    def _steps(self, reading: Reading) -> Iterable[Edge]:
        """Of a card that may not be proposed only the steps to newer ones: they may stand in its place."""
        card = reading.card
        if card.id in self.expanded:
            return
        for newer in reading.superseded_by:
            yield Edge(card.id, Step.SUPERSEDED_BY, newer)
        if card.id not in self.readings or card.id in self.decided:
            return
        for link in card.links:
            if link.target != card.id and (step := _STEPS.get(link.relation)):
                if decision_of(link.target):
                    self.refused[link.target] = GapReason.NOT_PROMOTED
                elif link.target not in self.decided:
                    yield Edge(card.id, step, link.target)

    def _is_known(self, card: str) -> bool:
        return card in self.readings or card in self.refused

    def _within_visits(self, cards: list[str]) -> list[str]:
        room = MAX_VISITS - self.visits
        self.visits += min(len(cards), room)
        return self._within(room, cards)

    def _within_newer(self, cards: list[str]) -> list[str]:
        """Newer cards have a bound of their own: those that may not be proposed must not cost what is required."""
        room = MAX_NEWER - self.newer
        self.newer += min(len(cards), room)
        return self._within(room, cards)

    def _within(self, room: int, cards: list[str]) -> list[str]:
        if len(cards) > room:
            self.limits.add(Limit.VISITS)
            self.refused.update(dict.fromkeys(cards[room:], GapReason.VISITS))
        return cards[:room]

    def _look_at(self, cards: Sequence[str]) -> None:
        """Read cards, in one query, and judge them."""
        found = self.read(cards) if cards else {}
        for card in cards:
            self._judge(card, found.get(card))

    def _judge(self, card: str, reading: Reading | None) -> None:
        reason = reason_to_refuse(reading, self.context)
        if reason is None and card in self.distrusted:
            reason = GapReason.PENDING
        if reading and reason is None:
            self.readings[card] = reading
        else:
            self.refused[card] = reason or GapReason.MISSING
            if reading:
                self.gone[card] = reading


def reason_to_refuse(reading: Reading | None, context: SearchContext) -> GapReason | None:
    """Why a card to which a link leads cannot be shown; none where it can."""
    if reading is None:
        return GapReason.MISSING
    card = reading.card
    if card.status is not CardStatus.ACTIVE:
        return GapReason.DELETED if card.status is CardStatus.DELETED else GapReason.NOT_ACTIVE
    if card.kind not in context.kinds or (card.kind is CardKind.MEMORY and card.type not in REUSABLE_TYPES):
        return GapReason.OTHER_KIND
    if not context.allows(card):
        return GapReason.OUT_OF_CONTEXT
    return None if _is_acknowledged(card, reading.state) else GapReason.PENDING


def _is_acknowledged(card: MemoryRecord, state: ProjectionState | None) -> bool:
    return (
        state is not None
        and state.expected_sha256 is not None
        and state.acknowledged_sha256 == state.expected_sha256
        and state.revision == card.revision
    )
