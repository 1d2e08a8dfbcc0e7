"""Rows of the ledger: sessions, entries of both origins, read files, quarantine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from psycopg.types.json import Jsonb
from pydantic import BaseModel, ConfigDict

from memory_pipeline.core.effective import Status
from memory_pipeline.core.errors import LedgerSourceConflict, UnknownSession
from memory_pipeline.core.ledger import EntryType, LedgerEntry
from memory_pipeline.store.database import Transaction

QUARANTINED_BYTES = 64 * 1024
_FIELDS = (
    "ts", "phase", "type", "subject", "detail", "rationale", "question", "actor", "concepts", "tables", "scope",
    "dependencies", "links", "memories",
)  # fmt: skip
_DOORS = {"append": "append command", "inbox": "file in the inbox"}


class NumberedEntry(NamedTuple):
    """An entry with where it stood in its file: none of both for the append door."""

    entry: LedgerEntry
    line_number: int | None = None
    chain: str | None = None


class BadLine(NamedTuple):
    """A line that was refused, as it came."""

    line_number: int
    reason: str
    message: str
    line: bytes
    chain: str


class FilePosition(NamedTuple):
    """How far a file was read: whole lines only."""

    bytes_read: int
    lines_read: int
    chain: str


class LedgerRow(BaseModel):
    """One row of a session as people read it: both origins, with what it is worth today."""

    model_config = ConfigDict(frozen=True)

    origin: str
    seq: int | None
    pseq: int | None
    ts: datetime
    phase: str | None
    type: str
    subject: str | None
    detail: str
    rationale: str
    actor: str | None
    memories: tuple[str, ...]
    status: Status


def open_session(tx: Transaction, workspace: str, session_id: str, door: str) -> None:
    """Make the session on first use; it is fed by this door from then on.

    Raises:
        LedgerSourceConflict: it is fed by the other door.
    """
    tx.execute(
        "INSERT INTO sessions (workspace, session_id, door) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
        (workspace, session_id, door),
    )
    row = tx.execute(
        "SELECT door FROM sessions WHERE workspace = %s AND session_id = %s", (workspace, session_id)
    ).fetchone()
    if row is not None and row["door"] != door:
        raise LedgerSourceConflict(workspace, session_id, _DOORS[row["door"]])


def require_session(tx: Transaction, workspace: str, session_id: str) -> None:
    """Raise `UnknownSession` where nothing was ever written to it."""
    found = tx.execute("SELECT FROM sessions WHERE workspace = %s AND session_id = %s", (workspace, session_id))
    if found.fetchone() is None:
        raise UnknownSession(workspace, session_id)


def last_seq(tx: Transaction, workspace: str, session_id: str) -> int:
    """The highest seq of the harness in a session; 0 for none."""
    row = tx.execute(
        """
        SELECT coalesce(max(seq), 0) AS seq FROM ledger_entries
        WHERE workspace = %s AND session_id = %s AND origin = 'harness'
        """,
        (workspace, session_id),
    ).fetchone()
    return int(row["seq"]) if row else 0


def insert_entries(tx: Transaction, workspace: str, session_id: str, entries: Sequence[NumberedEntry]) -> None:
    """Append entries of the harness; the caller holds the session's lock and has numbered them."""
    with tx.cursor() as cursor:
        cursor.executemany(
            """
            INSERT INTO ledger_entries (workspace, session_id, origin, seq, ts, phase, type, subject, detail,
                                        rationale, question, actor, concepts, tables, scope, dependencies, links,
                                        memories, extra, line_number, chain)
            VALUES (%(workspace)s, %(session_id)s, 'harness', %(seq)s, %(ts)s, %(phase)s, %(type)s, %(subject)s,
                    %(detail)s, %(rationale)s, %(question)s, %(actor)s, %(concepts)s, %(tables)s, %(scope)s,
                    %(dependencies)s, %(links)s, %(memories)s, %(extra)s, %(line_number)s, %(chain)s)
            """,
            [_parameters(workspace, session_id, numbered) for numbered in entries],
        )


