"""The way out of a changed file: accepted as it is by the owner, on record, without taking anything twice."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg import errors

from memory_pipeline.core.errors import (
    BadInput,
    BadText,
    LedgerSourceConflict,
    LedgerTampered,
    NothingRead,
    RoleRefused,
    UnknownSession,
    WorkspaceRetired,
)
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.operations.inbox import InboxRead, read_session
from memory_pipeline.operations.ledger import list_quarantine, reset_source, show_ledger
from memory_pipeline.operations.services import Services
from memory_pipeline.store.database import Role
from memory_pipeline_tests.nasty import line
from memory_pipeline_tests.operations.sessions import concept, drop, retire, rows, tell

pytestmark = pytest.mark.integration

REASON = "l'editor ha riscritto il file"


def read(services: Services, workspace: str) -> InboxRead:
    reading = read_session(services, workspace, "s1")
    assert reading is not None
    return reading


def rewrite(services: Services, workspace: str, *lines: bytes) -> None:
    """Put other lines in the place of the file's own."""
    drop(services, workspace).write_bytes(b"".join(text + b"\n" for text in lines))


def subjects(services: Services, workspace: str) -> list[tuple[Any, ...]]:
    return rows(services, workspace, "SELECT seq, subject FROM ledger_entries ORDER BY seq")


@pytest.fixture
def tampered(services: Services, workspace: Workspace) -> str:
    """A workspace whose session s1 was read up to seq 3 from five lines, and has another file now, with seq 4 new."""
    slug = workspace.slug
    drop(services, slug, line(seq=1, subject="a"), b"{", line(seq=2, subject="b"), b"", line(seq=3, subject="c"))
    assert (read(services, slug).entries, read(services, slug).entries) == (3, 0)
    rewrite(
        services,
        slug,
        line(seq=1, subject="a"),
        b"}",
        line(seq=2, subject="another"),
        line(seq=3, subject="c"),
        line(seq=4, subject="d"),
        b"[]",
    )
    with pytest.raises(LedgerTampered):
        read(services, slug)
    return slug


# --- what a reset does -------------------------------------------------------------------------------------------


def test_after_a_reset_what_is_new_loads_and_what_was_read_stays_as_it_was(services: Services, tampered: str) -> None:
    done = reset_source(services, tampered, "s1", reason=REASON)
    assert (done.session, done.reset.floor_seq, done.reset.lines_read) == ("s1", 3, 5)
    reading = read(services, tampered)
    assert (reading.entries, reading.passed_over, reading.last_seq) == (1, 3, 4)
    assert subjects(services, tampered) == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]


def test_the_new_file_is_read_on_and_guarded_as_the_old_one_was(services: Services, tampered: str) -> None:
    reset_source(services, tampered, "s1", reason=REASON)
    read(services, tampered)
    file = drop(services, tampered, line(seq=5, subject="e"))
    reading = read(services, tampered)
    assert (reading.entries, reading.passed_over) == (1, 0)
    accepted = file.read_bytes()
    file.write_bytes(accepted.replace(b"another", b"a third"))
    with pytest.raises(LedgerTampered, match=r"line 4|line 5"):
        read(services, tampered)
    file.write_bytes(accepted)
    assert read(services, tampered).entries == 0


def test_the_place_of_a_change_is_looked_for_in_the_new_file_alone(services: Services, tampered: str) -> None:
    """Lines of the file that was given up have the same numbers and other hashes."""
    reset_source(services, tampered, "s1", reason=REASON)
    read(services, tampered)
    file = drop(services, tampered)
    file.write_bytes(file.read_bytes().replace(b'"d"', b'"x"'))
    with pytest.raises(LedgerTampered, match="line 5"):
        read(services, tampered)


def test_a_bad_line_of_the_new_file_is_quarantined_and_one_of_the_old_no_longer_counted(
    services: Services, tampered: str
) -> None:
    assert list_quarantine(services, tampered, limit=9).total == 1
    reset_source(services, tampered, "s1", reason=REASON)
    assert list_quarantine(services, tampered, limit=9).total == 0
    assert read(services, tampered).lines_quarantined == 2
    found = list_quarantine(services, tampered, limit=9)
    assert [(bad.file_number, bad.line_number, bad.head) for bad in found.lines] == [(2, 2, "}"), (2, 6, "[]")]
    assert [bad.line_number for bad in show_ledger(services, tampered, "s1").quarantined] == [2, 6]
    kept = rows(services, tampered, "SELECT file_number, line_number FROM ledger_quarantine ORDER BY 1, 2")
    assert kept == [(1, 2), (2, 2), (2, 6)]


