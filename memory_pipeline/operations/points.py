"""Writing the points of some cards into one generation: what must be there is recorded first, what is there is read.

Whoever asks for it, a drain of the outbox or a rebuild, says what follows when a card is settled and when it fails.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Self

from memory_pipeline.core.cards import MemoryRecord
from memory_pipeline.core.epoch import Epoch
from memory_pipeline.core.errors import (
    EmbedderUnavailable,
    IndexRefused,
    IndexUnavailable,
    MemoryPipelineError,
    UselessVector,
)
from memory_pipeline.core.projection import Projection, is_projected, point_id, project
from memory_pipeline.failpoints import reach
from memory_pipeline.index.points import IndexPoint, PointTooLarge
from memory_pipeline.operations.embed import FailedCard, dense_vectors, sparse_vectors, stored_dense
from memory_pipeline.operations.services import Services
from memory_pipeline.store import cards, generations, upkeep
from memory_pipeline.store.database import Role, Transaction
from memory_pipeline.store.generations import Generation, ProjectionState

BATCH = 256
AHEAD = 3
"""Batches whose texts are embedded before their turn, so that the embedder never waits for a batch to be written."""
WINDOW = (1 + AHEAD) * BATCH
"""Cards to look at for one batch and those ahead of it."""
GRACE_SECONDS = 5.0
"""How much longer than a request's time-out one may still be on its way."""


@dataclass
class Written:
    """Counts of what was done, as it goes on."""

    upserted: int = 0
    payload_only: int = 0
    removed: int = 0
    embedded: int = 0
    failed: list[FailedCard] = field(default_factory=list)


