"""What a workspace holds, in figures: what assets report, what checks compare, what data versions are made of.

Nothing here writes. A data version is a digest of the very rows that it stands for, so that equal rows have an equal
version whoever measures them, and whenever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from memory_pipeline.core.display import counted
from memory_pipeline.core.errors import CollectionMissing
from memory_pipeline.core.text import sha256
from memory_pipeline.core.workspace import WorkspaceStatus
from memory_pipeline.operations.services import Services
from memory_pipeline.store import generations, measures, propagations, workspaces
from memory_pipeline.store.database import Role
from memory_pipeline.store.measures import (
    CardCount,
    CardLine,
    PointLine,
    QuarantinedLine,
    RefusedRecordLine,
    SessionExtent,
    StatusCount,
    StoredVectors,
    TextsDigest,
    WaitingLine,
)

SHOWN = 20
"""Rows of a preview."""

_PATIENCE = 5


@dataclass(frozen=True)
class LedgerMeasure:
    """The ledger as it was read: one extent per session, newest first, and the newest lines in quarantine."""

    sessions: Sequence[SessionExtent]
    refused: Sequence[QuarantinedLine]

    @property
    def entries(self) -> int:
        """Rows of the harness."""
        return sum(session.entries for session in self.sessions)

    @property
    def quarantined(self) -> int:
        """Lines in quarantine, shown or not."""
        return sum(session.quarantined for session in self.sessions)

    @property
    def data_version(self) -> str:
        """Rows are only ever appended, so how far each session reaches tells its content."""
        reached = (f"{each.session_id}:{each.last_seq}:{each.entries}:{each.quarantined}" for each in self.sessions)
        return _digest(sorted(reached))


@dataclass(frozen=True)
class EffectiveMeasure:
    """What the rows of every session are worth today."""

    counts: Sequence[StatusCount]

    @property
    def by_status(self) -> Counter[str]:
        """Rows by status."""
        return _sum((count.status, count.rows) for count in self.counts)

    @property
    def effective_by_type(self) -> Counter[str]:
        """Effective rows by type."""
        return _sum((count.type, count.rows) for count in self.counts if count.status == "effective")

    @property
    def by_session(self) -> dict[str, Counter[str]]:
        """Rows by status, session by session."""
        found: dict[str, Counter[str]] = {}
        for count in self.counts:
            found.setdefault(count.session_id, Counter())[count.status] += count.rows
        return found

    @property
    def data_version(self) -> str:
        """Changes when any row's status does, and with every new row."""
        return _digest(f"{count.session_id}:{count.type}:{count.status}:{count.digest}" for count in self.counts)


@dataclass(frozen=True)
class CardsMeasure:
    """The registry's cards: how many of each kind and status, those that changed last, and what no import took."""

    counts: Sequence[CardCount]
    newest: Sequence[CardLine]
    refused: int
    newest_refused: Sequence[RefusedRecordLine]
    data_version: str

    @property
    def total(self) -> int:
        """Cards of every kind and status."""
        return sum(count.cards for count in self.counts)

    @property
    def active(self) -> int:
        """Cards that are projected."""
        return sum(count.cards for count in self.counts if count.status == "active")


@dataclass(frozen=True)
class IndexMeasure:
    """Registry and index side by side, in cards. `points` were counted on the server; none where it has no collection.

    `current` cards were seen there as they must be; `leftover` ones are no longer active and were last seen there.
    """

    generation: int
    collection: str
    serving: bool
    active: int
    current: int
    leftover: int
    points: int | None
    pending: int
    parked: int
    newest: Sequence[PointLine]
    waiting: Sequence[WaitingLine]
    data_version: str
    newest_change: datetime | None = None
    oldest_behind: datetime | None = None

    def lag_seconds(self, now: datetime) -> float:
        """For how long the oldest change that the index does not follow has been waiting; 0 where it follows."""
        return max(0.0, (now - self.oldest_behind).total_seconds()) if self.oldest_behind else 0.0

    def differences(self) -> list[str]:
        """In words, everything in which the index does not follow the registry. Empty: it does."""
        found = []
        if not self.serving:
            found.append(f"collection {self.collection} does not serve yet")
        if self.points is None:
            found.append(f"collection {self.collection} is not on the server")
        elif self.points != self.active:
            active = counted(self.active, "active card")
            found.append(f"{counted(self.points, 'point')} on the server for {active}")
        if self.current != self.active:
            behind = self.active - self.current
            have = "has" if behind == 1 else "have"
            found.append(f"{behind} of {counted(self.active, 'active card')} {have} no current point")
        if self.leftover:
            have = counted(self.leftover, "card that is not active has", "cards that are not active have")
            found.append(f"{have} a point")
        if self.pending or self.parked:
            waiting = counted(self.pending, "card waits", "cards wait")
            found.append(f"{waiting} for propagation, {counted(self.parked, 'is', 'are')} parked")
        return found


