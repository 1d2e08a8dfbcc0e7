"""Making workspaces, changing them and looking at them."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from memory_pipeline.core.errors import BadInput
from memory_pipeline.core.workspace import Name, Workspace, WorkspaceStatus
from memory_pipeline.operations.services import Services
from memory_pipeline.store import generations, workspaces
from memory_pipeline.store.database import Role, Transaction
from memory_pipeline.store.workspaces import WorkspaceState


class WorkspaceChanges(BaseModel):
    """Settings to change. One that is left out stays; a default schema of none takes it away."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: Name | None = None
    language: str | None = None
    sql_dialect: Name | None = None
    default_database: Name | None = None
    default_schema: Name | None = None
    embedding_profile: str | None = None
    four_eyes: bool | None = None


class ChangedWorkspace(BaseModel):
    """A workspace as it is now, whether this call changed it, and whether its index was built for other settings."""

    model_config = ConfigDict(frozen=True)

    workspace: Workspace
    changed: bool
    rebuild_due: bool


def create_workspace(
    services: Services, workspace: Workspace, *, if_missing: bool = False, scratch: bool = False
) -> bool:
    """Make a workspace, as the owner; returns whether it was made now.

    Args:
        if_missing: take an existing workspace with the same settings for done.
        scratch: it is made for an evaluation: not listed, no partition, and purged by who made it.

    Raises:
        WorkspaceExists: the slug is taken, by one with other settings where `if_missing`.
    """
    with services.database.transaction(Role.OWNER, workspace.slug, via=services.via) as tx:
        known = {state.slug for state in workspaces.list_states(tx, scratch=True)}
        if if_missing and workspace.slug in known and workspaces.get(tx, workspace.slug) == workspace:
            return False
        workspaces.create(tx, workspace, scratch=scratch)
    return True


def list_workspaces(services: Services, role: Role = Role.READER) -> list[WorkspaceState]:
    """Every workspace's slug and status; those made for an evaluation are left out."""
    with services.database.transaction(role, None, via=services.via) as tx:
        return workspaces.list_states(tx)


def describe_workspaces(services: Services) -> list[Workspace]:
    """Every workspace with its settings; each is entered for them, for none sees those of another."""
    return [show_workspace(services, state.slug) for state in list_workspaces(services)]


def show_workspace(services: Services, slug: str, role: Role = Role.READER) -> Workspace:
    """One workspace.

    Raises:
        UnknownWorkspace: there is none of that name.
    """
    with services.database.transaction(role, slug, via=services.via) as tx:
        return workspaces.get(tx, slug)


def set_workspace(services: Services, slug: str, changes: WorkspaceChanges) -> ChangedWorkspace:
    """Change settings, as the owner.

    What is stored stays as it is: cards keep the places to which they were resolved, and the index serves with the
    language and the profile for which it was built, until it is rebuilt.

    Raises:
        BadInput: nothing is to be changed.
        BadWorkspace, UnknownLanguage, UnknownProfile: a value that cannot be; nothing is changed.
    """
    wanted = {
        name: value
        for name, value in changes.model_dump(exclude_unset=True).items()
        if value is not None or name == "default_schema"
    }
    if not wanted:
        raise BadInput("no setting was given", hint="name at least one: memory-pipeline workspace set --help")
    return _change(services, slug, wanted)


def retire_workspace(services: Services, slug: str) -> ChangedWorkspace:
    """Take a workspace out of use, as the owner: its rows and its index stay, nothing is written, promoted or searched.

    A decision that is being written is waited for. Retiring a retired one changes nothing.
    """
    return _change(services, slug, {"status": WorkspaceStatus.RETIRED})


def restore_workspace(services: Services, slug: str) -> ChangedWorkspace:
    """Take a retired workspace into use again, as the owner. Restoring an active one changes nothing."""
    return _change(services, slug, {"status": WorkspaceStatus.ACTIVE})


def _change(services: Services, slug: str, wanted: dict[str, object]) -> ChangedWorkspace:
    with services.database.transaction(Role.OWNER, slug, via=services.via) as tx:
        workspaces.lock_cards(tx, slug)  # the gate reads the settings under this lock
        known = workspaces.get(tx, slug)
        changed = Workspace.model_validate({**known.model_dump(), **wanted})
        if changed != known:
            workspaces.update(tx, changed)
        return ChangedWorkspace(workspace=changed, changed=changed != known, rebuild_due=_is_rebuild_due(tx, changed))


def _is_rebuild_due(tx: Transaction, workspace: Workspace) -> bool:
    """Whether the index that serves was built for another language or profile. Its model is the embedder's to tell."""
    serving = generations.serving(tx, workspace.slug)
    if serving is None:
        return False
    return (serving.format.language, serving.format.profile) != (workspace.language, workspace.embedding_profile)