@dataclass
class Batch(ABC):
    """Some cards on their way to the index."""

    services: Services
    workspace: str
    generation: Generation
    written: Written

    @abstractmethod
    def settle(self, tx: Transaction, ids: Collection[str]) -> None:
        """Called in the transaction that acknowledges these cards."""

    @abstractmethod
    def postpone(self, failed: Sequence[FailedCard], *, outage: bool) -> None:
        """Called with cards that failed. `outage`: a server is down, which says nothing of the cards."""

    def write(self, ids: Sequence[str], embedded: Callable[[], None] = lambda: None) -> None:
        """Bring the points of these cards to their current rows.

        A card that fails takes no other with it. Where the embedder is down, what needs no embedding is done all the
        same.

        Args:
            embedded: called once the embedder has done its part.

        Raises:
            EmbedderUnavailable, IndexUnavailable: a server is down; the cards that it hit were postponed.
        """
        left = set(ids)
        try:
            wanted, unwanted, states, epoch = self._expect(ids)
            reach("drain:expected")
            if epoch is not None:
                self.services.index.stamp(self.generation.collection, epoch)
            reach("drain:stamped")
            self._remove(unwanted, left)
            ready, outage = self._embed(wanted, left)
            reach("drain:embedded")
            embedded()
            self._upsert_or_patch(ready, states, left)
        except IndexUnavailable as error:
            self._fail([_failed(card, error) for card in sorted(left)], left, outage=True)
            raise
        if outage is not None:
            self._fail([_failed(card, outage) for card in sorted(left)], left, outage=True)
            raise outage

    def _expect(
        self, ids: Sequence[str]
    ) -> tuple[list[Projection], list[MemoryRecord], dict[str, ProjectionState], Epoch | None]:
        """Read the current cards and record what their points must hold."""
        number = self.generation.number
        with self._transaction() as tx:
            current = cards.get_many(tx, self.workspace, ids)
            wanted = [project(card, self.generation.format) for card in current.values() if is_projected(card)]
            unwanted = [card for card in current.values() if not is_projected(card)]
            states = generations.states(tx, self.workspace, number, ids)
            epoch = upkeep.raise_epoch(tx, self.workspace) if current else None
            generations.expect(tx, self.workspace, number, wanted)
            generations.expect_none(tx, self.workspace, number, {card.id: card.revision for card in unwanted})
            upkeep.forget_removals(tx, self.workspace, number, [item.card_id for item in wanted])
        return wanted, unwanted, states, epoch

    def _remove(self, unwanted: Sequence[MemoryRecord], left: set[str]) -> None:
        """Cards that are not projected lose their points, by id; gone is what reads back as gone."""
        if not unwanted:
            return
        gone, there = remove_points(self.services, self.generation, [card.id for card in unwanted])
        with self._transaction() as tx:
            generations.acknowledge_absence(tx, self.workspace, self.generation.number, gone)
            upkeep.bury(tx, self.workspace, self.generation.number, gone, seconds=longest_request(self.services))
            self.settle(tx, gone)
        reach("drain:removed")
        left.difference_update(gone)
        self.written.removed += len(gone)
        message = "the point was still there when read back"
        self._fail([FailedCard(card_id=card, error="NotAcknowledged", message=message) for card in there], left)

    def _embed(
        self, wanted: Sequence[Projection], left: set[str]
    ) -> tuple[list[IndexPoint], EmbedderUnavailable | None]:
        """Points with both vectors, and what keeps the others from theirs where the embedder is down."""
        index, outage = self.generation.format, None
        try:
            dense, failed, computed = dense_vectors(self.services, self.workspace, index, wanted)
        except EmbedderUnavailable as error:
            dense, failed, computed, outage = stored_dense(self.services, self.workspace, index, wanted), [], 0, error
        sparse, _ = sparse_vectors(self.services, self.workspace, index, wanted)
        self.written.embedded += computed
        points = []
        for item in wanted:
            if item.dense_sha256 in dense:
                try:
                    points.append(IndexPoint(item, dense[item.dense_sha256].vector, sparse[item.lexical_sha256]))
                except UselessVector as error:
                    failed.append(_failed(item.card_id, error))
        self._fail(failed, left)
        return points, outage

    def _upsert_or_patch(
        self, points: Sequence[IndexPoint], states: dict[str, ProjectionState], left: set[str]
    ) -> None:
        """A card whose texts did not change costs a payload write; the rest are upserted whole."""
        unchanged = [point for point in points if _same_texts(point.projection, states.get(point.projection.card_id))]
        if unchanged:
            self.services.index.set_payload(self.generation.collection, [point.projection for point in unchanged])
            reach("drain:payload_set")
        held = self._acknowledge(unchanged, left)
        self.written.payload_only += len(held)
        rest = self._upsert([point for point in points if point.projection.card_id not in held], left)
        reach("drain:written")
        seen = self._acknowledge(rest, left)
        self.written.upserted += len(seen)
        self._fail(
            [
                FailedCard(
                    card_id=point.projection.card_id,
                    error="NotAcknowledged",
                    message=f"the point of revision {point.projection.revision} was not there when read back",
                )
                for point in rest
                if point.projection.card_id not in seen
            ],
            left,
        )

    def _upsert(self, points: Sequence[IndexPoint], left: set[str]) -> list[IndexPoint]:
        """Write points whole; returns those that were written. One that no request takes fails alone."""
        if not points:
            return []
        try:
            self.services.index.upsert(self.generation.collection, points)
        except PointTooLarge as error:  # raised before anything is sent
            self._fail([_failed(error.card_id, error)], left)
            return self._upsert([point for point in points if point.projection.card_id != error.card_id], left)
        except IndexRefused as error:
            if len(points) == 1:
                self._fail([_failed(points[0].projection.card_id, error)], left)
                return []
            middle = len(points) // 2
            return [*self._upsert(points[:middle], left), *self._upsert(points[middle:], left)]
        return list(points)

    def _acknowledge(self, points: Sequence[IndexPoint], left: set[str]) -> set[str]:
        """Read points back; those that hold what they must are acknowledged and settled. Returns their cards."""
        if not points:
            return set()
        seen = self.services.index.read(self.generation.collection, [point.projection.point_id for point in points])
        reach("drain:read_back")
        held = [
            point.projection
            for point in points
            if (state := seen.get(point.projection.point_id))
            and (state.revision, state.projection_sha256) == (point.projection.revision, point.projection.sha256)
        ]
        ids = {item.card_id for item in held}
        with self._transaction() as tx:
            generations.acknowledge(tx, self.workspace, self.generation.number, held)
            self.settle(tx, ids)
        reach("drain:settled")
        left.difference_update(ids)
        return ids

    def _fail(self, failed: Sequence[FailedCard], left: set[str], *, outage: bool = False) -> None:
        """Let cards wait; they take no further part in this batch."""
        if not failed:
            return
        left.difference_update(card.card_id for card in failed)
        self.written.failed += failed
        self.postpone(failed, outage=outage)

    def _transaction(self) -> AbstractContextManager[Transaction]:
        return self.services.database.transaction(Role.INDEXER, self.workspace, via=self.services.via)


