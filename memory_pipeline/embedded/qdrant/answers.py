"""What the engine found, as the JSON of Qdrant's answers."""

from __future__ import annotations

from typing import Any

import qdrant_edge as edge

Answer = dict[str, Any]


def record(found: Any) -> Answer:
    """A point of a scroll or retrieval: payload and vector only where they were asked for."""
    return _point(found, {"id": _id(found.id)})


def scored(found: Any) -> Answer:
    """A point of a query."""
    return _point(found, {"id": _id(found.id), "version": found.version, "score": found.score})


def scroll(page: tuple[list[Any], Any], *, ordered: bool) -> Answer:
    """A page of a scroll; ordered by a field, it has no next offset."""
    records, next_offset = page
    following = None if ordered or next_offset is None else _id(next_offset)
    return {"points": [record(found) for found in records], "next_page_offset": following}


def index_points(info: Any) -> dict[str, int]:
    """How many points each payload index holds."""
    return {name: index.points for name, index in info.payload_schema.items()}


def _point(found: Any, answer: Answer) -> Answer:
    if found.payload is not None:
        answer["payload"] = found.payload
    if found.vector is not None:
        answer["vector"] = _vectors(found.vector)
    if found.order_value is not None:
        answer["order_value"] = found.order_value
    return answer


def _vectors(vectors: Any) -> Any:
    if not isinstance(vectors, dict):
        return vectors
    return {name: _vector(vector) for name, vector in vectors.items()}


def _vector(vector: Any) -> Any:
    if isinstance(vector, edge.SparseVector):
        return {"indices": vector.indices, "values": vector.values}
    return vector


def _id(number: Any) -> int | str:
    return number if isinstance(number, int) else str(number)
