"""The generation that a workspace's index is written to: the one that serves, or the first one while it is filled."""

from __future__ import annotations

from memory_pipeline.core.languages import require_language
from memory_pipeline.core.profile import profile_named
from memory_pipeline.core.projection import IndexFormat
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.embedding.lexical import analyser_of
from memory_pipeline.operations.services import Services
from memory_pipeline.store import generations, workspaces
from memory_pipeline.store.database import Role
from memory_pipeline.store.generations import Generation


def desired_format(services: Services, workspace: Workspace) -> IndexFormat:
    """What an index built now would look like, after the settings and the model that the embedder has.

    Raises:
        ModelMissing, EmbedderUnavailable: the embedder cannot tell.
    """
    require_language(workspace.language)
    profile = profile_named(workspace.embedding_profile)
    model = services.embedder.describe(services.settings.embedding_model)
    return IndexFormat(
        profile=profile.name,
        profile_version=profile.version,
        model=model.name,
        model_digest=model.digest,
        dimensions=model.dimensions,
        analyser=analyser_of(workspace.language, profile),
        language=workspace.language,
    )


def ensure_generation(services: Services, workspace: str) -> Generation:
    """The generation to write to; made, and its collection with it, where the workspace has none.

    The row comes first, so that a collection is ours before it exists; a process killed in between leaves a row whose
    collection the next call makes.

    Raises:
        WorkspaceRetired: nothing is built for it.
        IncompatibleCollection: its collection has other vectors than the generation says.
    """
    with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
        known = workspaces.get_active(tx, workspace)
        found = generations.serving(tx, workspace) or generations.building(tx, workspace)
    generation = found or _insert(services, known)
    if services.index.shape(generation.collection) is None:
        # Lost behind our back, or never made: nothing is acknowledged, and searches say so until it is filled.
        with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
            generations.forget_points(tx, workspace, generation.number)
        generation = generation._replace(serving=False)
    services.index.create(generation.collection, dimensions=generation.format.dimensions)
    return generation


def start_serving(services: Services, workspace: str, generation: Generation) -> None:
    """Let searches use a generation. The commit is the switch; the alias follows for other readers."""
    with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
        generations.start_serving(tx, workspace, generation.number)
    services.index.point_alias(generation.alias, generation.collection)


def _insert(services: Services, workspace: Workspace) -> Generation:
    """Record a first generation, under a collection name that nothing on the server has."""
    index = desired_format(services, workspace)
    with services.database.transaction(Role.INDEXER, workspace.slug, via=services.via) as tx:
        generations.lock_build(tx, workspace.slug)
        if raced := generations.serving(tx, workspace.slug) or generations.building(tx, workspace.slug):
            return raced
        alias = f"memory__{workspace.slug}"
        number = generations.newest_number(tx, workspace.slug) + 1
        while services.index.shape(f"{alias}__{number}") is not None:  # somebody else's: never altered
            number += 1
        generation = Generation(number, f"{alias}__{number}", alias, index)
        generations.insert(tx, workspace.slug, generation, state="building")
    return generation
