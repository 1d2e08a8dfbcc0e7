"""A session's ledger: appending to it, reading it back, exporting it, and the way out of a changed file.

A session is fed either by `append`, which numbers what comes, or from a file in the inbox (`operations.inbox`).
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import IO, Any, BinaryIO

from pydantic import BaseModel, ConfigDict

from memory_pipeline.core.errors import BadInput, BadLedgerLine, LedgerMoved, NothingRead, WorkspaceRetired
from memory_pipeline.core.ledger import parse_draft, require_session_id
from memory_pipeline.core.text import require_storable
from memory_pipeline.logs import operation
from memory_pipeline.operations.inbox import EMPTY_CHAIN, TOLD_LINES, RefusedLine, read_session
from memory_pipeline.operations.services import Services
from memory_pipeline.store import ledger, workspaces
from memory_pipeline.store.database import Role
from memory_pipeline.store.ledger import LedgerRow, NumberedEntry, QuarantineCount, Reset

_IN_MEMORY = 4 << 20
"""Bytes of appended lines that wait in memory until the last one has come; more of them wait in a file."""


class Appended(BaseModel):
    """What an `append` did.

    Attributes:
        seqs: the numbers given, in the order of the lines taken.
        last_seq: where the session ends now; what the next call may expect.
    """

    model_config = ConfigDict(frozen=True)

    session: str
    seqs: tuple[int, ...]
    refused: tuple[RefusedLine, ...]
    last_seq: int


class Ledger(BaseModel):
    """A session as it stands: every row with what it is worth today, and the first 1,000 lines in quarantine."""

    model_config = ConfigDict(frozen=True)

    session: str
    question: str
    rows: tuple[LedgerRow, ...]
    quarantined: tuple[RefusedLine, ...]


class Exported(BaseModel):
    """How many lines of each origin an export wrote."""

    model_config = ConfigDict(frozen=True)

    session: str
    harness: int
    pipeline: int


class SourceReset(BaseModel):
    """A reset of a session's file, as it is on record."""

    model_config = ConfigDict(frozen=True)

    session: str
    reset: Reset


class QuarantinedLine(RefusedLine):
    """A line in quarantine. `head` is its beginning; bytes that are not UTF-8 are shown as `\\xNN`."""

    session: str
    file_number: int
    head: str
    quarantined_at: datetime


class Quarantine(BaseModel):
    """Refused lines of a workspace's files as they are: how many for each reason, and a page of them."""

    model_config = ConfigDict(frozen=True)

    workspace: str
    total: int
    counts: tuple[QuarantineCount, ...]
    lines: tuple[QuarantinedLine, ...]


@operation("ledger.append", lambda appended: {"session": appended.session, "rows": len(appended.seqs)})
def append(
    services: Services, workspace: str, session_id: str, lines: Iterable[bytes], *, expect_seq: int | None = None
) -> Appended:
    """Append lines to a session, as the harness; each good line gets the next seq.

    Refused lines are answered, not stored: the caller still has them.

    Args:
        expect_seq: the last seq that the caller knows of, 0 for none. A retry that gives the one of the first call
            cannot store its lines twice.

    Raises:
        LedgerMoved: the session does not end at `expect_seq`; nothing was appended.
        LedgerSourceConflict: the session is fed by a file.
    """
    require_session_id(session_id)
    # The session is locked only once the last line has come: whoever writes them may take their time.
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as drafts:
        count, refused = _spool_drafts(lines, drafts)
        drafts.seek(0)
        with services.database.transaction(Role.HARNESS, workspace, via=services.via) as tx:
            workspaces.get_active(tx, workspace)
            workspaces.lock_session(tx, workspace, session_id)
            ledger.open_session(tx, workspace, session_id, "append")
            last = ledger.last_seq(tx, workspace, session_id)
            if expect_seq not in (None, last):
                raise LedgerMoved(session_id, expect_seq, last)
            numbered = (NumberedEntry(seq, line.decode()) for seq, line in enumerate(drafts, start=last + 1))
            ledger.insert_entries(tx, workspace, session_id, numbered)
    seqs = tuple(range(last + 1, last + count + 1))
    return Appended(session=session_id, seqs=seqs, refused=tuple(refused), last_seq=last + count)


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
                RefusedLine.model_validate(row)
                for row in ledger.quarantined(tx, workspace, session_id, limit=TOLD_LINES)
            ),
        )


