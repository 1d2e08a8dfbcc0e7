"""Feeding a session's ledger by one of its two doors, and reading it back.

A session is fed either by `append`, which numbers what comes, or from a file in the inbox, which is read on from where
the last reading ended. The good lines of either load whatever the bad ones are; nothing is dropped unseen.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from pydantic import BaseModel, ConfigDict

from memory_pipeline.core.errors import BadInput, BadLedgerLine, Conflict, LedgerTampered, WorkspaceRetired
from memory_pipeline.core.ledger import MAX_LINE_BYTES, LedgerEntry, parse_draft, parse_entry
from memory_pipeline.operations.services import Services
from memory_pipeline.store import ledger, workspaces
from memory_pipeline.store.database import Role, Transaction
from memory_pipeline.store.ledger import BadLine, FilePosition, LedgerRow, NumberedEntry

EMPTY_CHAIN = hashlib.sha256(b"").hexdigest()
_SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_BATCH = 1000


class RefusedLine(BaseModel):
    """A line that was not taken: where it stood, a short reason, and what is wrong with it."""

    model_config = ConfigDict(frozen=True)

    source: str
    line_number: int
    reason: str
    message: str


class Appended(BaseModel):
    """What an `append` did. `seqs` are the numbers given, in the order of the lines taken."""

    model_config = ConfigDict(frozen=True)

    session: str
    seqs: tuple[int, ...]
    refused: tuple[RefusedLine, ...]


class InboxRead(BaseModel):
    """What one reading of a session's file did."""

    model_config = ConfigDict(frozen=True)

    session: str
    entries: int
    quarantined: tuple[RefusedLine, ...]
    last_seq: int


class InboxProblem(BaseModel):
    """A file of the inbox that was refused whole, and why."""

    model_config = ConfigDict(frozen=True)

    file: str
    error: str
    message: str
    hint: str


class Ledger(BaseModel):
    """A session as it stands: every row with what it is worth today, and the lines in quarantine."""

    model_config = ConfigDict(frozen=True)

    session: str
    question: str
    rows: tuple[LedgerRow, ...]
    quarantined: tuple[RefusedLine, ...]


def append(services: Services, workspace: str, session_id: str, lines: Iterable[bytes]) -> Appended:
    """Append lines to a session, as the harness; each good line gets the next seq.

    Refused lines are answered, not stored: the caller still has them.

    Raises:
        LedgerSourceConflict: the session is fed by a file.
    """
    require_session_id(session_id)
    drafts, refused = [], []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            drafts.append(parse_draft(line))
        except BadLedgerLine as error:
            refused.append(RefusedLine(source="append", line_number=number, reason=error.reason, message=error.message))
    with services.database.transaction(Role.HARNESS, workspace, via=services.via) as tx:
        workspaces.get_active(tx, workspace)
        workspaces.lock_session(tx, workspace, session_id)
        ledger.open_session(tx, workspace, session_id, "append")
        first = ledger.last_seq(tx, workspace, session_id) + 1
        entries = [LedgerEntry(seq=seq, **dict(draft)) for seq, draft in enumerate(drafts, start=first)]
        ledger.insert_entries(tx, workspace, session_id, [NumberedEntry(entry) for entry in entries])
    return Appended(session=session_id, seqs=tuple(entry.seq for entry in entries), refused=tuple(refused))


def read_inbox(services: Services, workspace: str) -> tuple[list[InboxRead], list[InboxProblem]]:
    """Read every file of a workspace's inbox on from where it was left.

    A file that cannot be read does not stop the others: it is told among the problems.

    Raises:
        UnknownWorkspace, WorkspaceRetired: whether there are files or not.
    """
    with services.database.transaction(Role.HARNESS, workspace, via=services.via) as tx:
        workspaces.get_active(tx, workspace)
    folder = services.settings.inbox_path / workspace
    readings, problems = [], []
    for file in sorted(folder.glob("*.jsonl")):
        try:
            readings.append(read_session_file(services, workspace, file))
        except (BadInput, Conflict) as error:
            problems.append(
                InboxProblem(file=_printable(file), error=error.name, message=error.message, hint=error.hint)
            )
    return readings, problems


def read_session(services: Services, workspace: str, session_id: str) -> InboxRead | None:
    """Read one session's file, if it has one."""
    require_session_id(session_id)
    file = services.settings.inbox_path / workspace / f"{session_id}.jsonl"
    return read_session_file(services, workspace, file) if file.exists() else None


def read_session_file(services: Services, workspace: str, file: Path) -> InboxRead:
    """Read a session's file on from where the last reading ended, in one transaction.

    A last line without its newline waits. Bad lines go to quarantine. Two readers take turns.

    Raises:
        LedgerTampered: what was read before has changed; nothing is loaded.
        LedgerSourceConflict: the session is fed by `append`.
        BadInput: the file's name is no session id, or it is no ordinary file.
    """
    session_id = require_session_id(file.stem)
    source = f"{workspace}/{file.name}"
    with _open(file) as stream, services.database.transaction(Role.HARNESS, workspace, via=services.via) as tx:
        workspaces.get_active(tx, workspace)
        workspaces.lock_session(tx, workspace, session_id)
        ledger.open_session(tx, workspace, session_id, "inbox")
        position = ledger.file_position(tx, workspace, session_id) or FilePosition(0, 0, EMPTY_CHAIN)
        _require_unchanged(tx, workspace, session_id, stream, position)
        start = reading = _Reading(position, ledger.last_seq(tx, workspace, session_id), [], [])
        entries, quarantined = 0, []
        for reading in _read_on(stream, start):
            ledger.insert_entries(tx, workspace, session_id, reading.entries)
            ledger.insert_bad_lines(tx, workspace, session_id, source, reading.bad)
            entries += len(reading.entries)
            quarantined += [
                RefusedLine(source=source, line_number=bad.line_number, reason=bad.reason, message=bad.message)
                for bad in reading.bad
            ]
        if reading.position != position:
            ledger.save_position(tx, workspace, session_id, source, reading.position)
    return InboxRead(session=session_id, entries=entries, quarantined=tuple(quarantined), last_seq=reading.last_seq)


