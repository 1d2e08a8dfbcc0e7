"""Measures of a ranking against values computed by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.core.metrics import mean, ndcg_at, percentile, recall_at, reciprocal_rank

SECOND, THIRD = 1 / math.log2(3), 1 / math.log2(4)
"""What a relevant id gains at rank 2 and at rank 3; at rank 1 it gains 1."""


@pytest.mark.parametrize(
    ("ranked", "relevant", "at_1", "at_2", "rank", "ndcg"),
    [
        ("a b c", "a", 1.0, 1.0, 1.0, 1.0),
        ("b a c", "a", 0.0, 1.0, 1 / 2, SECOND),
        ("b c a", "a", 0.0, 0.0, 1 / 3, THIRD),
        ("b c", "a", 0.0, 0.0, 0.0, 0.0),
        ("", "a", 0.0, 0.0, 0.0, 0.0),
        ("a b c", "a c", 1 / 2, 1 / 2, 1.0, (1 + THIRD) / (1 + SECOND)),
        ("a c b", "a c", 1 / 2, 1.0, 1.0, 1.0),
        ("b a c", "a c x", 0.0, 1 / 3, 1 / 2, (SECOND + THIRD) / (1 + SECOND + THIRD)),
    ],
)
def test_a_ranking_is_worth_what_the_formulas_say(
    ranked: str, relevant: str, at_1: float, at_2: float, rank: float, ndcg: float
) -> None:
    found, wanted = ranked.split(), set(relevant.split())

    assert recall_at(1, found, wanted) == pytest.approx(at_1)
    assert recall_at(2, found, wanted) == pytest.approx(at_2)
    assert reciprocal_rank(found, wanted) == pytest.approx(rank)
    assert ndcg_at(3, found, wanted) == pytest.approx(ndcg)


def test_the_best_ranking_is_worth_one_though_more_is_relevant_than_is_looked_at() -> None:
    wanted = [f"card {number}" for number in range(20)]

    assert ndcg_at(10, wanted, set(wanted)) == pytest.approx(1.0)
    assert recall_at(10, wanted, set(wanted)) == pytest.approx(0.5)


def test_what_nothing_answers_is_not_measured() -> None:
    for measure in (lambda: recall_at(5, ["a"], ()), lambda: ndcg_at(5, ["a"], ()), lambda: reciprocal_rank(["a"], ())):
        with pytest.raises(ValueError, match="relevant"):
            measure()


@given(st.lists(st.sampled_from("abcdefgh"), max_size=12), st.sets(st.sampled_from("abcdefgh"), min_size=1))
def test_every_measure_lies_between_nothing_and_all(ranked: list[str], relevant: set[str]) -> None:
    for value in (recall_at(5, ranked, relevant), ndcg_at(10, ranked, relevant), reciprocal_rank(ranked, relevant)):
        assert 0 <= value <= 1


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([], 0.5, None),
        ([7.0], 0.95, 7.0),
        ([3.0, 1.0, 2.0, 4.0], 0.5, 2.0),
        ([float(number) for number in range(1, 101)], 0.95, 95.0),
    ],
)
def test_a_percentile_is_one_of_the_values(values: list[float], share: float, expected: float | None) -> None:
    assert percentile(values, share) == expected


def test_the_mean_of_nothing_is_none() -> None:
    assert mean([]) is None
    assert mean([0.25, 0.75]) == pytest.approx(0.5)
