"""Scores, held against values computed here from their formulas. Runs against any Qdrant."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Any

import pytest
from qdrant_client import models

from memory_pipeline_tests.embedded.qdrant.conftest import Target

pytestmark = pytest.mark.integration

DENSE = {1: [1.0, 0.0, 0.0, 0.0], 2: [1.0, 1.0, 0.0, 0.0], 3: [0.2, 1.0, 3.0, 0.0], 4: [-1.0, 0.5, 0.0, 2.0]}
SPARSE = {1: {7: 1.5, 9: 0.5}, 2: {7: 1.0}, 3: {8: 2.0, 9: 1.0}, 4: {7: 0.25, 8: 1.0}}
PAYLOAD: dict[int, dict[str, Any]] = {
    1: {"kind": "memory", "n": 1, "at": "2024-01-01T00:00:00Z", "place": {"lon": 11.0, "lat": 45.0}},
    2: {"kind": "memory", "n": 2, "at": "2024-01-02T00:00:00Z", "place": {"lon": 12.0, "lat": 45.0}},
    3: {"kind": "evidence", "n": 3, "at": "2024-01-03T00:00:00Z", "place": {"lon": 13.0, "lat": 45.0}},
    4: {"kind": "memory", "n": 4, "at": "2024-01-04T00:00:00Z", "place": {"lon": 14.0, "lat": 45.0}},
}
QUESTION = [0.9, 0.3, 0.1, 0.0]
TERMS = {7: 1.0, 9: 2.0}

Scores = dict[int, float]


def cosine(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))


def idf(documents: int, containing: int) -> float:
    return math.log((documents - containing + 0.5) / (containing + 0.5) + 1)


def dense_scores() -> Scores:
    return {number: cosine(QUESTION, vector) for number, vector in DENSE.items()}


def bm25_scores(terms: dict[int, float] = TERMS, corpus: dict[int, dict[int, float]] = SPARSE) -> Scores:
    """Those points that share a term with the query, by the dot product with each query term weighed by its rarity."""
    weights = {
        term: weight * idf(len(corpus), sum(term in document for document in corpus.values()))
        for term, weight in terms.items()
    }
    return {
        number: sum(weights[term] * value for term, value in document.items() if term in weights)
        for number, document in corpus.items()
        if weights.keys() & document.keys()
    }


def ranking(scores: Scores) -> list[int]:
    return sorted(scores, key=lambda number: -scores[number])


def sparse(document: dict[int, float]) -> models.SparseVector:
    return models.SparseVector(indices=list(document), values=list(document.values()))


def found(response: models.QueryResponse) -> Scores:
    return {int(point.id): point.score for point in response.points}


def same(actual: models.QueryResponse, expected: Scores) -> None:
    """The same points in the same order, with the same scores to the precision of 32-bit floats."""
    assert found(actual) == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert [point.score for point in actual.points] == sorted((point.score for point in actual.points), reverse=True)


@pytest.fixture
def hybrid(target: Target) -> str:
    name = target.collection()
    points = [
        models.PointStruct(id=n, vector={"dense": DENSE[n], "bm25": sparse(SPARSE[n])}, payload=PAYLOAD[n])
        for n in DENSE
    ]
    target.client.upsert(name, points, wait=True)
    return name


def prefetches(**options: Any) -> list[models.Prefetch]:
    return [
        models.Prefetch(query=QUESTION, using="dense", limit=10, **options),
        models.Prefetch(query=sparse(TERMS), using="bm25", limit=10, **options),
    ]


def test_dense_cosine(target: Target, hybrid: str) -> None:
    same(target.client.query_points(hybrid, query=QUESTION, using="dense"), dense_scores())


def test_a_dense_vector_comes_back_normalised(target: Target, hybrid: str) -> None:
    (point,) = target.client.retrieve(hybrid, [3], with_vectors=["dense"])
    assert isinstance(point.vector, dict)
    assert point.vector["dense"] == pytest.approx([x / math.hypot(*DENSE[3]) for x in DENSE[3]], abs=1e-6)


@pytest.mark.parametrize(
    ("distance", "score", "best_first"),
    [
        (models.Distance.DOT, lambda a, b: sum(x * y for x, y in zip(a, b, strict=True)), -1),
        (models.Distance.EUCLID, math.dist, 1),
        (models.Distance.MANHATTAN, lambda a, b: sum(abs(x - y) for x, y in zip(a, b, strict=True)), 1),
    ],
)
def test_the_other_distances(
    target: Target, distance: models.Distance, score: Callable[[list[float], list[float]], float], best_first: int
) -> None:
    name = target.collection(vectors_config=models.VectorParams(size=4, distance=distance))
    target.client.upsert(name, [models.PointStruct(id=n, vector=v) for n, v in DENSE.items()], wait=True)
    response = target.client.query_points(name, query=QUESTION)
    expected = {number: score(QUESTION, vector) for number, vector in DENSE.items()}
    assert found(response) == pytest.approx(expected, rel=1e-4)
    assert [point.id for point in response.points] == sorted(expected, key=lambda n: best_first * expected[n])


def test_sparse_with_idf_of_the_collection(target: Target, hybrid: str) -> None:
    expected = bm25_scores()
    assert 3 in expected  # shares the rarer term only
    same(target.client.query_points(hybrid, query=sparse(TERMS), using="bm25"), expected)


def test_idf_is_of_the_collection_and_not_of_what_the_filter_leaves(target: Target, hybrid: str) -> None:
    only = models.Filter(must=[models.FieldCondition(key="kind", match=models.MatchValue(value="evidence"))])
    response = target.client.query_points(hybrid, query=sparse(TERMS), using="bm25", query_filter=only)
    same(response, {3: bm25_scores()[3]})


def test_idf_follows_the_points_that_are_added(target: Target, hybrid: str) -> None:
    added = {5: {7: 1.0}, 6: {7: 2.0, 8: 1.0}}
    points = [models.PointStruct(id=n, vector={"bm25": sparse(d)}) for n, d in added.items()]
    target.client.upsert(hybrid, points, wait=True)
    expected = bm25_scores(corpus={**SPARSE, **added})
    same(target.client.query_points(hybrid, query=sparse(TERMS), using="bm25"), expected)


def test_idf_counts_only_points_that_have_the_sparse_vector(target: Target, hybrid: str) -> None:
    target.client.upsert(hybrid, [models.PointStruct(id=9, vector={"dense": QUESTION})], wait=True)
    same(target.client.query_points(hybrid, query=sparse(TERMS), using="bm25"), bm25_scores())


def test_sparse_without_a_modifier(target: Target) -> None:
    name = target.collection(vectors_config={}, sparse_vectors_config={"plain": models.SparseVectorParams()})
    target.client.upsert(
        name, [models.PointStruct(id=n, vector={"plain": sparse(d)}) for n, d in SPARSE.items()], wait=True
    )
    expected = {n: sum(TERMS.get(t, 0) * v for t, v in d.items()) for n, d in SPARSE.items() if TERMS.keys() & d.keys()}
    same(target.client.query_points(name, query=sparse(TERMS), using="plain"), expected)


def test_a_score_threshold_cuts_off(target: Target, hybrid: str) -> None:
    expected = {number: score for number, score in dense_scores().items() if score >= 0.5}
    assert 0 < len(expected) < len(DENSE)
    same(target.client.query_points(hybrid, query=QUESTION, using="dense", score_threshold=0.5), expected)


def test_limit_and_offset_page_through_the_ranking(target: Target, hybrid: str) -> None:
    pages = [
        target.client.query_points(hybrid, query=QUESTION, using="dense", limit=1, offset=offset).points
        for offset in range(5)
    ]
    assert [point.id for page in pages for point in page] == ranking(dense_scores())
    assert pages[4] == []


@pytest.mark.parametrize(("k", "weights"), [(None, None), (61, None), (2, [3.0, 1.0]), (10, [0.5, 2.0])])
def test_reciprocal_rank_fusion(target: Target, hybrid: str, k: int | None, weights: list[float] | None) -> None:
    query: models.FusionQuery | models.RrfQuery = models.FusionQuery(fusion=models.Fusion.RRF)
    if k is not None:
        query = models.RrfQuery(rrf=models.Rrf(k=k, weights=weights))
    expected: Scores = {}
    for branch, weight in zip((dense_scores(), bm25_scores()), weights or (1.0, 1.0), strict=True):
        for rank, number in enumerate(ranking(branch)):
            expected[number] = expected.get(number, 0.0) + 1 / ((rank + 1) / weight + (k or 2) - 1)
    same(target.client.query_points(hybrid, prefetch=prefetches(), query=query), expected)


def test_distribution_based_score_fusion(target: Target, hybrid: str) -> None:
    expected: Scores = {}
    for branch in (dense_scores(), bm25_scores()):
        mean, deviation = statistics.mean(branch.values()), statistics.stdev(branch.values())
        for number, score in branch.items():
            expected[number] = expected.get(number, 0.0) + (score - mean + 3 * deviation) / (6 * deviation)
    query = models.FusionQuery(fusion=models.Fusion.DBSF)
    same(target.client.query_points(hybrid, prefetch=prefetches(), query=query), expected)


def test_a_branch_that_finds_nothing_leaves_the_other_as_it_is(target: Target, hybrid: str) -> None:
    """By ranks each hit keeps its reciprocal rank, by spread its place in the spread of its own branch."""
    branches = [prefetches()[0], models.Prefetch(query=sparse({99: 1.0}), using="bm25", limit=10)]
    ranks = models.FusionQuery(fusion=models.Fusion.RRF)
    order = ranking(dense_scores())
    same(
        target.client.query_points(hybrid, prefetch=branches, query=ranks),
        {number: 1 / (2 + rank) for rank, number in enumerate(order)},
    )
    mean, deviation = statistics.mean(dense_scores().values()), statistics.stdev(dense_scores().values())
    same(
        target.client.query_points(hybrid, prefetch=branches, query=models.FusionQuery(fusion=models.Fusion.DBSF)),
        {number: 0.5 + (score - mean) / (6 * deviation) for number, score in dense_scores().items()},
    )


def test_a_branch_without_spread_gives_every_hit_the_middle(target: Target, hybrid: str) -> None:
    """One hit, or hits that all score alike: there is no deviation to divide by."""
    alone = models.Prefetch(query=sparse(TERMS), using="bm25", limit=1)
    query = models.FusionQuery(fusion=models.Fusion.DBSF)
    (best,) = target.client.query_points(hybrid, prefetch=alone, query=query).points
    assert (best.id, best.score) == (ranking(bm25_scores())[0], pytest.approx(0.5))


def test_the_k_of_the_paper_is_one_more_here(target: Target, hybrid: str) -> None:
    """The paper's 1 / (60 + rank), ranks from 1, is k = 61, for ranks begin at 0."""
    query = models.RrfQuery(rrf=models.Rrf(k=61))
    dense = [prefetches()[0], prefetches()[0]]
    scores = [point.score for point in target.client.query_points(hybrid, prefetch=dense, query=query, limit=2).points]
    assert scores == pytest.approx([2 / 61, 2 / 62])


