"""Bringing a workspace's index up to its registry, whatever happened in between."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from memory_pipeline.core.errors import IndexBusy, MemoryPipelineError
from memory_pipeline.core.projection import point_id
from memory_pipeline.logs import operation
from memory_pipeline.operations.embed import Progress
from memory_pipeline.operations.generation import ensure_generation, rebuild_due
from memory_pipeline.operations.propagate import DrainReport, drain
from memory_pipeline.operations.services import Services
from memory_pipeline.store import drift, generations, propagations
from memory_pipeline.store.database import Role
from memory_pipeline.store.drift import CardState
from memory_pipeline.store.generations import Generation

WAIT_SECONDS = 60.0
_PAGE = 1000


class IndexReport(BaseModel):
    """What `index` did.

    Attributes:
        rebuild_due: what of the serving generation is no longer what is wanted.
        rebuild_unknown: why that cannot be told; empty where it can.
    """

    model_config = ConfigDict(frozen=True)

    workspace: str
    collection: str
    generation: int
    cards: int
    queued: int
    drain: DrainReport
    rebuild_due: tuple[str, ...] = ()
    rebuild_unknown: str = ""


@operation("index", lambda report: {"collection": report.collection, "queued": report.queued})
def index(services: Services, workspace: str, progress: Progress = lambda _: None) -> IndexReport:
    """Queue every card whose point is not known to be what it must be, and drain.

    A second call with nothing changed reads the registry and asks neither the embedder nor for any write.

    Raises:
        IndexBusy: another writer kept the workspace for too long.
        RegistryRestored: the index is ahead of the registry; only a rebuild helps.
        IncompatibleCollection: the collection has other vectors than the generation says.
        EmbedderUnavailable, IndexUnavailable: where no generation exists yet and none can be made.
    """
    generation = ensure_generation(services, workspace)
    total, queued = _queue_stale(services, workspace, generation)
    report = drain(services, workspace, wait=WAIT_SECONDS, hurry=True, progress=progress)
    if report.busy:
        raise IndexBusy(workspace)
    due, unknown = _rebuild_due(services, workspace)
    return IndexReport(
        workspace=workspace,
        collection=generation.collection,
        generation=generation.number,
        cards=total,
        queued=queued,
        drain=report,
        rebuild_due=due,
        rebuild_unknown=unknown,
    )


def _rebuild_due(services: Services, workspace: str) -> tuple[tuple[str, ...], str]:
    """What makes a rebuild due, or why that cannot be told. The index is up to date either way."""
    try:
        return rebuild_due(services, workspace), ""
    except MemoryPipelineError as error:
        return (), error.message


def _queue_stale(services: Services, workspace: str, generation: Generation) -> tuple[int, int]:
    """Queue active cards whose point is not acknowledged and there as it must be, and cards that must have none.

    No projection is derived for that: where a card's row is its kept revision, the hash that was acknowledged for this
    revision is the one that its point must have.
    """
    total = queued = after = 0
    while True:
        with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
            page = drift.card_states(tx, workspace, generation.number, after=after, limit=_PAGE)
            if not page:
                break
            stale = _stale(services, generation, page)
            # A point that is not as it was acknowledged may hold another vector: a payload alone would not mend it.
            contradicted = [state.card_id for state in stale if state.settled]
            generations.forget_acknowledged(tx, workspace, generation.number, contradicted)
            queued += propagations.enqueue(tx, workspace, {state.card_id: state.revision for state in stale})
        total, after = total + len(page), page[-1].number
    with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
        leftovers = generations.points_of_inactive_cards(tx, workspace, generation.number, limit=_PAGE * 10)
        queued += propagations.enqueue(tx, workspace, leftovers)
    return total, queued


def _stale(services: Services, generation: Generation, page: Sequence[CardState]) -> list[CardState]:
    """Cards of a page whose point is not known to be what it must be."""
    points = {state.card_id: point_id(state.card_id) for state in page if state.settled}
    held = services.index.read(generation.collection, list(points.values()))
    return [
        state
        for state in page
        if not state.settled
        or (point := held.get(points[state.card_id])) is None
        or (point.revision, point.projection_sha256) != (state.revision, state.expected_sha256)
    ]
