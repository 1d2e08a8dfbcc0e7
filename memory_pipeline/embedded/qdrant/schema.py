"""What a collection is: its vectors and indexes, as kept in the registry, given to the engine and shown to clients."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import qdrant_edge as edge
from pydantic import BaseModel, ConfigDict, Field

from memory_pipeline.embedded.qdrant import body
from memory_pipeline.embedded.qdrant.body import Fields, Json
from memory_pipeline.embedded.qdrant.errors import FormatError, NotServed, ValueRefused, WrongInput

UNNAMED = ""
MAX_DENSE_SIZE = 65536
# The engine names folders after vectors; a name that is too long for a folder leaves a shard that cannot be opened.
MAX_VECTOR_NAME_BYTES = 200

# Tuning that changes speed or place on disk, never an answer: kept, shown again, and without effect here.
_HNSW = {"m": 16, "ef_construct": 100, "full_scan_threshold": 10000, "max_indexing_threads": 0, "on_disk": False}
_OPTIMIZER = {
    "deleted_threshold": 0.2,
    "vacuum_min_vector_number": 1000,
    "default_segment_number": 1,
    "max_segment_size": None,
    "memmap_threshold": None,
    "indexing_threshold": 0,
    "flush_interval_sec": 2,
    "max_optimization_threads": None,
}
_WAL = {"wal_capacity_mb": 32, "wal_segments_ahead": 0, "wal_retain_closed": 1}
_DENSE_TUNING = ("hnsw_config", "on_disk", "memory")
_COLLECTION_TUNING = ("hnsw_config", "optimizers_config", "wal_config", "on_disk_payload", "payload", "id_tracker")
_TUNING_BLOCKS = {
    "hnsw_config": (*_HNSW, "payload_m", "inline_storage", "memory"),
    "optimizers_config": (*_OPTIMIZER, "prevent_unoptimized"),
    "wal_config": tuple(_WAL),
    "index": ("full_scan_threshold", "on_disk", "memory", "datatype"),
    "payload": ("memory",),
    "id_tracker": ("memory",),
}
_SINGLE_NODE = ("shard_number", "replication_factor", "write_consistency_factor")


class Distance(StrEnum):
    """How two dense vectors are compared."""

    COSINE = "Cosine"
    DOT = "Dot"
    EUCLID = "Euclid"
    MANHATTAN = "Manhattan"


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class DenseVector(_Stored):
    """A dense vector of each point: its length and distance."""

    size: int
    distance: Distance
    tuning: dict[str, Json] = Field(default_factory=dict)

    def shown(self) -> dict[str, Json]:
        """As `GET /collections/{name}` shows it."""
        return {"size": self.size, "distance": self.distance.value, **self.tuning}

    def for_engine(self) -> Any:
        """The engine's parameters in a new shard. Cold: left to the page cache, so that many shards stay cheap."""
        return edge.EdgeVectorParams(size=self.size, distance=self._distance, memory=edge.Memory.Cold)

    def creation(self, name: str) -> Any:
        """The engine's operation that adds it to a shard."""
        return edge.UpdateOperation.create_dense_vector(name, self.size, self._distance)

    @property
    def _distance(self) -> Any:
        return getattr(edge.Distance, self.distance.value)


class SparseVector(_Stored):
    """A sparse vector of each point; with `idf` the engine weighs its terms by their rarity in the collection."""

    idf: bool = False
    tuning: dict[str, Json] = Field(default_factory=dict)

    def shown(self) -> dict[str, Json]:
        """As `GET /collections/{name}` shows it."""
        return {**self.tuning, **({"modifier": "idf"} if self.idf else {})}

    def for_engine(self) -> Any:
        """The engine's parameters in a new shard."""
        return edge.EdgeSparseVectorParams(modifier=self._modifier, memory=edge.Memory.Cold)

    def creation(self, name: str) -> Any:
        """The engine's operation that adds it to a shard."""
        return edge.UpdateOperation.create_sparse_vector(name, self._modifier)

    @property
    def _modifier(self) -> Any:
        return edge.Modifier.Idf if self.idf else None


