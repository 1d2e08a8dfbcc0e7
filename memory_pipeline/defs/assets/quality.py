"""The asset that measures recall itself, workspace by workspace, and the check that holds it to what was accepted."""

from __future__ import annotations

import dagster as dg

from memory_pipeline.core.quality import FIGURES
from memory_pipeline.core.text import sha256
from memory_pipeline.defs.assets.about import DERIVED, QUALITY, about
from memory_pipeline.defs.assets.index import memory_collection
from memory_pipeline.defs.assets.workspace import workspace_asset
from memory_pipeline.defs.checks import told, workspace_check
from memory_pipeline.defs.metadata import Page, Status, table
from memory_pipeline.operations.measure import SHOWN
from memory_pipeline.operations.quality import Quality, check_quality, measure_quality, quality_history
from memory_pipeline.operations.services import Services


@workspace_asset(
    deps=[memory_collection],
    kinds={"postgres", "qdrant", "ollama"},
    code_version="1",
    metadata=about("quality_figures", QUALITY, "docs/evaluation.md"),
    tags=DERIVED,
)
def retrieval_quality(
    context: dg.AssetExecutionContext, services: Services, workspace: str
) -> dg.MaterializeResult[None]:
    """How well recall works: a sample of cards asked for by their own words, and the golden questions.

    One row is one measurement. Golden questions are the reviewer's: `memory-pipeline golden add` says what must be
    found. The figures plot over time.
    """
    quality = measure_quality(services, workspace)
    if quality is None:
        return _NOTHING.result(Status.NOTHING_TO_DO)
    for card in quality.lost:
        context.log.warning("%s is not found by its own words", card)
    return _page(services, quality).result(Status.DONE)


@workspace_check(retrieval_quality)
def quality_holds(_: dg.DagsterInstance, services: Services, workspace: str) -> dg.AssetCheckResult:
    """No figure has fallen below the one that was accepted, by more than new cards explain.

    Warns of a fall. Accepted is the first measurement with the same golden questions, until a reviewer accepts a later
    one: `memory-pipeline golden accept`.
    """
    return told(check_quality(services, workspace))


def _page(services: Services, quality: Quality) -> Page:
    figures = quality.figures
    shown = {name: value for name in FIGURES if (value := getattr(figures, name)) is not None}
    return Page(
        sha256(figures.model_dump_json()),
        {
            **shown,
            "generation": figures.generation,
            "cards": figures.cards,
            "sampled": figures.sampled,
            "golden_questions": figures.golden,
            "lost": table(("card",), [(card,) for card in quality.lost[:SHOWN]]),
            "missed": table(
                ("golden question", "card", "rank:int"),
                [(each.question, card, rank) for each in quality.missed[:SHOWN] for card, rank in each.ranks.items()],
            ),
            "expected_but_gone": table(("card",), [(card,) for card in quality.gone[:SHOWN]]),
        },
        _history(services, quality.workspace),
    )


def _history(services: Services, workspace: str) -> dg.TableMetadataValue:
    """The last measurements, newest first."""
    return table(
        ("measured", "cards:int", "golden:int", *(f"{name}:float" for name in FIGURES), "accepted by"),
        [
            (
                row.measured_at,
                row.figures.cards,
                row.figures.golden,
                *(getattr(row.figures, name) for name in FIGURES),
                row.accepted_by,
            )
            for row in quality_history(services, workspace, SHOWN)
        ],
    )


_NOTHING = Page("no cards", {"cards": 0}, table(("note",), [("there is no card to ask for",)]))