def test_old_lines_may_come_in_any_part_until_a_new_one_has_come(services: Services, tampered: str) -> None:
    """Passed over up to the first new line; after it, a seq that does not rise is a fault as ever."""
    reset_source(services, tampered, "s1", reason=REASON)
    rewrite(services, tampered, line(seq=3), line(seq=1))
    assert (read(services, tampered).passed_over, read(services, tampered).passed_over) == (2, 0)
    drop(services, tampered, line(seq=2), line(seq=7), line(seq=3), line(seq=7), line(seq=8))
    reading = read(services, tampered)
    assert (reading.entries, reading.passed_over) == (2, 1)
    assert [bad.reason for bad in reading.quarantined] == ["falling_seq", "duplicate_seq"]


def test_a_file_may_be_emptied(services: Services, tampered: str) -> None:
    reset_source(services, tampered, "s1", reason=REASON)
    rewrite(services, tampered)
    assert read(services, tampered).entries == 0
    drop(services, tampered, line(seq=9))
    assert (read(services, tampered).entries, read(services, tampered).entries) == (1, 0)


def test_each_reset_is_on_record_with_who_when_why_and_from_where(services: Services, tampered: str) -> None:
    before = rows(services, tampered, "SELECT path, bytes_read, lines_read, chain FROM ledger_files")
    reset_source(services, tampered, "s1", reason=REASON)
    read(services, tampered)
    reset_source(services, tampered, "s1", reason="di nuovo")
    record = """
        SELECT file_number, floor_seq, reason, reset_by, via, reset_at IS NOT NULL FROM ledger_resets
        ORDER BY file_number
    """
    assert rows(services, tampered, record) == [
        (1, 3, REASON, "memory_owner", "python", True),
        (2, 4, "di nuovo", "memory_owner", "python", True),
    ]
    old = rows(
        services, tampered, "SELECT path, bytes_read, lines_read, chain FROM ledger_resets WHERE file_number = 1"
    )
    assert old == before


# --- what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["", " \t\n"])
def test_a_reset_needs_a_reason(services: Services, tampered: str, reason: str) -> None:
    with pytest.raises(BadInput, match="reason"):
        reset_source(services, tampered, "s1", reason=reason)
    with pytest.raises(LedgerTampered):
        read(services, tampered)


def test_a_reason_that_cannot_be_kept_is_refused(services: Services, tampered: str) -> None:
    with pytest.raises(BadText):
        reset_source(services, tampered, "s1", reason="a\0b")


def test_nothing_is_reset_where_nothing_was_read(services: Services, workspace: Workspace, tampered: str) -> None:
    tell(services, workspace.slug, concept("a"), session="appended")
    reset_source(services, tampered, "s1", reason=REASON)
    for session, error in [("s1", NothingRead), ("s9", UnknownSession), ("appended", LedgerSourceConflict)]:
        with pytest.raises(error):
            reset_source(services, workspace.slug, session, reason=REASON)
    assert len(rows(services, tampered, "SELECT FROM ledger_resets")) == 1
    retire(services, tampered)
    with pytest.raises(WorkspaceRetired):
        reset_source(services, tampered, "s1", reason=REASON)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE ledger_files SET file_number = file_number + 1, bytes_read = 0, lines_read = 0",
        "UPDATE ledger_files SET floor_seq = 0",
        "DELETE FROM ledger_files",
        "INSERT INTO ledger_resets SELECT * FROM ledger_resets",
    ],
)
def test_the_harness_cannot_reset(services: Services, tampered: str, statement: str) -> None:
    with pytest.raises(RoleRefused), services.database.transaction(Role.HARNESS, tampered) as tx:
        tx.execute(statement)


@pytest.mark.parametrize("column", ["lines_read", "bytes_read"])
@pytest.mark.parametrize("role", [Role.HARNESS, Role.OWNER])
def test_nobody_forgets_lines_in_passing(services: Services, tampered: str, role: Role, column: str) -> None:
    with pytest.raises(errors.RestrictViolation), services.database.transaction(role, tampered) as tx:
        tx.execute(f"UPDATE ledger_files SET {column} = {column} - 1")  # noqa: S608
