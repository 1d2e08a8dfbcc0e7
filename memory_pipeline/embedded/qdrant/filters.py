"""Filters: JSON to the engine's, every key understood or refused. A condition dropped would widen what is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import qdrant_edge as edge

from memory_pipeline.embedded.qdrant import body
from memory_pipeline.embedded.qdrant.body import Fields
from memory_pipeline.embedded.qdrant.engine import built
from memory_pipeline.embedded.qdrant.errors import FormatError, NotServed, ValueRefused

_CLAUSES = ("must", "should", "must_not", "min_should")
_PREDICATES = ("match", "range", "geo_bounding_box", "geo_radius", "geo_polygon", "values_count", "is_empty", "is_null")
_STANDALONE = ("is_empty", "is_null", "has_id", "has_vector", "nested", "slice")
_BOUNDS = ("lt", "gt", "gte", "lte")
_MIN_I64, _MAX_I64 = -(2**63), 2**63 - 1

CONDITION_KEYS = frozenset((*_CLAUSES, *_STANDALONE, "key"))


def read_filter(value: object, place: str) -> Any:
    """A filter of clauses. Without any it matches every point, as in the real server."""
    given = body.fields(value, place, _CLAUSES)
    return edge.Filter(
        must=_conditions(given, "must", place),
        should=_conditions(given, "should", place),
        must_not=_conditions(given, "must_not", place),
        min_should=_min_should(given["min_should"], f"{place}.min_should") if "min_should" in given else None,
    )


def optional_filter(given: Fields, name: str, place: str = "") -> Any:
    """The filter in that field, none where it is absent."""
    return read_filter(given[name], f"{place}{name}") if name in given else None


def read_condition(value: object, place: str) -> Any:
    """One condition: on a field, on the point itself, or a filter of its own."""
    if not isinstance(value, dict):
        raise FormatError(f"{place}: expected a condition, got {body.kind(value)}")
    if "key" in value:
        return _field_condition(body.fields(value, place, ("key", *_PREDICATES)), place)
    for name in _STANDALONE:
        if name in value:
            given = body.fields(value, place, (name,))
            return _READERS[name](body.required(given, name, place), f"{place}.{name}")
    return read_filter(value, place)


def _conditions(given: Fields, name: str, place: str) -> list[Any] | None:
    if name not in given:
        return None
    clause = given[name]
    listed = clause if isinstance(clause, list) else [clause]
    return [read_condition(item, f"{place}.{name}[{index}]") for index, item in enumerate(listed)]


def _min_should(value: object, place: str) -> Any:
    given = body.fields(value, place, ("conditions", "min_count"))
    count = body.integer(body.required(given, "min_count", place), f"{place}.min_count", high=body.MAX_U32)
    conditions = _conditions({"conditions": body.required(given, "conditions", place)}, "conditions", place)
    return edge.MinShould(conditions or [], count)


def _field_condition(given: Fields, place: str) -> Any:
    present = [name for name in _PREDICATES if name in given]
    if not present:
        raise ValueRefused(place, "At least one field condition must be specified")
    if len(present) > 1:  # the engine would take a point that fulfils any one of them
        raise FormatError(f"{place}: one condition per key, got {', '.join(present)}; put them side by side in `must`")
    predicate = present[0]
    key = body.text(body.required(given, "key", place), f"{place}.key")
    read = _PREDICATE_READERS[predicate]
    return built(place, edge.FieldCondition, key, **{predicate: read(given[predicate], f"{place}.{predicate}")})


def _match(value: object, place: str) -> Any:
    given = body.fields(value, place, _MATCHES)
    kind = body.only_one(given, place, _MATCHES)
    return _MATCHES[kind](given[kind], f"{place}.{kind}")


def _match_value(value: object, place: str) -> Any:
    if isinstance(value, bool):  # the engine takes it for an integer and then matches nothing, or excludes nothing
        raise NotServed("a match on booleans: store a keyword instead")
    return edge.MatchValue(_keyword_or_integer(value, place))


def _match_any(value: object, place: str) -> Any:
    return edge.MatchAny(_variants(value, place))


def _match_except(value: object, place: str) -> Any:
    return edge.MatchExcept(_variants(value, place))


def _variants(value: object, place: str) -> list[Any]:
    listed = body.items(value, place)
    variants = [_keyword_or_integer(item, f"{place}[{index}]") for index, item in enumerate(listed)]
    if len({type(item) for item in variants}) > 1:
        raise FormatError(f"{place}: expected only strings or only integers")
    return variants


def _keyword_or_integer(value: object, place: str) -> str | int:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and _MIN_I64 <= value <= _MAX_I64:
        return value
    raise FormatError(f"{place}: expected a string or an integer of 64 bits, got {body.kind(value)}")


def _text_match(factory: Callable[[str], Any]) -> Callable[[object, str], Any]:
    return lambda value, place: factory(body.text(value, place))


def _range(value: object, place: str) -> Any:
    given = body.fields(value, place, _BOUNDS)
    if any(isinstance(bound, str) for bound in given.values()):
        bounds = {name: body.text(bound, f"{place}.{name}") for name, bound in given.items()}
        return built(place, edge.RangeDateTime, **bounds)
    return edge.RangeFloat(**{name: body.number(bound, f"{place}.{name}") for name, bound in given.items()})


def _values_count(value: object, place: str) -> Any:
    given = body.fields(value, place, _BOUNDS)
    return edge.ValuesCount(**{name: body.integer(bound, f"{place}.{name}") for name, bound in given.items()})


def _geo_bounding_box(value: object, place: str) -> Any:
    given = body.fields(value, place, ("top_left", "bottom_right"))
    corners = [
        read_geo_point(body.required(given, name, place), f"{place}.{name}") for name in ("top_left", "bottom_right")
    ]
    return edge.GeoBoundingBox(*corners)


def _geo_radius(value: object, place: str) -> Any:
    given = body.fields(value, place, ("center", "radius"))
    center = read_geo_point(body.required(given, "center", place), f"{place}.center")
    return edge.GeoRadius(center, body.number(body.required(given, "radius", place), f"{place}.radius"))


def _geo_polygon(value: object, place: str) -> Any:
    given = body.fields(value, place, ("exterior", "interiors"))
    exterior = _ring(body.required(given, "exterior", place), f"{place}.exterior")
    holes = body.items(given.get("interiors", []), f"{place}.interiors")
    interiors = [_ring(hole, f"{place}.interiors[{index}]") for index, hole in enumerate(holes)]
    return built(place, edge.GeoPolygon, exterior, interiors)


def _ring(value: object, place: str) -> list[Any]:
    given = body.fields(value, place, ("points",))
    points = body.items(body.required(given, "points", place), f"{place}.points")
    return [read_geo_point(point, f"{place}.points[{index}]") for index, point in enumerate(points)]


def read_geo_point(value: object, place: str) -> Any:
    """A point on the earth, as `{"lon", "lat"}` in degrees."""
    given = body.fields(value, place, ("lon", "lat"))
    degrees = [body.number(body.required(given, name, place), f"{place}.{name}") for name in ("lon", "lat")]
    return built(place, edge.GeoPoint, *degrees)


def _payload_field(factory: Callable[[str], Any]) -> Callable[[object, str], Any]:
    def read(value: object, place: str) -> Any:
        given = body.fields(value, place, ("key",))
        return built(place, factory, body.text(body.required(given, "key", place), f"{place}.key"))

    return read


def _has_id(value: object, place: str) -> Any:
    return edge.HasIdCondition(set(body.point_ids(value, place)))


def _has_vector(value: object, place: str) -> Any:
    return edge.HasVectorCondition(body.text(value, place))


def _nested(value: object, place: str) -> Any:
    given = body.fields(value, place, ("key", "filter"))
    key = body.text(body.required(given, "key", place), f"{place}.key")
    return built(
        place, edge.NestedCondition, key, read_filter(body.required(given, "filter", place), f"{place}.filter")
    )


def _slice(value: object, place: str) -> Any:
    given = body.fields(value, place, ("total", "index"))
    numbers = [
        body.integer(body.required(given, name, place), f"{place}.{name}", high=body.MAX_U32)
        for name in ("total", "index")
    ]
    return built(place, edge.SliceCondition, *numbers)  # type: ignore[attr-defined]  # not in its stubs


_MATCHES: dict[str, Callable[[object, str], Any]] = {
    "value": _match_value,
    "any": _match_any,
    "except": _match_except,
    "text": _text_match(edge.MatchText),
    "text_any": _text_match(edge.MatchTextAny),
    "phrase": _text_match(edge.MatchPhrase),
    "prefix": _text_match(edge.MatchPrefix),
    "substring": _text_match(edge.MatchSubstring),
}
_PREDICATE_READERS: dict[str, Callable[[object, str], Any]] = {
    "match": _match,
    "range": _range,
    "geo_bounding_box": _geo_bounding_box,
    "geo_radius": _geo_radius,
    "geo_polygon": _geo_polygon,
    "values_count": _values_count,
    "is_empty": body.flag,
    "is_null": body.flag,
}
_READERS: dict[str, Callable[[object, str], Any]] = {
    "is_empty": _payload_field(edge.IsEmptyCondition),
    "is_null": _payload_field(edge.IsNullCondition),
    "has_id": _has_id,
    "has_vector": _has_vector,
    "nested": _nested,
    "slice": _slice,
}
