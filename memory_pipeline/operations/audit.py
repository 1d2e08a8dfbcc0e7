"""Answering who promoted, declined, edited, deleted, linked, imported or closed what, and when."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from memory_pipeline.core.text import require_storable
from memory_pipeline.operations.cards import require_page
from memory_pipeline.operations.services import Services
from memory_pipeline.store import audit as store
from memory_pipeline.store import workspaces
from memory_pipeline.store.audit import AuditEvent, AuditFilter
from memory_pipeline.store.database import Role

DEFAULT_LIMIT = 100


class Audit(BaseModel):
    """One page of what was done in a workspace, oldest first. `remaining` are acts beyond the page."""

    model_config = ConfigDict(frozen=True)

    workspace: str
    total: int
    remaining: int
    events: tuple[AuditEvent, ...]


def audit(
    services: Services, workspace: str, wanted: AuditFilter, *, limit: int = DEFAULT_LIMIT, offset: int = 0
) -> Audit:
    """Read what was done in a workspace, as the reviewer. The order is the same at every call.

    Raises:
        BadInput: a page that cannot be.
        UnknownWorkspace.
    """
    require_page(limit, offset)
    for text in (wanted.card_id, wanted.session_id):
        require_storable(text or "", "a filter")
    with services.database.transaction(Role.REVIEWER, workspace, via=services.via) as tx:
        workspaces.get(tx, workspace)
        events, total = store.events(tx, workspace, wanted, limit=limit, offset=offset)
    return Audit(workspace=workspace, total=total, remaining=max(0, total - offset - len(events)), events=tuple(events))
