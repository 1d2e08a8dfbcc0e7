"""Vectors of points and queries, checked against the collection before the engine sees them.

The engine is not to be given a malformed vector: one with indices and values of different length makes it panic and
leaves a shard that cannot be opened again, and of a batch that it refuses it has written a part.
"""

from __future__ import annotations

from typing import Any

import qdrant_edge as edge

from memory_pipeline.embedded.qdrant import body
from memory_pipeline.embedded.qdrant.errors import FormatError, NotServed, ValueRefused, WrongInput
from memory_pipeline.embedded.qdrant.schema import UNNAMED, Collection

_NUMBERS = frozenset((int, float))
_INFERENCE = ("text", "image", "object", "model")


def read_point_vectors(value: object, place: str, collection: Collection) -> Any:
    """The vectors of one point: a bare array for the unnamed one, else an object by name; any may be left out."""
    if isinstance(value, list):
        return read_vector(value, UNNAMED, place, collection)
    if not isinstance(value, dict):
        raise FormatError(f"{place}: expected an array or an object of vectors, got {body.kind(value)}")
    if "model" in value and "model" not in collection.dense.keys() | collection.sparse.keys():
        raise NotServed("inference")
    return {name: read_vector(item, name, f"{place}.{name}", collection) for name, item in value.items()}


def read_vector(value: object, name: str, place: str, collection: Collection) -> Any:
    """One vector, of the kind and length that the collection has under that name."""
    if name in collection.dense:
        return read_dense(value, collection.dense[name].size, place)
    if name in collection.sparse:
        return read_sparse(value, place)
    if name == UNNAMED:
        names = ", ".join(sorted((*collection.dense, *collection.sparse)))
        raise WrongInput(f"Collection requires specified vector name in the request, available names: {names}")
    raise WrongInput(f"Not existing vector name error: {name}")


def read_dense(value: object, size: int, place: str) -> list[float]:
    """As many finite 32-bit numbers as the vector is long."""
    if not isinstance(value, list):
        raise _wrong_kind(value, place, "an array of numbers")
    if len(value) != size:
        if value and isinstance(value[0], list):
            raise NotServed("multivectors")
        raise WrongInput(f"Vector dimension error: expected dim: {size}, got {len(value)}")
    _refuse_other_than_numbers(value, place)
    return value


def read_sparse(value: object, place: str) -> Any:
    """Distinct indices, each with its finite value."""
    if not isinstance(value, dict) or not value.keys() & {"indices", "values"}:
        raise _wrong_kind(value, place, "an object of indices and values")
    given = body.fields(value, place, ("indices", "values"))
    indices = body.items(body.required(given, "indices", place), f"{place}.indices")
    values = body.items(body.required(given, "values", place), f"{place}.values")
    if len(indices) != len(values):
        raise ValueRefused(f"{place}.values", "must be the same length as indices")
    if any(type(index) is not int for index in indices):
        raise FormatError(f"{place}.indices: expected integers")
    if indices and not (min(indices) >= 0 and max(indices) <= body.MAX_U32):
        raise FormatError(f"{place}.indices: expected unsigned integers of 32 bits")
    if len(set(indices)) != len(indices):
        raise ValueRefused(f"{place}.indices", "must be unique")
    if values:
        _refuse_other_than_numbers(values, f"{place}.values")
    return edge.SparseVector(indices, values)


def _refuse_other_than_numbers(values: list[Any], place: str) -> None:
    if not _NUMBERS.issuperset(map(type, values)):
        if isinstance(values[0], list):
            raise NotServed("multivectors")
        raise FormatError(f"{place}: expected an array of numbers")
    if not (min(values) >= -body.MAX_F32 and max(values) <= body.MAX_F32):
        raise FormatError(f"{place}: number out of the range of 32-bit floats")


def _wrong_kind(value: object, place: str, expected: str) -> FormatError | NotServed | WrongInput:
    if isinstance(value, dict) and value.keys() & set(_INFERENCE):
        return NotServed("inference")
    if isinstance(value, dict) and "indices" in value:
        return WrongInput(f"Wrong usage of sparse vectors: {place} is dense, {expected} is expected")
    return FormatError(f"{place}: expected {expected}, got {body.kind(value)}")
