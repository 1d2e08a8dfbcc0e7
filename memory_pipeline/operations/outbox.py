"""Looking at what the index has yet to follow, and trying it again."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict

from memory_pipeline.core.errors import BadInput, IndexBusy, UnknownCard
from memory_pipeline.operations.propagate import DrainReport, drain
from memory_pipeline.operations.services import Services
from memory_pipeline.store import cards, propagations, workspaces
from memory_pipeline.store.database import Role

DEFAULT_LIMIT = 100
MAX_LIMIT = 10_000
WAIT_SECONDS = 60.0


class WaitingRow(BaseModel):
    """One change of a card that the index has yet to follow. A parked one is tried again only when asked for."""

    model_config = ConfigDict(frozen=True)

    card_id: str
    revision: int
    state: Literal["pending", "parked"]
    attempts: int
    last_error: str | None
    next_attempt_at: datetime | None
    since: datetime


class Outbox(BaseModel):
    """What waits in a workspace: counts of cards, and a page of the rows, parked ones first, then the oldest."""

    model_config = ConfigDict(frozen=True)

    workspace: str
    pending: int
    parked: int
    rows: tuple[WaitingRow, ...]


class Retried(BaseModel):
    """How many cards were made due, and what came of all that was due."""

    model_config = ConfigDict(frozen=True)

    workspace: str
    retried: int
    drain: DrainReport


def outbox(services: Services, workspace: str, *, limit: int = DEFAULT_LIMIT) -> Outbox:
    """Show what waits.

    Raises:
        BadInput: a limit that cannot be.
        UnknownWorkspace.
    """
    if not 1 <= limit <= MAX_LIMIT:
        raise BadInput(f"a limit of {limit} cannot be shown", hint=f"ask for 1 to {MAX_LIMIT}")
    with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
        workspaces.get(tx, workspace)
        pending, parked = propagations.count(tx, workspace)
        rows = propagations.unsettled(tx, workspace, limit=limit)
    return Outbox(
        workspace=workspace,
        pending=pending,
        parked=parked,
        rows=tuple(
            WaitingRow(
                card_id=row.card_id,
                revision=row.revision,
                state="parked" if row.state == "dead" else "pending",
                attempts=row.attempts,
                last_error=row.last_error,
                next_attempt_at=None if row.state == "dead" else row.next_attempt_at,
                since=row.created_at,
            )
            for row in rows
        ),
    )


def retry(services: Services, workspace: str, card: str | None = None) -> Retried:
    """Make what waits or is parked due at once, of one card or of all, and try whatever is due.

    Raises:
        UnknownCard: there is no such card.
        IndexBusy: another writer kept the workspace for too long; what was asked for is tried by the next drain.
        WorkspaceRetired, UnknownWorkspace.
    """
    with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
        workspaces.get_active(tx, workspace)
        if card is not None and card not in cards.get_many(tx, workspace, [card]):
            raise UnknownCard(workspace, card[:80])
        retried = propagations.retry(tx, workspace, card)
    drained = drain(services, workspace, wait=WAIT_SECONDS)
    if drained.busy:
        raise IndexBusy(workspace)
    return Retried(workspace=workspace, retried=retried, drain=drained)
