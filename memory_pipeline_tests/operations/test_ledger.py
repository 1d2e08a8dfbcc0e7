"""Feeding a session's ledger by either door: nothing good is lost, nothing bad is hidden, nothing read may change."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from memory_pipeline.core.effective import Status
from memory_pipeline.core.errors import (
    BadInput,
    LedgerMoved,
    LedgerSourceConflict,
    LedgerTampered,
    UnknownSession,
    UnknownWorkspace,
    WorkspaceRetired,
)
from memory_pipeline.core.ledger import MAX_LINE_BYTES, MAX_SEQ
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.operations.inbox import read_inbox, read_session, read_session_file
from memory_pipeline.operations.ledger import append, show_ledger
from memory_pipeline.operations.services import Services
from memory_pipeline.store import ledger
from memory_pipeline.store.database import Transaction
from memory_pipeline.store.ledger import QUARANTINED_BYTES
from memory_pipeline_tests.conftest import MakeWorkspace
from memory_pipeline_tests.flows import line as draft
from memory_pipeline_tests.nasty import BAD_LINES, STORABLE_TEXTS, line
from memory_pipeline_tests.operations.sessions import concept, drop, retire, retraction, rolled_back, rows, tell
from memory_pipeline_tests.privileges import bound_by_permissions

pytestmark = pytest.mark.integration

SEQS = "SELECT seq FROM ledger_entries WHERE session_id = %s ORDER BY seq"


def seqs(services: Services, workspace: str, session: str = "s1") -> list[int]:
    return [seq for (seq,) in rows(services, workspace, SEQS, session)]


# --- the append door ---------------------------------------------------------------------------------------------


def test_the_door_numbers_lines_in_their_order_and_goes_on_next_time(services: Services, workspace: Workspace) -> None:
    assert tell(services, workspace.slug, concept("a"), concept("b")) == (1, 2)
    assert tell(services, workspace.slug, concept("c")) == (3,)
    assert [row.subject for row in show_ledger(services, workspace.slug, "s1").rows] == ["a", "b", "c"]


def test_bad_lines_are_answered_with_place_and_reason_and_the_good_ones_load(
    services: Services, workspace: Workspace
) -> None:
    lines = [
        draft(subject="a"),
        b"{",
        b"",
        line(seq=4),
        draft("memory_promoted"),
        draft(subject="b", detail=7),
        draft("x"),
    ]
    appended = append(services, workspace.slug, "s1", lines)
    assert appended.seqs == (1, 2)
    assert [(bad.source, bad.line_number, bad.reason) for bad in appended.refused] == [
        ("append", 2, "not_json"),
        ("append", 4, "seq_given"),
        ("append", 5, "marker"),
        ("append", 6, "shape"),
    ]
    assert show_ledger(services, workspace.slug, "s1").quarantined == ()


@pytest.mark.parametrize("text", STORABLE_TEXTS.values(), ids=STORABLE_TEXTS)
def test_odd_texts_come_back_from_the_registry_as_they_went_in(
    services: Services, workspace: Workspace, text: str
) -> None:
    tell(services, workspace.slug, concept("a", detail=text, rationale=text, other={text[:50]: text}))
    (row,) = show_ledger(services, workspace.slug, "s1").rows
    assert (row.detail, row.rationale) == (text, text)
    assert rows(services, workspace.slug, "SELECT extra FROM ledger_entries") == [({"other": {text[:50]: text}},)]


def test_fields_that_are_not_known_are_kept(services: Services, workspace: Workspace) -> None:
    extra = {"many digits": 10**4000, "float": 0.25, "deep": [[{"a": None}]], "extra_fields": True}
    tell(services, workspace.slug, concept("a", **extra))
    assert rows(services, workspace.slug, "SELECT extra FROM ledger_entries") == [(extra,)]


def test_ten_writers_at_once_give_every_line_a_number_of_its_own(services: Services, workspace: Workspace) -> None:
    def write(number: int) -> tuple[int, ...]:
        return tell(services, workspace.slug, concept(f"a{number}"), concept(f"b{number}"), concept(f"c{number}"))

    with ThreadPoolExecutor(10) as pool:
        given = list(pool.map(write, range(10)))
    assert sorted(seq for batch in given for seq in batch) == list(range(1, 31))
    assert all(batch == tuple(range(batch[0], batch[0] + 3)) for batch in given)


@pytest.mark.parametrize("batch", [1, 3])
def test_a_repeated_append_is_refused_where_the_first_one_came_through(
    services: Services, workspace: Workspace, batch: int
) -> None:
    """The client timed out, the server had committed: the same call again."""
    lines = [draft(subject=f"a{number}") for number in range(batch)]
    tell(services, workspace.slug, concept("x"))
    first = append(services, workspace.slug, "s1", lines, expect_seq=1)
    assert first.last_seq == 1 + batch
    with pytest.raises(LedgerMoved) as refused:
        append(services, workspace.slug, "s1", lines, expect_seq=1)
    assert refused.value.last == first.last_seq
    assert append(services, workspace.slug, "s1", lines, expect_seq=first.last_seq).seqs[0] == first.last_seq + 1


def test_of_twenty_appends_at_once_that_expect_the_same_end_one_comes_through(
    services: Services, workspace: Workspace
) -> None:
    def write(number: int) -> bool:
        with contextlib.suppress(LedgerMoved):
            append(services, workspace.slug, "s1", [draft(subject=f"a{number}")], expect_seq=0)
            return True
        return False

    with ThreadPoolExecutor(20) as pool:
        assert sum(pool.map(write, range(20))) == 1
    assert seqs(services, workspace.slug) == [1]


@pytest.mark.parametrize("expected", [1, 5])
def test_a_session_that_is_new_ends_at_zero_and_is_not_made_by_a_wrong_guess(
    services: Services, workspace: Workspace, expected: int
) -> None:
    with pytest.raises(LedgerMoved, match="ends at seq 0"):
        append(services, workspace.slug, "s1", [draft(subject="a")], expect_seq=expected)
    with pytest.raises(UnknownSession):
        show_ledger(services, workspace.slug, "s1")


def test_an_append_without_a_good_line_changes_nothing_and_says_where_the_session_ends(
    services: Services, workspace: Workspace
) -> None:
    tell(services, workspace.slug, concept("a"))
    appended = append(services, workspace.slug, "s1", [b"{", b""], expect_seq=1)
    assert (appended.seqs, appended.last_seq, len(appended.refused)) == ((), 1, 1)


# --- both doors --------------------------------------------------------------------------------------------------


def test_a_session_fed_by_append_takes_no_file(services: Services, workspace: Workspace) -> None:
    tell(services, workspace.slug, concept("a"))
    file = drop(services, workspace.slug, line(seq=2))
    with pytest.raises(LedgerSourceConflict, match="append command"):
        read_session_file(services, workspace.slug, file)
    assert seqs(services, workspace.slug) == [1]


def test_a_session_fed_by_a_file_takes_no_append(services: Services, workspace: Workspace) -> None:
    drop(services, workspace.slug, line(seq=1))
    read_inbox(services, workspace.slug)
    with pytest.raises(LedgerSourceConflict, match="file in the inbox"):
        append(services, workspace.slug, "s1", [draft(subject="b")])
    assert seqs(services, workspace.slug) == [1]


def test_the_same_session_of_two_workspaces_is_two_sessions(services: Services, make_workspace: MakeWorkspace) -> None:
    one, other = make_workspace().slug, make_workspace().slug
    tell(services, one, concept("a"), concept("b"))
    drop(services, other, line(seq=7))
    read_inbox(services, other)
    assert (seqs(services, one), seqs(services, other)) == ([1, 2], [7])


@pytest.mark.parametrize("session", ["", ".", "..", ".a", "-a", "a b", "a/b", "../a", "a\n", "è", "a" * 201, "a\0"])
def test_what_cannot_name_a_file_names_no_session(services: Services, workspace: Workspace, session: str) -> None:
    for call in (
        lambda: append(services, workspace.slug, session, []),
        lambda: read_session(services, workspace.slug, session),
    ):
        with pytest.raises(BadInput, match="cannot name a session"):
            call()


def test_an_unknown_workspace_is_told_by_every_door(services: Services) -> None:
    for call in (
        lambda: append(services, "nowhere", "s1", [draft(subject="a")]),
        lambda: read_inbox(services, "nowhere"),
        lambda: read_inbox(services, "../nowhere"),
        lambda: show_ledger(services, "nowhere", "s1"),
    ):
        with pytest.raises(UnknownWorkspace):
            call()


def test_a_retired_workspace_takes_nothing_and_still_shows_what_it_has(
    services: Services, workspace: Workspace
) -> None:
    drop(services, workspace.slug, line(seq=1))
    read_inbox(services, workspace.slug)
    drop(services, workspace.slug, line(seq=2))
    retire(services, workspace.slug)
    for call in (
        lambda: append(services, workspace.slug, "s2", [draft(subject="a")]),
        lambda: read_inbox(services, workspace.slug),
        lambda: read_session(services, workspace.slug, "s1"),
    ):
        with pytest.raises(WorkspaceRetired):
            call()
    assert [row.seq for row in show_ledger(services, workspace.slug, "s1").rows] == [1]


def test_a_session_that_nobody_wrote_to_is_unknown(services: Services, workspace: Workspace) -> None:
    assert read_session(services, workspace.slug, "s9") is None
    with pytest.raises(UnknownSession):
        show_ledger(services, workspace.slug, "s9")


# --- the inbox: reading on ---------------------------------------------------------------------------------------


def test_a_file_is_read_on_from_where_it_was_left(services: Services, workspace: Workspace) -> None:
    drop(services, workspace.slug, line(seq=1), line(seq=3))
    first = read_session(services, workspace.slug, "s1")
    again = read_session(services, workspace.slug, "s1")
    drop(services, workspace.slug, line(seq=4))
    more = read_session(services, workspace.slug, "s1")
    assert [reading and (reading.entries, reading.last_seq) for reading in (first, again, more)] == [
        (2, 3),
        (0, 3),
        (1, 4),
    ]
    assert seqs(services, workspace.slug) == [1, 3, 4]


@pytest.mark.parametrize("cut", [1, 40, -3, -1])
def test_a_last_line_without_its_newline_waits(services: Services, workspace: Workspace, cut: int) -> None:
    last = line(seq=2, subject="caduto").replace(b"caduto", "caduta d'attività".encode())
    file = drop(services, workspace.slug, line(seq=1))
    with file.open("ab") as stream:
        stream.write(last[:cut])
    assert [reading.entries for reading in read_inbox(services, workspace.slug)[0]] == [1]
    with file.open("ab") as stream:
        stream.write(last[cut:])
    assert [reading.entries for reading in read_inbox(services, workspace.slug)[0]] == [0]
    with file.open("ab") as stream:
        stream.write(b"\n")
    (reading,), problems = read_inbox(services, workspace.slug)
    assert (reading.entries, reading.quarantined, problems) == (1, (), [])


def test_blank_lines_and_windows_line_ends_are_no_fault(services: Services, workspace: Workspace) -> None:
    drop(services, workspace.slug, line(seq=1), b"", b"  \t", line(seq=2), end=b"\r\n")
    (reading,), _ = read_inbox(services, workspace.slug)
    assert (reading.entries, reading.quarantined) == (2, ())
    drop(services, workspace.slug, b"", line(seq=3))
    (reading,), problems = read_inbox(services, workspace.slug)
    assert (reading.entries, problems) == (1, [])


def test_an_empty_file_is_a_session_without_rows(services: Services, workspace: Workspace) -> None:
    drop(services, workspace.slug)
    (reading,), problems = read_inbox(services, workspace.slug)
    assert (reading.entries, reading.last_seq, problems) == (0, 0, [])
    assert show_ledger(services, workspace.slug, "s1").rows == ()


def test_an_inbox_that_does_not_exist_is_empty(services: Services, workspace: Workspace) -> None:
    assert read_inbox(services, workspace.slug) == ([], [])


def test_a_long_file_is_read_whole(services: Services, workspace: Workspace) -> None:
    """More lines than one batch, bad ones in each."""
    lines = [line(seq=seq) if seq % 10 else b"{" for seq in range(1, 2501)]
    drop(services, workspace.slug, *lines)
    (reading,), _ = read_inbox(services, workspace.slug)
    assert (reading.entries, len(reading.quarantined), reading.last_seq) == (2250, 250, 2499)
    assert len(seqs(services, workspace.slug)) == 2250


def test_the_highest_seq_is_taken_and_nothing_can_follow_it(services: Services, workspace: Workspace) -> None:
    drop(services, workspace.slug, line(seq=MAX_SEQ), line(seq=MAX_SEQ + 1))
    (reading,), _ = read_inbox(services, workspace.slug)
    assert (reading.entries, [bad.reason for bad in reading.quarantined]) == (1, ["shape"])


# --- the inbox: bad lines ----------------------------------------------------------------------------------------


def test_bad_lines_go_to_quarantine_with_file_line_and_reason_and_the_rest_loads(
    services: Services, workspace: Workspace
) -> None:
    lines: list[bytes] = []
    for seq, bad in enumerate(BAD_LINES.values(), start=1):
        lines += [line(seq=seq, ts="2026-01-15T09:00:00Z"), bad.line]
    drop(services, workspace.slug, *lines)
    (reading,), problems = read_inbox(services, workspace.slug)
    assert problems == []
    assert seqs(services, workspace.slug) == list(range(1, len(BAD_LINES) + 1))
    expected = [
        (f"{workspace.slug}/s1.jsonl", 2 * number, bad.reason) for number, bad in enumerate(BAD_LINES.values(), start=1)
    ]
    assert [(bad.source, bad.line_number, bad.reason) for bad in reading.quarantined] == expected
    shown = show_ledger(services, workspace.slug, "s1").quarantined
    assert shown == reading.quarantined
    kept = rows(services, workspace.slug, "SELECT line FROM ledger_quarantine ORDER BY line_number")
    assert [bytes(one) for (one,) in kept] == [bad.line[:QUARANTINED_BYTES] for bad in BAD_LINES.values()]


@pytest.mark.parametrize(("seq", "reason"), [(5, "duplicate_seq"), (4, "falling_seq")])
def test_a_seq_that_does_not_rise_is_quarantined_also_in_a_later_reading(
    services: Services, workspace: Workspace, seq: int, reason: str
) -> None:
    drop(services, workspace.slug, line(seq=5))
    read_inbox(services, workspace.slug)
    drop(services, workspace.slug, line(seq=seq), line(seq=6))
    (reading,), _ = read_inbox(services, workspace.slug)
    assert [(bad.line_number, bad.reason) for bad in reading.quarantined] == [(2, reason)]
    assert seqs(services, workspace.slug) == [5, 6]


def test_a_line_far_above_the_limit_is_refused_and_the_next_one_loads(services: Services, workspace: Workspace) -> None:
    drop(services, workspace.slug, b"x" * (3 * MAX_LINE_BYTES + 17), line(seq=1))
    (reading,), _ = read_inbox(services, workspace.slug)
    assert [(bad.line_number, bad.reason) for bad in reading.quarantined] == [(1, "too_long")]
    assert reading.entries == 1
    (again,), problems = read_inbox(services, workspace.slug)
    assert (again.entries, problems) == (0, [])


def test_markers_in_a_file_are_history_and_rows_of_the_pipeline_are_not_taken(
    services: Services, workspace: Workspace
) -> None:
    drop(
        services,
        workspace.slug,
        line(seq=1),
        line(seq=2, type="memory_promoted", detail="seq:1"),
        line(seq=3, origin="pipeline", type="memory_promotion_declined", detail="seq:1"),
    )
    (reading,), _ = read_inbox(services, workspace.slug)
    assert (reading.entries, [bad.line_number for bad in reading.quarantined]) == (2, [3])
    assert {row.origin for row in show_ledger(services, workspace.slug, "s1").rows} == {"harness"}


# --- the inbox: files that are refused ---------------------------------------------------------------------------


def test_a_file_that_is_refused_does_not_stop_the_others(
    services: Services, workspace: Workspace, tmp_path: Path
) -> None:
    folder = drop(services, workspace.slug, line(seq=1), session="good").parent
    tell(services, workspace.slug, concept("a"), session="appended")
    drop(services, workspace.slug, line(seq=1), session="appended")
    elsewhere = tmp_path / "elsewhere.jsonl"
    elsewhere.write_bytes(line(seq=1) + b"\n")
    (folder / "link.jsonl").symlink_to(elsewhere)
    (folder / "dangling.jsonl").symlink_to(tmp_path / "nowhere")
    (folder / "folder.jsonl").mkdir()
    os.mkfifo(folder / "pipe.jsonl")
    for name in (b"bad name.jsonl", b".hidden.jsonl", b"attivit\xc3\xa0.jsonl", b"latin\xe0.jsonl", b"a\nb.jsonl"):
        Path(os.fsdecode(os.path.join(os.fsencode(folder), name))).write_bytes(line(seq=1) + b"\n")
    (folder / "notes.txt").write_text("not a ledger")
    readings, problems = read_inbox(services, workspace.slug)
    assert [(reading.session, reading.entries) for reading in readings] == [("good", 1)]
    assert {problem.file: problem.error for problem in problems} == {
        "appended.jsonl": "LedgerSourceConflict",
        "link.jsonl": "BadInput",
        "dangling.jsonl": "BadInput",
        "folder.jsonl": "BadInput",
        "pipe.jsonl": "BadInput",
        "bad name.jsonl": "BadInput",
        ".hidden.jsonl": "BadInput",
        "attività.jsonl": "BadInput",
        "latin\\xe0.jsonl": "BadInput",
        "a\\nb.jsonl": "BadInput",
    }
    assert all(problem.message and problem.hint for problem in problems)


def test_a_file_that_may_not_be_read_does_not_stop_the_others(services: Services, workspace: Workspace) -> None:
    drop(services, workspace.slug, line(seq=1), session="closed").chmod(0)
    drop(services, workspace.slug, line(seq=1), session="open")
    with bound_by_permissions():
        readings, problems = read_inbox(services, workspace.slug)
    assert [reading.session for reading in readings] == ["open"]
    assert [(problem.file, problem.error) for problem in problems] == [("closed.jsonl", "BadInput")]


# --- the inbox: what was read may not change ---------------------------------------------------------------------

WRITTEN = [line(seq=1), b"{", line(seq=2), b"", line(seq=3)]


def _replaced(number: int, by: bytes) -> Callable[[list[bytes]], list[bytes]]:
    return lambda lines: [by if place == number else text for place, text in enumerate(lines, start=1)]


@pytest.mark.parametrize(
    ("change", "place"),
    [
        pytest.param(_replaced(1, line(seq=1, subject="altro")), 1, id="the first line"),
        pytest.param(_replaced(1, line(seq=1) + b" "), 1, id="one more blank"),
        pytest.param(_replaced(2, b"}"), 2, id="a line in quarantine"),
        pytest.param(_replaced(3, line(seq=9)), 3, id="a line in the middle"),
        pytest.param(_replaced(4, b" "), 5, id="a blank line, seen at the next one that was kept"),
        pytest.param(_replaced(5, b"{"), 5, id="the last line"),
        pytest.param(lambda lines: [line(seq=1), *lines], 2, id="a line put in front"),
        pytest.param(lambda lines: lines[:2] + lines[3:], 3, id="a line taken out"),
        pytest.param(lambda lines: lines[:1], 2, id="cut after the first line"),
        pytest.param(lambda _: [], 1, id="emptied"),
        pytest.param(lambda lines: [b"".join(lines)], 1, id="line ends taken out"),
        pytest.param(lambda lines: [text + b"\r" for text in lines], 1, id="other line ends"),
    ],
)
def test_a_file_whose_read_part_has_changed_is_refused_whole_and_says_where(
    services: Services, workspace: Workspace, change: Callable[[list[bytes]], list[bytes]], place: int
) -> None:
    file = drop(services, workspace.slug, *WRITTEN)
    read_inbox(services, workspace.slug)
    before = file.read_bytes()
    file.write_bytes(b"".join(text + b"\n" for text in [*change(WRITTEN), line(seq=99)]))
    with pytest.raises(LedgerTampered, match=f"at or before line {place}, "):
        read_session(services, workspace.slug, "s1")
    assert seqs(services, workspace.slug) == [1, 2, 3]
    file.write_bytes(before + line(seq=4) + b"\n")
    reading = read_session(services, workspace.slug, "s1")
    assert reading is not None
    assert (reading.entries, seqs(services, workspace.slug)) == (1, [1, 2, 3, 4])


def test_the_stored_chain_is_looked_at_only_to_say_where(
    services: Services, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reading of an unchanged file costs its bytes, not its rows."""
    asked = []
    stored = ledger.chain_at_lines

    def look(tx: Transaction, slug: str, session: str, file_number: int) -> Iterator[tuple[int, str]]:
        asked.append(session)
        return stored(tx, slug, session, file_number)

    monkeypatch.setattr(ledger, "chain_at_lines", look)
    file = drop(services, workspace.slug, *WRITTEN)
    for _ in range(2):
        read_session(services, workspace.slug, "s1")
    assert asked == []
    file.write_bytes(b"")
    with pytest.raises(LedgerTampered):
        read_session(services, workspace.slug, "s1")
    assert asked == ["s1"]