def is_retired(services: Services, workspace: str) -> bool:
    """Whether a workspace is retired: its rows stay, nothing is derived from them.

    Raises:
        UnknownWorkspace: there is none of that name.
    """
    with services.database.transaction(Role.READER, workspace, via=services.via) as tx:
        return workspaces.get(tx, workspace).status is WorkspaceStatus.RETIRED


def measure_ledger(services: Services, workspace: str) -> LedgerMeasure:
    """Measure what was read of every session."""
    with services.database.transaction(Role.HARNESS, workspace, via=services.via) as tx:
        return LedgerMeasure(
            sessions=measures.session_extents(tx, workspace),
            refused=measures.quarantined_lines(tx, workspace, limit=SHOWN),
        )


def measure_effective(services: Services, workspace: str) -> EffectiveMeasure:
    """Measure what every row of every session is worth today."""
    with services.database.transaction(Role.READER, workspace, via=services.via) as tx:
        return EffectiveMeasure(measures.status_counts(tx, workspace))


def measure_cards(services: Services, workspace: str) -> CardsMeasure:
    """Measure the registry's cards."""
    with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
        refused, newest_refused = measures.refused_records(tx, workspace, limit=SHOWN)
        return CardsMeasure(
            counts=measures.card_counts(tx, workspace),
            newest=measures.newest_cards(tx, workspace, limit=SHOWN),
            refused=refused,
            newest_refused=newest_refused,
            data_version=measures.cards_extent(tx, workspace).digest,
        )


def measure_dense(services: Services, workspace: str) -> list[StoredVectors]:
    """Measure the stored dense vectors, by model."""
    with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
        return measures.dense_vectors(tx, workspace)


def measure_sparse(services: Services, workspace: str) -> list[StoredVectors]:
    """Measure the stored sparse vectors, by analyser."""
    with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
        return measures.sparse_vectors(tx, workspace)


def measure_texts(services: Services, workspace: str) -> TextsDigest | None:
    """Digests over the texts behind the vectors, as `embed_dense` and `embed_sparse` version them.

    None where there is no index. Only where the index follows the registry are these the cards' present texts.
    """
    with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
        known = generations.serving(tx, workspace) or generations.building(tx, workspace)
        return measures.texts_digest(tx, workspace, known.number, known.format.key()) if known else None


def measure_index(services: Services, workspace: str) -> IndexMeasure | None:
    """Measure the index against the registry; none where the workspace never had one.

    The two stores are not read in one transaction: where the registry moved on in between, both are read again.

    Raises:
        IndexUnavailable: the points cannot be counted.
    """
    before = _measure_index(services, workspace)
    for _ in range(_PATIENCE):
        after = _measure_index(services, workspace)
        if after == before:
            break
        before = after
    return before


def _measure_index(services: Services, workspace: str) -> IndexMeasure | None:
    with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
        known = generations.serving(tx, workspace) or generations.building(tx, workspace)
        if known is None:
            return None
        extent = measures.index_extent(tx, workspace, known.number)
        pending, parked = propagations.count(tx, workspace)
        newest = measures.newest_points(tx, workspace, known.number, limit=SHOWN)
        waiting = measures.waiting_cards(tx, workspace, limit=SHOWN)
    return IndexMeasure(
        generation=known.number,
        collection=known.collection,
        serving=known.serving,
        active=extent.active,
        current=extent.current,
        leftover=extent.leftover,
        points=_count_points(services, known.collection),
        pending=pending,
        parked=parked,
        newest=newest,
        waiting=waiting,
        data_version=sha256(f"{known.collection}:{known.format.key()}:{extent.digest}"),
        newest_change=extent.newest_change,
        oldest_behind=extent.oldest_behind,
    )


def _count_points(services: Services, collection: str) -> int | None:
    try:
        return services.index.count(collection)
    except CollectionMissing:
        return None


def _sum(pairs: Iterable[tuple[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for key, value in pairs:
        total[key] += value
    return total


def _digest(parts: Iterable[str]) -> str:
    return sha256("\n".join(parts))
