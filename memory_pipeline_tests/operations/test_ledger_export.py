"""Exporting a session: every stored row, byte for byte the same each time, and read again the same rows."""

from __future__ import annotations

import io
import json
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from memory_pipeline.core.errors import BadInput, UnknownSession, UnknownWorkspace
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.operations.files import replacing
from memory_pipeline.operations.inbox import InboxRead, read_session
from memory_pipeline.operations.ledger import Exported, append, export_ledger
from memory_pipeline.operations.services import Services
from memory_pipeline_tests.conftest import MakeWorkspace
from memory_pipeline_tests.flows import line as draft
from memory_pipeline_tests.nasty import STORABLE_TEXTS, STORABLE_VALUES, line
from memory_pipeline_tests.operations.sessions import concept, drop, offer, retire, rows, settle, tell

pytestmark = pytest.mark.integration

STORED = """
SELECT seq, ts, phase, type, subject, detail, rationale, question, actor, concepts, tables, scope, dependencies, links,
       memories, extra::text
FROM ledger_entries WHERE origin = 'harness' ORDER BY seq
"""


def export(services: Services, workspace: str, session: str = "s1") -> tuple[Exported, list[bytes]]:
    output = io.BytesIO()
    done = export_ledger(services, workspace, session, output)
    return done, output.getvalue().splitlines(keepends=True)


def reread(services: Services, workspace: str, lines: list[bytes]) -> InboxRead:
    drop(services, workspace, *lines, end=b"")
    reading = read_session(services, workspace, "s1")
    assert reading is not None
    return reading


def exact(text: bytes | str) -> Any:
    """JSON with its numbers as they are written, so that none is called equal for being rounded."""
    return json.loads(text, parse_float=Decimal, parse_int=Decimal)


# --- the round trip ----------------------------------------------------------------------------------------------

TEXTS: list[dict[str, Any]] = [
    {"detail": text, "rationale": text[:999], "concepts": [text[:99], "x"], "other": {text[:50]: [text]}}
    for text in STORABLE_TEXTS.values()
]
VALUES: list[dict[str, Any]] = [{"other": value} for value in STORABLE_VALUES.values()]
SHAPES: list[dict[str, Any]] = [
    {"subject": "", "type": "session_opened", "question": ""},
    {"subject": None, "type": "a_type_of_next_year", "phase": "", "actor": "", "origin": "harness"},
    {"ts": "2026-01-15T10:00:00.123456+02:00", "pseq": 1, "after_seq": 2, "file_number": 3, "extra": 4, "status": 5},
    {"dependencies": [{"database": " d ", "schema": None}, {"database": "d", "table": "t", "column": "c"}]},
    {"links": [{"relation": "requires", "target": "seq:1"}], "memories": ["mem-0001"], "tables": ["", "t"]},
    {"type": "memory_promotion_declined", "detail": "seq:1"},
]
FIELDS = [*TEXTS, *VALUES, *SHAPES]


def test_what_was_read_is_exported_and_read_again_as_the_same_rows(
    services: Services, make_workspace: MakeWorkspace
) -> None:
    one, other = make_workspace().slug, make_workspace().slug
    given = [line(seq=2 * number, **fields) for number, fields in enumerate(FIELDS, start=1)]
    first = reread(services, one, [text + b"\n" for text in given])
    assert (first.entries, first.quarantined) == (len(FIELDS), ())
    done, lines = export(services, one)
    again = reread(services, other, lines)
    assert (again.entries, again.quarantined) == (len(FIELDS), ())
    assert (done.harness, done.pipeline) == (len(FIELDS), 0)
    assert rows(services, one, STORED) == rows(services, other, STORED)
    assert export(services, other)[1] == lines


@pytest.mark.parametrize("name", STORABLE_VALUES)
def test_a_field_that_is_not_known_is_exported_as_the_json_that_it_was(
    services: Services, workspace: Workspace, name: str
) -> None:
    given = draft(subject="a", other=STORABLE_VALUES[name])
    append(services, workspace.slug, "s1", [given])
    _, (exported,) = export(services, workspace.slug)
    assert exact(exported)["other"] == exact(given)["other"]


