"""The paths about points: writing, reading, counting and querying them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import qdrant_edge as edge

from memory_pipeline.embedded.qdrant import answers, body
from memory_pipeline.embedded.qdrant.answers import Answer
from memory_pipeline.embedded.qdrant.body import Fields, PointId
from memory_pipeline.embedded.qdrant.calls import Call
from memory_pipeline.embedded.qdrant.engine import built
from memory_pipeline.embedded.qdrant.errors import FormatError, NotFound, WrongInput, WrongParameter
from memory_pipeline.embedded.qdrant.points import read_selector, read_upsert, read_vector_update
from memory_pipeline.embedded.qdrant.queries import (
    read_count,
    read_query,
    read_query_batch,
    read_retrieval,
    read_scroll,
)
from memory_pipeline.embedded.qdrant.storage import Storage

_SELECTOR = ("points", "filter", "shard_key")

# Each write exists twice in the engine: for listed points, and for those that a filter finds.
_Twin = tuple[Callable[..., Any], Callable[..., Any]]
_Op = edge.UpdateOperation
_DELETE_POINTS: _Twin = (_Op.delete_points, _Op.delete_points_by_filter)
_SET_PAYLOAD: _Twin = (_Op.set_payload, _Op.set_payload_by_filter)
_OVERWRITE_PAYLOAD: _Twin = (_Op.overwrite_payload, _Op.overwrite_payload_by_filter)
_DELETE_PAYLOAD: _Twin = (_Op.delete_payload, _Op.delete_payload_by_filter)
_CLEAR_PAYLOAD: _Twin = (_Op.clear_payload, _Op.clear_payload_by_filter)
_DELETE_VECTORS: _Twin = (_Op.delete_vectors, _Op.delete_vectors_by_filter)


def upsert(storage: Storage, call: Call) -> Answer:
    """`PUT /collections/{name}/points`."""
    operation = read_upsert(call.body, storage.collection(call.collection))
    return call.updated(storage.write(call.collection, operation))


def batch(storage: Storage, call: Call) -> list[Answer]:
    """`POST /collections/{name}/points/batch`: several writes in their order, each as if it were sent alone.

    The first that is refused ends it; those before it stay written, as in the real server.
    """
    given = body.fields(call.body, "", ("operations",))
    storage.collection(call.collection)
    chosen = []
    for index, item in enumerate(body.items(body.required(given, "operations", ""), "operations")):
        place = f"operations[{index}]"
        fields = body.fields(item, place, _BATCHED)
        kind = body.only_one(fields, place, _BATCHED)
        chosen.append((_BATCHED[kind], fields[kind]))
    return [write(storage, replace(call, body=content)) for write, content in chosen]


def delete_points(storage: Storage, call: Call) -> Answer:
    """`POST /collections/{name}/points/delete`; ids that are not there are no error."""
    storage.collection(call.collection)
    selected = read_selector(body.fields(call.body, "", _SELECTOR))
    return call.updated(storage.write(call.collection, _operation(_DELETE_POINTS, selected)))


def set_payload(storage: Storage, call: Call) -> Answer:
    """`POST /collections/{name}/points/payload`: the keys given, beside those that are there."""
    return _write_payload(storage, call, _SET_PAYLOAD)


def overwrite_payload(storage: Storage, call: Call) -> Answer:
    """`PUT /collections/{name}/points/payload`: the whole payload."""
    return _write_payload(storage, call, _OVERWRITE_PAYLOAD)


def delete_payload(storage: Storage, call: Call) -> Answer:
    """`POST /collections/{name}/points/payload/delete`."""
    given = body.fields(call.body, "", ("keys", *_SELECTOR))
    keys = body.texts(body.required(given, "keys", ""), "keys")
    return _write_selected(storage, call, given, _DELETE_PAYLOAD, keys)


def clear_payload(storage: Storage, call: Call) -> Answer:
    """`POST /collections/{name}/points/payload/clear`."""
    return _write_selected(storage, call, body.fields(call.body, "", _SELECTOR), _CLEAR_PAYLOAD)


def update_vectors(storage: Storage, call: Call) -> Answer:
    """`PUT /collections/{name}/points/vectors`: the vectors given, beside those that are there."""
    ids, operation = read_vector_update(call.body, storage.collection(call.collection))
    _require_points(storage, call.collection, ids)
    return call.updated(storage.write(call.collection, operation))


def delete_vectors(storage: Storage, call: Call) -> Answer:
    """`POST /collections/{name}/points/vectors/delete`."""
    collection = storage.collection(call.collection)
    given = body.fields(call.body, "", ("vector", *_SELECTOR))
    names = body.texts(body.required(given, "vector", ""), "vector")
    for name in names:
        if collection.vector(name) is None:
            raise WrongInput(f"Not existing vector name error: {name}")
    return _write_selected(storage, call, given, _DELETE_VECTORS, names)


def get_point(storage: Storage, call: Call) -> Answer:
    """`GET /collections/{name}/points/{id}`."""
    text = call.path["id"]
    try:
        number = body.point_id(int(text) if text.isascii() and text.isdigit() else text, "id")
    except (ValueError, FormatError) as error:  # a ValueError has more digits than Python converts
        raise WrongParameter(f"Can not recognize `{text[:80]}` as point id") from error
    found = storage.read(call.collection, lambda shard: shard.retrieve([number], True, True))
    if not found:
        raise NotFound(f"Point with id {number} does not exists!")
    return answers.record(found[0])


def retrieve(storage: Storage, call: Call) -> list[Answer]:
    """`POST /collections/{name}/points`; ids that are not there are left out."""
    ids, with_payload, with_vector = read_retrieval(call.body, storage.collection(call.collection))
    found = storage.read(call.collection, lambda shard: shard.retrieve(ids, with_payload, with_vector))
    return [answers.record(point) for point in found]


def scroll(storage: Storage, call: Call) -> Answer:
    """`POST /collections/{name}/points/scroll`."""
    request = read_scroll(call.body, storage.collection(call.collection))
    page = storage.read(call.collection, lambda shard: shard.scroll(request))
    return answers.scroll(page, ordered=request.order_by is not None)


def count(storage: Storage, call: Call) -> Answer:
    """`POST /collections/{name}/points/count`."""
    storage.collection(call.collection)
    request = read_count(call.body)
    return {"count": storage.read(call.collection, lambda shard: shard.count(request))}


def query(storage: Storage, call: Call) -> Answer:
    """`POST /collections/{name}/points/query`."""
    request = read_query(call.body, storage.collection(call.collection))
    found = storage.read(call.collection, lambda shard: shard.query(request))
    return {"points": [answers.scored(point) for point in found]}


def query_batch(storage: Storage, call: Call) -> list[Answer]:
    """`POST /collections/{name}/points/query/batch`."""
    request = read_query_batch(call.body, storage.collection(call.collection))
    results = storage.read(call.collection, lambda shard: shard.query_batch(request))
    return [{"points": [answers.scored(point) for point in found]} for found in results]


_BATCHED: dict[str, Callable[[Storage, Call], Answer]] = {
    "upsert": upsert,
    "delete": delete_points,
    "set_payload": set_payload,
    "overwrite_payload": overwrite_payload,
    "delete_payload": delete_payload,
    "clear_payload": clear_payload,
    "update_vectors": update_vectors,
    "delete_vectors": delete_vectors,
}


def _write_payload(storage: Storage, call: Call, twin: _Twin) -> Answer:
    given = body.fields(call.body, "", ("payload", "key", *_SELECTOR))
    payload = body.payload(body.required(given, "payload", ""), "payload")
    key = body.text(given["key"], "key") if "key" in given else None
    return _write_selected(storage, call, given, twin, payload, key)


def _write_selected(storage: Storage, call: Call, given: Fields, twin: _Twin, *arguments: Any) -> Answer:
    """Write to the points that `given` selects. Where one of the ids is not there, nothing is written."""
    storage.collection(call.collection)
    selected = read_selector(given)
    if isinstance(selected, list):
        _require_points(storage, call.collection, selected)
    return call.updated(storage.write(call.collection, _operation(twin, selected, *arguments)))


def _operation(twin: _Twin, selected: Any, *arguments: Any) -> Any:
    by_ids, by_filter = twin
    return built("body", by_ids if isinstance(selected, list) else by_filter, selected, *arguments)


def _require_points(storage: Storage, name: str, ids: list[PointId]) -> None:
    """The engine writes to the points that are there and then complains of the one that is not."""
    found = storage.read(name, lambda shard: shard.retrieve(ids, False, False))
    there = {str(point.id) for point in found}
    for number in ids:
        if str(number) not in there:
            raise NotFound(f"No point with id {number} found")