class Collection(_Stored):
    """One collection. `folder` is the name of its shard's folder, `indexes` the schema asked for per payload field."""

    folder: str
    created_at: float
    dense: dict[str, DenseVector]
    sparse: dict[str, SparseVector]
    indexes: dict[str, Json] = Field(default_factory=dict)
    tuning: dict[str, Json] = Field(default_factory=dict)
    metadata: dict[str, Json] | None = None

    def vector(self, name: str) -> DenseVector | SparseVector | None:
        """The vector of that name."""
        return self.dense.get(name) or self.sparse.get(name)

    def with_vector(self, name: str, vector: DenseVector | SparseVector) -> Collection:
        """As this collection, with one more vector."""
        if isinstance(vector, DenseVector):
            return self.model_copy(update={"dense": {**self.dense, name: vector}})
        return self.model_copy(update={"sparse": {**self.sparse, name: vector}})

    def without_vector(self, name: str) -> Collection:
        """As this collection, without that vector."""
        return self.model_copy(
            update={
                "dense": {other: vector for other, vector in self.dense.items() if other != name},
                "sparse": {other: vector for other, vector in self.sparse.items() if other != name},
            }
        )

    def for_engine(self) -> Any:
        """Without an index over vectors (`indexing_threshold`): building one would stop every other request."""
        return edge.EdgeConfig(
            vectors={name: vector.for_engine() for name, vector in self.dense.items()} or None,
            sparse_vectors={name: vector.for_engine() for name, vector in self.sparse.items()} or None,
            optimizers=edge.EdgeOptimizersConfig(indexing_threshold=0),
            max_search_threads=1,
        )

    def shown(self) -> dict[str, Any]:
        """The `config` block of `GET /collections/{name}`."""
        dense = {name: vector.shown() for name, vector in self.dense.items()}
        params: dict[str, Any] = {
            "vectors": dense[UNNAMED] if dense.keys() == {UNNAMED} else dense,
            "shard_number": 1,
            "replication_factor": 1,
            "write_consistency_factor": 1,
            "on_disk_payload": self.tuning.get("on_disk_payload", True),
        }
        if self.sparse:
            params["sparse_vectors"] = {name: vector.shown() for name, vector in self.sparse.items()}
        return {
            "params": params,
            "hnsw_config": _merged(_HNSW, self.tuning.get("hnsw_config")),
            "optimizer_config": _merged(_OPTIMIZER, self.tuning.get("optimizers_config")),
            "wal_config": _merged(_WAL, self.tuning.get("wal_config")),
            "quantization_config": None,
            **({"metadata": self.metadata} if self.metadata is not None else {}),
        }


def read_collection(value: Json) -> Collection:
    """A new collection from the body of `PUT /collections/{name}`."""
    known = ("vectors", "sparse_vectors", "metadata", "sharding_method", "quantization_config", "strict_mode_config")
    given = body.fields(value, "", (*known, *_COLLECTION_TUNING, *_SINGLE_NODE))
    for name in _SINGLE_NODE:
        if body.integer(given.get(name, 1), name, low=1) != 1:
            raise NotServed(f"`{name}` other than 1")
    if given.get("sharding_method", "auto") != "auto":
        raise NotServed("a `sharding_method` other than auto")
    for name in ("quantization_config", "strict_mode_config"):
        if name in given:
            raise NotServed(f"`{name}`")
    dense = _read_dense_vectors(given.get("vectors", {}))
    sparse = {
        _vector_name(name): read_sparse_vector(params, f"sparse_vectors.{name}")
        for name, params in _object(given.get("sparse_vectors", {}), "sparse_vectors").items()
    }
    both = dense.keys() & sparse.keys()
    if both:
        raise WrongInput(f"Dense and sparse vector names must be unique, both have `{min(both)}`")
    if not dense and not sparse:
        raise NotServed("collections without any vector")
    return Collection(
        folder=str(uuid.uuid4()),
        created_at=time.time(),
        dense=dense,
        sparse=sparse,
        tuning={name: _tuning(name, given[name], name) for name in _COLLECTION_TUNING if name in given},
        metadata=body.payload(given["metadata"], "metadata") if "metadata" in given else None,
    )


