"""Hybrid search: each branch alone, both together, and what the numbers are."""

from __future__ import annotations

import math

import numpy as np
import pytest

from memory_pipeline.core.projection import point_id
from memory_pipeline.index.points import BranchScores, IndexPoint
from memory_pipeline.index.vector_index import VectorIndex
from memory_pipeline_tests.index.samples import EAST, NORTH, PROFILE, UP, Sparse, point, projection, query, words

pytestmark = pytest.mark.integration

A, B, C, D = (point_id(f"mem-{number:04d}") for number in (1, 2, 3, 4))
NORTH_EAST = (EAST + NORTH) / np.sqrt(np.float32(2))


def four_points() -> list[IndexPoint]:
    """1 is east and says word 10; 2 is north-east, says 10 and 11; 3 is north and says 12; 4 is up, without words."""
    return [
        point(1, EAST, words(10)),
        point(2, NORTH_EAST, words(10, 11)),
        point(3, NORTH, words(12)),
        point(4, UP, Sparse()),
    ]


@pytest.fixture(scope="module")
def four(index: VectorIndex, shared: str) -> str:
    index.upsert(shared, four_points())
    return shared


def idf(holders: int, points: int) -> float:
    """Inverse document frequency as Qdrant has it: over the points that have a sparse vector."""
    return math.log((points - holders + 0.5) / (holders + 0.5) + 1)


def fused(dense: float, bm25: float) -> float:
    return dense + PROFILE.lexical_weight * bm25**2 / (bm25**2 + PROFILE.lexical_half**2)


def test_the_dense_branch_ranks_by_cosine(index: VectorIndex, four: str) -> None:
    hits = index.search_branch(four, query(EAST, limit=2), "dense")
    assert [hit.ref for hit in hits] == ["mem-0001", "mem-0002"]
    assert [hit.score for hit in hits] == pytest.approx([1.0, math.sqrt(0.5)], abs=1e-6)


def test_the_lexical_branch_ranks_by_bm25_with_idf_and_finds_only_shared_words(index: VectorIndex, four: str) -> None:
    hits = index.search_branch(four, query(lexical=words(10, 11)), "bm25")
    assert [hit.ref for hit in hits] == ["mem-0002", "mem-0001"]
    assert [hit.score for hit in hits] == pytest.approx([idf(2, 3) + idf(1, 3), idf(2, 3)], abs=1e-5)


def test_a_hit_points_to_its_card_and_revision(index: VectorIndex, four: str) -> None:
    hit = index.search(four, query(EAST))[0]
    source = projection(1)
    assert (hit.ref, hit.point_id, hit.kind) == ("mem-0001", source.point_id, "memory")
    assert (hit.revision, hit.projection_sha256) == (source.revision, source.sha256)


def test_the_fused_score_is_cosine_and_a_saturating_share_of_bm25(index: VectorIndex, four: str) -> None:
    hits = {hit.ref: hit.score for hit in index.search(four, query(EAST, words(11, 12)))}
    assert hits == pytest.approx(
        {
            "mem-0001": fused(1.0, 0.0),
            "mem-0002": fused(math.sqrt(0.5), idf(1, 3)),
            "mem-0003": fused(0.0, idf(1, 3)),
            "mem-0004": fused(0.0, 0.0),
        },
        abs=1e-5,
    )
    scores = list(hits.values())
    assert scores == sorted(scores, reverse=True)


def test_a_branch_that_did_not_bring_a_hit_counts_nothing_for_it(index: VectorIndex, four: str) -> None:
    """With one hit from each branch, 1 comes by its direction alone and 3 by its word alone."""
    hits = index.search(four, query(EAST, words(12), limit=2, prefetch=1))
    assert {hit.ref: hit.score for hit in hits}["mem-0001"] == pytest.approx(1.0, abs=1e-6)
    shallow = index.search(four, query(NORTH_EAST, words(12), limit=1, prefetch=1))
    assert [(hit.ref, hit.score) for hit in shallow] == [("mem-0002", pytest.approx(1.0, abs=1e-6))]


@pytest.mark.parametrize("method", ["score", "rrf", "dbsf"])
def test_a_question_without_words_is_answered_by_meaning_alone(index: VectorIndex, four: str, method: str) -> None:
    for lexical in (Sparse(), words(99)):
        hits = index.search(four, query(EAST, lexical, method=method))
        assert [hit.ref for hit in hits][:2] == ["mem-0001", "mem-0002"]


@pytest.mark.parametrize("method", ["score", "rrf", "dbsf"])
def test_without_an_embedder_words_alone_answer(index: VectorIndex, four: str, method: str) -> None:
    hits = index.search(four, query(None, words(11, 12), method=method))
    assert {hit.ref for hit in hits} == {"mem-0002", "mem-0003"}
    if method == "score":
        assert [hit.score for hit in hits] == pytest.approx([fused(0.0, idf(1, 3))] * 2, abs=1e-5)
    assert index.search_branch(four, query(None, words(11)), "dense") == []


