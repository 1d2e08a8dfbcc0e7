"""Reading one line of a ledger: what is taken as it is, and what is refused with which reason."""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.core.cards import Link, Relation
from memory_pipeline.core.errors import BadLedgerLine
from memory_pipeline.core.ledger import (
    CONTROL_TYPES,
    DECISION_TYPES,
    MARKER_TYPES,
    MAX_DEPTH,
    MAX_LINE_BYTES,
    MAX_SEQ,
    EntryType,
    parse_draft,
    parse_entry,
)
from memory_pipeline_tests.core.builders import place
from memory_pipeline_tests.nasty import BAD_LINES, STORABLE_TEXTS, BadLine, line

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters()), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    ["seq", "ts", "type", "phase", "subject", "detail", "actor", "concepts", "dependencies", "links", "origin", "other"]
)


# --- what is taken -----------------------------------------------------------------------------------------------


def test_a_whole_line_is_read_as_it_stands() -> None:
    entry = parse_entry(
        line(
            seq=7,
            detail="procedura con ablazione_transcatetere = TRUE",
            rationale="confermato dal reviewer",
            actor="model",
            concepts=["ablazione"],
            tables=["public.fact_procedure"],
            scope=["per anno"],
            dependencies=[{"database": "cardio", "schema": "public", "table": "fact_procedure", "column": "data"}],
            links=[{"relation": "requires", "target": "seq:5"}],
            memories=["mem-0001"],
            confidence=0.9,
        ),
        after=0,
    )
    assert (entry.seq, entry.type, entry.phase, entry.subject) == (7, "concept_clarified", "F1", "ablazione")
    assert entry.ts == datetime(2026, 9, 9, 8, 15, tzinfo=UTC)
    assert entry.dependencies == (place("cardio", "public", "fact_procedure", "data"),)
    assert entry.links == (Link(relation=Relation.REQUIRES, target="seq:5"),)
    assert (entry.concepts, entry.scope, entry.memories) == (("ablazione",), ("per anno",), ("mem-0001",))
    assert entry.extra_fields == {"confidence": 0.9}


@pytest.mark.parametrize("type_", [*EntryType, "a_type_of_next_year"])
def test_every_type_is_read_from_a_file_known_or_not(type_: str) -> None:
    assert parse_entry(line(type=type_), after=0).type == type_


@pytest.mark.parametrize("type_", [*sorted(CONTROL_TYPES), *sorted(MARKER_TYPES), "decision_retracted", "unknown"])
def test_only_decisions_on_the_schema_and_on_concepts_need_a_subject(type_: str) -> None:
    assert parse_entry(line(type=type_, subject=...), after=0).subject is None


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"seq": MAX_SEQ}, id="the highest seq"),
        pytest.param({"ts": "2026-09-09T10:15:00.123456+02:00"}, id="an offset and microseconds"),
        pytest.param({"phase": "F0"}, id="a phase of no known name"),
        pytest.param({"phase": None}, id="no phase"),
        pytest.param({"origin": "harness"}, id="the harness's own origin"),
        pytest.param({"detail": "[" * 2000}, id="brackets inside a text"),
        pytest.param({"detail": '\\"[' * 2000}, id="quotes and backslashes before brackets"),
        pytest.param({"extra": 10**4000}, id="4,000 digits"),
        pytest.param({"extra_fields": 1, "model_config": 2, "__class__": 3, "self": 4}, id="names of our own"),
    ],
)
def test_an_odd_line_is_taken_where_nothing_is_wrong_with_it(fields: dict[str, Any]) -> None:
    entry = parse_entry(line(**fields), after=0)
    assert entry.subject == "ablazione"
    assert entry.extra_fields == {name: fields[name] for name in fields if name not in type(entry).model_fields}


@pytest.mark.parametrize("text", STORABLE_TEXTS.values(), ids=STORABLE_TEXTS)
def test_odd_texts_come_back_as_they_went_in(text: str) -> None:
    entry = parse_entry(line(detail=text, other=text), after=0)
    assert (entry.detail, entry.extra_fields) == (text, {"other": text})


