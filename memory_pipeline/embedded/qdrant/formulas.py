"""Formulas: the expression tree of a formula query, JSON to the engine's."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import qdrant_edge as edge

from memory_pipeline.embedded.qdrant import body
from memory_pipeline.embedded.qdrant.body import Fields
from memory_pipeline.embedded.qdrant.engine import built
from memory_pipeline.embedded.qdrant.errors import FormatError
from memory_pipeline.embedded.qdrant.filters import CONDITION_KEYS, read_condition, read_geo_point

_SCORE = re.compile(r"\$score(?:\[(\d+)\])?")


def read_formula(formula: object, defaults: object, prefetches: int, place: str) -> Any:
    """A formula over the scores of so many prefetches and over payload variables, with its defaults."""
    reader = _Reader(prefetches)
    values = body.payload(defaults, f"{place}.defaults")
    for name in values:
        reader.variable(name, f"{place}.defaults")
    return built(f"{place}.formula", edge.Formula, reader.expression(formula, f"{place}.formula"), values)


class _Reader:
    def __init__(self, prefetches: int) -> None:
        self._prefetches = prefetches

    def expression(self, value: object, place: str) -> Any:
        if isinstance(value, str):
            return edge.Expression.Variable(self.variable(value, place))
        if isinstance(value, dict):
            return self._operation(value, place)
        return edge.Expression.Constant(body.number(value, place))

    def variable(self, name: str, place: str) -> str:
        """The engine takes a score beyond the prefetches for 0, so it is refused here."""
        score = _SCORE.fullmatch(name)
        if score is None and name.startswith("$"):
            raise FormatError(f"{place}: invalid reserved variable {name[:80]}, expected $score or $score[n]")
        if score is not None and int(score[1] or 0) >= self._prefetches:
            raise FormatError(f"{place}: {name} is beyond the {self._prefetches} prefetches")
        return name

    def _operation(self, value: Fields, place: str) -> Any:
        names = value.keys() & _OPERATIONS.keys()
        if not names:
            if not value.keys() & CONDITION_KEYS:
                body.fields(value, place, _OPERATIONS)  # names what it does not know
                raise FormatError(f"{place}: expected an expression, got an empty object")
            return edge.Expression.Condition(read_condition(value, place))
        name = min(names)
        given = body.fields(value, place, (name,))
        return _OPERATIONS[name](self, body.required(given, name, place), f"{place}.{name}")

    def list_of(self, value: object, place: str) -> list[Any]:
        return [self.expression(item, f"{place}[{index}]") for index, item in enumerate(body.items(value, place))]

    def part(self, given: Fields, name: str, place: str) -> Any:
        return self.expression(body.required(given, name, place), f"{place}.{name}")


_Operation = Callable[[_Reader, object, str], Any]


def _unary(factory: Callable[[Any], Any]) -> _Operation:
    return lambda reader, value, place: factory(reader.expression(value, place))


def _list(factory: Callable[[list[Any]], Any]) -> _Operation:
    return lambda reader, value, place: built(place, factory, reader.list_of(value, place))


def _div(reader: _Reader, value: object, place: str) -> Any:
    given = body.fields(value, place, ("left", "right", "by_zero_default"))
    by_zero = body.number(given["by_zero_default"], f"{place}.by_zero_default") if "by_zero_default" in given else None
    return edge.Expression.Div(reader.part(given, "left", place), reader.part(given, "right", place), by_zero)


def _pow(reader: _Reader, value: object, place: str) -> Any:
    given = body.fields(value, place, ("base", "exponent"))
    return edge.Expression.Pow(reader.part(given, "base", place), reader.part(given, "exponent", place))


def _geo_distance(_: _Reader, value: object, place: str) -> Any:
    given = body.fields(value, place, ("origin", "to"))
    origin = read_geo_point(body.required(given, "origin", place), f"{place}.origin")
    return built(place, edge.Expression.GeoDistance, origin, body.text(body.required(given, "to", place), place))


def _text(factory: Callable[[str], Any]) -> _Operation:
    return lambda _, value, place: built(place, factory, body.text(value, place))


def _decay(kind: Any) -> _Operation:
    def read(reader: _Reader, value: object, place: str) -> Any:
        given = body.fields(value, place, ("x", "target", "midpoint", "scale"))
        x = reader.part(given, "x", place)
        target = reader.part(given, "target", place) if "target" in given else None
        numbers = [
            body.number(given[name], f"{place}.{name}") if name in given else None for name in ("midpoint", "scale")
        ]
        return built(place, edge.Expression.Decay, kind, x, target, *numbers)

    return read


_OPERATIONS: dict[str, _Operation] = {
    "sum": _list(edge.Expression.Sum),
    "mult": _list(edge.Expression.Mult),
    "max": _list(edge.Expression.Max),
    "min": _list(edge.Expression.Min),
    "neg": _unary(edge.Expression.Neg),
    "abs": _unary(edge.Expression.Abs),
    "sqrt": _unary(edge.Expression.Sqrt),
    "exp": _unary(edge.Expression.Exp),
    "log10": _unary(edge.Expression.Log10),
    "ln": _unary(edge.Expression.Ln),
    "acosh": _unary(edge.Expression.Acosh),
    "div": _div,
    "pow": _pow,
    "geo_distance": _geo_distance,
    "datetime": _text(edge.Expression.Datetime),
    "datetime_key": _text(edge.Expression.DatetimeKey),
    "lin_decay": _decay(edge.DecayKind.Lin),
    "exp_decay": _decay(edge.DecayKind.Exp),
    "gauss_decay": _decay(edge.DecayKind.Gauss),
}
