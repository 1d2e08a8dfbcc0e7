"""The asset over the registry of cards."""

from __future__ import annotations

import dagster as dg

from memory_pipeline.defs.assets.about import CARDS, TRUTH, about
from memory_pipeline.defs.assets.ledger import effective_ledger
from memory_pipeline.defs.assets.workspace import workspace_asset
from memory_pipeline.defs.metadata import Page, Status, table
from memory_pipeline.operations.measure import measure_cards
from memory_pipeline.operations.services import Services


@workspace_asset(
    deps=[effective_ledger],
    kinds={"postgres"},
    code_version="1",
    metadata=about("cards", CARDS, "docs/ledger.md"),
    tags=TRUTH,
)
def memory_cards(_: dg.AssetExecutionContext, services: Services, workspace: str) -> dg.MaterializeResult[None]:
    """The cards that reviewers promoted. One row is one piece of reusable knowledge at its current revision.

    Measures only: nobody but a reviewer writes a card, at the gate or by hand.
    """
    page = cards_page(services, workspace)
    return page.result(Status.DONE if page.preview.records else Status.NOTHING_TO_DO)


def cards_page(services: Services, workspace: str) -> Page:
    """Cards by kind and status, those that changed last, and what no import took."""
    measure = measure_cards(services, workspace)
    return Page(
        measure.data_version,
        {
            "dagster/row_count": measure.total,
            "cards": measure.total,
            "active": measure.active,
            "import_quarantined": measure.refused,
            "by_kind": table(
                ("kind", "status", "cards:int"), [(count.kind, count.status, count.cards) for count in measure.counts]
            ),
            "import_quarantine": table(
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
        },
        table(
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