def show_ledger(services: Services, workspace: str, session_id: str) -> Ledger:
    """Read a session with what each row is worth today; of a retired workspace, what was read before.

    Raises:
        UnknownSession: nothing was ever written to it.
    """
    with contextlib.suppress(WorkspaceRetired):
        read_session(services, workspace, session_id)
    with services.database.transaction(Role.HARNESS, workspace, via=services.via) as tx:
        workspaces.get(tx, workspace)
        ledger.require_session(tx, workspace, session_id)
        return Ledger(
            session=session_id,
            question=ledger.question_of(tx, workspace, session_id),
            rows=tuple(ledger.rows_with_status(tx, workspace, session_id)),
            quarantined=tuple(
                RefusedLine.model_validate(row, from_attributes=False)
                for row in ledger.quarantined(tx, workspace, session_id)
            ),
        )


def require_session_id(session_id: str) -> str:
    """Return the id, or raise `BadInput`: it also names a file."""
    if not _SESSION.fullmatch(session_id):
        raise BadInput(
            f"{session_id[:80]!r} cannot name a session",
            hint="use 1 to 200 letters, digits, '.', '_' and '-', starting with a letter or digit",
        )
    return session_id


def _open(file: Path) -> BinaryIO:
    """Open a file of the inbox, or raise `BadInput`: one file that cannot be read stops no other."""
    if file.is_symlink() or not file.is_file():
        raise BadInput(f"{file} is not an ordinary file", hint="put the ledger itself into the inbox")
    try:
        return file.open("rb")
    except OSError as error:
        raise BadInput(f"{file} cannot be read: {error.strerror}", hint="let this user read it") from error


def _printable(file: Path) -> str:
    """A file's name as text, whatever bytes it is made of."""
    name = os.fsencode(file.name).decode("utf-8", "backslashreplace")
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in name)


class _Line(NamedTuple):
    """One line of a file: its beginning without the newline, its whole size in bytes, and its hash."""

    head: bytes
    size: int
    sha256: str


class _Reading(NamedTuple):
    """One batch of a file: where it ends, and what was in it."""

    position: FilePosition
    last_seq: int
    entries: list[NumberedEntry]
    bad: list[BadLine]


def _read_on(stream: BinaryIO, reading: _Reading) -> Iterator[_Reading]:
    """Batches of lines from the position on, whole lines only."""
    stream.seek(reading.position.bytes_read)
    for line in _whole_lines(stream):
        reading = _take(reading, line)
        if len(reading.entries) + len(reading.bad) >= _BATCH:
            yield reading
            reading = reading._replace(entries=[], bad=[])
    yield reading


def _take(reading: _Reading, line: _Line) -> _Reading:
    """Add one line to the batch."""
    number = reading.position.lines_read + 1
    chain = _link(reading.position.chain, line)
    position = FilePosition(reading.position.bytes_read + line.size, number, chain)
    last_seq = reading.last_seq
    if line.head.strip():
        try:
            entry = parse_entry(line.head, after=last_seq)
        except BadLedgerLine as error:
            kept = line.head[: ledger.QUARANTINED_BYTES]
            reading.bad.append(BadLine(number, error.reason, error.message, kept, chain))
        else:
            reading.entries.append(NumberedEntry(entry, number, chain))
            last_seq = entry.seq
    return reading._replace(position=position, last_seq=last_seq)


def _whole_lines(stream: BinaryIO) -> Iterator[_Line]:
    """Lines that have their newline; one without waits for the next reading.

    Of a line above the limit only its beginning is kept, one byte more than may be read, so that it is refused as too
    long; memory stays bounded by the limit.
    """
    while head := stream.readline(MAX_LINE_BYTES + 1):
        size, digest, ended = len(head), hashlib.sha256(head), head.endswith(b"\n")
        while not ended and (rest := stream.readline(MAX_LINE_BYTES)):
            size, ended = size + len(rest), rest.endswith(b"\n")
            digest.update(rest)
        if not ended:
            return
        yield _Line(head.removesuffix(b"\n"), size, digest.hexdigest())


def _link(chain: str, line: _Line) -> str:
    """The next link of the hash chain: over the link before and the line."""
    return hashlib.sha256(f"{chain}{line.sha256}".encode()).hexdigest()


def _require_unchanged(
    tx: Transaction, workspace: str, session_id: str, stream: BinaryIO, position: FilePosition
) -> None:
    """Walk what was read before, and raise `LedgerTampered` with the place where it differs."""
    if not position.lines_read:
        return
    known = iter(ledger.chain_at_lines(tx, workspace, session_id))
    expected = next(known, None)
    chain, lines, read = EMPTY_CHAIN, 0, 0
    for line in _whole_lines(stream):
        chain, lines, read = _link(chain, line), lines + 1, read + line.size
        if expected is not None and expected[0] == lines:
            if expected[1] != chain:
                raise LedgerTampered(stream.name, lines)
            expected = next(known, None)
        if lines == position.lines_read:
            break
    if (lines, read, chain) != (position.lines_read, position.bytes_read, position.chain):
        raise LedgerTampered(stream.name, min(lines + 1, position.lines_read))
