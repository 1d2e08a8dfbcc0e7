"""Rows of the ledger: sessions, entries of both origins, read files, quarantine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from psycopg.types.json import Jsonb
from pydantic import BaseModel, ConfigDict

from memory_pipeline.core.effective import Status
from memory_pipeline.core.errors import LedgerSourceConflict, UnknownSession
from memory_pipeline.core.ledger import EntryType, LedgerEntry
from memory_pipeline.store.database import Transaction

QUARANTINED_BYTES = 64 * 1024
SHOWN_BYTES = 200
"""Of a line in quarantine, where it is listed."""

FIELDS = (
    "ts", "phase", "type", "subject", "detail", "rationale", "question", "actor", "concepts", "tables", "scope",
    "dependencies", "links", "memories",
)  # fmt: skip
"""What a line may say, beside its number and the fields that are not known."""

_FETCHED = 2000
"""Rows of a server-side cursor a round trip."""

_DOORS = {"append": "append command", "inbox": "file in the inbox"}


class NumberedEntry(NamedTuple):
    """An entry with its number, and where it stood in its file: none of both for the append door.

    `document` is the entry, with or without its number, as its model writes it in JSON.
    """

    seq: int
    document: str
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
    """How far a file was read, whole lines only.

    Attributes:
        file_number: 1, and one more after each reset of the session's source.
        floor_seq: the highest seq at the last reset: lines up to it are not taken again.
    """

    bytes_read: int
    lines_read: int
    chain: str
    file_number: int = 1
    floor_seq: int = 0


class Reset(BaseModel):
    """A changed file that the owner accepted as it is: how far it had been read, by whom and why.

    Attributes:
        file_number: of the file that was given up; reading goes on with the next one.
        floor_seq: the highest seq read from it. Lines up to that are not taken again.
    """

    model_config = ConfigDict(frozen=True)

    file_number: int
    floor_seq: int
    path: str
    bytes_read: int
    lines_read: int
    reason: str
    reset_at: datetime
    reset_by: str


class QuarantineCount(BaseModel):
    """How many lines were refused for one reason."""

    model_config = ConfigDict(frozen=True)

    reason: str
    lines: int


class Closing(NamedTuple):
    """When a session was closed, by which login, and the candidates that were left undecided."""

    at: datetime
    by: str
    left_pending: tuple[int, ...]


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


def insert_entries(
    tx: Transaction,
    workspace: str,
    session_id: str,
    entries: Iterable[NumberedEntry],
    *,
    file_number: int | None = None,
) -> None:
    """Append entries of the harness; the caller holds the session's lock and has numbered them.

    They come by COPY, into a table of this transaction: PostgreSQL refuses COPY into one with row-level security.
    """
    _stage(tx, "incoming_entries", "seq bigint, document jsonb, line_number bigint, chain text")
    _copy(tx, "incoming_entries", entries)
    tx.execute(
        """
        INSERT INTO ledger_entries (workspace, session_id, origin, seq, ts, phase, type, subject, detail, rationale,
                                    question, actor, concepts, tables, scope, dependencies, links, memories, extra,
                                    file_number, line_number, chain)
        SELECT %(workspace)s, %(session)s, 'harness', i.seq, e.ts, e.phase, e.type, e.subject, e.detail, e.rationale,
               e.question, e.actor, e.concepts, e.tables, e.scope, e.dependencies, e.links, e.memories,
               i.document - %(known)s::text[], %(file_number)s, i.line_number, i.chain
        FROM pg_temp.incoming_entries AS i
        CROSS JOIN LATERAL jsonb_to_record(i.document) AS e (
            ts timestamptz, phase text, type text, subject text, detail text, rationale text,
            question text, actor text, concepts text[], tables text[], scope text[], dependencies jsonb, links jsonb,
            memories text[]
        )
        ORDER BY i.seq
        """,
        {
            "workspace": workspace,
            "session": session_id,
            "known": ["seq", *FIELDS],
            "file_number": file_number,
        },
    )


def insert_bad_lines(
    tx: Transaction, workspace: str, session_id: str, source: str, lines: Iterable[BadLine], *, file_number: int
) -> None:
    """Put refused lines of a file into quarantine, as `insert_entries` does the good ones."""
    _stage(tx, "incoming_bad_lines", "line_number bigint, reason text, message text, line bytea, chain text")
    _copy(tx, "incoming_bad_lines", lines)
    tx.execute(
        """
        INSERT INTO ledger_quarantine (workspace, session_id, source, file_number, line_number, reason, message, line,
                                       chain)
        SELECT %s, %s, %s, %s, i.line_number, i.reason, i.message, i.line, i.chain
        FROM pg_temp.incoming_bad_lines AS i
        """,
        (workspace, session_id, source, file_number),
    )


def quarantined(
    tx: Transaction, workspace: str, session_id: str | None = None, *, limit: int | None = None, offset: int = 0
) -> list[dict[str, Any]]:
    """Refused lines of the files as they are, in their order, with the first bytes of each."""
    return tx.execute(
        """
        SELECT session_id, source, file_number, line_number, reason, message, quarantined_at,
               substring(line FROM 1 FOR %(head)s) AS head
        FROM quarantined_lines
        WHERE workspace = %(workspace)s AND (%(session)s::text IS NULL OR session_id = %(session)s)
        ORDER BY session_id, source, line_number LIMIT %(limit)s OFFSET %(offset)s
        """,
        {"workspace": workspace, "session": session_id, "head": SHOWN_BYTES, "limit": limit, "offset": offset},
    ).fetchall()


def count_quarantined(tx: Transaction, workspace: str, session_id: str | None = None) -> list[QuarantineCount]:
    """How many lines of the files as they are were refused, by reason; the most frequent first."""
    rows = tx.execute(
        """
        SELECT reason, count(*) AS lines FROM quarantined_lines
        WHERE workspace = %(workspace)s AND (%(session)s::text IS NULL OR session_id = %(session)s)
        GROUP BY reason ORDER BY lines DESC, reason
        """,
        {"workspace": workspace, "session": session_id},
    )
    return [QuarantineCount(**row) for row in rows]


def file_position(tx: Transaction, workspace: str, session_id: str) -> FilePosition | None:
    """How far a session's file was read; none where it never was."""
    row = tx.execute(
        """
        SELECT bytes_read, lines_read, chain, file_number, floor_seq FROM ledger_files
        WHERE workspace = %s AND session_id = %s
        """,
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
        (workspace, session_id, path, position.bytes_read, position.lines_read, position.chain),
    )


