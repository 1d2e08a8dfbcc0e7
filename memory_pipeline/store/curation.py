"""Rows that curation and import write and read: revisions made by hand, their history, records of other registries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from psycopg.types.json import Jsonb

from memory_pipeline.core.cards import CardContent, CardKind, CardStatus, MemoryRecord
from memory_pipeline.core.registry import RefusedRecord
from memory_pipeline.store import cards
from memory_pipeline.store.database import Transaction

Identity = tuple[str, str, str]
"""Fingerprint, hash of the places, hash of the scope: what is equal says the same."""


class StoredRevision(NamedTuple):
    """One kept revision: the whole row as it stood."""

    revision: int
    card: dict[str, Any]
    revised_at: datetime
    revised_by: str
    via: str


class ImportedRecord(NamedTuple):
    """A record of another registry that was imported before, and the card behind which it stands."""

    workspace: str
    id: str
    card_id: str
    imported: dict[str, Any]


class CardFilter(NamedTuple):
    """Which cards a list shows; without `statuses` all but the deleted ones."""

    kinds: tuple[CardKind, ...] = ()
    statuses: tuple[CardStatus, ...] = ()
    text: str = ""


def identity_of(content: CardContent) -> Identity:
    """The identity of a card's content."""
    return content.fingerprint, content.dependencies_sha256, content.scope_sha256


def get_locked(tx: Transaction, workspace: str, card_id: str) -> MemoryRecord | None:
    """The current row of a card, held until the transaction ends; none where there is no such card. As the reviewer."""
    tx.execute("SELECT FROM cards WHERE workspace = %s AND card_id = %s FOR UPDATE", (workspace, card_id))
    return cards.get_many(tx, workspace, [card_id]).get(card_id)


def revise(tx: Transaction, before: MemoryRecord, content: CardContent, kind: CardKind, status: CardStatus) -> None:
    """Write the next revision of a card that is held, as the reviewer.

    Raises:
        psycopg.errors.UniqueViolation: an equivalent active memory exists.
    """
    dumped = content.model_dump(mode="json", include=set(CardContent.model_fields))
    tx.execute(
        """
        UPDATE cards SET
            kind = %(kind)s, status = %(status)s, type = %(type)s, subject = %(subject)s, detail = %(detail)s,
            rationale = %(rationale)s, question_context = %(question_context)s, scope = %(scope)s,
            concepts = %(concepts)s, tables = %(tables)s, dependencies = %(dependencies)s, links = %(links)s,
            fingerprint = %(fingerprint)s, dependencies_sha256 = %(dependencies_sha256)s,
            scope_sha256 = %(scope_sha256)s, revision = %(revision)s, updated_at = now(), updated_by = session_user
        WHERE workspace = %(workspace)s AND card_id = %(card_id)s
        """,
        dumped
        | {
            "workspace": before.workspace,
            "card_id": before.id,
            "kind": kind.value,
            "status": status.value,
            "revision": before.revision + 1,
            "dependencies": Jsonb(dumped["dependencies"]),
            "links": Jsonb(dumped["links"]),
            "fingerprint": content.fingerprint,
            "dependencies_sha256": content.dependencies_sha256,
            "scope_sha256": content.scope_sha256,
        },
    )


def insert_source(
    tx: Transaction, workspace: str, card_id: str, provenance: str, imported: Mapping[str, Any] | None = None
) -> None:
    """Record that a card was made by hand, or that a record of another registry stands behind it, as the reviewer."""
    tx.execute(
        "INSERT INTO card_sources (workspace, card_id, provenance, imported) VALUES (%s, %s, %s, %s)",
        (workspace, card_id, provenance, Jsonb(imported) if imported is not None else None),
    )


