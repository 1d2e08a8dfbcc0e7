"""Workspaces that live as long as an evaluation, and go with it, however it ends."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator

from memory_pipeline.core.errors import MemoryPipelineError
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.operations.purge import purge_scratch
from memory_pipeline.operations.services import Services
from memory_pipeline.operations.workspaces import create_workspace
from memory_pipeline.store import workspaces
from memory_pipeline.store.database import Role

PREFIX = "eval-"


def require_secrets(services: Services) -> None:
    """Refuse to begin what could not be finished.

    Raises:
        MissingSecret: that of a role which makes, fills, searches or purges a scratch workspace; names it.
    """
    for role in (Role.OWNER, Role.INDEXER, Role.READER):
        services.settings.secret(role.value)
    services.settings.secret(services.settings.reviewer_login)


@contextlib.contextmanager
def scratch_workspace(services: Services, *, title: str, language: str, database: str) -> Iterator[Workspace]:
    """A workspace of its own for the length of a block, purged when the block ends, by an interruption too.

    Its slug is held by a lock of the database as long as this process lives: one that was killed holds it no more, and
    `purge_leftovers` takes what it left.
    """
    workspace = Workspace(slug=f"{PREFIX}{uuid.uuid4()}", title=title, language=language, default_database=database)
    with services.database.transaction(Role.READER, workspace.slug, via=services.via) as holding:
        workspaces.try_hold_scratch(holding, workspace.slug)
        create_workspace(services, workspace, scratch=True)
        try:
            yield workspace
        except BaseException:
            with contextlib.suppress(MemoryPipelineError):  # what broke the block is what its caller has to know
                purge_scratch(services, workspace.slug, "the evaluation broke off")
            raise
        purge_scratch(services, workspace.slug, "the evaluation is over")


def purge_leftovers(services: Services) -> list[str]:
    """Purge the scratch workspaces of evaluations that were killed; returns their slugs."""
    with services.database.transaction(Role.OWNER, None, via=services.via) as tx:
        slugs = [slug for slug in workspaces.scratch_slugs(tx) if slug.startswith(PREFIX)]
    return [slug for slug in slugs if _purge_if_left(services, slug)]


def _purge_if_left(services: Services, slug: str) -> bool:
    with services.database.transaction(Role.READER, slug, via=services.via) as holding:
        if not workspaces.try_hold_scratch(holding, slug) or not workspaces.is_scratch(holding, slug):
            return False  # its maker is alive, or purged it just now
        purge_scratch(services, slug, "left by an evaluation that was killed")
        return True