def test_weights_must_be_as_many_as_branches(target: Target, hybrid: str) -> None:
    query = {"rrf": {"weights": [1.0, 2.0, 3.0]}}
    branches = [{"query": QUESTION, "using": "dense"}, {"query": sparse(TERMS).model_dump(), "using": "bm25"}]
    response = target.post(f"/collections/{hybrid}/points/query", {"prefetch": branches, "query": query})
    assert response.status_code == 400, response.text


@pytest.mark.parametrize("fusion", [models.Fusion.RRF, models.Fusion.DBSF])
def test_a_filter_at_the_root_of_a_fusion_holds(target: Target, hybrid: str, fusion: models.Fusion) -> None:
    memories = models.Filter(must=[models.FieldCondition(key="kind", match=models.MatchValue(value="memory"))])
    query = models.FusionQuery(fusion=fusion)
    at_root = target.client.query_points(hybrid, prefetch=prefetches(), query=query, query_filter=memories)
    in_each = target.client.query_points(hybrid, prefetch=prefetches(filter=memories), query=query)
    assert set(found(at_root)) == {1, 2, 4}
    assert found(at_root) == pytest.approx(found(in_each))


def test_a_filter_that_leaves_nothing_gives_an_empty_answer(target: Target, hybrid: str) -> None:
    nothing = models.Filter(must=[models.FieldCondition(key="kind", match=models.MatchValue(value="exemplar"))])
    for query in (models.FusionQuery(fusion=models.Fusion.RRF), hybrid_formula()):
        response = target.client.query_points(hybrid, prefetch=prefetches(filter=nothing), query=query)
        assert response.points == []


