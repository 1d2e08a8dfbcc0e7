"""Making workspaces and looking at them."""

from __future__ import annotations

from memory_pipeline.core.workspace import Workspace
from memory_pipeline.operations.services import Services
from memory_pipeline.store import workspaces
from memory_pipeline.store.database import Role
from memory_pipeline.store.workspaces import WorkspaceState


def create_workspace(services: Services, workspace: Workspace, *, if_missing: bool = False) -> bool:
    """Make a workspace, as the owner; returns whether it was made now.

    Args:
        if_missing: take an existing workspace with the same settings for done.

    Raises:
        WorkspaceExists: the slug is taken, by one with other settings where `if_missing`.
    """
    with services.database.transaction(Role.OWNER, workspace.slug, via=services.via) as tx:
        known = {state.slug for state in workspaces.list_states(tx, scratch=True)}
        if if_missing and workspace.slug in known and workspaces.get(tx, workspace.slug) == workspace:
            return False
        workspaces.create(tx, workspace)
    return True


def list_workspaces(services: Services, role: Role = Role.READER) -> list[WorkspaceState]:
    """Every workspace's slug and status; those made for an evaluation are left out."""
    with services.database.transaction(role, None, via=services.via) as tx:
        return workspaces.list_states(tx)


def show_workspace(services: Services, slug: str, role: Role = Role.READER) -> Workspace:
    """One workspace.

    Raises:
        UnknownWorkspace: there is none of that name.
    """
    with services.database.transaction(role, slug, via=services.via) as tx:
        return workspaces.get(tx, slug)