def test_the_longest_line_is_taken() -> None:
    longest = line(detail="x" * (MAX_LINE_BYTES - len(line(detail=""))))
    assert len(longest) == MAX_LINE_BYTES
    assert parse_entry(longest, after=0).seq == 1


def test_the_deepest_line_is_taken() -> None:
    deepest: list[Any] = []
    for _ in range(MAX_DEPTH - 2):
        deepest = [deepest]
    assert parse_entry(line(other=deepest), after=0).extra_fields == {"other": deepest}


# --- what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", BAD_LINES.values(), ids=BAD_LINES)
def test_a_bad_line_is_refused_with_its_reason(bad: BadLine) -> None:
    with pytest.raises(BadLedgerLine) as refused:
        parse_entry(bad.line, after=0)
    assert refused.value.reason == bad.reason


@pytest.mark.parametrize("bad", BAD_LINES.values(), ids=BAD_LINES)
def test_the_message_of_a_refusal_is_short_and_printable_whatever_the_line_was(bad: BadLine) -> None:
    with pytest.raises(BadLedgerLine) as refused:
        parse_entry(bad.line, after=0)
    assert refused.value.message.isprintable()
    assert 0 < len(refused.value.message) < 1000


@pytest.mark.parametrize(("seq", "reason"), [(5, "duplicate_seq"), (4, "falling_seq"), (1, "falling_seq")])
def test_a_seq_has_to_rise(seq: int, reason: str) -> None:
    with pytest.raises(BadLedgerLine) as refused:
        parse_entry(line(seq=seq), after=5)
    assert refused.value.reason == reason


def test_a_seq_may_leave_a_gap() -> None:
    assert parse_entry(line(seq=900), after=5).seq == 900


@given(fields=st.dictionaries(FIELDS, JSON_VALUES, max_size=4))
def test_whatever_a_line_holds_it_is_taken_or_refused_by_name(fields: dict[str, Any]) -> None:
    written = json.dumps({**json.loads(line()), **fields}).encode()
    with contextlib.suppress(BadLedgerLine):
        assert parse_entry(written, after=0).model_dump_json().encode("utf-8")


@given(st.binary(max_size=200) | st.text(st.sampled_from('{}[]",:\\u0seqtrNI9e.- ')).map(str.encode))
def test_whatever_the_bytes_are_the_only_error_is_a_bad_line(raw: bytes) -> None:
    with pytest.raises(BadLedgerLine):
        parse_entry(raw, after=0)


# --- the append door ---------------------------------------------------------------------------------------------


def test_the_append_door_takes_a_line_without_seq() -> None:
    assert parse_draft(line(seq=...)).subject == "ablazione"


@pytest.mark.parametrize("seq", [1, None, "1", True])
def test_the_append_door_refuses_a_line_that_brings_its_seq(seq: object) -> None:
    with pytest.raises(BadLedgerLine) as refused:
        parse_draft(line(seq=seq))
    assert refused.value.reason == "seq_given"


@pytest.mark.parametrize("type_", sorted(MARKER_TYPES))
def test_the_append_door_refuses_the_markers_of_the_gate(type_: EntryType) -> None:
    with pytest.raises(BadLedgerLine) as refused:
        parse_draft(line(seq=..., type=type_))
    assert refused.value.reason == "marker"


@pytest.mark.parametrize("bad", [bad for bad in BAD_LINES.values() if bad.reason != "shape"])
def test_the_append_door_refuses_what_cannot_be_read_for_the_same_reasons(bad: BadLine) -> None:
    with pytest.raises(BadLedgerLine) as refused:
        parse_draft(bad.line)
    assert refused.value.reason == bad.reason


def test_each_known_type_is_a_decision_a_control_or_a_marker() -> None:
    families = [DECISION_TYPES, CONTROL_TYPES, MARKER_TYPES]
    assert sorted(type_ for family in families for type_ in family) == sorted(EntryType)