class EmbeddingAhead:
    """Embeds the texts of the next batches while the present one is written, so that both servers are busy.

    It only stores vectors: a batch finds them when its turn comes, and meets whatever failed here by itself.
    """

    def __init__(self, services: Services, workspace: str, generation: Generation) -> None:
        self._services = services
        self._workspace = workspace
        self._index = generation.format
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="embedding-ahead")  # one asks while one stores
        self._begun: dict[str, Future[None]] = {}
        self._embedded: deque[int] = deque()
        self._given_up = False

    def begin(self, ids: Sequence[str]) -> None:
        """Embed what these cards need, as far as that is not begun."""
        fresh = [card for card in ids if card not in self._begun]
        for part in (fresh[start : start + BATCH] for start in range(0, len(fresh), BATCH)):
            self._begun |= dict.fromkeys(part, self._pool.submit(self._embed, part))

    def finish(self, ids: Iterable[str] | None = None) -> int:
        """Wait for what was begun of these cards, or of all; returns how many texts were embedded since last asked."""
        asked = list(self._begun) if ids is None else ids
        for begun in {self._begun.pop(card) for card in asked if card in self._begun}:
            begun.result()
        return sum(self._embedded.popleft() for _ in range(len(self._embedded)))

    def _embed(self, ids: list[str]) -> None:
        if self._given_up:
            return
        try:
            with self._services.database.transaction(Role.INDEXER, self._workspace, via=self._services.via) as tx:
                current = cards.get_many(tx, self._workspace, ids)
            wanted = [project(card, self._index) for card in current.values() if is_projected(card)]
            _, _, computed = dense_vectors(self._services, self._workspace, self._index, wanted)
        except MemoryPipelineError:
            self._given_up = True
        else:
            self._embedded.append(computed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)


def remove_points(services: Services, generation: Generation, ids: Sequence[str]) -> tuple[list[str], list[str]]:
    """Delete the points of these cards; returns those that read back as gone, and those that do not."""
    points = {point_id(card): card for card in ids}
    services.index.delete(generation.collection, list(points))
    reach("drain:deleted")
    there = services.index.read(generation.collection, list(points))
    return [card for point, card in points.items() if point not in there], [points[point] for point in there]


def longest_request(services: Services) -> float:
    """Seconds after which no request to Qdrant that was sent before can still arrive."""
    return services.settings.qdrant_timeout + GRACE_SECONDS


def _failed(card: str, error: MemoryPipelineError) -> FailedCard:
    return FailedCard(card_id=card, error=error.name, message=error.message)


def _same_texts(projection: Projection, state: ProjectionState | None) -> bool:
    """Whether the server was seen to hold vectors of these very texts."""
    return (
        state is not None
        and state.acknowledged_sha256 is not None
        and (state.dense_sha256, state.lexical_sha256) == (projection.dense_sha256, projection.lexical_sha256)
    )
