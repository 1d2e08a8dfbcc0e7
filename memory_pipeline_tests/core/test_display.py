"""Words for people: a number with what it counts."""

from __future__ import annotations

import pytest

from memory_pipeline.core.display import counted


@pytest.mark.parametrize(
    ("number", "words", "told"),
    [
        (0, ("card",), "0 cards"),
        (1, ("card",), "1 card"),
        (2, ("card",), "2 cards"),
        (1, ("card is", "cards are"), "1 card is"),
        (2, ("card is", "cards are"), "2 cards are"),
    ],
)
def test_one_of_a_thing_is_told_as_one(number: int, words: tuple[str, ...], told: str) -> None:
    assert counted(number, *words) == told
