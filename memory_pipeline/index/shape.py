"""The shape of a collection: what vectors and payload indexes it has, and how that differs from what is needed."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict
from qdrant_client import models

from memory_pipeline.core.epoch import Epoch
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

_LINEAGE, _COUNTER = "registry_lineage", "registry_counter"


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
    epoch: Epoch | None = None
    """How far the registry had come when it last wrote here; none where it never did."""

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

    def is_memory(self, dimensions: int) -> bool:
        """Whether its vectors are those of memories, with the sparse one or, as before it was introduced, without."""
        return self.dense == f"{dimensions} {models.Distance.COSINE.value}" and not self.others

    def lacks_lexical_alone(self, dimensions: int) -> bool:
        """Whether all that it lacks is the sparse vector, which can be added to the points that are there."""
        whole = self.model_copy(update={"bm25": models.Modifier.IDF.value})
        return self.bm25 is None and not whole.differences(dimensions)

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
        epoch=_epoch(info.config.metadata or {}),
    )


def stamp(epoch: Epoch) -> dict[str, Any]:
    """An epoch as a collection's metadata."""
    return {_LINEAGE: epoch.lineage, _COUNTER: epoch.counter}


def _epoch(metadata: dict[str, Any]) -> Epoch | None:
    lineage, counter = metadata.get(_LINEAGE), metadata.get(_COUNTER)
    if not isinstance(lineage, str) or not isinstance(counter, int):
        return None
    try:
        return Epoch(str(UUID(lineage)), counter)
    except ValueError:
        return None


def _dense(vector: models.VectorParams) -> str:
    multi = " multivector" if vector.multivector_config else ""
    return f"{vector.size} {vector.distance.value}{multi}"


def _missing_or_modifier(modifier: str | None) -> str:
    return "missing" if modifier is None else f"without IDF (modifier {modifier})"