def export_ledger(services: Services, workspace: str, session_id: str, output: BinaryIO) -> Exported:
    """Write every stored row of a session as one line of JSON, in the order in which they stand.

    Lines of the harness can be read again, in another inbox, and give the same rows; lines of the pipeline have
    `origin: pipeline` and are taken by no door. Equal rows give equal bytes. The inbox is not read before.

    Raises:
        UnknownSession: nothing was ever written to it.
    """
    require_session_id(session_id)
    written = {"harness": 0, "pipeline": 0}
    with services.database.transaction(Role.HARNESS, workspace, via=services.via) as tx:
        workspaces.get(tx, workspace)
        ledger.require_session(tx, workspace, session_id)
        for row in ledger.whole_rows(tx, workspace, session_id):
            output.write(_exported(row))
            written[row["origin"]] += 1
    return Exported(session=session_id, **written)


def reset_source(services: Services, workspace: str, session_id: str, *, reason: str) -> SourceReset:
    """Accept a session's changed file as it is, as the owner: the way out of `LedgerTampered`.

    How far the file was read is forgotten, and kept on record with the reason. The rows read from it stay as they are:
    the next reading starts at the top and passes over every line whose seq is not above the last one stored.

    Raises:
        BadInput: no reason is given.
        LedgerSourceConflict: the session is fed by `append`.
        NothingRead: nothing was read of the file, or nothing since the last reset.
    """
    require_session_id(session_id)
    if not reason.strip():
        raise BadInput("a reset needs a reason", hint="say why the file changed: it stays on record")
    require_storable(reason, "the reason")
    with services.database.transaction(Role.OWNER, workspace, via=services.via) as tx:
        workspaces.get_active(tx, workspace)
        workspaces.lock_session(tx, workspace, session_id)
        ledger.require_session(tx, workspace, session_id)
        ledger.open_session(tx, workspace, session_id, "inbox")
        reset = ledger.reset_source(tx, workspace, session_id, reason=reason, empty_chain=EMPTY_CHAIN)
        if reset is None:
            raise NothingRead(workspace, session_id)
    return SourceReset(session=session_id, reset=reset)


def list_quarantine(
    services: Services, workspace: str, session_id: str | None = None, *, limit: int, offset: int = 0
) -> Quarantine:
    """The refused lines of a workspace's files, or of one session's, by session and line."""
    if session_id is not None:
        require_session_id(session_id)
    with services.database.transaction(Role.HARNESS, workspace, via=services.via) as tx:
        workspaces.get(tx, workspace)
        counts = ledger.count_quarantined(tx, workspace, session_id)
        rows = ledger.quarantined(tx, workspace, session_id, limit=limit, offset=offset)
    return Quarantine(
        workspace=workspace,
        total=sum(count.lines for count in counts),
        counts=tuple(counts),
        lines=tuple(
            QuarantinedLine.model_validate(
                {**row, "session": row["session_id"], "head": row["head"].decode("utf-8", "backslashreplace")}
            )
            for row in rows
        ),
    )


def _spool_drafts(lines: Iterable[bytes], drafts: IO[bytes]) -> tuple[int, list[RefusedLine]]:
    """Write the good lines into a file, one document a line; returns how many, and the others."""
    count, refused = 0, []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            draft = parse_draft(line)
        except BadLedgerLine as error:
            refused.append(RefusedLine(source="append", line_number=number, reason=error.reason, message=error.message))
        else:
            drafts.write(draft.model_dump_json().encode() + b"\n")
            count += 1
    return count, refused


def _exported(row: Mapping[str, Any]) -> bytes:
    """One row as one line: fields that say nothing are left out, those that are not known stand where they stood."""
    if row["origin"] == "harness":
        numbers = {"seq": row["seq"]}
    else:
        numbers = {"origin": row["origin"], "pseq": row["pseq"], "after_seq": row["after_seq"]}
    fields = {
        name: row[name]
        for name in ledger.FIELDS
        if row[name] not in (None, []) and not (name in ("detail", "rationale") and row[name] == "")
    }
    fields["ts"] = row["ts"].astimezone(UTC).isoformat().replace("+00:00", "Z")
    whole = {**numbers, **fields, **row["extra"]}
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode() + b"\n"
