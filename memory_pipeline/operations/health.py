"""How workspaces are: one of them in depth, or all of them at a glance. Nothing here writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

from memory_pipeline.core import health
from memory_pipeline.core.health import Verdict
from memory_pipeline.core.text import sha256
from memory_pipeline.operations.services import Services
from memory_pipeline.store import drift, measures, monitor
from memory_pipeline.store.database import Role
from memory_pipeline.store.monitor import Extent


@dataclass(frozen=True)
class WorkspaceHealth:
    """One workspace at a glance. `ailments` are empty where it is well; a retired one always is."""

    extent: Extent
    ailments: Sequence[str]
    lag_seconds: float

    @property
    def told(self) -> str:
        """In words."""
        if self.extent.status == "retired":
            return "retired"
        return "; ".join(self.ailments) or "well"


@dataclass(frozen=True)
class Health:
    """Every workspace but those made for an evaluation."""

    workspaces: Sequence[WorkspaceHealth]

    @cached_property
    def by_slug(self) -> dict[str, WorkspaceHealth]:
        """Each workspace by its slug."""
        return {each.extent.workspace: each for each in self.workspaces}

    @property
    def data_version(self) -> str:
        """Changes when any workspace comes, goes, or gets better or worse; not with every second of an age."""
        return sha256(
            "\n".join(
                f"{each.extent.workspace}:{each.extent.status}:{len(each.ailments)}:{each.extent.active}:"
                f"{each.extent.current}:{each.extent.pending}:{each.extent.parked}"
                for each in self.workspaces
            )
        )


def measure_health(services: Services) -> Health:
    """Look at all workspaces with one query, as the reader."""
    with services.database.transaction(Role.READER, None, via=services.via) as tx:
        extents = monitor.extents(tx)
    now = datetime.now(UTC)
    return Health([_health(extent, now) for extent in extents])


def check_gate(services: Services, workspace: str) -> Verdict:
    """Whether every card is what a reviewer decided."""
    with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
        forbidden = [card.card_id for card in drift.forbidden_cards(tx, workspace)]
        return health.gate(forbidden, measures.rewritten_cards(tx, workspace))


def check_backlog(services: Services, workspace: str) -> Verdict:
    """Whether anything waits for long, or was given up."""
    with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
        waiting = measures.backlog(tx, workspace)
    return health.backlog(waiting.pending, waiting.parked, waiting.oldest, datetime.now(UTC))


def _health(extent: Extent, now: datetime) -> WorkspaceHealth:
    if extent.status == "retired":
        return WorkspaceHealth(extent, (), 0.0)
    ailments = health.ailments(extent, serving=extent.serving, oldest_pending=extent.oldest_pending, now=now)
    return WorkspaceHealth(extent, tuple(ailments), health.age(extent.oldest_behind, now))
