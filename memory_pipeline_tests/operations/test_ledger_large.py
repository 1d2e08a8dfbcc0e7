"""Large files, and files that others write meanwhile: bounded memory, bounded readings, nothing read twice."""

from __future__ import annotations

import threading
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest

from memory_pipeline.core.ledger import MAX_LINE_BYTES
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.operations import inbox
from memory_pipeline.operations.inbox import bounded_lines, read_session
from memory_pipeline.operations.ledger import append
from memory_pipeline.operations.services import Services
from memory_pipeline.store import ledger, workspaces
from memory_pipeline.store.database import Role, Transaction
from memory_pipeline.store.ledger import NumberedEntry
from memory_pipeline_tests.flows import line as draft
from memory_pipeline_tests.nasty import line
from memory_pipeline_tests.operations.sessions import drop, rows

pytestmark = pytest.mark.integration

COUNT = "SELECT count(*) FROM ledger_entries WHERE session_id = %s"


def peak_of_reading(services: Services, workspace: str, session: str) -> int:
    """The most bytes that Python held at once during a reading, beyond what it held before."""
    tracemalloc.start()
    try:
        assert read_session(services, workspace, session) is not None
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# --- memory ------------------------------------------------------------------------------------------------------


def test_the_memory_of_a_reading_does_not_grow_with_the_file(
    services: Services, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Good lines, bad ones, and the walk over what was read before."""
    monkeypatch.setattr(inbox, "_BATCH_LINES", 200)
    monkeypatch.setattr(inbox, "TOLD_LINES", 20)
    peaks = {}
    for session, count in [("warm", 200), ("short", 1000), ("long", 10_000)]:
        lines = (line(seq=seq, detail="x" * 200) if seq % 4 else b"{" * 200 for seq in range(1, count + 1))
        drop(services, workspace.slug, *lines, session=session)
        first = peak_of_reading(services, workspace.slug, session)
        peaks[session] = max(first, peak_of_reading(services, workspace.slug, session))
    assert rows(services, workspace.slug, COUNT, "long") == [(7500,)]
    assert peaks["long"] < 1.5 * peaks["short"]


def test_a_batch_of_long_lines_is_bounded_in_bytes(
    services: Services, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit, size = 400_000, 100_000
    monkeypatch.setattr(inbox, "_BATCH_BYTES", limit)
    sizes = []
    insert = ledger.insert_entries

    def count(tx: Transaction, slug: str, session: str, entries: Sequence[NumberedEntry], **rest: int) -> None:
        sizes.append(sum(len(entry.document) for entry in entries))
        insert(tx, slug, session, entries, **rest)

    monkeypatch.setattr(ledger, "insert_entries", count)
    drop(services, workspace.slug, *(line(seq=seq, detail="x" * size) for seq in range(1, 31)))
    read_session(services, workspace.slug, "s1")
    assert rows(services, workspace.slug, COUNT, "s1") == [(30,)]
    assert max(sizes) < limit + 2 * size


def test_refused_lines_beyond_those_told_are_counted_and_in_quarantine(
    services: Services, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "_BATCH_LINES", 7)
    monkeypatch.setattr(inbox, "TOLD_LINES", 10)
    drop(services, workspace.slug, *[b"{"] * 25)
    reading = read_session(services, workspace.slug, "s1")
    assert reading is not None
    assert [bad.line_number for bad in reading.quarantined] == list(range(1, 11))
    assert reading.lines_quarantined == 25
    assert rows(services, workspace.slug, "SELECT count(*) FROM ledger_quarantine") == [(25,)]


def test_a_long_append_waits_on_disk_and_is_stored_in_one_go(services: Services, workspace: Workspace) -> None:
    lines = [draft(subject=f"a{number}", detail="x" * 2000) for number in range(1, 3001)]
    tracemalloc.start()
    try:
        appended = append(services, workspace.slug, "s1", iter(lines))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (appended.seqs, appended.last_seq) == (tuple(range(1, 3001)), 3000)
    assert rows(services, workspace.slug, "SELECT min(seq), max(seq), count(*) FROM ledger_entries") == [
        (1, 3000, 3000)
    ]
    assert peak < 10 << 20  # the lines alone are 6 MiB, and each of their models as much again


def test_a_stream_gives_its_lines_bounded_and_the_last_one_too(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"a\n" + b"x" * (3 * MAX_LINE_BYTES) + b"\n\nb\r\nlast")
    with file.open("rb") as stream:
        lines = list(bounded_lines(stream))
    assert [len(text) for text in lines] == [1, MAX_LINE_BYTES + 1, 0, 2, 4]
    assert lines[-1] == b"last"


# --- others who write and read -----------------------------------------------------------------------------------


def test_a_writer_that_never_pauses_does_not_hold_the_reader(
    services: Services, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "_BATCH_LINES", 1)
    insert, written = ledger.insert_entries, iter(range(4, 1000))

    def insert_and_write(
        tx: Transaction, slug: str, session: str, entries: Sequence[NumberedEntry], **rest: int
    ) -> None:
        insert(tx, slug, session, entries, **rest)
        drop(services, slug, line(seq=next(written)))

    monkeypatch.setattr(ledger, "insert_entries", insert_and_write)
    drop(services, workspace.slug, line(seq=1), line(seq=2), line(seq=3))
    readings = [read_session(services, workspace.slug, "s1") for _ in range(2)]
    assert [reading and (reading.entries, reading.last_seq) for reading in readings] == [(3, 3), (3, 6)]


def test_a_reader_that_waited_reads_the_file_that_is_there_now(services: Services, workspace: Workspace) -> None:
    """Another process has put a longer file in its place meanwhile, as editors and copying tools do."""
    file = drop(services, workspace.slug, line(seq=1))
    found = []
    reader = threading.Thread(target=lambda: found.append(read_session(services, workspace.slug, "s1")))
    with services.database.transaction(Role.HARNESS, workspace.slug) as tx:
        workspaces.lock_session(tx, workspace.slug, "s1")
        reader.start()
        _wait_for_a_waiting_lock(services)
        other = file.with_suffix(".new")
        other.write_bytes(file.read_bytes() + line(seq=2) + b"\n")
        other.replace(file)
    reader.join()
    assert [reading and reading.entries for reading in found] == [2]


def _wait_for_a_waiting_lock(services: Services) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with services.database.transaction(Role.OWNER, None) as tx:
            waiting = tx.execute("SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").fetchall()
        if waiting:
            return
        time.sleep(0.01)
    raise AssertionError("nobody waits for the session")
