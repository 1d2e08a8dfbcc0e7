"""Measures of a ranking, as the literature defines them, with relevance yes or no. All are between 0 and 1."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence


def recall_at(k: int, ranked: Sequence[str], relevant: Collection[str]) -> float:
    """Share of the relevant ids that stand among the first `k`: |first k and relevant| / |relevant|.

    Source: Manning, Raghavan, Schütze, Introduction to Information Retrieval (2008), section 8.3, cut off at rank k.
    """
    return len(set(ranked[:k]) & set(relevant)) / len(_some(relevant))


def reciprocal_rank(ranked: Sequence[str], relevant: Collection[str]) -> float:
    """1 / rank of the first relevant id, 0 where there is none. Its mean over questions is the MRR.

    Source: Voorhees, The TREC-8 Question Answering Track Report (1999), section 3.
    """
    wanted = _some(relevant)
    return next((1 / rank for rank, item in enumerate(ranked, start=1) if item in wanted), 0.0)


def ndcg_at(k: int, ranked: Sequence[str], relevant: Collection[str]) -> float:
    """DCG of the first `k` over that of the best ranking, where a relevant id at rank r gains 1 / log2(r + 1).

    Source: Järvelin and Kekäläinen, Cumulated gain-based evaluation of IR techniques (2002), with the discount of
    Burges et al. (2005); a gain is 0 or 1, so that both forms of it are the same.
    """
    wanted = set(_some(relevant))
    gained = sum(_discount(rank) for rank, item in enumerate(dict.fromkeys(ranked[:k]), start=1) if item in wanted)
    return gained / sum(_discount(rank) for rank in range(1, min(k, len(wanted)) + 1))


def mean(values: Iterable[float]) -> float | None:
    """The arithmetic mean; none of nothing."""
    known = list(values)
    return math.fsum(known) / len(known) if known else None


def percentile(values: Iterable[float], share: float) -> float | None:
    """The smallest value that at least this share of the values does not exceed (nearest rank); none of nothing."""
    known = sorted(values)
    if not known:
        return None
    position = max(math.ceil(share * len(known)) - 1, 0)
    return known[position]


def _discount(rank: int) -> float:
    return 1 / math.log2(rank + 1)


def _some(relevant: Collection[str]) -> set[str]:
    """The relevant ids, each once. A question without any cannot be measured, and is never asked."""
    wanted = set(relevant)
    if not wanted:
        raise ValueError("no id is relevant")
    return wanted
