"""What is done some time after the change that made it necessary: looking at removals again, dropping collections."""

from __future__ import annotations

from memory_pipeline.core.projection import point_id
from memory_pipeline.failpoints import reach
from memory_pipeline.operations.generation import follow_alias
from memory_pipeline.operations.points import remove_points
from memory_pipeline.operations.services import Services
from memory_pipeline.store import generations, upkeep
from memory_pipeline.store.database import Role
from memory_pipeline.store.generations import Generation
from memory_pipeline.store.upkeep import Leftover

LOOKED_AT = 1000
"""Removed points that one drain looks at, the oldest first."""


def look_at_removals(services: Services, workspace: str, generation: Generation) -> int:
    """Remove points again that came back after they were removed; returns how many did.

    A removal is forgotten once a look after its time has found nothing: then no request that was sent before it can be
    on its way. Called under the lock of the drain, so that no card becomes active and is written meanwhile.
    """
    number = generation.number
    with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
        buried = upkeep.removals(tx, workspace, number, limit=LOOKED_AT)
        if not buried:
            return 0
        upkeep.forget_removals(tx, workspace, number, [removal.card_id for removal in buried if removal.wanted])
        looked_at = upkeep.now(tx)
    ids = [removal.card_id for removal in buried if not removal.wanted]
    back = services.index.read(generation.collection, [point_id(card) for card in ids])
    returned = [card for card in ids if point_id(card) in back]
    if returned:
        remove_points(services, generation, returned)
    quiet = [card for card in ids if point_id(card) not in back]  # the others are looked at once more
    with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
        upkeep.settle_removals(tx, workspace, number, quiet, looked_at)
    reach("drain:looked_at")
    return len(returned)


def sweep(services: Services, workspace: str) -> tuple[str, ...]:
    """Drop collections that nothing uses any more and no search can be reading; returns their names.

    What is not dropped since the server does not answer is dropped by the next call. A collection whose vectors are not
    those that the registry knows is somebody else's by now: it is left, and never looked at again.

    Raises:
        IndexUnavailable: the server does not answer.
    """
    with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
        leftovers = upkeep.leftovers(tx, workspace)
        serving = generations.serving(tx, workspace) if leftovers else None
    if serving is not None:
        follow_alias(services, serving)  # before what it may still name goes
    dropped = [leftover.collection for leftover in leftovers if _drop(services, workspace, leftover)]
    return tuple(dropped)


def _drop(services: Services, workspace: str, leftover: Leftover) -> bool:
    shape = services.index.shape(leftover.collection)
    ours = shape is not None and shape.is_memory(leftover.dimensions)
    if ours:
        services.index.drop(leftover.collection)
        reach("rebuild:dropped")
    with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
        upkeep.forget_collection(tx, workspace, leftover)
    return ours
