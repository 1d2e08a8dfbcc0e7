"""The shape of a collection: what vectors and payload indexes it has, and how that differs from what is needed."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from qdrant_client import models

from memory_pipeline.index.wire import BM25, DENSE

KEYWORD = models.PayloadSchemaType.KEYWORD
INDEXED = {
    "ref": KEYWORD,
    "kind": KEYWORD,
    "scope": KEYWORD,
    "concepts": KEYWORD,
    "dep_none": KEYWORD,
    "dep_paths": KEYWORD,
    "dep_prefixes": KEYWORD,
    "revision": models.PayloadSchemaType.INTEGER,
}
"""What is filtered on, and how it is indexed."""


class CollectionShape(BaseModel):
    """A collection as it is on the server."""

    model_config = ConfigDict(frozen=True)

    dense: str | None
    """`512 Cosine`: length and distance of the vector `dense`; none without one."""
    bm25: str | None
    """`idf`: the modifier of the sparse vector `bm25`, or `none`; none without such a vector."""
    others: tuple[str, ...]
    """Further vectors."""
    indexes: dict[str, str]
    """Type of the index on each payload field that has one."""

    def differences(self, dimensions: int) -> tuple[str, ...]:
        """What keeps this collection from holding projections with dense vectors of that length; empty if nothing."""
        wanted = f"{dimensions} {models.Distance.COSINE.value}"
        found: list[str] = []
        if self.dense != wanted:
            found.append(f"the vector 'dense' is {self.dense or 'missing'}, not {wanted}")
        if self.bm25 != models.Modifier.IDF.value:
            found.append(f"the sparse vector 'bm25' is {_missing_or_modifier(self.bm25)}")
        found += [f"it has a further vector {name!r}" for name in self.others]
        found += [
            f"the index on {field!r} is {self.indexes[field]}, not {kind.value}"
            for field, kind in INDEXED.items()
            if self.indexes.get(field, kind.value) != kind.value
        ]
        return tuple(found)

    def missing_indexes(self) -> tuple[str, ...]:
        """Payload fields whose index is yet to be built."""
        return tuple(field for field in INDEXED if field not in self.indexes)


def shape_of(info: models.CollectionInfo) -> CollectionShape:
    """Read the shape from the server's description."""
    vectors = info.config.params.vectors or {}
    named = {"": vectors} if isinstance(vectors, models.VectorParams) else vectors
    sparse = info.config.params.sparse_vectors or {}
    return CollectionShape(
        dense=_dense(named[DENSE]) if DENSE in named else None,
        bm25=(sparse[BM25].modifier or models.Modifier.NONE).value if BM25 in sparse else None,
        others=tuple(sorted((named.keys() | sparse.keys()) - {DENSE, BM25})),
        indexes={field: index.data_type.value for field, index in info.payload_schema.items()},
    )


def _dense(vector: models.VectorParams) -> str:
    multi = " multivector" if vector.multivector_config else ""
    return f"{vector.size} {vector.distance.value}{multi}"


def _missing_or_modifier(modifier: str | None) -> str:
    return "missing" if modifier is None else f"without IDF (modifier {modifier})"
