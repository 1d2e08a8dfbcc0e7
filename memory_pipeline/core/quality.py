"""How well a workspace's recall finds what it must, and when it finds less than was accepted. Pure."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from memory_pipeline.core.display import counted
from memory_pipeline.core.health import Verdict

TOLERANCE = 0.02
"""A figure may fall by so much before it counts as fallen: new cards move ranks a little without any harm."""


class QualityFigures(BaseModel):
    """One measurement of one workspace; a figure is none where nothing was asked for it.

    `self_recall` is the share of `sampled` cards that their own statement finds among the first five. The others are
    means over `golden` questions, which `golden_sha256` names: only figures of equal questions are compared.
    """

    model_config = ConfigDict(frozen=True)

    generation: int
    cards: int
    sampled: int
    self_recall: float | None = Field(ge=0, le=1)
    golden: int
    golden_sha256: str
    ndcg_at_10: float | None = Field(ge=0, le=1)
    recall_at_1: float | None = Field(ge=0, le=1)
    recall_at_5: float | None = Field(ge=0, le=1)
    mrr: float | None = Field(ge=0, le=1)


FIGURES = {
    "self_recall": "self-recall",
    "ndcg_at_10": "nDCG@10",
    "recall_at_1": "R@1",
    "recall_at_5": "R@5",
    "mrr": "MRR",
}
"""The figures that are compared, by their names for people."""


def held_against(measured: QualityFigures, accepted: QualityFigures) -> Verdict:
    """Whether every figure is what it was when it was accepted, or better. A fall is for a person to look at."""
    fallen = []
    for field, name in FIGURES.items():
        now, before = getattr(measured, field), getattr(accepted, field)
        if now is not None and before is not None and before - now > TOLERANCE:
            fallen.append(f"{name} fell from {before:.3f} to {now:.3f}")
    told = f"{counted(measured.golden, 'golden question')}, {measured.sampled} of {measured.cards} cards asked for"
    return Verdict(
        passed=not fallen,
        told="; ".join(fallen) or told,
        warns=True,
        figures={field: value for field in FIGURES if (value := getattr(measured, field)) is not None},
    )
