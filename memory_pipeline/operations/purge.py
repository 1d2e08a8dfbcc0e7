"""Erasing a workspace from every store. Only what an evaluation made can be erased so far."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from memory_pipeline.core.errors import NotScratch
from memory_pipeline.operations.services import Services
from memory_pipeline.store import purges, workspaces
from memory_pipeline.store.database import Role


class Purged(BaseModel):
    """What was erased. The row in `purges` stays."""

    model_config = ConfigDict(frozen=True)

    workspace: str
    rows: int
    collections: tuple[str, ...]


def purge_scratch(services: Services, workspace: str, reason: str) -> Purged:
    """Erase a scratch workspace, as the owner: its collections, then every row of it.

    The rows go last, for they name the collections: what breaks off halfway is finished by a repetition.

    Raises:
        UnknownWorkspace: there is none of that name.
        NotScratch: no evaluation made it.
        IndexUnavailable: its collections cannot be dropped; nothing was erased.
    """
    with services.database.transaction(Role.OWNER, workspace, via=services.via) as tx:
        workspaces.get(tx, workspace)
        if not workspaces.is_scratch(tx, workspace):
            raise NotScratch(workspace)
        purges.begin(tx, workspace, reason)
        collections = purges.collections(tx, workspace)
    for collection in collections:
        services.index.drop(collection)
    with services.database.transaction(Role.OWNER, workspace, via=services.via) as tx:
        rows = purges.delete_rows(tx, workspace)
    return Purged(workspace=workspace, rows=rows, collections=tuple(collections))
