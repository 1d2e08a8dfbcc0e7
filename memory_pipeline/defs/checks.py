"""Asset checks, one result per workspace. The rules are in `operations.measure`; here they are wired and reported."""

# No `from __future__ import annotations` here: Dagster reads the annotations of what it calls as objects.

import warnings

import dagster as dg

from memory_pipeline.defs.assets.index import memory_collection, waiting_table
from memory_pipeline.defs.assets.registry import memory_cards
from memory_pipeline.defs.failures import named_failures
from memory_pipeline.defs.metadata import Status, table
from memory_pipeline.defs.partitions import WORKSPACE
from memory_pipeline.operations.measure import SHOWN, IndexMeasure, is_retired, measure_index
from memory_pipeline.operations.provenance import Lapsed, sources_no_longer_effective
from memory_pipeline.operations.services import Services

with warnings.catch_warnings():
    # Checks by partition are a preview in Dagster 1.13: without them the last workspace's result hides all others.
    warnings.simplefilter("ignore", dg.PreviewWarning)

    @dg.asset_check(asset=memory_collection, partitions_def=WORKSPACE)
    def index_matches_registry(
        context: dg.AssetCheckExecutionContext, services: dg.ResourceParam[Services]
    ) -> dg.AssetCheckResult:
        """Every active card has its current point, nothing else has one, and nothing waits.

        Compares active cards, acknowledged projections and the points counted on the server.
        """
        workspace = context.partition_key
        with named_failures():
            if is_retired(services, workspace):
                return dg.AssetCheckResult(passed=True, metadata={"status": Status.RETIRED.value})
            return report(measure_index(services, workspace))

    @dg.asset_check(asset=memory_cards, partitions_def=WORKSPACE)
    def sources_still_effective(
        context: dg.AssetCheckExecutionContext, services: dg.ResourceParam[Services]
    ) -> dg.AssetCheckResult:
        """Behind every active card stands a decision that still counts, or a curator or an import.

        Warns of cards whose decisions were all retracted or rolled back since: they stay until a reviewer decides.
        """
        workspace = context.partition_key
        with named_failures():
            if is_retired(services, workspace):
                return dg.AssetCheckResult(passed=True, metadata={"status": Status.RETIRED.value})
            return report_sources(sources_no_longer_effective(services, workspace))


def report(measure: IndexMeasure | None) -> dg.AssetCheckResult:
    """The result of the comparison, with its figures."""
    if measure is None:
        return dg.AssetCheckResult(passed=False, description="the workspace was never indexed")
    differences = measure.differences()
    return dg.AssetCheckResult(
        passed=not differences,
        description="; ".join(differences) or f"{measure.active} cards, {measure.points} points",
        metadata={
            "active_cards": measure.active,
            "current_points": measure.current,
            "points_on_server": dg.MetadataValue.null() if measure.points is None else measure.points,
            "leftover_points": measure.leftover,
            "pending": measure.pending,
            "parked": measure.parked,
            "collection": measure.collection,
            "waiting": waiting_table(measure),
        },
    )


def report_sources(lapsed: Lapsed) -> dg.AssetCheckResult:
    """The result of the look at the sources: a warning, for the cards are a human's to change."""
    unsupported, weakened = lapsed.unsupported, lapsed.weakened
    named = ", ".join(unsupported[:SHOWN]) + (", ..." if len(unsupported) > SHOWN else "")
    return dg.AssetCheckResult(
        passed=not unsupported,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"no source of {named} counts any more" if unsupported else "every active card has a source",
        metadata={
            "cards_without_effective_source": len(unsupported),
            "cards_with_some_lapsed_source": len(weakened),
            "lapsed": table(
                ("card", "subject", "session", "seq:int", "status", "other sources:int"),
                [
                    (source.card_id, source.subject, source.session_id, source.seq, source.status, source.others)
                    for source in lapsed.sources[:SHOWN]
                ],
            ),
        },
    )
