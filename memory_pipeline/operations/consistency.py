"""Comparing the two stores of a workspace. Nothing here writes.

Cards are read by number, page by page, each page with its points. Where the collection then holds no other points,
that was all; else its points are read by id, page by page, each page with its cards. What looks wrong is looked at
again, for the stores are not read in one transaction: only what is said twice in the same words counts, and a card that
waits in the outbox is no drift.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from memory_pipeline.core.drift import DriftKind, Finding, Wanted, card_drift, point_drift
from memory_pipeline.core.errors import BadInput
from memory_pipeline.core.profile import profile_named
from memory_pipeline.core.projection import point_id, project
from memory_pipeline.embedding.lexical import encoder_of
from memory_pipeline.index.points import PointId, PointState
from memory_pipeline.index.queries import Branch
from memory_pipeline.index.shape import CollectionShape
from memory_pipeline.logs import operation
from memory_pipeline.operations.generation import require_same_registry
from memory_pipeline.operations.repairs import registry_findings
from memory_pipeline.operations.services import Services
from memory_pipeline.store import drift, generations, workspaces
from memory_pipeline.store.database import Role, Transaction
from memory_pipeline.store.drift import CardState, Waiting
from memory_pipeline.store.generations import Generation

PAGE = 1000
EXAMPLES = 20
"""Findings of a kind that a report shows; it counts them all."""

_PATIENCE = 5
_CARDS, _POINTS = "cards", "points"
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class DriftReport(BaseModel):
    """What a comparison found.

    Attributes:
        cards: active cards compared.
        points: points on the server; none where there is no collection.
        counts: findings of each kind that there is.
        findings: the first of each kind.
        pending: cards that wait in the outbox, or changed at every look: no drift.
        parked: cards whose last attempt has failed: no drift either, and nothing happens before `propagation retry`.
        proposed: findings that a human was asked about already.
    """

    model_config = ConfigDict(frozen=True)

    workspace: str
    generation: int | None
    collection: str | None
    cards: int
    points: int | None
    counts: dict[DriftKind, int]
    findings: tuple[Finding, ...]
    pending: int
    parked: int
    proposed: int
    seconds: float

    @property
    def consistent(self) -> bool:
        """Whether nothing was found."""
        return not self.counts

    @property
    def total(self) -> int:
        """Findings of every kind."""
        return sum(self.counts.values())


class PartialScan(BaseModel):
    """One page of a comparison, and where the next one goes on; none: the round is over."""

    model_config = ConfigDict(frozen=True)

    findings: tuple[Finding, ...]
    cards: int
    points: int
    pending: int
    parked: int
    next_cursor: str | None


@operation("consistency", lambda report: {"cards": report.cards, "differences": report.total})
def check_consistency(services: Services, workspace: str, *, page: int = PAGE, examples: int = EXAMPLES) -> DriftReport:
    """Compare all of a workspace, in memory bounded by a page of cards.

    Raises:
        UnknownWorkspace.
        IndexUnavailable: the server cannot be asked.
    """
    started = time.monotonic()
    tally = Tally(examples)
    scan = Scan.of(services, workspace, page)
    for findings in scan.run():
        tally.add(findings)
    found, proposed = registry_findings(services, workspace)
    tally.add(found)
    return scan.report(tally, proposed=proposed, seconds=time.monotonic() - started)


def scan_page(services: Services, workspace: str, cursor: str | None = None, *, page: int = PAGE) -> PartialScan:
    """Compare one page and say where the next one begins: a whole round costs no more at a time than that.

    The first page, without a cursor, looks at the collection as well. The registry's own findings are not among these.

    Raises:
        BadInput: a cursor that no page gave.
    """
    scan = Scan.of(services, workspace, page)
    findings = scan.structure() if cursor is None else []
    following: str | None = None
    if scan.readable:
        part, place = _read_cursor(cursor)
        if part == _CARDS:
            found, after = scan.card_page(int(place))
            following = f"{_POINTS}:" if after is None else f"{_CARDS}:{after}"
        else:
            found, start = scan.point_page(_read_point(place))
            following = None if start is None else f"{_POINTS}:{start}"
        findings = [*findings, *found]
    return PartialScan(
        findings=tuple(findings),
        cards=scan.cards,
        points=scan.scrolled,
        pending=scan.pending,
        parked=scan.parked,
        next_cursor=following,
    )


class Tally:
    """Counts of findings, and the first of each kind."""

    def __init__(self, examples: int) -> None:
        self._examples = examples
        self.counts: Counter[DriftKind] = Counter()
        self.findings: list[Finding] = []

    def add(self, findings: Sequence[Finding]) -> None:
        """Count these too."""
        for finding in findings:
            self.counts[finding.kind] += 1
            if self.counts[finding.kind] <= self._examples:
                self.findings.append(finding)


@dataclass
class Scan:
    """One comparison on its way. The figures are of what it has read so far."""

    services: Services
    workspace: str
    page: int
    generation: Generation | None
    cards: int = 0
    held: int = 0
    """Points of active cards that were there."""
    scrolled: int = 0
    points: int | None = None
    pending: int = 0
    parked: int = 0
    shape: CollectionShape | None = field(default=None, init=False)
    _misnamed: set[PointId] = field(default_factory=set, init=False)
    """Points of active cards that name another card: they were told as their cards' own."""

    @classmethod
    def of(cls, services: Services, workspace: str, page: int) -> Scan:
        """A comparison of the generation that serves, or of the first one while it is filled."""
        with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
            workspaces.get(tx, workspace)
            known = generations.serving(tx, workspace) or generations.building(tx, workspace)
        scan = cls(services, workspace, page, known)
        if known is not None:
            scan.shape = services.index.shape(known.collection)
        return scan

    @property
    def readable(self) -> bool:
        """Whether there is a collection."""
        return self.shape is not None

    def run(self) -> Iterator[list[Finding]]:
        """Findings of everything but the registry, a page at a time."""
        yield self.structure()
        if self.readable:
            yield from self.contents()

    def contents(self) -> Iterator[list[Finding]]:
        """Findings of cards and points, a page at a time."""
        after: int | None = 0
        while after is not None:
            found, after = self.card_page(after)
            yield found
        self.points = self.services.index.count(self._collection)
        if self.points != self.held:
            yield from self._all_points()
        yield from self._vectors()

    def report(self, tally: Tally, *, proposed: int, seconds: float) -> DriftReport:
        """What came of it."""
        return DriftReport(
            workspace=self.workspace,
            generation=self.generation.number if self.generation else None,
            collection=self.generation.collection if self.generation else None,
            cards=self.cards,
            points=self.points,
            counts=dict(tally.counts),
            findings=tuple(tally.findings),
            pending=self.pending,
            parked=self.parked,
            proposed=proposed,
            seconds=round(seconds, 3),
        )

    def _all_points(self) -> Iterator[list[Finding]]:
        start: PointId | None = None
        while True:
            found, start = self.point_page(start)
            yield found
            if start is None:
                return

    def structure(self) -> list[Finding]:
        """What is wrong with the collection itself and with its alias."""
        generation = self.generation
        if generation is None:
            return self._never_indexed()
        if self.shape is None:
            with self._transaction() as tx:
                self.cards = drift.active_cards(tx, self.workspace)
            return [Finding(kind=DriftKind.COLLECTION_MISSING, detail=f"{generation.collection} is not on the server")]
        require_same_registry(self.services, self.workspace, generation, self.shape)
        missing = [f"the index on {name!r} is missing" for name in self.shape.missing_indexes()]
        differences = [*self.shape.differences(generation.format.dimensions), *missing]
        found = [
            Finding(kind=DriftKind.WRONG_CONFIGURATION, detail=f"{generation.collection}: {difference}")
            for difference in differences
        ]
        target = self.services.index.alias_target(generation.alias)
        if generation.serving and target != generation.collection:
            names = f"names {target}" if target else "is missing"
            detail = f"the alias {generation.alias} {names}; {generation.collection} serves"
            found.append(Finding(kind=DriftKind.WRONG_ALIAS, detail=detail))
        return found

    def card_page(self, after: int) -> tuple[list[Finding], int | None]:
        """Compare the cards with numbers above `after`; returns the number from which to go on, none at the end."""
        assert self.generation is not None  # noqa: S101 - asked where there is a collection
        with self._transaction() as tx:
            states = drift.card_states(tx, self.workspace, self.generation.number, after=after, limit=self.page)
        ids = {state.card_id: point_id(state.card_id) for state in states}
        points = self.services.index.read(self._collection, list(ids.values()))
        self.cards += len(states)
        self.held += len(points)
        suspects = [
            state.card_id for state in states if not state.settled or not _agrees(state, points.get(ids[state.card_id]))
        ]
        return self._look(suspects), states[-1].number if len(states) == self.page else None

    def point_page(self, start: PointId | None) -> tuple[list[Finding], PointId | None]:
        """Look at the points from `start` on, each for itself; returns that from which to go on, none at the end."""
        points, following = self.services.index.scroll_page(self._collection, self.page, start)
        self.scrolled += len(points)
        first = self._judge_points(points)
        again = self._judge_points(list(self.services.index.read(self._collection, list(first)).values()))
        return [finding for point, finding in again.items() if first[point] == finding], following

    # --- a closer look -------------------------------------------------------------------------------------------

    def _look(self, suspects: Sequence[str]) -> list[Finding]:
        """Derive what these cards' points must hold, and compare; what is said twice of one revision is found."""
        confirmed: list[Finding] = []
        before: dict[str, tuple[int, Finding]] = {}
        for _ in range(_PATIENCE):
            if not suspects:
                break
            found = self._judge_cards(suspects)
            confirmed += [said[1] for card, said in found.items() if before.get(card) == said]
            before = {card: said for card, said in found.items() if before.get(card) != said}
            suspects = list(before)
        self.pending += len(suspects)
        return confirmed

    def _judge_cards(self, suspects: Sequence[str]) -> dict[str, tuple[int, Finding]]:
        """What is wrong with each of these cards at its present revision, but for those that wait."""
        assert self.generation is not None  # noqa: S101 - a page is only read where there is a collection
        with self._transaction() as tx:
            settled = self._count_waiting(drift.waiting_among(tx, self.workspace, suspects), suspects)
            current = drift.current(tx, self.workspace, settled)
            states = generations.states(tx, self.workspace, self.generation.number, settled)
        points = self.services.index.read(self.generation.collection, [point_id(card.id) for card in current])
        found: dict[str, tuple[int, Finding]] = {}
        for card in current:
            state, point = states.get(card.id), points.get(point_id(card.id))
            wanted = Wanted(
                card_id=card.id,
                kind=card.kind,
                revision=card.revision,
                sha256=project(card, self.generation.format).sha256,
                expected_revision=state.revision if state else None,
                expected_sha256=state.expected_sha256 if state else None,
                acknowledged_sha256=state.acknowledged_sha256 if state else None,
            )
            if finding := card_drift(wanted, point):
                found[card.id] = card.revision, finding
            if point is not None and point.ref != card.id:
                self._misnamed.add(point.point_id)
        return found

    def _count_waiting(self, waiting: Waiting, suspects: Sequence[str]) -> list[str]:
        """Those that do not wait. The others are counted: what differs of them is about to be mended."""
        self.pending += len(waiting.pending)
        self.parked += len(waiting.parked)
        return [card for card in suspects if card not in waiting.pending | waiting.parked]

    def _judge_points(self, points: Sequence[PointState]) -> dict[PointId, Finding]:
        """What is wrong with each of these points, but for those whose cards wait, and those told with their cards."""
        refs = sorted({point.ref for point in points})
        with self._transaction() as tx:
            owners = drift.owners(tx, self.workspace, refs)
            waiting = drift.waiting_among(tx, self.workspace, refs)  # after: a change that was seen is waited for
        waits = waiting.pending | waiting.parked
        return {
            point.point_id: finding
            for point in points
            if point.point_id not in self._misnamed
            and not (point.ref in waits and point.point_id == point_id(point.ref))
            and (finding := point_drift(point, owners.get(point.ref)))
        }

    # --- vectors -------------------------------------------------------------------------------------------------

    def _vectors(self) -> Iterator[list[Finding]]:
        """Points of active cards without a vector that they must have; a text without any term has no sparse one.

        A vector that the whole collection lacks was told as its configuration.
        """
        assert self.shape is not None  # noqa: S101 - asked where there is a collection
        branches: tuple[tuple[Branch, str | None], ...] = (("dense", self.shape.dense), ("bm25", self.shape.bm25))
        for branch, present in branches:
            if present is not None:
                for points in self.services.index.scroll(self._collection, self.page, lacking=branch):
                    yield self._lacking(branch, points)

    def _lacking(self, branch: Branch, points: Sequence[PointState]) -> list[Finding]:
        assert self.generation is not None  # noqa: S101 - asked where there is a collection
        index = self.generation.format
        ids = [point.ref for point in points if point.point_id == point_id(point.ref)]
        with self._transaction() as tx:
            waiting = drift.waiting_among(tx, self.workspace, ids)
            current = drift.current(tx, self.workspace, ids)
        if branch == "bm25":
            encoder = encoder_of(index.language, profile_named(index.profile))
            current = [card for card in current if encoder.document(project(card, index).lexical_text).indices]
        return [
            Finding(
                kind=DriftKind.LACKS_VECTOR,
                card_id=card.id,
                point_id=str(point_id(card.id)),
                detail=f"the point has no vector {branch!r}",
            )
            for card in current
            if card.id not in waiting.pending | waiting.parked
        ]

    # --- without a collection ------------------------------------------------------------------------------------

    def _never_indexed(self) -> list[Finding]:
        """Cards of a workspace without an index wait for it; one that does not wait was lost to the queue."""
        lost: list[str] = []
        after = 0
        while True:
            with self._transaction() as tx:
                states = drift.card_states(tx, self.workspace, 0, after=after, limit=self.page)
                ids = [state.card_id for state in states]
                lost += self._count_waiting(drift.waiting_among(tx, self.workspace, ids), ids)
            self.cards += len(states)
            if len(states) < self.page:
                return [Finding(kind=DriftKind.MISSING, card_id=card, detail="it was never queued") for card in lost]
            after = states[-1].number

    @property
    def written(self) -> tuple[str, int]:
        """The collection that was compared, and the number of its generation."""
        assert self.generation is not None  # noqa: S101 - asked where there is a collection
        return self.generation.collection, self.generation.number

    @property
    def _collection(self) -> str:
        assert self.generation is not None  # noqa: S101 - asked where there is a collection
        return self.generation.collection

    def _transaction(self) -> AbstractContextManager[Transaction]:
        return self.services.database.transaction(Role.INDEXER, self.workspace, via=self.services.via)


def _agrees(state: CardState, point: PointState | None) -> bool:
    """Whether a point is what the registry expects of it."""
    return point is not None and (point.ref, point.kind, point.revision, point.projection_sha256) == (
        state.card_id,
        state.kind,
        state.revision,
        state.expected_sha256,
    )


def _read_cursor(cursor: str | None) -> tuple[str, str]:
    """The half of the round and the place in it. A round begins with the cards."""
    part, _, place = (f"{_CARDS}:0" if cursor is None else cursor).partition(":")
    if part == _CARDS and place.isdecimal():
        return part, place
    if part == _POINTS and (not place or place.isdecimal() or _UUID.fullmatch(place)):
        return part, place
    raise BadInput(f"no page of a comparison ends at {cursor!r}", hint="begin a new round, without a cursor")


def _read_point(place: str) -> PointId | None:
    if not place:
        return None
    return int(place) if place.isdecimal() else UUID(place)