def reset_source(tx: Transaction, workspace: str, session_id: str, *, reason: str, empty_chain: str) -> Reset | None:
    """Forget how far a session's file was read, as the owner, and keep on record how far that was.

    Returns none where nothing was read of it. The caller holds the session's lock.
    """
    row = tx.execute(
        """
        INSERT INTO ledger_resets (workspace, session_id, file_number, floor_seq, path, bytes_read, lines_read, chain,
                                   reason)
        SELECT f.workspace, f.session_id, f.file_number, %(last_seq)s, f.path, f.bytes_read, f.lines_read, f.chain,
               %(reason)s
        FROM ledger_files AS f
        WHERE f.workspace = %(workspace)s AND f.session_id = %(session)s AND f.lines_read > 0
        RETURNING file_number, floor_seq, path, bytes_read, lines_read, reason, reset_at, reset_by
        """,
        {
            "workspace": workspace,
            "session": session_id,
            "reason": reason,
            "last_seq": last_seq(tx, workspace, session_id),
        },
    ).fetchone()
    if row is None:
        return None
    reset = Reset.model_validate(row)
    tx.execute(
        """
        UPDATE ledger_files
        SET file_number = file_number + 1, floor_seq = %s, bytes_read = 0, lines_read = 0, chain = %s
        WHERE workspace = %s AND session_id = %s
        """,
        (reset.floor_seq, empty_chain, workspace, session_id),
    )
    return reset


def chain_at_lines(tx: Transaction, workspace: str, session_id: str, file_number: int) -> Iterator[tuple[int, str]]:
    """Line number and chain of every stored line of a file, in order; to locate where a file was changed."""
    with tx.cursor("chain_at_lines") as cursor:
        cursor.itersize = _FETCHED
        cursor.execute(
            """
            SELECT line_number, chain FROM ledger_entries
            WHERE workspace = %(workspace)s AND session_id = %(session)s AND file_number = %(file_number)s
            UNION ALL
            SELECT line_number, chain FROM ledger_quarantine
            WHERE workspace = %(workspace)s AND session_id = %(session)s AND file_number = %(file_number)s
            ORDER BY line_number
            """,
            {"workspace": workspace, "session": session_id, "file_number": file_number},
        )
        for row in cursor:
            yield row["line_number"], row["chain"]