@pytest.mark.parametrize("method", ["score", "rrf", "dbsf"])
def test_nothing_to_look_for_gives_nothing(index: VectorIndex, four: str, method: str) -> None:
    assert index.search(four, query(None, Sparse(), method=method)) == []
    assert index.search(four, query(None, words(99), method=method)) == []
    assert index.search(four, query(EAST, limit=0, method=method)) == []
    assert index.search_branch(four, query(lexical=Sparse()), "bm25") == []
    assert index.search_branch(four, query(lexical=words(99)), "bm25") == []


def test_an_empty_collection_gives_nothing(index: VectorIndex, collection: str) -> None:
    for method in ("score", "rrf", "dbsf"):
        assert index.search(collection, query(method=method)) == []
    assert index.search_branch(collection, query(), "dense") == []
    assert index.search_branch(collection, query(), "bm25") == []
    assert index.branch_scores(collection, [A], query()) == {A: BranchScores(0.0, 0.0)}


@pytest.mark.parametrize("method", ["rrf", "dbsf"])
def test_the_other_fusions_rank_first_what_both_branches_like(index: VectorIndex, four: str, method: str) -> None:
    hits = index.search(four, query(NORTH_EAST, words(10, 11), method=method))
    assert hits[0].ref == "mem-0002"


def test_pages_follow_one_another_beyond_the_depth_of_the_prefetch(index: VectorIndex, collection: str) -> None:
    turned = [point(number, EAST + np.float32(number / 10) * NORTH, words(10)) for number in range(1, 13)]
    index.upsert(collection, turned)
    pages = [
        [hit.ref for hit in index.search(collection, query(EAST, words(10), limit=5, offset=start, prefetch=2))]
        for start in (0, 5, 10, 15)
    ]
    assert pages == [
        [f"mem-{number:04d}" for number in range(1, 6)],
        [f"mem-{number:04d}" for number in range(6, 11)],
        ["mem-0011", "mem-0012"],
        [],
    ]


def test_branch_scores_are_exact_for_whatever_was_found(index: VectorIndex, four: str) -> None:
    asked = query(EAST, words(11, 12), limit=1, prefetch=1)
    unknown = point_id("mem-0099")
    scores = index.branch_scores(four, [A, B, C, D, unknown], asked)
    assert set(scores) == {A, B, C, D, unknown}
    expected = {A: (1, 0), B: (math.sqrt(0.5), idf(1, 3)), C: (0, idf(1, 3)), D: (0, 0), unknown: (0, 0)}
    for scored, (dense, bm25) in expected.items():
        assert scores[scored].dense == pytest.approx(dense, abs=1e-6)
        assert scores[scored].bm25 == pytest.approx(bm25, abs=1e-5)
    assert index.branch_scores(four, [], asked) == {}


def test_branch_scores_of_a_branch_without_vector_are_zero(index: VectorIndex, four: str) -> None:
    assert index.branch_scores(four, [A], query(None, Sparse())) == {A: BranchScores(0.0, 0.0)}
    assert index.branch_scores(four, [B], query(None, words(11)))[B].dense == 0.0
    assert index.branch_scores(four, [B], query(EAST, Sparse()))[B].bm25 == 0.0


def test_the_fused_score_can_be_told_from_the_branch_scores(index: VectorIndex, four: str) -> None:
    """For cards that no search brought; a rank, or a spread, belongs to the hits of one search."""
    for asked in (query(NORTH_EAST, words(10, 12)), query(NORTH_EAST, Sparse()), query(None, words(10, 12))):
        hits = index.search(four, asked)
        scores = index.branch_scores(four, [hit.point_id for hit in hits], asked)
        for hit in hits:
            told = scores[hit.point_id]
            assert hit.score == pytest.approx(asked.fused(told), abs=1e-5)
            assert asked.fused(told) == pytest.approx(fused(told.dense if asked.dense is not None else 0.0, told.bm25))
    assert query(NORTH_EAST, words(10), method="rrf").fused(told) is None


def test_an_edit_moves_a_card_from_the_old_words_to_the_new(index: VectorIndex, collection: str) -> None:
    index.upsert(collection, four_points())
    index.upsert(collection, [point(1, NORTH, words(20), revision=2)])
    assert "mem-0001" not in {hit.ref for hit in index.search_branch(collection, query(lexical=words(10)), "bm25")}
    assert [hit.ref for hit in index.search_branch(collection, query(lexical=words(20)), "bm25")] == ["mem-0001"]
    assert index.search_branch(collection, query(EAST), "dense")[0].ref == "mem-0002"
