"""Domain to Qdrant: filters, queries and points as the client's own models."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias
from uuid import UUID

from qdrant_client import models

from memory_pipeline.core.dependencies import prefixes
from memory_pipeline.core.projection import PRESENT, Projection
from memory_pipeline.index.filters import SearchFilter
from memory_pipeline.index.points import IndexPoint, PointId, SparseVector
from memory_pipeline.index.queries import Branch, HybridQuery

DENSE: Branch = "dense"
BM25: Branch = "bm25"
QueryVector: TypeAlias = list[float] | models.SparseVector
STATE_FIELDS = ["ref", "kind", "revision", "projection_sha256"]


def to_filter(wanted: SearchFilter) -> models.Filter:
    """The same conditions on flat keywords.

    The three on the context are alternatives, and each looks at one list of paths, so that no two dependencies of a
    card are ever combined: it has none, or one of its paths is a place of the context or holds one, or one lies within.
    """
    context = sorted(set(wanted.context))
    holders = sorted({prefix for path in context for prefix in prefixes(path)})
    alternatives = [_any("dep_none", [PRESENT]), _any("dep_paths", holders), _any("dep_prefixes", context)]
    required = [_any("kind", [kind.value for kind in wanted.kinds])]
    if wanted.scope is not None:
        required.append(_any("scope", sorted({"", wanted.scope})))
    if wanted.concepts:
        required.append(_any("concepts", sorted(set(wanted.concepts))))
    return models.Filter(
        must=required,
        should=alternatives if context else None,
        must_not=[_any("ref", sorted(set(wanted.without)))] if wanted.without else None,
    )


def not_newer(revision: int) -> models.Filter:
    """Points that a write of that revision may change.

    Said the other way round, so that a damaged point without a revision can be repaired.
    """
    return models.Filter(must_not=[models.FieldCondition(key="revision", range=models.Range(gt=revision))])


def not_newer_point(projection: Projection) -> models.Filter:
    """The projection's own point, unless it is newer."""
    fence = not_newer(projection.revision)
    return models.Filter(must=[among([projection.point_id])], must_not=fence.must_not)


def among(ids: Iterable[PointId]) -> models.HasIdCondition:
    """The points of these ids."""
    return models.HasIdCondition(has_id=[to_id(point_id) for point_id in ids])


def to_id(point_id: PointId) -> models.ExtendedPointId:
    """A point's id as JSON has it."""
    return str(point_id) if isinstance(point_id, UUID) else point_id


def to_point(point: IndexPoint) -> models.PointStruct:
    """The whole point. An empty sparse vector is left out."""
    vectors: dict[str, QueryVector] = {DENSE: point.dense.tolist()}
    if point.lexical.indices:
        vectors[BM25] = _sparse(point.lexical)
    return models.PointStruct(
        id=str(point.projection.point_id),
        vector=vectors,
        payload=point.projection.payload(),
    )


def branches(query: HybridQuery) -> dict[Branch, QueryVector]:
    """The vector of each branch that has one."""
    found: dict[Branch, QueryVector] = {}
    if query.dense is not None:
        found[DENSE] = query.dense.tolist()
    if query.lexical is not None and query.lexical.indices:
        found[BM25] = _sparse(query.lexical)
    return found


def prefetches(query: HybridQuery) -> list[models.Prefetch]:
    """Each branch with the whole filter in it: fusion sees nothing that may not be found."""
    wanted = to_filter(query.filter)
    depth = max(query.prefetch, query.offset + query.limit)
    return [
        models.Prefetch(query=vector, using=name, filter=wanted, limit=depth)
        for name, vector in branches(query).items()
    ]


def fusion(query: HybridQuery) -> models.Query:
    """How the scores of the prefetched branches become one."""
    if query.method != "score":
        return models.FusionQuery(fusion=models.Fusion(query.method))
    scores = {name: f"$score[{position}]" for position, name in enumerate(branches(query))}
    parts: list[models.Expression] = []
    if DENSE in scores:
        parts.append(scores[DENSE])
    if BM25 in scores:
        parts.append(_share(scores[BM25], query.lexical_weight, query.lexical_half))
    return models.FormulaQuery(formula=models.SumExpression(sum=parts), defaults=dict.fromkeys(scores.values(), 0.0))


def _share(score: str, weight: float, half: float) -> models.Expression:
    """`weight * score² / (score² + half²)`."""
    square = models.MultExpression(mult=[score, score])
    total = models.SumExpression(sum=[square, half**2])
    share = models.DivExpression(div=models.DivParams(left=square, right=total, by_zero_default=0.0))
    return models.MultExpression(mult=[weight, share])


def _any(key: str, values: list[str]) -> models.FieldCondition:
    return models.FieldCondition(key=key, match=models.MatchAny(any=values))


def _sparse(vector: SparseVector) -> models.SparseVector:
    return models.SparseVector(indices=list(vector.indices), values=list(vector.values))