def hybrid_formula(weight: float = 0.5, half: float = 5.0) -> models.FormulaQuery:
    """cosine + weight * b² / (b² + half²), where a branch did not find the point its score is 0."""
    square = models.MultExpression(mult=["$score[1]", "$score[1]"])
    total = models.SumExpression(sum=[square, half**2])
    share = models.DivExpression(div=models.DivParams(left=square, right=total, by_zero_default=0.0))
    return models.FormulaQuery(
        formula=models.SumExpression(sum=["$score[0]", models.MultExpression(mult=[weight, share])]),
        defaults={"$score[0]": 0.0, "$score[1]": 0.0},
    )


def test_a_formula_over_the_scores_of_both_branches(target: Target, hybrid: str) -> None:
    bm25 = bm25_scores()
    assert len(bm25) == len(DENSE)
    expected = {n: score + 0.5 * bm25[n] ** 2 / (bm25[n] ** 2 + 25.0) for n, score in dense_scores().items()}
    same(target.client.query_points(hybrid, prefetch=prefetches(), query=hybrid_formula()), expected)


def test_a_score_that_is_absent_takes_its_default(target: Target, hybrid: str) -> None:
    branches = [
        models.Prefetch(query=QUESTION, using="dense", limit=10),
        models.Prefetch(query=sparse({8: 1.0}), using="bm25", limit=10),
    ]
    query = models.FormulaQuery(
        formula=models.SumExpression(sum=["$score[0]", "$score[1]"]), defaults={"$score[1]": 10.0}
    )
    rare = bm25_scores({8: 1.0})
    expected = {n: score + rare.get(n, 10.0) for n, score in dense_scores().items()}
    same(target.client.query_points(hybrid, prefetch=branches, query=query), expected)