def active_with(tx: Transaction, workspace: str, kind: CardKind, identities: Iterable[Identity]) -> dict[Identity, str]:
    """The newest active card of a kind for each of these identities that has one."""
    wanted = list(identities)
    rows = tx.execute(
        """
        SELECT c.card_id, c.fingerprint, c.dependencies_sha256, c.scope_sha256
        FROM cards AS c
        JOIN unnest(%(fingerprints)s::text[], %(places)s::text[], %(scopes)s::text[]) AS w (fingerprint, places, scope)
            ON c.fingerprint = w.fingerprint AND c.dependencies_sha256 = w.places AND c.scope_sha256 = w.scope
        WHERE c.workspace = %(workspace)s AND c.kind = %(kind)s AND c.status = 'active'
        ORDER BY c.number
        """,
        {
            "workspace": workspace,
            "kind": kind.value,
            "fingerprints": [identity[0] for identity in wanted],
            "places": [identity[1] for identity in wanted],
            "scopes": [identity[2] for identity in wanted],
        },
    )
    return {(row["fingerprint"], row["dependencies_sha256"], row["scope_sha256"]): row["card_id"] for row in rows}


def revisions(tx: Transaction, workspace: str, card_id: str) -> list[StoredRevision]:
    """Every revision of a card, oldest first, as the reviewer."""
    rows = tx.execute(
        """
        SELECT revision, card, revised_at, revised_by, via FROM card_revisions
        WHERE workspace = %s AND card_id = %s ORDER BY revision
        """,
        (workspace, card_id),
    )
    return [StoredRevision(**row) for row in rows]


def listed(
    tx: Transaction, workspace: str, wanted: CardFilter, *, limit: int, offset: int
) -> tuple[list[MemoryRecord], int]:
    """One page of the cards that pass a filter, by number, and how many pass it in all.

    A text is looked for in id, subject, detail, rationale and concepts, whatever its case and Unicode form.
    """
    parameters = {
        "workspace": workspace,
        "kinds": [kind.value for kind in wanted.kinds or CardKind],
        "statuses": [status.value for status in wanted.statuses or set(CardStatus) - {CardStatus.DELETED}],
        "text": wanted.text.strip(),
        "limit": limit,
        "offset": offset,
    }
    passing = """
        FROM cards
        WHERE workspace = %(workspace)s AND kind = ANY (%(kinds)s) AND status = ANY (%(statuses)s)
            AND (%(text)s = '' OR position(
                lower(normalize(%(text)s, NFKC)) IN lower(normalize(
                    concat_ws(E'\\n', card_id, subject, detail, rationale, array_to_string(concepts, E'\\n')), NFKC
                ))
            ) > 0)
    """
    total = tx.execute(f"SELECT count(*) AS cards {passing}", parameters).fetchone()
    rows = tx.execute(
        f"SELECT card_id {passing} ORDER BY number LIMIT %(limit)s OFFSET %(offset)s",
        parameters,
    )
    ids = [row["card_id"] for row in rows]
    found = cards.get_many(tx, workspace, ids)
    return [found[card_id] for card_id in ids], total["cards"] if total else 0


def imported_before(
    tx: Transaction, workspace: str, records: Iterable[tuple[str, str]]
) -> dict[tuple[str, str], ImportedRecord]:
    """Those of these records (workspace, id) of other registries that were imported before."""
    wanted = list(records)
    rows = tx.execute(
        """
        SELECT s.imported ->> 'workspace' AS workspace, s.imported ->> 'id' AS id, s.card_id, s.imported
        FROM card_sources AS s
        JOIN unnest(%s::text[], %s::text[]) AS w (workspace, id)
            ON s.imported ->> 'workspace' = w.workspace AND s.imported ->> 'id' = w.id
        WHERE s.workspace = %s AND s.provenance = 'import'
        """,
        ([record[0] for record in wanted], [record[1] for record in wanted], workspace),
    )
    return {(row["workspace"], row["id"]): ImportedRecord(**row) for row in rows}


def quarantine(tx: Transaction, workspace: str, file_sha256: str, refused: Sequence[RefusedRecord]) -> None:
    """Keep the lines of a registry file that were not taken, each once per file, as the reviewer."""
    with tx.cursor() as cursor:
        cursor.executemany(
            """
            INSERT INTO import_quarantine (workspace, file_sha256, line_number, reason, message, line)
            VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING
            """,
            [(workspace, file_sha256, bad.line_number, bad.reason, bad.message, bad.line) for bad in refused],
        )
