"""When a measurement is worse than the accepted one."""

from __future__ import annotations

from typing import Any

import pytest

from memory_pipeline.core.quality import FIGURES, TOLERANCE, QualityFigures, held_against


def measured(**figures: Any) -> QualityFigures:
    known = {"generation": 1, "cards": 10, "sampled": 10, "golden": 3, "golden_sha256": "0" * 64}
    return QualityFigures.model_validate({**known, **dict.fromkeys(FIGURES, 0.9), **figures})


@pytest.mark.parametrize("figure", FIGURES)
def test_a_figure_that_fell_is_named_and_only_warned_of(figure: str) -> None:
    verdict = held_against(measured(**{figure: 0.5}), measured())

    assert not verdict.passed
    assert verdict.warns
    assert verdict.told == f"{FIGURES[figure]} fell from 0.900 to 0.500"


@pytest.mark.parametrize("figure", FIGURES)
@pytest.mark.parametrize("now", [0.9, 1.0, 0.9 - TOLERANCE / 2, None])
def test_a_figure_that_held_or_was_not_measured_is_none_that_fell(figure: str, now: float | None) -> None:
    verdict = held_against(measured(**{figure: now}), measured())

    assert verdict.passed
    assert verdict.figures.keys() == FIGURES.keys() - ({figure} if now is None else set())


def test_what_was_accepted_without_a_figure_holds_nothing_to_it() -> None:
    assert held_against(measured(mrr=0.1), measured(mrr=None)).passed