def n_of(number: int) -> float:
    return float(PAYLOAD[number]["n"])


def metres_from(origin: tuple[float, float], number: int) -> float:
    """Great circle distance on a sphere of the earth's mean radius."""
    lon, lat = (math.radians(degrees) for degrees in origin)
    place = PAYLOAD[number]["place"]
    other_lon, other_lat = math.radians(place["lon"]), math.radians(place["lat"])
    half = math.sin((other_lat - lat) / 2) ** 2
    half += math.cos(lat) * math.cos(other_lat) * math.sin((other_lon - lon) / 2) ** 2
    return 2 * 6371008.8 * math.asin(math.sqrt(half))


def decay(**options: Any) -> dict[str, Any]:
    return {"x": "n", "target": 1.0, "scale": 4.0, "midpoint": 0.5, **options}


FORMULAS: dict[str, tuple[Any, Callable[[int], float]]] = {
    "constant": (3.5, lambda _: 3.5),
    "payload variable": ("n", n_of),
    "sum": ({"sum": ["n", 1.0, "n"]}, lambda i: 2 * n_of(i) + 1),
    "mult": ({"mult": ["n", "n", 2.0]}, lambda i: 2 * n_of(i) ** 2),
    "max": ({"max": ["n", 2.5]}, lambda i: max(n_of(i), 2.5)),
    "min": ({"min": ["n", 2.5]}, lambda i: min(n_of(i), 2.5)),
    "neg": ({"neg": "n"}, lambda i: -n_of(i)),
    "abs": ({"abs": {"neg": "n"}}, n_of),
    "div": ({"div": {"left": 6.0, "right": "n"}}, lambda i: 6 / n_of(i)),
    "div by zero": ({"div": {"left": "n", "right": 0.0, "by_zero_default": 7.0}}, lambda _: 7.0),
    "sqrt": ({"sqrt": "n"}, lambda i: math.sqrt(n_of(i))),
    "pow": ({"pow": {"base": "n", "exponent": 1.5}}, lambda i: n_of(i) ** 1.5),
    "exp": ({"exp": "n"}, lambda i: math.exp(n_of(i))),
    "ln": ({"ln": "n"}, lambda i: math.log(n_of(i))),
    "log10": ({"log10": "n"}, lambda i: math.log10(n_of(i))),
    "condition": ({"key": "kind", "match": {"value": "memory"}}, lambda i: float(PAYLOAD[i]["kind"] == "memory")),
    "filter": ({"must_not": [{"has_id": [2]}]}, lambda i: float(i != 2)),
    "datetime": (
        {"sum": [{"datetime_key": "at"}, {"neg": {"datetime": "2024-01-01T00:00:00Z"}}]},
        lambda i: 86400.0 * (i - 1),
    ),
    "geo distance": (
        {"geo_distance": {"origin": {"lon": 10.0, "lat": 45.0}, "to": "place"}},
        lambda i: metres_from((10.0, 45.0), i),
    ),
    "lin_decay": ({"lin_decay": decay()}, lambda i: max(0.0, 1 - 0.5 / 4 * abs(n_of(i) - 1))),
    "exp_decay": ({"exp_decay": decay()}, lambda i: math.exp(math.log(0.5) / 4 * abs(n_of(i) - 1))),
    "gauss_decay": ({"gauss_decay": decay()}, lambda i: math.exp(math.log(0.5) / 16 * (n_of(i) - 1) ** 2)),
}


