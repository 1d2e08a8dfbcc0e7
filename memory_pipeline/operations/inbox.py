"""Reading the inbox: files that grow, read on from where the last reading ended.

Whatever the size of a file, at most one batch of it is in memory. The good lines load whatever the bad ones are;
nothing is dropped unseen, and nothing that was read before may change unnoticed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

from pydantic import BaseModel, ConfigDict

from memory_pipeline.core.errors import BadInput, BadLedgerLine, Conflict, LedgerTampered
from memory_pipeline.core.ledger import MAX_LINE_BYTES, parse_entry, require_session_id
from memory_pipeline.logs import operation
from memory_pipeline.operations.services import Services
from memory_pipeline.store import ledger, workspaces
from memory_pipeline.store.database import Role, Transaction
from memory_pipeline.store.ledger import BadLine, FilePosition, NumberedEntry

EMPTY_CHAIN = hashlib.sha256(b"").hexdigest()
TOLD_LINES = 1000
"""Refused lines that one answer tells in full; the quarantine holds all of them."""

_BATCH_LINES = 5000
_BATCH_BYTES = 4 << 20
_BEGINNING = FilePosition(0, 0, EMPTY_CHAIN)
_NOT_RISING = ("duplicate_seq", "falling_seq")


class RefusedLine(BaseModel):
    """A line that was not taken: where it stood, a short reason, and what is wrong with it."""

    model_config = ConfigDict(frozen=True)

    source: str
    line_number: int
    reason: str
    message: str


class InboxRead(BaseModel):
    """What one reading of a session's file did.

    Attributes:
        passed_over: lines of before a reset of the source, which are in the ledger and were not taken again.
        lines_quarantined: all lines that were refused; `quarantined` tells the first 1,000 of them.
    """

    model_config = ConfigDict(frozen=True)

    session: str
    entries: int
    passed_over: int = 0
    lines_quarantined: int = 0
    quarantined: tuple[RefusedLine, ...]
    last_seq: int


class InboxProblem(BaseModel):
    """A file of the inbox that was refused whole, and why."""

    model_config = ConfigDict(frozen=True)

    file: str
    error: str
    message: str
    hint: str


@operation("inbox.read", lambda found: {"sessions": len(found[0]), "refused_files": len(found[1])})
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

    A last line without its newline waits, and so does what is written after the reading began. Bad lines go to
    quarantine. Two readers take turns.

    Raises:
        LedgerTampered: what was read before has changed; nothing is loaded.
        LedgerSourceConflict: the session is fed by `append`.
        BadInput: the file's name is no session id, it is no ordinary file, or it cannot be read.
    """
    session_id = require_session_id(file.stem)
    source = f"{workspace}/{file.name}"
    told: list[RefusedLine] = []
    entries = refused = 0
    with services.database.transaction(Role.HARNESS, workspace, via=services.via) as tx:
        workspaces.get_active(tx, workspace)
        workspaces.lock_session(tx, workspace, session_id)
        ledger.open_session(tx, workspace, session_id, "inbox")
        position = ledger.file_position(tx, workspace, session_id) or _BEGINNING
        batch = start = _Batch(position, ledger.last_seq(tx, workspace, session_id))
        # Opened under the lock: a reader that waited for another must not hold the file that was replaced meanwhile.
        with _opened(file) as stream:
            _require_unchanged(tx, workspace, session_id, stream, position)
            for batch in _batches(stream, start):
                _store(tx, workspace, session_id, source, batch)
                entries += len(batch.entries)
                refused += len(batch.bad)
                told += [
                    RefusedLine(source=source, line_number=bad.line_number, reason=bad.reason, message=bad.message)
                    for bad in batch.bad[: TOLD_LINES - len(told)]
                ]
        if batch.position != position:
            ledger.save_position(tx, workspace, session_id, source, batch.position)
    return InboxRead(
        session=session_id,
        entries=entries,
        passed_over=batch.passed_over,
        lines_quarantined=refused,
        quarantined=tuple(told),
        last_seq=batch.last_seq,
    )


def bounded_lines(stream: BinaryIO) -> Iterator[bytes]:
    """Lines of a stream without their newline, the last one too if it has none.

    Of a line above the limit only its beginning comes, long enough to be refused as too long.
    """
    for line in _lines(stream):
        yield line.head


def _store(tx: Transaction, workspace: str, session_id: str, source: str, batch: _Batch) -> None:
    """Put one batch where it belongs; most readings bring nothing, and few bring bad lines."""
    number = batch.position.file_number
    if batch.entries:
        ledger.insert_entries(tx, workspace, session_id, batch.entries, file_number=number)
    if batch.bad:
        ledger.insert_bad_lines(tx, workspace, session_id, source, batch.bad, file_number=number)


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[BinaryIO]:
    """A file of the inbox, or `BadInput`: one file that cannot be read stops no other."""
    if file.is_symlink() or not file.is_file():
        raise BadInput(f"{file} is not an ordinary file", hint="put the ledger itself into the inbox")
    try:
        with file.open("rb") as stream:
            yield stream
    except OSError as error:
        raise BadInput(f"{file} cannot be read: {error.strerror}", hint="let this user read it") from error


