"""Rows of previews: the snapshot on which a reviewer decides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from psycopg.types.json import Jsonb

from memory_pipeline.core.candidates import Candidate
from memory_pipeline.core.errors import UnknownPreview
from memory_pipeline.store.database import Transaction


class StoredPreview(NamedTuple):
    """A preview with all its candidates. `expired` is judged by the database's clock.

    `duplicates` are the active cards that were shown to say the same as a candidate, by the candidate's seq.
    """

    preview_id: UUID
    session_id: str
    ledger_seq: int
    expires_at: datetime
    expired: bool
    candidates: tuple[Candidate, ...]
    duplicates: Mapping[int, str]


def insert(
    tx: Transaction,
    workspace: str,
    session_id: str,
    ledger_seq: int,
    candidates: Iterable[tuple[Candidate, str | None]],
) -> tuple[UUID, datetime]:
    """Store a snapshot of all candidates, each with the card that it duplicates; returns its id and expiry."""
    row = tx.execute(
        """
        INSERT INTO previews (workspace, session_id, ledger_seq) VALUES (%s, %s, %s)
        RETURNING preview_id, expires_at
        """,
        (workspace, session_id, ledger_seq),
    ).fetchone()
    assert row is not None  # noqa: S101 - INSERT ... RETURNING gives its row or raises
    with tx.cursor() as cursor:
        cursor.executemany(
            """
            INSERT INTO preview_candidates (workspace, preview_id, seq, folded_seqs, sha256, candidate, duplicate_of)
            VALUES (%s, %s, %s, %s, %s, %s, %s)
            """,
            [
                (
                    workspace,
                    row["preview_id"],
                    shown.seq,
                    list(shown.folded_seqs),
                    shown.sha256,
                    _json(shown),
                    duplicate,
                )
                for shown, duplicate in candidates
            ],
        )
    return row["preview_id"], row["expires_at"]


def get(tx: Transaction, workspace: str, preview_id: UUID) -> StoredPreview:
    """Read a preview.

    Raises:
        UnknownPreview: no preview of that id in the workspace.
    """
    head = tx.execute(
        """
        SELECT preview_id, session_id, ledger_seq, expires_at, expires_at < clock_timestamp() AS expired
        FROM previews WHERE workspace = %s AND preview_id = %s
        """,
        (workspace, preview_id),
    ).fetchone()
    if head is None:
        raise UnknownPreview(workspace, str(preview_id))
    rows = tx.execute(
        """
        SELECT seq, candidate, duplicate_of FROM preview_candidates
        WHERE workspace = %s AND preview_id = %s ORDER BY seq
        """,
        (workspace, preview_id),
    ).fetchall()
    return StoredPreview(
        **head,
        candidates=tuple(Candidate.model_validate(row["candidate"]) for row in rows),
        duplicates={row["seq"]: row["duplicate_of"] for row in rows if row["duplicate_of"]},
    )


def _json(candidate: Candidate) -> Jsonb:
    fields = candidate.model_dump(mode="json")
    fields["content"].pop("fingerprint", None)  # derived: computed again when read
    return Jsonb(fields)
