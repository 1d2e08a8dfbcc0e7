"""What the index holds and answers: points to write, the state of points that are there, hits and their scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias
from uuid import UUID

import numpy as np
import numpy.typing as npt

from memory_pipeline.core.errors import MemoryPipelineError, UselessVector
from memory_pipeline.core.projection import Projection

Vector: TypeAlias = npt.NDArray[np.float32]

PointId: TypeAlias = UUID | int
"""Ours are UUIDs; a point that somebody else put into the collection may have a number."""


class SparseVector(Protocol):
    """Term ids, each once, and the weight of each."""

    @property
    def indices(self) -> Sequence[int]: ...

    @property
    def values(self) -> Sequence[float]: ...


@dataclass(frozen=True, slots=True, eq=False)
class IndexPoint:
    """One card's point: its projection and both vectors."""

    projection: Projection
    dense: Vector
    """Shape (d,), finite and not zero."""
    lexical: SparseVector
    """May be empty: the card is then found by its dense vector alone."""

    def __post_init__(self) -> None:
        """Refuse a vector that would rank first, or nowhere, for every question.

        Raises:
            UselessVector: zero, not finite, or not of one dimension.
        """
        if self.dense.ndim != 1 or not np.isfinite(self.dense).all() or not self.dense.any():
            raise UselessVector(
                f"the dense vector of {self.projection.card_id} is zero, not finite, or not one-dimensional",
                hint="embed the card again; it is not indexed before",
            )


@dataclass(frozen=True, slots=True)
class PointState:
    """What a point says of itself. A field that it lacks, or has in another form, is empty or 0: never current."""

    point_id: PointId
    ref: str
    kind: str
    revision: int
    projection_sha256: str


@dataclass(frozen=True, slots=True)
class IndexHit(PointState):
    """A point that a search found."""

    score: float


@dataclass(frozen=True, slots=True)
class BranchScores:
    """The scores of one point by each branch: cosine similarity, BM25 with IDF. 0 where a branch does not know it."""

    dense: float
    bm25: float


class PointTooLarge(MemoryPipelineError):
    """One point, its vectors and its payload, is more than a server takes in one request."""

    exit_code = 31

    def __init__(self, card_id: str, size: int, limit: int) -> None:
        super().__init__(
            f"the point of {card_id} takes {size} bytes, and a server takes {limit}; nothing was written",
            hint="give the card fewer concepts or dependencies, or split it",
        )
        self.card_id = card_id