def test_texts_are_exported_as_they_were_written(services: Services, workspace: Workspace) -> None:
    texts = list(STORABLE_TEXTS.values())
    tell(services, workspace.slug, *(concept("a", detail=text, other=text) for text in texts))
    _, lines = export(services, workspace.slug)
    assert [(row["detail"], row["other"]) for row in map(json.loads, lines)] == [(text, text) for text in texts]


# --- what an export is -------------------------------------------------------------------------------------------


def test_rows_of_the_pipeline_stand_where_they_belong_and_no_inbox_takes_them(
    services: Services, make_workspace: MakeWorkspace
) -> None:
    workspace, other = make_workspace().slug, make_workspace().slug
    tell(services, workspace, concept("a"), concept("b"))
    settle(services, workspace, offer(services, workspace), select=(1,), decline=(2,))
    tell(services, workspace, concept("c"))
    done, lines = export(services, workspace)
    assert (done.harness, done.pipeline) == (3, 2)
    names = ("seq", "origin", "pseq", "after_seq", "type")
    assert [tuple(map(json.loads(text).get, names)) for text in lines] == [
        (1, None, None, None, "concept_clarified"),
        (2, None, None, None, "concept_clarified"),
        (None, "pipeline", 1, 2, "memory_promoted"),
        (None, "pipeline", 2, 2, "memory_promotion_declined"),
        (3, None, None, None, "concept_clarified"),
    ]
    reading = reread(services, other, lines)
    assert (reading.entries, [bad.line_number for bad in reading.quarantined]) == (3, [3, 4])


def test_equal_rows_give_equal_bytes_and_new_ones_only_add(services: Services, workspace: Workspace) -> None:
    tell(services, workspace.slug, concept("a", z=1, b=[{"y": 1, "x": 2}], a="è"))
    before = export(services, workspace.slug)[1]
    assert export(services, workspace.slug)[1] == before
    tell(services, workspace.slug, concept("b"))
    assert export(services, workspace.slug)[1][:-1] == before


def test_a_session_longer_than_a_round_trip_is_exported_in_its_order(services: Services, workspace: Workspace) -> None:
    append(services, workspace.slug, "s1", [draft(subject=f"a{number}") for number in range(1, 4502)])
    done, lines = export(services, workspace.slug)
    assert done.harness == 4501
    assert [json.loads(text)["seq"] for text in lines] == list(range(1, 4502))


def test_a_retired_workspace_can_be_exported(services: Services, workspace: Workspace) -> None:
    tell(services, workspace.slug, concept("a"))
    retire(services, workspace.slug)
    assert export(services, workspace.slug)[0].harness == 1


def test_what_is_not_there_is_told_by_name(services: Services, workspace: Workspace) -> None:
    for slug, session, error in [
        (workspace.slug, "s9", UnknownSession),
        ("nowhere", "s1", UnknownWorkspace),
        (workspace.slug, "../s1", BadInput),
    ]:
        with pytest.raises(error):
            export(services, slug, session)


# --- the file ----------------------------------------------------------------------------------------------------


def test_a_file_is_replaced_whole_and_by_way_of_its_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    with replacing(link) as stream:
        stream.write(b"new")
        assert target.read_text() == "old"
    assert (target.read_text(), link.is_symlink(), target.stat().st_mode & 0o777) == ("new", True, 0o600)
    assert sorted(tmp_path.iterdir()) == [link, target]


def test_an_export_that_breaks_off_leaves_the_old_file(
    services: Services, workspace: Workspace, tmp_path: Path
) -> None:
    file = tmp_path / "out.jsonl"
    file.write_text("old")
    broken = pytest.raises(UnknownSession)
    with broken, replacing(file) as stream:
        stream.write(b"half")
        export_ledger(services, workspace.slug, "s9", stream)
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("place", ["folder", "pipe", "nowhere/out.jsonl", "x" * 300])
def test_a_place_that_cannot_hold_a_file_is_told(tmp_path: Path, place: str) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(BadInput), replacing(tmp_path / place):
        pass
    assert sorted(tmp_path.iterdir()) == before
