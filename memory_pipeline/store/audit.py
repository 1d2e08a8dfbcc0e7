"""Who did what, and when: the view over everything that cannot be rewritten."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from memory_pipeline.store.database import Transaction


class Act(StrEnum):
    """What was done. Of a card that nothing but SQL made or changed, `created` and its like tell too."""

    PROMOTED = "promoted"
    DECLINED = "declined"
    CLOSED = "closed"
    ADDED = "added"
    CREATED = "created"
    EDITED = "edited"
    DELETED = "deleted"
    STATUS_CHANGED = "status_changed"
    KIND_CHANGED = "kind_changed"
    LINKED = "linked"
    UNLINKED = "unlinked"
    IMPORTED = "imported"
    IMPORT_REFUSED = "import_refused"
    SOURCE_RESET = "source_reset"
    WORKSPACE_CREATED = "workspace_created"
    WORKSPACE_CHANGED = "workspace_changed"
    PURGED = "purged"


class AuditEvent(BaseModel):
    """One act: who, as PostgreSQL knew the login, by which door, and to what. `changed` names fields of the card."""

    model_config = ConfigDict(frozen=True)

    at: datetime
    actor: str
    via: str
    action: Act
    card_id: str | None
    revision: int | None
    session_id: str | None
    decision_seq: int | None
    subject: str
    changed: tuple[str, ...]
    note: str


class AuditFilter(NamedTuple):
    """Which acts are wanted; none of them narrows nothing."""

    since: datetime | None = None
    card_id: str | None = None
    session_id: str | None = None


def events(
    tx: Transaction, workspace: str, wanted: AuditFilter, *, limit: int, offset: int
) -> tuple[list[AuditEvent], int]:
    """One page of a workspace's acts, oldest first, and how many there are in all, as the reviewer."""
    parameters = {"workspace": workspace, **wanted._asdict(), "limit": limit, "offset": offset}
    passing = """
        FROM audit_events
        WHERE workspace = %(workspace)s
            AND (%(since)s::timestamptz IS NULL OR at >= %(since)s)
            AND (%(card_id)s::text IS NULL OR card_id = %(card_id)s)
            AND (%(session_id)s::text IS NULL OR session_id = %(session_id)s)
    """
    total = tx.execute(f"SELECT count(*) AS acts {passing}", parameters).fetchone()
    rows = tx.execute(
        f"""
        SELECT at, actor, via, action, card_id, revision, session_id, decision_seq, subject, changed, note {passing}
        ORDER BY at, source, number, revision LIMIT %(limit)s OFFSET %(offset)s
        """,
        parameters,
    )
    return [AuditEvent.model_validate(row) for row in rows], total["acts"] if total else 0
