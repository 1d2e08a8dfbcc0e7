"""Rows of which summaries of sessions are made: one query for a whole workspace, read in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

from memory_pipeline.core.cards import CardStatus
from memory_pipeline.core.effective import Row, evaluate
from memory_pipeline.core.ledger import LedgerDraft, LedgerEntry
from memory_pipeline.core.summary import SUMMARISED, CardState, SessionRow
from memory_pipeline.store.database import Transaction

_BATCH = 2000
_ENTRY = ("ts", "phase", "type", "subject", "detail", "rationale", "question", "actor", "memories")
_LISTS = ("concepts", "tables", "scope", "dependencies", "links")


def sessions_with_rows(
    tx: Transaction, workspace: str, session_id: str | None = None
) -> Iterator[tuple[str, list[SessionRow]]]:
    """Each session of a workspace, or the one that is named, with the rows that a summary needs; newest first.

    What a row is worth today is worked out here and not by the database's own function, whose cost per session would
    be that of a hundred. One session is held in memory at a time.
    """
    columns = ", ".join(f"e.{name}" for name in (*_ENTRY, *_LISTS))
    with tx.cursor("sessions_with_rows") as cursor:
        cursor.itersize = _BATCH
        cursor.execute(
            f"""
            SELECT s.session_id, e.entry_id, e.seq, e.pseq, e.after_seq, {columns}, c.card_id, c.status AS card_status
            FROM sessions AS s
            LEFT JOIN ledger_entries AS e ON e.workspace = s.workspace AND e.session_id = s.session_id
            LEFT JOIN card_sources AS b
                ON b.workspace = s.workspace AND b.session_id = s.session_id AND b.decision_seq = e.seq
            LEFT JOIN cards AS c ON c.workspace = s.workspace AND c.card_id = b.card_id
            WHERE s.workspace = %(workspace)s AND (%(session)s::text IS NULL OR s.session_id = %(session)s)
            ORDER BY s.started_at DESC, s.session_id, coalesce(e.seq, e.after_seq), e.pseq NULLS FIRST
            """,  # noqa: S608 - own columns
            {"workspace": workspace, "session": session_id},
        )
        for found, rows in groupby(cursor, key=itemgetter("session_id")):
            yield found, _with_status([row for row in rows if row["entry_id"] is not None])


def _with_status(rows: list[dict[str, Any]]) -> list[SessionRow]:
    """What each row of one session is worth; only those that a summary needs."""
    statuses = evaluate(
        [
            Row(
                seq=row["seq"],
                type=row["type"],
                phase=row["phase"],
                detail=row["detail"],
                after_seq=row["after_seq"],
                pseq=row["pseq"],
            )
            for row in rows
        ]
    )
    return [
        SessionRow(entry=_entry(row), status=status, card=_card(row))
        for row, status in zip(rows, statuses, strict=True)
        if row["type"] in SUMMARISED
    ]


def _entry(row: dict[str, Any]) -> LedgerDraft:
    fields = {name: row[name] for name in (*_ENTRY, *_LISTS)}
    return LedgerDraft.model_validate(fields) if row["seq"] is None else LedgerEntry(seq=row["seq"], **fields)


def _card(row: dict[str, Any]) -> CardState | None:
    return CardState(row["card_id"], CardStatus(row["card_status"])) if row["card_id"] else None
