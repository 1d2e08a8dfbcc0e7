"""What each branch of the hybrid search finds by itself, verified as a search verifies: to measure them apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from memory_pipeline.core.context import SearchContext, SearchFilters, search_context
from memory_pipeline.core.dependencies import Dependency
from memory_pipeline.core.errors import NotIndexed
from memory_pipeline.core.profile import profile_named
from memory_pipeline.embedding.lexical import encoder_of
from memory_pipeline.index.filters import SearchFilter
from memory_pipeline.index.points import IndexHit
from memory_pipeline.index.queries import Branch, HybridQuery
from memory_pipeline.operations.hits import reason_to_drop
from memory_pipeline.operations.services import Services
from memory_pipeline.store import generations, workspaces
from memory_pipeline.store.database import Role
from memory_pipeline.store.generations import Generation
from memory_pipeline.store.recall import read

BRANCHES: tuple[Branch, ...] = ("dense", "bm25")


def search_branches(
    services: Services, workspace: str, question: str, places: Sequence[Dependency | None], *, limit: int
) -> list[dict[Branch, list[str]]]:
    """Ids of the cards that each branch alone ranks first, best first, for each of these places.

    The texts, the filter and the checks are those of a search; nothing is fetched further where a check drops a hit.

    Raises:
        NotIndexed, EmbedderUnavailable, IndexUnavailable, UnknownWorkspace, WorkspaceRetired: as for a search.
    """
    with services.database.transaction(Role.READER, workspace, via=services.via) as tx:
        known = workspaces.get_active(tx, workspace)
        generation = generations.serving(tx, workspace)
    if generation is None:
        raise NotIndexed(workspace)
    query = _encode(services, generation, question, limit)
    contexts = [search_context(place, SearchFilters(), default_schema=known.default_schema) for place in places]
    return [_search(services, workspace, generation, query, context) for context in contexts]


def _encode(services: Services, generation: Generation, question: str, limit: int) -> HybridQuery:
    """The question for both branches. How they would be fused plays no part."""
    index, profile = generation.format, profile_named(generation.format.profile)
    return HybridQuery(
        dense=services.embedder.embed_query(index.model, profile.dense_query(question), dimensions=index.dimensions),
        lexical=encoder_of(index.language, profile).query(profile.lexical_query(question)),
        filter=SearchFilter(),
        limit=limit,
        prefetch=limit,
        lexical_weight=profile.lexical_weight,
        lexical_half=profile.lexical_half,
    )


def _search(
    services: Services, workspace: str, generation: Generation, query: HybridQuery, context: SearchContext
) -> dict[Branch, list[str]]:
    there = replace(query, filter=SearchFilter.of(context))
    hits = {branch: services.index.search_branch(generation.collection, there, branch) for branch in BRANCHES}
    with services.database.transaction(Role.READER, workspace, via=services.via) as tx:
        readings = read(tx, workspace, generation.number, sorted({hit.ref for found in hits.values() for hit in found}))

    def stands(hit: IndexHit) -> bool:
        reading = readings.get(hit.ref)
        return reading is not None and reason_to_drop(hit, reading.card, reading.state, context) is None

    return {branch: [hit.ref for hit in found if stands(hit)] for branch, found in hits.items()}