def read_dense_vector(value: object, place: str) -> DenseVector:
    """Size, distance and tuning. What changes scores (datatype, multivectors, quantization) is refused by name."""
    changes_scores = ("datatype", "multivector_config", "quantization_config")
    given = body.fields(value, place, ("size", "distance", *_DENSE_TUNING, *changes_scores))
    _datatype(given.get("datatype", "float32"), f"{place}.datatype")
    for name in changes_scores[1:]:
        if name in given:
            raise NotServed(f"`{name}` of vectors")
    return DenseVector(
        size=body.integer(body.required(given, "size", place), f"{place}.size", low=1, high=MAX_DENSE_SIZE),
        distance=Distance(body.choice(body.required(given, "distance", place), f"{place}.distance", set(Distance))),
        tuning={name: _tuning(name, given[name], f"{place}.{name}") for name in _DENSE_TUNING if name in given},
    )


def read_sparse_vector(value: object, place: str) -> SparseVector:
    """Modifier and index settings of a sparse vector."""
    given = body.fields(value, place, ("modifier", "index", "datatype"))
    _datatype(given.get("datatype", "float32"), f"{place}.datatype")
    modifier = body.choice(given.get("modifier", "none"), f"{place}.modifier", ("none", "idf"))
    tuning = {"index": _tuning("index", given["index"], f"{place}.index")} if "index" in given else {}
    return SparseVector(idf=modifier == "idf", tuning=tuning)


def read_added_vector(name: str, value: Json) -> DenseVector | SparseVector:
    """The vector that `PUT /collections/{name}/vectors/{vector}` adds."""
    _vector_name(name)
    given = body.fields(value, "", ("dense", "sparse"))
    which = body.only_one(given, "", ("dense", "sparse"))
    return (read_dense_vector if which == "dense" else read_sparse_vector)(given[which], which)


def _read_dense_vectors(value: object) -> dict[str, DenseVector]:
    given = _object(value, "vectors")
    if "size" in given and not isinstance(given["size"], dict):
        return {UNNAMED: read_dense_vector(given, "vectors")}
    return {_vector_name(name): read_dense_vector(params, f"vectors.{name}") for name, params in given.items()}


def _vector_name(name: str) -> str:
    if len(name.encode()) > MAX_VECTOR_NAME_BYTES:
        raise ValueRefused("vectors", f"a vector name is at most {MAX_VECTOR_NAME_BYTES} bytes long")
    problem = body.name_problem(name)
    if problem or name in (".", ".."):
        raise ValueRefused("vectors", f"vector name `{name}` {problem or 'is reserved'}")
    return name


def _tuning(name: str, value: object, place: str) -> Json:
    if name in _TUNING_BLOCKS:
        given = body.fields(value, place, _TUNING_BLOCKS[name])
        return {key: _tuning(key, item, f"{place}.{key}") for key, item in given.items()}
    return _TUNING_VALUES.get(name, body.integer)(value, place)


def _memory(value: object, place: str) -> str:
    return body.choice(value, place, ("cold", "cached", "pinned"))


def _threads(value: object, place: str) -> int | None:
    return None if value == "auto" else body.integer(value, place)


def _datatype(value: object, place: str) -> str:
    if body.text(value, place) != "float32":
        raise NotServed("vectors of a `datatype` other than float32")
    return "float32"


_TUNING_VALUES: dict[str, Callable[[object, str], Json]] = {
    **dict.fromkeys(("on_disk", "on_disk_payload", "inline_storage", "prevent_unoptimized"), body.flag),
    "memory": _memory,
    "datatype": _datatype,
    "deleted_threshold": body.number,
    "max_optimization_threads": _threads,
}


def _object(value: object, place: str) -> Fields:
    if not isinstance(value, dict):
        raise FormatError(f"{place}: expected an object, got {body.kind(value)}")
    return value


def _merged(defaults: dict[str, Any], asked: Json) -> dict[str, Any]:
    return {**defaults, **asked} if isinstance(asked, dict) else dict(defaults)