def _printable(file: Path) -> str:
    """A file's name as text, whatever bytes it is made of."""
    name = os.fsencode(file.name).decode("utf-8", "backslashreplace")
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in name)


class _Line(NamedTuple):
    """One line of a file: its beginning without the newline, its whole size in bytes, its hash, whether it ended."""

    head: bytes
    size: int
    sha256: bytes
    ended: bool


@dataclass
class _Batch:
    """One batch of a file: where it ends, and what was in it."""

    position: FilePosition
    last_seq: int
    passed_over: int = 0
    entries: list[NumberedEntry] = field(default_factory=list)
    bad: list[BadLine] = field(default_factory=list)
    size: int = 0

    @property
    def full(self) -> bool:
        """Lines may be long: what is kept of them is bounded in bytes as well as in number."""
        return len(self.entries) + len(self.bad) >= _BATCH_LINES or self.size >= _BATCH_BYTES

    def take(self, line: _Line) -> None:
        """Add one line."""
        self.position = _after(self.position, line)
        if not line.head.strip():
            return
        number, chain = self.position.lines_read, self.position.chain
        try:
            entry = parse_entry(line.head, after=self.last_seq)
        except BadLedgerLine as error:
            if error.reason in _NOT_RISING and self.last_seq == self.position.floor_seq:
                self.passed_over += 1
                return
            kept = line.head[: ledger.QUARANTINED_BYTES]
            self.bad.append(BadLine(number, error.reason, error.message, kept, chain))
            self.size += len(kept)
        else:
            document = entry.model_dump_json()
            self.entries.append(NumberedEntry(entry.seq, document, number, chain))
            self.last_seq = entry.seq
            self.size += len(document)


def _batches(stream: BinaryIO, batch: _Batch) -> Iterator[_Batch]:
    """What there is now from the position on, whole lines only; a writer that never pauses does not hold the reader."""
    end = os.fstat(stream.fileno()).st_size
    stream.seek(batch.position.bytes_read)
    for line in _whole_lines(stream):
        batch.take(line)
        if batch.full:
            yield batch
            batch = _Batch(batch.position, batch.last_seq, batch.passed_over)
        if batch.position.bytes_read >= end:
            break
    yield batch


def _whole_lines(stream: BinaryIO) -> Iterator[_Line]:
    """Lines that have their newline; one without waits for the next reading."""
    for line in _lines(stream):
        if not line.ended:
            return
        yield line


def _lines(stream: BinaryIO) -> Iterator[_Line]:
    """Every line of a stream.

    Of a line above the limit only its beginning is kept, one byte more than may be read, so that it is refused as too
    long; memory stays bounded by the limit.
    """
    while head := stream.readline(MAX_LINE_BYTES + 1):
        size, digest, ended = len(head), hashlib.sha256(head), head.endswith(b"\n")
        while not ended and (rest := stream.readline(MAX_LINE_BYTES)):
            size, ended = size + len(rest), rest.endswith(b"\n")
            digest.update(rest)
        yield _Line(head.removesuffix(b"\n"), size, digest.digest(), ended)


def _after(position: FilePosition, line: _Line) -> FilePosition:
    """The position after one more line; the chain's next link is over the link before and the line."""
    return FilePosition(
        position.bytes_read + line.size,
        position.lines_read + 1,
        hashlib.sha256(position.chain.encode() + line.sha256).hexdigest(),
        position.file_number,
        position.floor_seq,
    )


def _require_unchanged(
    tx: Transaction, workspace: str, session_id: str, stream: BinaryIO, position: FilePosition
) -> None:
    """Walk what was read before, and raise `LedgerTampered` with the place where it differs.

    The chain of the position tells whether anything has changed; the chain of each stored line is only looked at to
    say where.
    """
    start = position._replace(bytes_read=0, lines_read=0, chain=EMPTY_CHAIN)
    reached = deque(_walk(stream, start, position.lines_read), maxlen=1)
    if [*reached] != [position]:
        stored = ledger.chain_at_lines(tx, workspace, session_id, position.file_number)
        raise LedgerTampered(
            stream.name, _first_difference(_walk(stream, start, position.lines_read), stored, position)
        )


def _walk(stream: BinaryIO, start: FilePosition, lines: int) -> Iterator[FilePosition]:
    """The start, and the position after each of the first lines of a file."""
    stream.seek(0)
    yield start
    for line in islice(_whole_lines(stream), lines):
        yield (start := _after(start, line))


def _first_difference(walk: Iterator[FilePosition], stored: Iterator[tuple[int, str]], position: FilePosition) -> int:
    """The first stored line at which the file is not what it was."""
    expected = next(stored, None)
    reached = 0
    for place in walk:
        reached = place.lines_read
        if expected is not None and expected[0] == reached:
            if expected[1] != place.chain:
                return reached
            expected = next(stored, None)
    return min(reached + 1, position.lines_read)
