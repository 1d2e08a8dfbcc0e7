"""Vectors of cards: what is stored is used again, what is missing is computed and stored, a bad text stops no other."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence

from pydantic import BaseModel, ConfigDict

from memory_pipeline.core.errors import MemoryPipelineError, ModelChanged
from memory_pipeline.core.profile import profile_named
from memory_pipeline.core.projection import IndexFormat, Projection, project
from memory_pipeline.embedding.dense import Embedded
from memory_pipeline.embedding.lexical import encoder_of
from memory_pipeline.failpoints import reach
from memory_pipeline.operations.generation import ensure_generation
from memory_pipeline.operations.services import Services
from memory_pipeline.store import cards, embeddings
from memory_pipeline.store.database import Role
from memory_pipeline.store.embeddings import DenseVector, SparseWeights

PAGE = 256
Progress = Callable[[int], None]
"""Told how many cards were done since the last call."""


class FailedCard(BaseModel):
    """A card that waits, and why."""

    model_config = ConfigDict(frozen=True)

    card_id: str
    error: str
    message: str


class EmbedReport(BaseModel):
    """What one pass over a workspace's active cards did. `data_version` changes when any text does."""

    model_config = ConfigDict(frozen=True)

    cards: int
    computed: int
    reused: int
    pooled: int
    failed: tuple[FailedCard, ...]
    data_version: str


def embed_dense(services: Services, workspace: str, progress: Progress = lambda _: None) -> EmbedReport:
    """Store a dense vector for every active card of a workspace that has none for its present text.

    Raises:
        EmbedderUnavailable, ModelMissing: nothing can be embedded; what was stored before stays.
    """

    def embed(index: IndexFormat, page: Sequence[Projection]) -> _Page:
        vectors, failed, computed = dense_vectors(services, workspace, index, page)
        pooled = sum(vector.pooled for vector in vectors.values())
        return _Page(computed=computed, pooled=pooled, failed=failed)

    return _walk(services, workspace, embed, "dense_sha256", progress)


def embed_sparse(services: Services, workspace: str, progress: Progress = lambda _: None) -> EmbedReport:
    """Store a sparse vector for every active card of a workspace that has none for its present text."""

    def encode(index: IndexFormat, page: Sequence[Projection]) -> _Page:
        _, computed = sparse_vectors(services, workspace, index, page)
        return _Page(computed=computed, pooled=0, failed=[])

    return _walk(services, workspace, encode, "lexical_sha256", progress)


def dense_vectors(
    services: Services, workspace: str, index: IndexFormat, projections: Sequence[Projection]
) -> tuple[dict[str, DenseVector], list[FailedCard], int]:
    """Dense vectors by text hash, the cards whose text could not be embedded, and how many texts were computed.

    Raises:
        EmbedderUnavailable, ModelMissing: the embedder as a whole cannot answer.
        ModelChanged: it has another model under the name of the index's.
    """
    found = stored_dense(services, workspace, index, projections)
    texts = {projection.dense_sha256: projection.dense_text for projection in projections}
    missing = {key: text for key, text in texts.items() if key not in found}
    if not missing:
        return found, [], 0
    _require_model(services, index)
    outcomes = dict(
        zip(
            missing,
            services.embedder.embed(index.model, list(missing.values()), dimensions=index.dimensions),
            strict=True,
        )
    )
    reach("embed:answered")
    fresh = {key: DenseVector(made.vector, made.pooled) for key, made in outcomes.items() if isinstance(made, Embedded)}
    with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
        embeddings.save_dense(tx, workspace, index.model_digest, fresh)
    failed = [
        FailedCard(card_id=projection.card_id, error=error.name, message=error.message)
        for projection in projections
        if isinstance(error := outcomes.get(projection.dense_sha256), MemoryPipelineError)
    ]
    return found | fresh, failed, len(missing)


def stored_dense(
    services: Services, workspace: str, index: IndexFormat, projections: Sequence[Projection]
) -> dict[str, DenseVector]:
    """Dense vectors by text hash, of those texts that were embedded before."""
    hashes = {projection.dense_sha256 for projection in projections}
    with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
        return embeddings.dense(tx, workspace, index.model_digest, hashes)


def sparse_vectors(
    services: Services, workspace: str, index: IndexFormat, projections: Sequence[Projection]
) -> tuple[dict[str, SparseWeights], int]:
    """Sparse vectors by text hash, and how many texts were encoded."""
    texts = {projection.lexical_sha256: projection.lexical_text for projection in projections}
    with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
        found = embeddings.sparse(tx, workspace, index.analyser, list(texts))
        missing = {key: text for key, text in texts.items() if key not in found}
        if missing:
            encoder = encoder_of(index.language, profile_named(index.profile))
            encoded = {key: encoder.document(text) for key, text in missing.items()}
            fresh = {key: SparseWeights(vector.indices, vector.values) for key, vector in encoded.items()}
            embeddings.save_sparse(tx, workspace, index.analyser, fresh)
            found |= fresh
    return found, len(missing)


def active_projections(services: Services, workspace: str, index: IndexFormat) -> Iterator[list[Projection]]:
    """Projections of every active card of a workspace, page by page."""
    after = 0
    while True:
        with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
            page = cards.page(tx, workspace, after=after, limit=PAGE)
        if not page:
            return
        after = page[-1][0]
        yield [project(card, index) for _, card in page]


class _Page(BaseModel):
    computed: int
    pooled: int
    failed: list[FailedCard]


def _walk(
    services: Services,
    workspace: str,
    work: Callable[[IndexFormat, Sequence[Projection]], _Page],
    key: str,
    progress: Progress,
) -> EmbedReport:
    index = ensure_generation(services, workspace).format
    total = computed = pooled = 0
    failed: list[FailedCard] = []
    version = hashlib.sha256(index.key().encode())  # as `measures.texts_digest` has it
    for page in active_projections(services, workspace, index):
        done = work(index, page)
        total, computed, pooled = total + len(page), computed + done.computed, pooled + done.pooled
        failed += done.failed
        version.update("".join(f"\n{getattr(projection, key)}" for projection in page).encode())
        progress(len(page))
    return EmbedReport(
        cards=total,
        computed=computed,
        reused=total - computed,
        pooled=pooled,
        failed=tuple(failed),
        data_version=version.hexdigest(),
    )


def _require_model(services: Services, index: IndexFormat) -> None:
    """Refuse to mix vectors of two models in one index."""
    model = services.embedder.describe(index.model)
    if model.digest != index.model_digest:
        raise ModelChanged(index.model, index.model_digest, model.digest)
