"""Closing a session: the reviewer's word that nothing of it waits for a verdict."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict

from memory_pipeline.core.errors import CandidatesPending
from memory_pipeline.logs import operation
from memory_pipeline.operations.inbox import read_session
from memory_pipeline.operations.preview import derive_candidates
from memory_pipeline.operations.services import Services
from memory_pipeline.store import ledger, workspaces
from memory_pipeline.store.database import Role
from memory_pipeline.store.ledger import Closing


class ClosedSession(BaseModel):
    """A session that is closed, by whom, and the candidates left undecided. `closed_now`: this call wrote the row."""

    model_config = ConfigDict(frozen=True)

    session: str
    ledger_seq: int
    closed_at: datetime
    closed_by: str
    closed_now: bool
    left_pending: tuple[int, ...]


def closing_of(services: Services, workspace: str, session_id: str) -> Closing | None:
    """When and by whom a session was closed; none where it is open, or was written to since."""
    with services.database.transaction(Role.HARNESS, workspace, via=services.via) as tx:
        return ledger.closing(tx, workspace, session_id)


@operation("session.close", lambda closed: {"session": closed.session})
def close_session(services: Services, workspace: str, session_id: str, *, leave_pending: bool = False) -> ClosedSession:
    """Read the session's inbox, and close the session, as the reviewer.

    The row stands in the ledger beside those of the harness, whichever door feeds it. It shuts no door: what is
    written later is stored and counts, and may bring candidates. A session to which nothing was written since it was
    closed is not closed again.

    Args:
        leave_pending: close it although candidates are undecided; they stay candidates, and may be decided later.

    Raises:
        CandidatesPending: there are undecided candidates; nothing is written.
        UnknownSession, WorkspaceRetired.
    """
    read_session(services, workspace, session_id)
    with services.database.transaction(Role.REVIEWER, workspace, via=services.via) as tx:
        workspaces.get_active(tx, workspace)
        ledger.require_session(tx, workspace, session_id)
        workspaces.lock_session(tx, workspace, session_id)
        pending = [candidate.seq for candidate in derive_candidates(tx, workspace, session_id).candidates]
        if pending and not leave_pending:
            raise CandidatesPending(session_id, pending)
        found = ledger.closing(tx, workspace, session_id)
        if found is None:
            ledger.insert_closing(tx, workspace, session_id, left_pending=pending)
        closing = found or ledger.closing(tx, workspace, session_id)
        assert closing is not None  # noqa: S101 - written just now, under the session's lock
        return ClosedSession(
            session=session_id,
            ledger_seq=ledger.last_seq(tx, workspace, session_id),
            closed_at=closing.at,
            closed_by=closing.by,
            closed_now=found is None,
            left_pending=closing.left_pending,
        )
