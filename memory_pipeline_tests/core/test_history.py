"""A card's history, as a person reads it."""

from __future__ import annotations

from typing import Any

import pytest

from memory_pipeline.core.history import changes_between

PLACE = {"database": "cardio", "schema": "public", "table": "t", "column": None}
LINK = {"relation": "requires", "target": "mem-0002"}


@pytest.mark.parametrize(
    ("field", "before", "after", "lines"),
    [
        ("detail", "prima", "dopo", ("- prima", "+ dopo")),
        ("concepts", ["a", "b"], ["b", "c"], ("- a", "+ c")),
        ("concepts", ["a", "b"], ["b", "a"], ("~ the order",)),
        ("scope", [], ["budget"], ("+ budget",)),
        ("dependencies", [PLACE], [], ("- cardio.public.t",)),
        ("links", [], [LINK], ("+ requires mem-0002",)),
        ("dependencies", [], [{"odd": 1}], ('+ {"odd": 1}',)),
    ],
)
def test_each_field_tells_what_went_and_what_came(field: str, before: Any, after: Any, lines: tuple[str, ...]) -> None:
    (change,) = changes_between({field: before, "status": "active"}, {field: after, "status": "active"})

    assert (change.field, change.lines()) == (field, lines)


def test_what_no_person_wrote_is_not_told() -> None:
    before = {"revision": 1, "updated_at": "x", "fingerprint": "a", "subject": "s"}

    assert changes_between(before, {**before, "revision": 2, "updated_at": "y", "fingerprint": "b"}) == ()


def test_fields_come_in_one_order() -> None:
    before = {"links": [], "detail": "a", "kind": "memory"}
    after = {"detail": "b", "links": [LINK], "kind": "exemplar"}

    assert [change.field for change in changes_between(before, after)] == ["kind", "detail", "links"]