def test_a_tampered_file_is_told_and_does_not_stop_the_others(services: Services, workspace: Workspace) -> None:
    file = drop(services, workspace.slug, *WRITTEN)
    read_inbox(services, workspace.slug)
    file.write_bytes(b"")
    drop(services, workspace.slug, line(seq=1), session="s2")
    readings, (problem,) = read_inbox(services, workspace.slug)
    assert [reading.session for reading in readings] == ["s2"]
    assert (problem.file, problem.error) == ("s1.jsonl", "LedgerTampered")


# --- the inbox: several at once, and half way --------------------------------------------------------------------


def test_readers_at_once_take_turns_and_load_each_line_once(services: Services, workspace: Workspace) -> None:
    drop(services, workspace.slug, *(line(seq=seq) for seq in range(1, 1501)))
    with ThreadPoolExecutor(4) as pool:
        readings = list(pool.map(lambda _: read_session(services, workspace.slug, "s1"), range(4)))
    assert sorted(reading.entries for reading in readings if reading) == [0, 0, 0, 1500]
    assert seqs(services, workspace.slug) == list(range(1, 1501))


def test_a_file_is_read_while_it_grows(services: Services, workspace: Workspace) -> None:
    whole = b"".join(line(seq=seq, detail="é" * (seq % 50)) + b"\n" for seq in range(1, 301))
    file = drop(services, workspace.slug)

    def write() -> None:
        with file.open("ab", buffering=0) as stream:
            for start in range(0, len(whole), 777):  # cuts lines anywhere
                stream.write(whole[start : start + 777])

    writer = threading.Thread(target=write)
    writer.start()
    quarantined, deadline = 0, time.monotonic() + 60
    while time.monotonic() < deadline:
        ended = not writer.is_alive()
        reading = read_session(services, workspace.slug, "s1")
        assert reading is not None
        quarantined += len(reading.quarantined)
        if ended:
            break
    writer.join()
    assert (seqs(services, workspace.slug), quarantined) == (list(range(1, 301)), 0)


