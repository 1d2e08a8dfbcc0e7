"""The asset over the registry of cards."""

from __future__ import annotations

import dagster as dg

from memory_pipeline.defs.assets.ledger import effective_ledger
from memory_pipeline.defs.assets.workspace import workspace_asset
from memory_pipeline.defs.metadata import Status, result, table
from memory_pipeline.operations.measure import measure_cards
from memory_pipeline.operations.services import Services


@workspace_asset(deps=[effective_ledger], kinds={"postgres"}, code_version="1")
def memory_cards(_: dg.AssetExecutionContext, services: Services, workspace: str) -> dg.MaterializeResult[None]:
    """The cards that reviewers promoted. One row is one piece of reusable knowledge at its current revision.

    Measures only: nobody but a reviewer writes a card, at the gate or by hand.
    """
    measure = measure_cards(services, workspace)
    return result(
        Status.DONE if measure.total else Status.NOTHING_TO_DO,
        data_version=measure.data_version,
        cards=measure.total,
        active=measure.active,
        import_quarantined=measure.refused,
        by_kind=table(
            ("kind", "status", "cards:int"), [(count.kind, count.status, count.cards) for count in measure.counts]
        ),
        import_quarantine=table(
            ("file", "line:int", "reason", "what is wrong", "when", "by"),
            [
                (
                    line.file_sha256[:12],
                    line.line_number,
                    line.reason,
                    line.message,
                    line.quarantined_at,
                    line.quarantined_by,
                )
                for line in measure.newest_refused
            ],
        ),
        preview=table(
            ("card", "kind", "status", "revision:int", "subject", "concepts", "sources:int", "changed", "by"),
            [
                (
                    card.card_id,
                    card.kind,
                    card.status,
                    card.revision,
                    card.subject,
                    ", ".join(card.concepts),
                    card.sources,
                    card.updated_at,
                    card.updated_by,
                )
                for card in measure.newest
            ],
        ),
    )
