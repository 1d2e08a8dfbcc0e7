"""Words for people: a number with what it counts, and a moment."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from memory_pipeline.core.display import counted, told_time


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


def test_a_moment_is_told_to_the_second_in_utc() -> None:
    moment = datetime(2026, 5, 1, 11, 30, 0, 999_999, tzinfo=timezone(timedelta(hours=2)))

    assert told_time(moment) == "2026-05-01 09:30:00 UTC"