def test_a_reading_that_breaks_off_leaves_nothing_and_is_repeated_whole(
    services: Services, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_off(*_: object) -> None:
        raise KeyboardInterrupt

    drop(services, workspace.slug, line(seq=1), b"{", line(seq=2))
    with monkeypatch.context() as patch:
        patch.setattr(ledger, "save_position", break_off)
        with pytest.raises(KeyboardInterrupt):
            read_session(services, workspace.slug, "s1")
    assert rows(services, workspace.slug, "SELECT FROM ledger_entries UNION ALL SELECT FROM ledger_quarantine") == []
    reading = read_session(services, workspace.slug, "s1")
    assert reading is not None
    assert (reading.entries, len(reading.quarantined)) == (2, 1)


# --- looking at a session ----------------------------------------------------------------------------------------


def test_a_session_is_shown_with_its_question_and_what_each_row_is_worth(
    services: Services, workspace: Workspace
) -> None:
    tell(
        services,
        workspace.slug,
        {"type_": "session_opened", "question": "Quante?"},
        concept("a"),
        concept("b", phase="F2"),
        retraction(2),
        rolled_back("F2"),
        {"type_": "a_type_of_next_year"},
        {"type_": "session_opened", "question": "Quante, per anno?"},
    )
    shown = show_ledger(services, workspace.slug, "s1")
    assert shown.question == "Quante, per anno?"
    assert [row.status for row in shown.rows] == [
        Status.CONTROL,
        Status.RETRACTED,
        Status.STALE,
        Status.EFFECTIVE,
        Status.CONTROL,
        Status.INERT,
        Status.CONTROL,
    ]
