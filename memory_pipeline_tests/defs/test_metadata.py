"""What people see in the UI, whoever wrote it."""

from __future__ import annotations

from datetime import UTC, datetime

import dagster as dg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.core.display import LONGEST_CELL, plain
from memory_pipeline.core.errors import (
    BadInput,
    EmbedderUnavailable,
    IndexBusy,
    MemoryPipelineError,
    ModelMissing,
    StoreUnavailable,
)
from memory_pipeline.defs.failures import named_failures
from memory_pipeline.defs.metadata import RETIRED, Status, result, table
from memory_pipeline.operations.measure import IndexMeasure


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ablazione", "ablazione"),
        ("two\nlines\tand a tab", "two lines and a tab"),
        ("\x1b[2Jcleared", "[2Jcleared"),
        ("a\u202egnp.exe", "a gnp.exe"),
        ("zero\u200bwidth \u2066iso\u2069late", "zero width iso late"),
        ("attività, Ωμέγα, 日本", "attività, Ωμέγα, 日本"),
        ("", ""),
    ],
)
def test_text_is_one_line_without_anything_that_acts(text: str, shown: str) -> None:
    assert plain(text) == shown


@given(st.text())
def test_any_text_fits_a_cell_and_can_be_looked_at(text: str) -> None:
    shown = plain(text)

    assert len(shown) <= LONGEST_CELL
    assert all(sign == " " or sign.isprintable() for sign in shown)
    assert plain(shown) == shown


def test_a_long_text_is_cut_and_says_so() -> None:
    assert plain("x" * 100_000) == "x" * (LONGEST_CELL - 1) + "…"
    assert plain("x" * LONGEST_CELL) == "x" * LONGEST_CELL
    assert plain(" " * 5000 + "x").endswith("…")


def test_a_table_keeps_its_columns_without_rows() -> None:
    assert [(column.name, column.type) for column in table(("card", "cards:int"), []).schema.columns] == [
        ("card", "string"),
        ("cards", "int"),
    ]


def test_cells_are_cleaned_and_typed() -> None:
    made = table(
        ("subject", "cards:int", "at", "missing"), [("<b>x</b>\n# y", 3, datetime(2026, 1, 2, 3, 4, 5, 6, UTC), None)]
    )

    assert made.records[0].data == {
        "subject": "<b>x</b> # y",
        "cards": 3,
        "at": "2026-01-02 03:04:05+00:00",
        "missing": None,
    }


def test_a_row_has_a_cell_for_every_column() -> None:
    with pytest.raises(ValueError, match="shorter"):
        table(("a", "b"), [("only one",)])


def test_a_result_has_its_status_version_and_preview() -> None:
    made = result(Status.DONE, data_version="v1", preview=table(("a",), []), cards=3)

    assert made.data_version == dg.DataVersion("v1")
    assert made.metadata is not None
    assert list(made.metadata) == ["status", "cards", "preview"]
    told = RETIRED.result(Status.RETIRED).metadata
    assert told is not None
    assert told["status"] == "retired"


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (StoreUnavailable("PostgreSQL is not available", hint="start it"), True),
        (EmbedderUnavailable("the embedder is down", hint="start it"), True),
        (IndexBusy("w"), True),
        (ModelMissing("qwen3", ["other"]), False),
        (BadInput("no", hint="yes"), False),
    ],
    ids=lambda value: value.name if isinstance(value, MemoryPipelineError) else None,
)
def test_a_named_error_becomes_a_failure_that_tells_it(error: MemoryPipelineError, again: bool) -> None:
    with pytest.raises(dg.Failure) as raised, named_failures():
        raise error

    failure = raised.value
    assert failure.__cause__ is error
    assert failure.allow_retries is again
    assert failure.description is not None
    assert error.name in failure.description
    assert error.hint in failure.description
    assert {name: value.value for name, value in failure.metadata.items()} == {
        "error": error.name,
        "message": error.message,
        "hint": error.hint,
        "exit_code": error.exit_code,
    }


def test_a_defect_stays_what_it_is() -> None:
    with pytest.raises(ZeroDivisionError), named_failures():
        _ = 1 / 0


def _measure(**changes: object) -> IndexMeasure:
    fields = {
        "generation": 1,
        "collection": "memory__w__1",
        "serving": True,
        "active": 5,
        "current": 5,
        "leftover": 0,
        "points": 5,
        "pending": 0,
        "parked": 0,
        "newest": (),
        "waiting": (),
        "data_version": "v",
    }
    return IndexMeasure(**{**fields, **changes})  # type: ignore[arg-type] # a table of fields, checked by the tests


def test_an_index_that_follows_has_no_differences() -> None:
    assert _measure().differences() == []
    assert _measure(active=0, current=0, points=0).differences() == []


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"serving": False}, "does not serve yet"),
        ({"points": None}, "is not on the server"),
        ({"points": 4}, "4 points on the server for 5 active cards"),
        ({"points": 6}, "6 points on the server for 5 active cards"),
        ({"current": 3}, "2 of 5 active cards have no current point"),
        ({"leftover": 1}, "1 card that is not active has a point"),
        ({"pending": 2}, "2 cards wait for propagation, 0 are parked"),
        ({"parked": 1}, "0 cards wait for propagation, 1 is parked"),
    ],
)
def test_each_difference_is_told(changes: dict[str, object], told: str) -> None:
    differences = _measure(**changes).differences()

    assert len(differences) == 1
    assert told in differences[0]