def insert_bad_lines(tx: Transaction, workspace: str, session_id: str, source: str, lines: Iterable[BadLine]) -> None:
    """Put refused lines of a file into quarantine."""
    with tx.cursor() as cursor:
        cursor.executemany(
            """
            INSERT INTO ledger_quarantine (workspace, session_id, source, line_number, reason, message, line, chain)
            VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
            """,
            [
                (workspace, session_id, source, bad.line_number, bad.reason, bad.message, bad.line, bad.chain)
                for bad in lines
            ],
        )


def quarantined(tx: Transaction, workspace: str, session_id: str | None = None) -> list[dict[str, Any]]:
    """Refused lines, oldest first: session, source, line number, reason and message."""
    return tx.execute(
        """
        SELECT session_id, source, line_number, reason, message, quarantined_at FROM ledger_quarantine
        WHERE workspace = %(workspace)s AND (%(session)s::text IS NULL OR session_id = %(session)s)
        ORDER BY session_id, source, line_number
        """,
        {"workspace": workspace, "session": session_id},
    ).fetchall()


def file_position(tx: Transaction, workspace: str, session_id: str) -> FilePosition | None:
    """How far a session's file was read; none where it never was."""
    row = tx.execute(
        "SELECT bytes_read, lines_read, chain FROM ledger_files WHERE workspace = %s AND session_id = %s",
        (workspace, session_id),
    ).fetchone()
    return FilePosition(**row) if row else None


def save_position(tx: Transaction, workspace: str, session_id: str, path: str, position: FilePosition) -> None:
    """Remember how far the file was read, in the transaction that stored its lines."""
    tx.execute(
        """
        INSERT INTO ledger_files (workspace, session_id, path, bytes_read, lines_read, chain)
        VALUES (%s, %s, %s, %s, %s, %s)
        ON CONFLICT (workspace, session_id) DO UPDATE
        SET path = excluded.path, bytes_read = excluded.bytes_read, lines_read = excluded.lines_read,
            chain = excluded.chain, read_at = now()
        """,
        (workspace, session_id, path, *position),
    )


def chain_at_lines(tx: Transaction, workspace: str, session_id: str) -> Iterable[tuple[int, str]]:
    """Line number and chain of every stored line of a file, in order; to locate where a file was changed."""
    with tx.cursor("chain_at_lines") as cursor:
        cursor.execute(
            """
            SELECT line_number, chain FROM ledger_entries
            WHERE workspace = %(workspace)s AND session_id = %(session)s AND origin = 'harness' AND chain IS NOT NULL
            UNION ALL
            SELECT line_number, chain FROM ledger_quarantine
            WHERE workspace = %(workspace)s AND session_id = %(session)s
            ORDER BY line_number
            """,
            {"workspace": workspace, "session": session_id},
        )
        for row in cursor:
            yield row["line_number"], row["chain"]


def effective_decisions(tx: Transaction, workspace: str, session_id: str) -> list[LedgerEntry]:
    """The session's effective decisions, in seq order."""
    rows = tx.execute(
        f"""
        SELECT seq, {", ".join(_FIELDS)} FROM effective_decisions
        WHERE workspace = %s AND session_id = %s ORDER BY seq
        """,  # noqa: S608 - own columns
        (workspace, session_id),
    )
    return [LedgerEntry.model_validate(row) for row in rows]


def declined_seqs(tx: Transaction, workspace: str, session_id: str) -> set[int]:
    """Seqs named by a refusal that still counts: a stale one does not."""
    rows = tx.execute(
        """
        SELECT DISTINCT reference_seq(e.detail) AS seq
        FROM ledger_entries AS e
        JOIN session_status(%(workspace)s, %(session)s) AS d USING (entry_id)
        WHERE e.workspace = %(workspace)s AND e.session_id = %(session)s
            AND e.type = 'memory_promotion_declined' AND d.status = 'effective' AND reference_seq(e.detail) IS NOT NULL
        """,
        {"workspace": workspace, "session": session_id},
    )
    return {row["seq"] for row in rows}


