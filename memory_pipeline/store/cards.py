"""Rows of cards and of their sources. Revisions and outbox rows are written by a trigger, in the same transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from psycopg.types.json import Jsonb

from memory_pipeline.core.cards import CardContent, CardKind, Link, MemoryRecord, card_id, card_number
from memory_pipeline.store.database import Transaction

COLUMNS = (
    "workspace, card_id AS id, kind, revision, status, type, subject, detail, rationale, question_context, scope, "
    "concepts, tables, dependencies, links, created_at, created_by, updated_at, updated_by"
)
"""What `MemoryRecord` reads, of `cards`."""


_SOURCE_COLUMNS = "session_id, decision_seq, card_id, preview_id, provenance, imported"


class Source(NamedTuple):
    """Where a card came from: a decision of a session and the preview on which it was decided, or another door.

    `imported` is the record of a registry file, for an import; session and decision are of a promotion alone.
    """

    session_id: str | None
    decision_seq: int | None
    card_id: str
    preview_id: UUID | None
    provenance: str
    imported: dict[str, Any] | None

    @property
    def name(self) -> str:
        """The source in a word: `s1:seq:2`, `curation`, `import:cardio/mem-0007`."""
        if self.imported is not None:
            return f"import:{self.imported['workspace']}/{self.imported['id']}"
        return f"{self.session_id}:seq:{self.decision_seq}" if self.session_id else self.provenance


def next_ids(tx: Transaction, workspace: str, count: int) -> list[str]:
    """The next free ids. The caller holds the lock on the workspace's cards and inserts them all."""
    row = tx.execute(
        "SELECT coalesce(max(number), 0) AS newest FROM cards WHERE workspace = %s", (workspace,)
    ).fetchone()
    newest = int(row["newest"]) if row else 0
    return [card_id(newest + step) for step in range(1, count + 1)]


def insert(
    tx: Transaction, workspace: str, new_id: str, content: CardContent, kind: CardKind = CardKind.MEMORY
) -> None:
    """Insert a card under an id from `next_ids`, as the reviewer.

    Raises:
        psycopg.errors.UniqueViolation: an equivalent active memory exists.
    """
    dumped = content.model_dump(mode="json")
    tx.execute(
        """
        INSERT INTO cards (workspace, card_id, number, kind, type, subject, detail, rationale, question_context, scope,
                           concepts, tables, dependencies, links, fingerprint, dependencies_sha256, scope_sha256)
        VALUES (%(workspace)s, %(card_id)s, %(number)s, %(kind)s, %(type)s, %(subject)s, %(detail)s, %(rationale)s,
                %(question_context)s, %(scope)s, %(concepts)s, %(tables)s, %(dependencies)s, %(links)s,
                %(fingerprint)s, %(dependencies_sha256)s, %(scope_sha256)s)
        """,
        dumped
        | {
            "workspace": workspace,
            "card_id": new_id,
            "number": card_number(new_id),
            "kind": kind.value,
            "dependencies": Jsonb(dumped["dependencies"]),
            "links": Jsonb(dumped["links"]),
            "dependencies_sha256": content.dependencies_sha256,
            "scope_sha256": content.scope_sha256,
        },
    )


def set_links(tx: Transaction, card: MemoryRecord, links: Sequence[Link]) -> None:
    """Give a card other links, as the reviewer: a new revision of the one that was read.

    Raises:
        psycopg.errors.SerializationFailure: the card has moved on since.
    """
    tx.execute(
        """
        UPDATE cards SET links = %s, revision = %s, updated_at = now(), updated_by = session_user
        WHERE workspace = %s AND card_id = %s
        """,
        (Jsonb([link.model_dump(mode="json") for link in links]), card.revision + 1, card.workspace, card.id),
    )