def effective_decisions(tx: Transaction, workspace: str, session_id: str) -> list[LedgerEntry]:
    """The session's effective decisions, in seq order."""
    rows = tx.execute(
        f"""
        SELECT seq, {", ".join(FIELDS)} FROM effective_decisions
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
        FROM session_status(%(workspace)s, %(session)s) AS d
        JOIN ledger_entries AS e
            ON e.workspace = %(workspace)s AND e.session_id = %(session)s AND e.entry_id = d.entry_id
        WHERE e.type = 'memory_promotion_declined' AND d.status = 'effective' AND reference_seq(e.detail) IS NOT NULL
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
    """Every row of a session with what it is worth today, as it reads: harness rows by seq, pipeline rows in place.

    Each row is looked up by its key: a plan for all of them at once may read the whole ledger.
    """
    rows = tx.execute(
        """
        SELECT e.origin, e.seq, e.pseq, e.ts, e.phase, e.type, e.subject, e.detail, e.rationale, e.actor, e.memories,
               d.status
        FROM session_status(%(workspace)s, %(session)s) AS d
        CROSS JOIN LATERAL (
            SELECT * FROM ledger_entries AS own
            WHERE own.workspace = %(workspace)s AND own.entry_id = d.entry_id LIMIT 1
        ) AS e
        ORDER BY coalesce(e.seq, e.after_seq), e.pseq NULLS FIRST
        """,
        {"workspace": workspace, "session": session_id},
    )
    return [LedgerRow.model_validate(row) for row in rows]


def whole_rows(tx: Transaction, workspace: str, session_id: str) -> Iterator[dict[str, Any]]:
    """Every row of a session with every field, of both origins, as it reads; streamed."""
    with tx.cursor("whole_rows") as cursor:
        cursor.itersize = _FETCHED
        cursor.execute(
            f"""
            SELECT origin, seq, pseq, after_seq, {", ".join(FIELDS)}, extra FROM ledger_entries
            WHERE workspace = %s AND session_id = %s
            ORDER BY coalesce(seq, after_seq), pseq NULLS FIRST
            """,  # noqa: S608 - own columns
            (workspace, session_id),
        )
        yield from cursor


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


def insert_closing(tx: Transaction, workspace: str, session_id: str, *, left_pending: Sequence[int]) -> None:
    """Write the pipeline's row that closes a session; the caller holds the session's lock, as the reviewer."""
    tx.execute(
        """
        INSERT INTO ledger_entries (workspace, session_id, origin, pseq, after_seq, ts, phase, type, actor, extra)
        SELECT %(workspace)s, %(session)s, 'pipeline',
               coalesce(max(e.pseq), 0) + 1, coalesce(max(e.seq), 0), now(), 'F8', 'session_closed',
               'human:' || session_user, %(extra)s
        FROM ledger_entries AS e
        WHERE e.workspace = %(workspace)s AND e.session_id = %(session)s
        """,
        {"workspace": workspace, "session": session_id, "extra": Jsonb({"left_pending": list(left_pending)})},
    )


def closing(tx: Transaction, workspace: str, session_id: str) -> Closing | None:
    """The pipeline's row that closed the session, if nothing was written to the session after it."""
    row = tx.execute(
        """
        SELECT type, recorded_at AS at, recorded_by AS by, after_seq, extra -> 'left_pending' AS left_pending,
               (SELECT coalesce(max(h.seq), 0) FROM ledger_entries AS h
                WHERE h.workspace = e.workspace AND h.session_id = e.session_id) AS last_seq
        FROM ledger_entries AS e
        WHERE workspace = %s AND session_id = %s AND origin = 'pipeline'
        ORDER BY pseq DESC LIMIT 1
        """,
        (workspace, session_id),
    ).fetchone()
    if row is None or row["type"] != EntryType.SESSION_CLOSED or row["after_seq"] != row["last_seq"]:
        return None
    return Closing(row["at"], row["by"], tuple(row["left_pending"]))


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


def _stage(tx: Transaction, name: str, columns: str) -> None:
    """An empty table of this transaction alone; the second batch finds the first one's."""
    if tx.execute("SELECT to_regclass(%s) AS known", (f"pg_temp.{name}",)).fetchone() == {"known": None}:
        tx.execute(f"CREATE TEMPORARY TABLE {name} ({columns}) ON COMMIT DROP")
    else:
        tx.execute(f"TRUNCATE pg_temp.{name}")


def _copy(tx: Transaction, name: str, rows: Iterable[Sequence[Any]]) -> None:
    with tx.cursor() as cursor, cursor.copy(f"COPY pg_temp.{name} FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)