def question_of(tx: Transaction, workspace: str, session_id: str) -> str:
    """The question with which the session was opened; the last one where it was opened twice."""
    row = tx.execute(
        """
        SELECT question FROM ledger_entries
        WHERE workspace = %s AND session_id = %s AND origin = 'harness' AND type = 'session_opened'
            AND question IS NOT NULL
        ORDER BY seq DESC LIMIT 1
        """,
        (workspace, session_id),
    ).fetchone()
    return row["question"] if row else ""


def rows_with_status(tx: Transaction, workspace: str, session_id: str) -> list[LedgerRow]:
    """Every row of a session with what it is worth today, as it reads: harness rows by seq, pipeline rows in place."""
    rows = tx.execute(
        """
        SELECT e.origin, e.seq, e.pseq, e.ts, e.phase, e.type, e.subject, e.detail, e.rationale, e.actor, e.memories,
               d.status
        FROM ledger_entries AS e
        JOIN session_status(%(workspace)s, %(session)s) AS d USING (entry_id)
        WHERE e.workspace = %(workspace)s AND e.session_id = %(session)s
        ORDER BY coalesce(e.seq, e.after_seq), e.pseq NULLS FIRST
        """,
        {"workspace": workspace, "session": session_id},
    )
    return [LedgerRow.model_validate(row) for row in rows]


def insert_marker(
    tx: Transaction,
    workspace: str,
    session_id: str,
    *,
    type_: EntryType,
    seq: int,
    memories: Sequence[str] = (),
    extra: dict[str, Any],
) -> None:
    """Write one of the pipeline's own rows on a decision; the caller holds the session's lock, as the reviewer."""
    tx.execute(
        """
        INSERT INTO ledger_entries (workspace, session_id, origin, pseq, after_seq, ts, phase, type, subject, detail,
                                    actor, memories, extra)
        SELECT %(workspace)s, %(session)s, 'pipeline',
               coalesce(max(e.pseq), 0) + 1, coalesce(max(e.seq), 0), now(), 'F8', %(type)s,
               max(e.subject) FILTER (WHERE e.seq = %(seq)s), 'seq:' || %(seq)s::text,
               'human:' || session_user, %(memories)s, %(extra)s
        FROM ledger_entries AS e
        WHERE e.workspace = %(workspace)s AND e.session_id = %(session)s
        """,
        {
            "workspace": workspace,
            "session": session_id,
            "type": type_.value,
            "seq": seq,
            "memories": list(memories),
            "extra": Jsonb(extra),
        },
    )


def newest_marker(tx: Transaction, workspace: str, session_id: str, seq: int) -> dict[str, Any] | None:
    """The verdict kept with the pipeline's newest marker on a decision; none where it has no marker."""
    row = tx.execute(
        """
        SELECT extra -> 'verdict' AS verdict FROM ledger_entries
        WHERE workspace = %s AND session_id = %s AND origin = 'pipeline' AND detail = %s
        ORDER BY pseq DESC LIMIT 1
        """,
        (workspace, session_id, f"seq:{seq}"),
    ).fetchone()
    return row["verdict"] if row else None


def session_ids(tx: Transaction, workspace: str) -> list[str]:
    """Every session of a workspace, in the order in which they came."""
    rows = tx.execute(
        "SELECT session_id FROM sessions WHERE workspace = %s ORDER BY started_at, session_id", (workspace,)
    )
    return [row["session_id"] for row in rows]


def _parameters(workspace: str, session_id: str, numbered: NumberedEntry) -> dict[str, Any]:
    entry = numbered.entry
    dumped = entry.model_dump(mode="json", include={"dependencies", "links"})
    return {
        "workspace": workspace,
        "session_id": session_id,
        "seq": entry.seq,
        **{name: getattr(entry, name) for name in _FIELDS},
        "concepts": list(entry.concepts),
        "tables": list(entry.tables),
        "scope": list(entry.scope),
        "memories": list(entry.memories),
        "dependencies": Jsonb(dumped["dependencies"]),
        "links": Jsonb(dumped["links"]),
        "extra": Jsonb(entry.extra_fields),
        "line_number": numbered.line_number,
        "chain": numbered.chain,
    }