def equivalents(tx: Transaction, workspace: str, content: CardContent) -> list[tuple[str, str]]:
    """Id and status of every memory with equal text, places and scope, active ones first, newest first."""
    rows = tx.execute(
        """
        SELECT card_id, status FROM cards
        WHERE workspace = %s AND kind = 'memory' AND fingerprint = %s AND dependencies_sha256 = %s
            AND scope_sha256 = %s
        ORDER BY status = 'active' DESC, number DESC
        """,
        (workspace, content.fingerprint, content.dependencies_sha256, content.scope_sha256),
    )
    return [(row["card_id"], row["status"]) for row in rows]


def get_many(tx: Transaction, workspace: str, ids: Sequence[str]) -> dict[str, MemoryRecord]:
    """Cards by id, current rows, one query; ids that do not exist are missing from the answer."""
    rows = tx.execute(
        f"SELECT {COLUMNS} FROM cards WHERE workspace = %s AND card_id = ANY (%s)",  # noqa: S608 - own columns
        (workspace, list(ids)),
    )
    return {card.id: card for card in map(_record, rows)}


def all_ids(tx: Transaction, workspace: str) -> list[str]:
    """Ids of every card of a workspace, oldest first."""
    rows = tx.execute("SELECT card_id FROM cards WHERE workspace = %s ORDER BY number", (workspace,))
    return [row["card_id"] for row in rows]


def page(tx: Transaction, workspace: str, *, after: int, limit: int) -> list[tuple[int, MemoryRecord]]:
    """Active cards with a number above `after`, by number, at most `limit`: to walk a workspace in bounded memory."""
    rows = tx.execute(
        f"""
        SELECT number, {COLUMNS} FROM cards
        WHERE workspace = %s AND number > %s AND status = 'active' ORDER BY number LIMIT %s
        """,  # noqa: S608 - own columns
        (workspace, after, limit),
    )
    return [(row.pop("number"), _record(row)) for row in rows]


def counts(tx: Transaction, workspace: str) -> dict[tuple[str, str], int]:
    """Number of cards by kind and status."""
    rows = tx.execute(
        "SELECT kind, status, count(*) AS cards FROM cards WHERE workspace = %s GROUP BY kind, status", (workspace,)
    )
    return {(row["kind"], row["status"]): row["cards"] for row in rows}


def insert_sources(
    tx: Transaction, workspace: str, card: str, *, session_id: str, seqs: Iterable[int], preview_id: UUID
) -> None:
    """Record that decisions of a session stand behind a card, as the reviewer.

    Raises:
        psycopg.errors.UniqueViolation: one of them stands behind a card already.
    """
    with tx.cursor() as cursor:
        cursor.executemany(
            """
            INSERT INTO card_sources (workspace, card_id, provenance, session_id, decision_seq, preview_id)
            VALUES (%s, %s, 'promotion', %s, %s, %s)
            """,
            [(workspace, card, session_id, seq, preview_id) for seq in seqs],
        )


def sources_of_session(tx: Transaction, workspace: str, session_id: str) -> dict[int, Source]:
    """Decisions of a session that have a card, by seq."""
    rows = tx.execute(
        f"SELECT {_SOURCE_COLUMNS} FROM card_sources WHERE workspace = %s AND session_id = %s",  # noqa: S608 - own columns
        (workspace, session_id),
    )
    return {row["decision_seq"]: Source(**row) for row in rows}


def sources_of_cards(tx: Transaction, workspace: str, ids: Sequence[str]) -> dict[str, list[Source]]:
    """What stands behind each of these cards, oldest first."""
    rows = tx.execute(
        f"""
        SELECT {_SOURCE_COLUMNS} FROM card_sources WHERE workspace = %s AND card_id = ANY (%s) ORDER BY source_id
        """,  # noqa: S608 - own columns
        (workspace, list(ids)),
    )
    found: dict[str, list[Source]] = {}
    for row in rows:
        found.setdefault(row["card_id"], []).append(Source(**row))
    return found


def _record(row: dict[str, Any]) -> MemoryRecord:
    return MemoryRecord.model_validate(row)
