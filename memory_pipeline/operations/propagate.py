"""Making the index follow the registry: draining the outbox of one workspace.

One writer per workspace, whatever started it. What a point must hold is recorded before the server is asked; what it
holds is read back before anything is acknowledged. A card that fails waits with its error and blocks no other.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict

from memory_pipeline.core.cards import MemoryRecord
from memory_pipeline.core.errors import EmbedderUnavailable, IndexUnavailable, MemoryPipelineError
from memory_pipeline.core.projection import Projection, is_projected, point_id, project
from memory_pipeline.index.points import IndexPoint, PointTooLarge
from memory_pipeline.operations.embed import FailedCard, Progress, dense_vectors, sparse_vectors
from memory_pipeline.operations.generation import ensure_generation, start_serving
from memory_pipeline.operations.services import Services
from memory_pipeline.store import cards, generations, propagations
from memory_pipeline.store.database import Role
from memory_pipeline.store.generations import Generation, ProjectionState
from memory_pipeline.store.propagations import WaitingCard

BATCH = 256
PROMOTION_WAIT_SECONDS = 0.2
"""How long a promotion waits for its turn to propagate before it says that this is pending."""

_POLL_SECONDS = 0.02


class Problem(BaseModel):
    """A named error that stopped a drain, told rather than raised."""

    model_config = ConfigDict(frozen=True)

    error: str
    message: str
    hint: str
    exit_code: int

    @classmethod
    def of(cls, error: MemoryPipelineError) -> Problem:
        """Tell an error."""
        return cls(error=error.name, message=error.message, hint=error.hint, exit_code=error.exit_code)


class DrainReport(BaseModel):
    """What one drain did, in cards, and what still waits.

    `busy`: another writer had the workspace, nothing was tried. `problem`: what stopped the drain.
    """

    model_config = ConfigDict(frozen=True)

    upserted: int = 0
    payload_only: int = 0
    removed: int = 0
    embedded: int = 0
    failed: tuple[FailedCard, ...] = ()
    pending: int = 0
    parked: int = 0
    busy: bool = False
    problem: Problem | None = None

    @property
    def settled(self) -> bool:
        """Whether nothing waits."""
        return not (self.pending or self.parked or self.busy or self.problem)


def drain(
    services: Services,
    workspace: str,
    *,
    wait: float = 0.0,
    hurry: bool = False,
    progress: Progress = lambda _: None,
) -> DrainReport:
    """Bring the index of a workspace up to every change that is due.

    Args:
        wait: seconds to wait for the turn.
        hurry: try at once what waits for a later attempt.
        progress: told how many cards were settled since the last call.

    A server that cannot be reached is reported, not raised: the changes wait in the outbox.
    """
    with services.database.transaction(Role.INDEXER, workspace, via=services.via) as lock:
        deadline = time.monotonic() + wait
        while not propagations.try_lock_drain(lock, workspace):
            if time.monotonic() >= deadline:
                return _with_backlog(services, workspace, _Tally(busy=True))
            time.sleep(_POLL_SECONDS)
        tally = _Tally()
        try:
            _drain_all(services, workspace, hurry=hurry, tally=tally, progress=progress)
        except (EmbedderUnavailable, IndexUnavailable) as error:
            tally.problem = Problem.of(error)
        return _with_backlog(services, workspace, tally)


def propagate_at_once(services: Services, workspace: str) -> DrainReport:
    """Drain after a change that is committed: it stands whatever comes of this, so every named error is only told."""
    try:
        return drain(services, workspace, wait=PROMOTION_WAIT_SECONDS)
    except MemoryPipelineError as error:
        return DrainReport(problem=Problem.of(error))


@dataclass
class _Tally:
    """Counts of one drain as it goes on."""

    upserted: int = 0
    payload_only: int = 0
    removed: int = 0
    embedded: int = 0
    failed: list[FailedCard] = field(default_factory=list)
    busy: bool = False
    problem: Problem | None = None


def _with_backlog(services: Services, workspace: str, tally: _Tally) -> DrainReport:
    with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
        pending, parked = propagations.count(tx, workspace)
    return DrainReport(**vars(tally), pending=pending, parked=parked)


def _drain_all(services: Services, workspace: str, *, hurry: bool, tally: _Tally, progress: Progress) -> None:
    generation = ensure_generation(services, workspace)
    if hurry:
        with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
            propagations.make_due(tx, workspace)
    while True:
        with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
            waiting = propagations.waiting(tx, workspace, limit=BATCH)
        if not waiting:
            break
        _Batch(services, workspace, generation, tally, {card.card_id: card for card in waiting}).run()
        progress(len(waiting))
    if not generation.serving:
        start_serving(services, workspace, generation)


@dataclass
class _Batch:
    """Some cards on their way to the index."""

    services: Services
    workspace: str
    generation: Generation
    tally: _Tally
    waiting: dict[str, WaitingCard]

    def run(self) -> None:
        """Write, read back, acknowledge. An outage postpones every card of the batch that it hit, and is raised."""
        try:
            wanted, unwanted, states = self._expect()
            ready = self._embed(wanted)
            self._write(ready, states)
            self._remove(unwanted)
        except (EmbedderUnavailable, IndexUnavailable) as error:
            self._postpone([FailedCard(card_id=card, error=error.name, message=error.message) for card in self.waiting])
            raise

    def _expect(self) -> tuple[list[Projection], list[MemoryRecord], dict[str, ProjectionState]]:
        """Read the current cards and record what their points must hold."""
        number = self.generation.number
        with self.services.database.transaction(Role.INDEXER, self.workspace, via=self.services.via) as tx:
            current = cards.get_many(tx, self.workspace, list(self.waiting))
            wanted = [project(card, self.generation.format) for card in current.values() if is_projected(card)]
            unwanted = [card for card in current.values() if not is_projected(card)]
            states = generations.states(tx, self.workspace, number, list(self.waiting))
            generations.expect(tx, self.workspace, number, wanted)
            generations.expect_none(tx, self.workspace, number, {card.id: card.revision for card in unwanted})
        return wanted, unwanted, states

    def _embed(self, wanted: Sequence[Projection]) -> list[IndexPoint]:
        index = self.generation.format
        dense, failed, computed = dense_vectors(self.services, self.workspace, index, wanted)
        sparse, _ = sparse_vectors(self.services, self.workspace, index, wanted)
        self.tally.embedded += computed
        self._postpone(failed)
        return [
            IndexPoint(item, dense[item.dense_sha256].vector, sparse[item.lexical_sha256])
            for item in wanted
            if item.card_id in self.waiting
        ]

    def _write(self, points: Sequence[IndexPoint], states: dict[str, ProjectionState]) -> None:
        """A card whose texts did not change costs a payload write; the rest are upserted whole."""
        collection = self.generation.collection
        unchanged = [point for point in points if _same_texts(point.projection, states.get(point.projection.card_id))]
        if unchanged:
            self.services.index.set_payload(collection, [point.projection for point in unchanged])
        held = self._acknowledge(unchanged)
        self.tally.payload_only += len(held)
        rest = [point for point in points if point.projection.card_id not in held]
        rest = self._upsert(rest)
        if rest:
            written = self._acknowledge(rest)
            self.tally.upserted += len(written)
            self._postpone(
                [
                    FailedCard(
                        card_id=point.projection.card_id,
                        error="NotAcknowledged",
                        message=f"the point of revision {point.projection.revision} was not there when read back",
                    )
                    for point in rest
                    if point.projection.card_id not in written
                ]
            )

    def _upsert(self, points: Sequence[IndexPoint]) -> list[IndexPoint]:
        """Write points whole; returns those that were written. A point too large for any request waits alone."""
        rest = list(points)
        while rest:
            try:
                self.services.index.upsert(self.generation.collection, rest)
            except PointTooLarge as error:  # raised before anything is sent
                self._postpone([FailedCard(card_id=error.card_id, error=error.name, message=error.message)])
                rest = [point for point in rest if point.projection.card_id != error.card_id]
            else:
                break
        return rest

    def _acknowledge(self, points: Sequence[IndexPoint]) -> set[str]:
        """Read points back; those that hold what they must are acknowledged and settled. Returns their cards."""
        if not points:
            return set()
        seen = self.services.index.read(self.generation.collection, [point.projection.point_id for point in points])
        held = [
            point.projection
            for point in points
            if (state := seen.get(point.projection.point_id))
            and (state.revision, state.projection_sha256) == (point.projection.revision, point.projection.sha256)
        ]
        with self.services.database.transaction(Role.INDEXER, self.workspace, via=self.services.via) as tx:
            generations.acknowledge(tx, self.workspace, self.generation.number, held)
            propagations.settle(tx, self.workspace, [self.waiting[item.card_id] for item in held])
        return {item.card_id for item in held}

    def _remove(self, unwanted: Sequence[MemoryRecord]) -> None:
        """Cards that are not projected lose their points, by id; gone is what reads back as gone."""
        if not unwanted:
            return
        ids = {point_id(card.id): card.id for card in unwanted}
        self.services.index.delete(self.generation.collection, list(ids))
        left = self.services.index.read(self.generation.collection, list(ids))
        gone = [card for point, card in ids.items() if point not in left]
        with self.services.database.transaction(Role.INDEXER, self.workspace, via=self.services.via) as tx:
            generations.acknowledge_absence(tx, self.workspace, self.generation.number, gone)
            propagations.settle(tx, self.workspace, [self.waiting[card] for card in gone])
        self.tally.removed += len(gone)
        self._postpone(
            [
                FailedCard(
                    card_id=ids[point], error="NotAcknowledged", message="the point was still there when read back"
                )
                for point in left
            ]
        )

    def _postpone(self, failed: Sequence[FailedCard]) -> None:
        """Let cards wait for a later attempt; they take no further part in this batch."""
        if not failed:
            return
        with self.services.database.transaction(Role.INDEXER, self.workspace, via=self.services.via) as tx:
            for card in failed:
                if waiting := self.waiting.pop(card.card_id, None):
                    propagations.postpone(tx, self.workspace, waiting, f"{card.error}: {card.message}")
                    self.tally.failed.append(card)


def _same_texts(projection: Projection, state: ProjectionState | None) -> bool:
    """Whether the server was seen to hold vectors of these very texts."""
    return (
        state is not None
        and state.acknowledged_sha256 is not None
        and (state.dense_sha256, state.lexical_sha256) == (projection.dense_sha256, projection.lexical_sha256)
    )
