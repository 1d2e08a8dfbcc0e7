"""The generation that a workspace's index is written to: the one that serves, or the first one while it is filled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_pipeline.core.epoch import is_behind
from memory_pipeline.core.errors import IndexRefused, RegistryRestored
from memory_pipeline.core.languages import require_language
from memory_pipeline.core.profile import profile_named
from memory_pipeline.core.projection import IndexFormat
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.embedding.lexical import analyser_of
from memory_pipeline.failpoints import reach
from memory_pipeline.operations.services import Services
from memory_pipeline.store import generations, propagations, upkeep, workspaces
from memory_pipeline.store.database import Role, Transaction
from memory_pipeline.store.generations import Generation

if TYPE_CHECKING:  # its client takes a second to import, and not every command speaks to it
    from memory_pipeline.index.shape import CollectionShape


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


def rebuild_due(services: Services, workspace: str) -> tuple[str, ...]:
    """In words, what of the index that serves is no longer what is wanted; empty: nothing, or it has none.

    Raises:
        ModelMissing, EmbedderUnavailable: the embedder cannot tell what is wanted.
    """
    with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
        known = workspaces.get(tx, workspace)
        serving = generations.serving(tx, workspace)
    return differences(serving.format, desired_format(services, known)) if serving else ()


def differences(built: IndexFormat, wanted: IndexFormat) -> tuple[str, ...]:
    """In words, every field in which two formats differ."""
    before, after = built.model_dump(), wanted.model_dump()
    return tuple(f"{name}: {before[name]} -> {after[name]}" for name in before if before[name] != after[name])


def ensure_generation(services: Services, workspace: str) -> Generation:
    """The generation to write to; made, and its collection with it, where the workspace has none.

    The row comes first, so that a collection is ours before it exists; a process killed in between leaves a row whose
    collection the next call makes. A collection that is lost, or has lost its sparse vector, gets back what it lacks:
    nothing is acknowledged then, every card is queued, and searches say so until it is filled.

    Raises:
        WorkspaceRetired: nothing is built for it.
        IncompatibleCollection: its collection has other vectors than the generation says.
        RegistryRestored: its collection was written by a registry that had come further than this one.
    """
    with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
        known = workspaces.get_active(tx, workspace)
        found = generations.serving(tx, workspace) or generations.building(tx, workspace)
    generation = found or insert_generation(services, known, desired_format(services, known))
    shape = services.index.shape(generation.collection)
    if shape is not None:
        require_same_registry(services, workspace, generation, shape)
    if shape is None or shape.lacks_lexical_alone(generation.format.dimensions):
        with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
            generations.forget_points(tx, workspace, generation.number)
            propagations.enqueue_active(tx, workspace)
        generation = generation._replace(serving=False)
    make_collection(services, generation, shape)
    return generation


def insert_generation(
    services: Services, workspace: Workspace, index: IndexFormat, *, is_rebuild: bool = False
) -> Generation:
    """Record a new generation, under a collection name that nothing on the server has.

    A first one that somebody else has recorded meanwhile is taken instead; a rebuild is recorded under its own lock.
    """
    with services.database.transaction(Role.INDEXER, workspace.slug, via=services.via) as tx:
        generations.lock_build(tx, workspace.slug)
        if not is_rebuild and (raced := _in_use(tx, workspace.slug)):
            return raced
        alias = f"memory__{workspace.slug}"
        number = generations.newest_number(tx, workspace.slug) + 1
        while services.index.shape(f"{alias}__{number}") is not None:  # somebody else's: never altered
            number += 1
        generation = Generation(number, f"{alias}__{number}", alias, index, is_rebuild=is_rebuild)
        generations.insert(tx, workspace.slug, generation, state="building")
    return generation


def make_collection(services: Services, generation: Generation, shape: CollectionShape | None) -> None:
    """Make a generation's collection, or finish it: its sparse vector and its payload indexes.

    Args:
        shape: what it is now; none where it is not there.

    Raises:
        IncompatibleCollection: it cannot hold the generation's points; it is left as it is.
    """
    dimensions = generation.format.dimensions
    if shape is not None and not shape.differences(dimensions) and not shape.missing_indexes():
        return
    if shape is not None and shape.lacks_lexical_alone(dimensions):
        services.index.add_lexical(generation.collection)
    services.index.create(generation.collection, dimensions=dimensions)


def require_same_registry(services: Services, workspace: str, generation: Generation, shape: CollectionShape) -> None:
    """Refuse a collection that is ahead of the registry, as after a restored backup.

    Args:
        shape: read before this is called, for the registry is never behind what it wrote.

    Raises:
        RegistryRestored: nothing may be written to it.
    """
    if shape.epoch is None:
        return
    with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
        registry = upkeep.epoch(tx, workspace)
    if is_behind(registry, shape.epoch):
        raise RegistryRestored(workspace, generation.collection)


def start_serving(services: Services, workspace: str, generation: Generation) -> None:
    """Let searches use a generation that is whole. The commit is the switch; the alias is for other readers.

    It goes first: a process that is killed in between leaves a generation that is due to be served.
    """
    follow_alias(services, generation)
    reach("drain:aliased")
    with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
        generations.start_serving(tx, workspace, generation.number, keep=longest_search(services))
    reach("drain:served")


def follow_alias(services: Services, generation: Generation) -> IndexRefused | None:
    """Let the alias name a generation's collection. Returns why it cannot: a collection of somebody else has its name.

    Searches do without the alias, so that is no reason to stop; the comparison of the stores goes on telling it.

    Raises:
        IndexUnavailable: the server does not answer.
    """
    try:
        services.index.point_alias(generation.alias, generation.collection)
    except IndexRefused as refused:
        return refused
    return None


def longest_search(services: Services) -> float:
    """Seconds after which no search can be reading a collection that it found serving before."""
    return services.settings.qdrant_timeout + services.settings.ollama_timeout


def _in_use(tx: Transaction, workspace: str) -> Generation | None:
    return generations.serving(tx, workspace) or generations.building(tx, workspace)