@pytest.mark.parametrize("kind", FORMULAS)
def test_each_kind_of_expression(target: Target, hybrid: str, kind: str) -> None:
    formula, expected = FORMULAS[kind]
    target.client.create_payload_index(hybrid, "at", models.PayloadSchemaType.DATETIME, wait=True)
    target.client.create_payload_index(hybrid, "place", models.PayloadSchemaType.GEO, wait=True)
    request = {"prefetch": {"query": QUESTION, "using": "dense"}, "query": {"formula": formula}, "limit": 10}
    response = target.post(f"/collections/{hybrid}/points/query", request)
    assert response.status_code == 200, response.text
    scores = {point["id"]: point["score"] for point in response.json()["result"]["points"]}
    assert scores == pytest.approx({number: expected(number) for number in DENSE}, rel=1e-3, abs=1e-4)


def test_a_payload_variable_that_a_point_lacks_takes_its_default(target: Target, hybrid: str) -> None:
    target.client.delete_payload(hybrid, ["n"], points=[3], wait=True)
    query = models.FormulaQuery(formula="n", defaults={"n": 100.0})
    response = target.client.query_points(hybrid, prefetch=prefetches(), query=query)
    same(response, {3: 100.0, 4: 4.0, 2: 2.0, 1: 1.0})


def test_a_prefetch_within_a_prefetch(target: Target, hybrid: str) -> None:
    """The two best by text, of these the one that is nearest, then all that this stage left by a formula."""
    text = models.Prefetch(query=sparse(TERMS), using="bm25", limit=2)
    nearest = models.Prefetch(prefetch=[text], query=QUESTION, using="dense", limit=1)
    response = target.client.query_points(hybrid, prefetch=[nearest], query=models.FormulaQuery(formula="$score"))
    two = ranking(bm25_scores())[:2]
    best = max(two, key=lambda number: dense_scores()[number])
    same(response, {best: dense_scores()[best]})


def test_a_prefetch_limit_bounds_what_is_rescored(target: Target, hybrid: str) -> None:
    text = models.Prefetch(query=sparse(TERMS), using="bm25", limit=2)
    response = target.client.query_points(hybrid, prefetch=[text], query=QUESTION, using="dense")
    same(response, {number: dense_scores()[number] for number in ranking(bm25_scores())[:2]})


def test_a_batch_answers_each_query_as_if_alone(target: Target, hybrid: str) -> None:
    requests = [
        models.QueryRequest(query=QUESTION, using="dense", limit=2, with_payload=True),
        models.QueryRequest(prefetch=prefetches(), query=hybrid_formula(), limit=3),
        models.QueryRequest(
            query=sparse(TERMS), using="bm25", filter=models.Filter(must=[models.HasIdCondition(has_id=[3])])
        ),
    ]
    first, second, third = target.client.query_batch_points(hybrid, requests)
    assert [point.id for point in first.points] == ranking(dense_scores())[:2]
    assert [point.payload for point in first.points] == [PAYLOAD[n] for n in ranking(dense_scores())[:2]]
    alone = target.client.query_points(hybrid, prefetch=prefetches(), query=hybrid_formula(), limit=3)
    assert found(second) == found(alone)
    same(third, {3: bm25_scores()[3]})


def test_ordered_by_a_field(target: Target, hybrid: str) -> None:
    target.client.create_payload_index(hybrid, "n", models.PayloadSchemaType.INTEGER, wait=True)
    order = models.OrderBy(key="n", direction=models.Direction.DESC, start_from=3)
    response = target.client.query_points(hybrid, query=models.OrderByQuery(order_by=order))
    assert [(point.id, point.order_value) for point in response.points] == [(3, 3), (2, 2), (1, 1)]
    records, following = target.client.scroll(hybrid, order_by="n", limit=3)
    assert [record.id for record in records] == [1, 2, 3]
    assert following is None


def test_a_random_sample_is_of_the_points_that_pass(target: Target, hybrid: str) -> None:
    some = models.Filter(must=[models.HasIdCondition(has_id=[1, 2, 3])])
    query = models.SampleQuery(sample=models.Sample.RANDOM)
    response = target.client.query_points(hybrid, query=query, query_filter=some, limit=2)
    assert len(response.points) == 2
    assert set(found(response)) < {1, 2, 3}
