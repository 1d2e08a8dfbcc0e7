"""Making the index follow the registry: draining the outbox of one workspace.

One writer per workspace, whatever started it. What a point must hold is recorded before the server is asked; what it
holds is read back before anything is acknowledged. A card that fails waits with its error and blocks no other.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

from pydantic import BaseModel, ConfigDict

from memory_pipeline.core.errors import (
    EmbedderUnavailable,
    IndexUnavailable,
    MemoryPipelineError,
    RegistryRestored,
)
from memory_pipeline.logs import operation
from memory_pipeline.operations.embed import FailedCard, Progress
from memory_pipeline.operations.generation import ensure_generation, start_serving
from memory_pipeline.operations.points import BATCH, WINDOW, Batch, EmbeddingAhead, Written
from memory_pipeline.operations.services import Services
from memory_pipeline.operations.upkeep import look_at_removals, sweep
from memory_pipeline.store import propagations
from memory_pipeline.store.database import Role, Transaction
from memory_pipeline.store.generations import Generation
from memory_pipeline.store.propagations import WaitingCard

PROMOTION_WAIT_SECONDS = 0.2
"""How long a promotion waits for its turn to propagate before it says that this is pending."""
PROMOTION_LONGEST_SECONDS = 5.0
"""Whoever promotes one memory does not wait for a backlog of thousands: what is left after so long is pending."""

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


def _figures(report: DrainReport) -> dict[str, object]:
    return {
        **report.model_dump(include={"upserted", "payload_only", "removed", "embedded", "pending", "parked", "busy"}),
        "failed": [card.card_id for card in report.failed],
        "problem": report.problem.error if report.problem else None,
    }


@operation("outbox.drain", _figures)
def drain(
    services: Services,
    workspace: str,
    *,
    wait: float = 0.0,
    hurry: bool = False,
    longest: float | None = None,
    strict: bool = False,
    progress: Progress = lambda _: None,
) -> DrainReport:
    """Bring the index of a workspace up to every change that is due.

    Args:
        wait: seconds to wait for the turn.
        hurry: try at once what waits for a later attempt.
        longest: seconds after which no further batch is begun; what is left waits.
        strict: raise what stops the drain rather than report it.
        progress: told how many cards were settled since the last call.

    A server that cannot be reached is reported, not raised: the changes wait in the outbox. So is an index that is
    ahead of the registry.
    """
    tally = _Tally()
    with services.database.transaction(Role.INDEXER, workspace, via=services.via) as lock:
        if not await_turn(lock, workspace, wait):
            tally.busy = True
            return _with_backlog(services, workspace, tally)
        until = None if longest is None else time.monotonic() + longest
        try:
            _drain_all(services, workspace, tally, hurry=hurry, until=until, progress=progress)
        except (EmbedderUnavailable, IndexUnavailable, RegistryRestored) as error:
            if strict:
                raise
            tally.problem = Problem.of(error)
        return _with_backlog(services, workspace, tally)


def await_turn(lock: Transaction, workspace: str, wait: float) -> bool:
    """Take the right to write to the index that serves, for the length of a transaction; false if others keep it."""
    deadline = time.monotonic() + wait
    while not propagations.try_lock_drain(lock, workspace):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def propagate_at_once(services: Services, workspace: str) -> DrainReport:
    """Drain after a change that is committed: it stands whatever comes of this, so every named error is only told."""
    try:
        return drain(services, workspace, wait=PROMOTION_WAIT_SECONDS, longest=PROMOTION_LONGEST_SECONDS)
    except MemoryPipelineError as error:
        return DrainReport(problem=Problem.of(error))


@dataclass
class _Tally(Written):
    """Counts of one drain as it goes on."""

    busy: bool = False
    problem: Problem | None = None


def _with_backlog(services: Services, workspace: str, tally: _Tally) -> DrainReport:
    with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
        pending, parked = propagations.count(tx, workspace)
    return DrainReport(**vars(tally), pending=pending, parked=parked)


def _drain_all(
    services: Services, workspace: str, tally: _Tally, *, hurry: bool, until: float | None, progress: Progress
) -> None:
    generation = ensure_generation(services, workspace)
    if hurry:
        with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
            propagations.make_due(tx, workspace)
    look_at_removals(services, workspace, generation)
    if not _drain_batches(services, workspace, generation, tally, until=until, progress=progress):
        return
    if not generation.serving:
        start_serving(services, workspace, generation)
    sweep(services, workspace)


def _drain_batches(
    services: Services,
    workspace: str,
    generation: Generation,
    tally: _Tally,
    *,
    until: float | None,
    progress: Progress,
) -> bool:
    """Write batch after batch, one at least, until nothing is due; false where the time was up before."""
    begun = False
    with EmbeddingAhead(services, workspace, generation) as ahead:
        while True:
            with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
                due = propagations.waiting(tx, workspace, limit=WINDOW)
            if not due:
                tally.embedded += ahead.finish()
                return True
            if begun and until is not None and time.monotonic() >= until:
                tally.embedded += ahead.finish()
                return False
            begun = True
            waiting = {card.card_id: card for card in due[:BATCH]}
            following = [card.card_id for card in due[BATCH:]]
            tally.embedded += ahead.finish(waiting)
            batch = _Drained(services, workspace, generation, tally, waiting)
            batch.write(list(waiting), partial(ahead.begin, following))
            progress(len(waiting))


@dataclass
class _Drained(Batch):
    """Cards of the outbox, with the rows that wait for each."""

    waiting: dict[str, WaitingCard]

    def settle(self, tx: Transaction, ids: Collection[str]) -> None:
        """What waited for a card up to the row that was seen is done; a later change goes on waiting."""
        propagations.settle(tx, self.workspace, [self.waiting[card] for card in ids])

    def postpone(self, failed: Sequence[FailedCard], *, outage: bool) -> None:
        """Let cards wait for a later attempt."""
        with self.services.database.transaction(Role.INDEXER, self.workspace, via=self.services.via) as tx:
            for card in failed:
                error = f"{card.error}: {card.message}"
                propagations.postpone(tx, self.workspace, self.waiting[card.card_id], error, outage=outage)
