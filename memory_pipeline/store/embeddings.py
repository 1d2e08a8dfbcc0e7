"""Stored vectors, keyed by model or analyser and by the hash of the text: what is here is never computed again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory_pipeline.store.database import Transaction

_LITTLE_ENDIAN = np.dtype("<f4")


class DenseVector(NamedTuple):
    """A unit vector, float32, shape (dimensions,); pooled from pieces where the text was above the model's limit."""

    vector: NDArray[np.float32]
    pooled: bool


class SparseWeights(NamedTuple):
    """A sparse vector: rising term ids and as many weights."""

    indices: tuple[int, ...]
    values: tuple[float, ...]


def dense(tx: Transaction, workspace: str, model_digest: str, hashes: Iterable[str]) -> dict[str, DenseVector]:
    """Stored dense vectors by text hash; those never computed are missing."""
    rows = tx.execute(
        """
        SELECT text_sha256, vector, pooled FROM dense_embeddings
        WHERE workspace = %s AND model_digest = %s AND text_sha256 = ANY (%s)
        """,
        (workspace, model_digest, list(hashes)),
    )
    return {
        row["text_sha256"]: DenseVector(np.frombuffer(row["vector"], dtype=_LITTLE_ENDIAN), row["pooled"])
        for row in rows
    }


def save_dense(tx: Transaction, workspace: str, model_digest: str, vectors: Mapping[str, DenseVector]) -> None:
    """Keep dense vectors; one that is there already stays."""
    tx.execute(
        """
        INSERT INTO dense_embeddings (workspace, model_digest, text_sha256, dimensions, vector, pooled)
        SELECT %s, %s, made.* FROM unnest(%s::text[], %s::integer[], %s::bytea[], %s::boolean[]) AS made
        ON CONFLICT DO NOTHING
        """,
        (
            workspace,
            model_digest,
            list(vectors),
            [dense.vector.size for dense in vectors.values()],
            [_bytes(dense.vector) for dense in vectors.values()],
            [dense.pooled for dense in vectors.values()],
        ),
    )


def sparse(tx: Transaction, workspace: str, analyser: str, hashes: Sequence[str]) -> dict[str, SparseWeights]:
    """Stored sparse vectors by text hash; those never computed are missing."""
    rows = tx.execute(
        """
        SELECT text_sha256, indices, weights FROM sparse_embeddings
        WHERE workspace = %s AND analyser = %s AND text_sha256 = ANY (%s)
        """,
        (workspace, analyser, list(hashes)),
    )
    return {row["text_sha256"]: SparseWeights(tuple(row["indices"]), tuple(row["weights"])) for row in rows}


def save_sparse(tx: Transaction, workspace: str, analyser: str, vectors: Mapping[str, SparseWeights]) -> None:
    """Keep sparse vectors; one that is there already stays."""
    tx.execute(
        """
        INSERT INTO sparse_embeddings (workspace, analyser, text_sha256, indices, weights)
        SELECT %s, %s, made.key, made.indices::bigint[], made.weights::real[]
        FROM unnest(%s::text[], %s::text[], %s::text[]) AS made (key, indices, weights)
        ON CONFLICT DO NOTHING
        """,
        (
            workspace,
            analyser,
            list(vectors),
            [_array(weights.indices) for weights in vectors.values()],
            [_array(weights.values) for weights in vectors.values()],
        ),
    )


def _array(numbers: Sequence[float]) -> str:
    """Numbers as PostgreSQL writes an array: the driver's own way takes most of the time of storing one."""
    return "{" + ",".join(map(repr, numbers)) + "}"


def _bytes(vector: NDArray[np.float32]) -> bytes:
    return vector.astype(_LITTLE_ENDIAN, copy=False).tobytes()
