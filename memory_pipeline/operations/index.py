"""Bringing a workspace's index up to its registry, whatever happened in between."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from memory_pipeline.core.errors import IndexBusy, MemoryPipelineError
from memory_pipeline.operations.embed import PAGE, Progress, active_projections
from memory_pipeline.operations.generation import desired_format, ensure_generation
from memory_pipeline.operations.propagate import DrainReport, drain
from memory_pipeline.operations.services import Services
from memory_pipeline.store import generations, propagations, workspaces
from memory_pipeline.store.database import Role
from memory_pipeline.store.generations import Generation

WAIT_SECONDS = 60.0


class IndexReport(BaseModel):
    """What `index` did. `rebuild_due` names what of the serving generation is no longer what is wanted."""

    model_config = ConfigDict(frozen=True)

    workspace: str
    collection: str
    generation: int
    cards: int
    queued: int
    drain: DrainReport
    rebuild_due: tuple[str, ...] = ()


def index(services: Services, workspace: str, progress: Progress = lambda _: None) -> IndexReport:
    """Queue every card whose point is not known to be what it must be, and drain.

    A second call with nothing changed reads the registry and asks neither the embedder nor for any write.

    Raises:
        IndexBusy: another writer kept the workspace for too long.
        EmbedderUnavailable, IndexUnavailable: where no generation exists yet and none can be made.
    """
    generation = ensure_generation(services, workspace)
    total, queued = _queue_stale(services, workspace, generation)
    report = drain(services, workspace, wait=WAIT_SECONDS, hurry=True, progress=progress)
    if report.busy:
        raise IndexBusy(workspace)
    return IndexReport(
        workspace=workspace,
        collection=generation.collection,
        generation=generation.number,
        cards=total,
        queued=queued,
        drain=report,
        rebuild_due=_differences(services, workspace, generation),
    )


def _queue_stale(services: Services, workspace: str, generation: Generation) -> tuple[int, int]:
    """Queue active cards whose point is not acknowledged and there as it must be, and cards that must have none."""
    total = queued = 0
    for page in active_projections(services, workspace, generation.format):
        total += len(page)
        with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
            states = generations.states(tx, workspace, generation.number, [item.card_id for item in page])
            held = services.index.read(generation.collection, [item.point_id for item in page])
            stale = {
                item.card_id: item.revision
                for item in page
                if (state := states.get(item.card_id)) is None
                or state.acknowledged_sha256 != item.sha256
                or (point := held.get(item.point_id)) is None
                or (point.revision, point.projection_sha256) != (item.revision, item.sha256)
            }
            queued += propagations.enqueue(tx, workspace, stale)
    with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
        leftovers = generations.points_of_inactive_cards(tx, workspace, generation.number, limit=PAGE * 40)
        queued += propagations.enqueue(tx, workspace, leftovers)
    return total, queued


def _differences(services: Services, workspace: str, generation: Generation) -> tuple[str, ...]:
    """Fields in which the generation is not what would be built now, or why that cannot be told."""
    with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
        known = workspaces.get(tx, workspace)
    try:
        wanted = desired_format(services, known).model_dump()
    except MemoryPipelineError as error:
        return (f"cannot be told: {error.message}",)
    built = generation.format.model_dump()
    return tuple(f"{name}: {built[name]} -> {wanted[name]}" for name in built if built[name] != wanted[name])
