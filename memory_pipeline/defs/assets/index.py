"""Assets of the index: two vectors per card, and the collection that holds them.

A card whose text cannot be embedded stops no other one: the run succeeds for the rest, names the card in its metadata
and its log, and the check on the collection fails until the card is in. A server that cannot be reached fails the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import dagster as dg

from memory_pipeline.core.display import counted, plain
from memory_pipeline.core.errors import NotIndexed
from memory_pipeline.defs.assets.about import DENSE, DERIVED, POINTS, SPARSE, about
from memory_pipeline.defs.assets.registry import memory_cards
from memory_pipeline.defs.assets.workspace import workspace_asset
from memory_pipeline.defs.metadata import Page, Status, table
from memory_pipeline.operations.embed import EmbedReport, FailedCard, embed_dense, embed_sparse
from memory_pipeline.operations.index import IndexReport, index
from memory_pipeline.operations.measure import SHOWN, IndexMeasure, measure_dense, measure_index, measure_sparse
from memory_pipeline.operations.propagate import DrainReport, Problem
from memory_pipeline.operations.services import Services
from memory_pipeline.store.measures import StoredVectors


@workspace_asset(
    deps=[memory_cards],
    kinds={"postgres", "ollama"},
    code_version="2",
    metadata=about("dense_embeddings", DENSE, "docs/retrieval.md"),
    tags=DERIVED,
)
def dense_embeddings(
    context: dg.AssetExecutionContext, services: Services, workspace: str
) -> dg.MaterializeResult[None]:
    """One dense vector per active card and model, from the embedder, kept in PostgreSQL.

    Keyed by the hash of the text: unchanged text is never embedded again.
    """
    report = embed_dense(services, workspace)
    return _embeddings(context, report, dense_page(services, workspace, report.data_version, report.cards))


@workspace_asset(
    deps=[memory_cards],
    kinds={"postgres", "qdrant"},
    code_version="2",
    metadata=about("sparse_embeddings", SPARSE, "docs/retrieval.md"),
    tags=DERIVED,
)
def sparse_embeddings(
    context: dg.AssetExecutionContext, services: Services, workspace: str
) -> dg.MaterializeResult[None]:
    """One sparse vector of BM25 weights per active card and analyser, kept in PostgreSQL beside the dense one."""
    report = embed_sparse(services, workspace)
    return _embeddings(context, report, sparse_page(services, workspace, report.data_version, report.cards))


@workspace_asset(
    deps=[dense_embeddings, sparse_embeddings],
    kinds={"qdrant"},
    code_version="1",
    metadata=about("projections", POINTS, "docs/architecture.md"),
    tags=DERIVED,
)
def memory_collection(
    context: dg.AssetExecutionContext, services: Services, workspace: str
) -> dg.MaterializeResult[None]:
    """The collection that searches use: one point per active card, derived from PostgreSQL and rebuildable from it.

    Writes what differs from the registry, reads it back, and acknowledges only what was seen.
    """
    report = index(services, workspace)
    _tell_failed(context, report.drain.failed)
    if report.drain.problem:
        raise _stopped(report.drain, report.drain.problem)
    measure = measure_index(services, workspace)
    if measure is None:
        raise NotIndexed(workspace)
    return _collection(report, measure)


def dense_page(services: Services, workspace: str, data_version: str, cards: int) -> Page:
    """Stored dense vectors by model."""
    return _vectors_page(measure_dense(services, workspace), data_version, cards, source="model digest")


def sparse_page(services: Services, workspace: str, data_version: str, cards: int) -> Page:
    """Stored sparse vectors by analyser."""
    return _vectors_page(measure_sparse(services, workspace), data_version, cards, source="analyser")


def collection_page(measure: IndexMeasure) -> Page:
    """The points that were acknowledged last, and what waits."""
    return Page(
        measure.data_version,
        {
            "dagster/row_count": measure.points or 0,
            "collection": measure.collection,
            "generation": measure.generation,
            "points": measure.points or 0,
            "pending": measure.pending,
            "parked": measure.parked,
            "lag_seconds": round(measure.lag_seconds(datetime.now(UTC)), 1),
            "waiting": waiting_table(measure),
        },
        table(
            ("card", "revision:int", "subject", "seen"),
            [(point.card_id, point.revision, point.subject, point.acknowledged_at) for point in measure.newest],
        ),
    )


def _vectors_page(stored: Sequence[StoredVectors], data_version: str, cards: int, *, source: str) -> Page:
    return Page(
        data_version,
        {"dagster/row_count": sum(each.vectors for each in stored), "cards": cards},
        table(
            (source, "vectors:int", "size:float", "pooled:int", "newest"),
            [(each.source, each.vectors, round(each.size, 1), each.pooled, each.newest) for each in stored[:SHOWN]],
        ),
    )


def _embeddings(context: dg.AssetExecutionContext, report: EmbedReport, page: Page) -> dg.MaterializeResult[None]:
    _tell_failed(context, report.failed)
    return page.result(
        Status.DONE if report.computed or report.failed else Status.NOTHING_TO_DO,
        computed=report.computed,
        reused=report.reused,
        pooled=report.pooled,
        failed=len(report.failed),
        failed_cards=_failed_cards(report.failed),
    )


def _collection(report: IndexReport, measure: IndexMeasure) -> dg.MaterializeResult[None]:
    drained = report.drain
    changed = report.queued or drained.upserted or drained.payload_only or drained.removed or drained.failed
    return collection_page(measure).result(
        Status.DONE if changed else Status.NOTHING_TO_DO,
        cards=report.cards,
        queued=report.queued,
        upserted=drained.upserted,
        payload_only=drained.payload_only,
        removed=drained.removed,
        embedded=drained.embedded,
        failed=len(drained.failed),
        rebuild_due=_rebuild_due(report),
        failed_cards=_failed_cards(drained.failed),
    )


def _rebuild_due(report: IndexReport) -> str:
    if report.rebuild_unknown:
        return f"cannot be told: {report.rebuild_unknown}"
    return "; ".join(report.rebuild_due) or "no"


def waiting_table(measure: IndexMeasure) -> dg.TableMetadataValue:
    """Cards that the index has yet to follow, with the last error of each."""
    return table(
        ("card", "state", "attempts:int", "last error", "since"),
        [(card.card_id, card.state, card.attempts, card.last_error, card.since) for card in measure.waiting],
    )


def _failed_cards(failed: Sequence[FailedCard]) -> dg.TableMetadataValue:
    return table(("card", "error", "message"), [(card.card_id, card.error, card.message) for card in failed[:SHOWN]])


def _tell_failed(context: dg.AssetExecutionContext, failed: Sequence[FailedCard]) -> None:
    for card in failed[:SHOWN]:
        context.log.warning("%s waits: %s: %s", card.card_id, card.error, plain(card.message))


def _stopped(drained: DrainReport, problem: Problem) -> dg.Failure:
    """A server broke off halfway. What was written stays, the rest waits in the outbox."""
    waiting = counted(drained.pending, "card waits", "cards wait")
    return dg.Failure(
        description=f"{problem.error}: {plain(problem.message)}; {waiting}. {problem.hint}.",
        metadata={
            "error": problem.error,
            "message": plain(problem.message),
            "hint": f"{problem.hint}; then materialise again",
            "exit_code": problem.exit_code,
            "upserted": drained.upserted,
            "pending": drained.pending,
            "parked": drained.parked,
            "failed_cards": _failed_cards(drained.failed),
        },
    )
