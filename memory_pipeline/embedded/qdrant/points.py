"""Points to write: a batch is read and checked as a whole before any of it is written."""

from __future__ import annotations

from typing import Any

import qdrant_edge as edge

from memory_pipeline.embedded.qdrant import body
from memory_pipeline.embedded.qdrant.body import Fields, Json, PointId
from memory_pipeline.embedded.qdrant.engine import built
from memory_pipeline.embedded.qdrant.errors import FormatError
from memory_pipeline.embedded.qdrant.filters import optional_filter, read_filter
from memory_pipeline.embedded.qdrant.schema import UNNAMED, Collection
from memory_pipeline.embedded.qdrant.vectors import read_point_vectors, read_vector

_UPDATE_MODES = {
    "upsert": edge.UpdateMode.Upsert,
    "insert_only": edge.UpdateMode.InsertOnly,
    "update_only": edge.UpdateMode.UpdateOnly,
}


def read_upsert(value: Json, collection: Collection) -> Any:
    """The engine's operation of `PUT /collections/{name}/points`, from the list form or the batch form."""
    given = body.fields(value, "", ("points", "batch", "shard_key", "update_filter", "update_mode"))
    body.refuse_shard_key(given)
    which = body.only_one(given, "", ("points", "batch"))
    points = (_read_list if which == "points" else _read_batch)(given[which], collection)
    condition = optional_filter(given, "update_filter")
    mode = _UPDATE_MODES[body.choice(given.get("update_mode", "upsert"), "update_mode", _UPDATE_MODES)]
    return edge.UpdateOperation.upsert_points(points, condition, mode)


def read_vector_update(value: Json, collection: Collection) -> tuple[list[PointId], Any]:
    """The ids and the engine's operation of `PUT /collections/{name}/points/vectors`."""
    given = body.fields(value, "", ("points", "shard_key", "update_filter"))
    body.refuse_shard_key(given)
    ids, updates = [], []
    for index, item in enumerate(body.items(body.required(given, "points", ""), "points")):
        place = f"points[{index}]"
        point = body.fields(item, place, ("id", "vector"))
        ids.append(body.point_id(body.required(point, "id", place), f"{place}.id"))
        vectors = read_point_vectors(body.required(point, "vector", place), f"{place}.vector", collection)
        updates.append(edge.PointVectors(ids[-1], vectors))
    return ids, edge.UpdateOperation.update_vectors(updates, optional_filter(given, "update_filter"))


def read_selector(given: Fields) -> list[PointId] | Any:
    """Which points are meant: the ids in `points`, else the engine's filter in `filter`."""
    body.refuse_shard_key(given)
    if body.only_one(given, "", ("points", "filter")) == "points":
        return body.point_ids(given["points"], "points")
    return read_filter(given["filter"], "filter")


def _read_list(value: object, collection: Collection) -> list[Any]:
    points = []
    for index, item in enumerate(body.items(value, "points")):
        place = f"points[{index}]"
        given = body.fields(item, place, ("id", "vector", "payload"))
        number = body.point_id(body.required(given, "id", place), f"{place}.id")
        vectors = read_point_vectors(body.required(given, "vector", place), f"{place}.vector", collection)
        points.append(_point(number, vectors, given.get("payload"), f"{place}.payload"))
    return points


def _read_batch(value: object, collection: Collection) -> list[Any]:
    given = body.fields(value, "batch", ("ids", "vectors", "payloads"))
    ids = body.point_ids(body.required(given, "ids", "batch"), "batch.ids")
    vectors = _batch_vectors(body.required(given, "vectors", "batch"), len(ids), collection)
    payloads = body.items(given.get("payloads", [None] * len(ids)), "batch.payloads")
    _same_length(payloads, len(ids), "batch.payloads")
    return [
        _point(number, point_vectors, payload, f"batch.payloads[{index}]")
        for index, (number, point_vectors, payload) in enumerate(zip(ids, vectors, payloads, strict=True))
    ]


def _batch_vectors(value: object, count: int, collection: Collection) -> list[Any]:
    if isinstance(value, list):
        _same_length(value, count, "batch.vectors")
        return [read_vector(item, UNNAMED, f"batch.vectors[{index}]", collection) for index, item in enumerate(value)]
    if not isinstance(value, dict):
        raise FormatError(f"batch.vectors: expected an array or an object, got {body.kind(value)}")
    by_point: list[dict[str, Any]] = [{} for _ in range(count)]
    for name, listed in value.items():
        place = f"batch.vectors.{name}"
        _same_length(body.items(listed, place), count, place)
        for index, item in enumerate(listed):
            by_point[index][name] = read_vector(item, name, f"{place}[{index}]", collection)
    return by_point


def _same_length(listed: list[Any], count: int, place: str) -> None:
    if len(listed) != count:
        raise FormatError(f"{place}: number of items ({len(listed)}) does not match number of ids ({count})")


def _point(number: PointId, vectors: Any, payload: object, place: str) -> Any:
    checked = body.payload(payload, place) if payload is not None else None
    return built(place, edge.Point, number, vectors, checked)
