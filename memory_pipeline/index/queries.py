"""A hybrid query: two vectors, one filter, and how the two branches become one score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from memory_pipeline.index.filters import SearchFilter
from memory_pipeline.index.points import BranchScores, SparseVector, Vector

Method: TypeAlias = Literal["score", "rrf", "dbsf"]
Branch: TypeAlias = Literal["dense", "bm25"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HybridQuery:
    """What to look for. A branch without a vector, or with an empty one, is left out.

    With the method `score` a hit's score is `d + w * b² / (b² + c²)`: `d` is the cosine similarity and `b` the BM25
    score, each 0 where its branch did not bring the point among its first `prefetch`; `w` is `lexical_weight`, `c` is
    `lexical_half`.
    """

    dense: Vector | None
    """Shape (d,); none where the embedder is down."""
    lexical: SparseVector | None
    filter: SearchFilter
    limit: int
    offset: int = 0
    prefetch: int
    """Hits that each branch brings to the fusion, at least; never fewer than `offset + limit`."""
    lexical_weight: float
    lexical_half: float
    method: Method = "score"

    def fused(self, scores: BranchScores) -> float | None:
        """What the server makes of these scores; none with the other methods, which depend on the other hits."""
        if self.method != "score":
            return None
        dense = 0.0 if self.dense is None else scores.dense
        total = scores.bm25**2 + self.lexical_half**2
        return dense + (self.lexical_weight * scores.bm25**2 / total if total else 0.0)
