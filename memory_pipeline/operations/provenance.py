"""Whether what stands behind the cards still counts in the ledgers. Nothing here writes: a card stays a human's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memory_pipeline.operations.services import Services
from memory_pipeline.store import drift, measures
from memory_pipeline.store.database import Role
from memory_pipeline.store.drift import UnsupportedMarker
from memory_pipeline.store.measures import LapsedSource


@dataclass(frozen=True)
class Lapsed:
    """Sources of active cards whose decision no longer counts, by card."""

    sources: Sequence[LapsedSource]

    @property
    def unsupported(self) -> list[str]:
        """Cards behind which nothing else stands: no effective decision, no curation, no import."""
        return list(dict.fromkeys(source.card_id for source in self.sources if not source.others))

    @property
    def weakened(self) -> list[str]:
        """Cards that something else still supports."""
        return list(dict.fromkeys(source.card_id for source in self.sources if source.others))


def sources_no_longer_effective(services: Services, workspace: str) -> Lapsed:
    """Find promoted decisions of active cards that were retracted or rolled back since.

    Their cards stay: a human promoted them, and a human says what becomes of them.
    """
    with services.database.transaction(Role.READER, workspace, via=services.via) as tx:
        return Lapsed(measures.lapsed_sources(tx, workspace))


def promotions_without_card(services: Services, workspace: str) -> Sequence[UnsupportedMarker]:
    """Find lines that say that a decision was promoted where no card comes from it, as in a file of an older system."""
    with services.database.transaction(Role.READER, workspace, via=services.via) as tx:
        return drift.markers_without_card(tx, workspace)
