"""What a comparison of the two stores reads of the registry: always one page, never content that is not compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from memory_pipeline.core.cards import MemoryRecord
from memory_pipeline.core.drift import Owner
from memory_pipeline.core.ledger import REUSABLE_TYPES, EntryType
from memory_pipeline.store import cards
from memory_pipeline.store.database import Transaction

_PROJECTABLE = "(c.kind <> 'memory' OR c.type = ANY (%(reusable)s))"
"""A memory of another type cannot be stored; where the constraint was lifted, it is still never projected."""

_REUSABLE = sorted(REUSABLE_TYPES)
_LEDGER_TYPES = sorted(EntryType)


class CardState(NamedTuple):
    """An active card at a glance. `settled`: its row is its kept revision, and that very revision was acknowledged."""

    number: int
    card_id: str
    kind: str
    revision: int
    expected_sha256: str | None
    settled: bool


class Waiting(NamedTuple):
    """Of some cards, those that wait in the outbox and those that are parked there."""

    pending: frozenset[str]
    parked: frozenset[str]


class UnsupportedMarker(NamedTuple):
    """A line that says that a decision was promoted, without a card. `type` is the decision's; none: no such line."""

    session_id: str
    line: str
    decision_seq: int | None
    type: str | None


class ForbiddenCard(NamedTuple):
    """An active card of a type that it may not have."""

    card_id: str
    kind: str
    type: str


def card_states(tx: Transaction, workspace: str, generation: int, *, after: int, limit: int) -> list[CardState]:
    """Active cards that may be projected, with a number above `after`, by number, at most `limit`.

    Deriving a projection costs some hundred times what this does, so who compares derives only what is not settled: the
    kept revision stands for the text from which the expected hash was made.
    """
    rows = tx.execute(
        f"""
        -- First the page, then what belongs to it: a plan for all cards would be made anew for each page.
        WITH page AS MATERIALIZED (
            SELECT c FROM cards AS c
            WHERE c.workspace = %(workspace)s AND c.number > %(after)s AND c.status = 'active' AND {_PROJECTABLE}
            ORDER BY c.number LIMIT %(limit)s
        )
        SELECT c.number, c.card_id, c.kind, c.revision, p.expected_sha256,
               coalesce(
                   p.revision = c.revision AND p.expected_sha256 = p.acknowledged_sha256
                   -- Everything that a projection is made of.
                   AND (c.kind, c.type, c.subject, c.detail, c.rationale, c.question_context, c.dependencies,
                        to_jsonb(c.scope), to_jsonb(c.concepts))
                   = (r.card ->> 'kind', r.card ->> 'type', r.card ->> 'subject', r.card ->> 'detail',
                      r.card ->> 'rationale', r.card ->> 'question_context', r.card -> 'dependencies',
                      r.card -> 'scope', r.card -> 'concepts'),
                   false
               ) AS settled
        FROM (SELECT (page.c).* FROM page) AS c
        LEFT JOIN projections AS p
            ON p.workspace = %(workspace)s AND p.card_id = c.card_id AND p.generation = %(generation)s
        LEFT JOIN card_revisions AS r
            ON r.workspace = %(workspace)s AND r.card_id = c.card_id AND r.revision = c.revision
        ORDER BY c.number
        """,  # noqa: S608 - own condition
        {
            "workspace": workspace,
            "generation": generation,
            "after": after,
            "limit": limit,
            "reusable": _REUSABLE,
        },
    )
    return [CardState(**row) for row in rows]


def current(tx: Transaction, workspace: str, ids: Sequence[str]) -> list[MemoryRecord]:
    """Those of these cards that are active and may be projected."""
    rows = tx.execute(
        f"""
        SELECT {cards.COLUMNS} FROM cards AS c
        WHERE workspace = %(workspace)s AND card_id = ANY (%(ids)s) AND status = 'active' AND {_PROJECTABLE}
        """,  # noqa: S608 - own columns and condition
        {"workspace": workspace, "ids": list(ids), "reusable": _REUSABLE},
    )
    return [MemoryRecord.model_validate(row) for row in rows]


def owners(tx: Transaction, workspace: str, ids: Sequence[str]) -> dict[str, Owner]:
    """Whether each of these cards lives, and may be projected at all; those that do not exist are missing."""
    rows = tx.execute(
        f"""
        SELECT c.card_id, c.status, {_PROJECTABLE} AS projectable
        FROM cards AS c WHERE c.workspace = %(workspace)s AND c.card_id = ANY (%(ids)s)
        """,  # noqa: S608 - own condition
        {"workspace": workspace, "ids": list(ids), "reusable": _REUSABLE},
    )
    return {row["card_id"]: Owner(**row) for row in rows}


def waiting_among(tx: Transaction, workspace: str, ids: Sequence[str]) -> Waiting:
    """Which of these cards wait in the outbox. One with rows of both kinds waits: it will be tried again."""
    rows = tx.execute(
        """
        SELECT card_id, bool_or(state = 'pending') AS pending FROM propagations
        WHERE workspace = %s AND card_id = ANY (%s) AND state <> 'done' GROUP BY card_id
        """,
        (workspace, list(ids)),
    ).fetchall()
    return Waiting(
        frozenset(row["card_id"] for row in rows if row["pending"]),
        frozenset(row["card_id"] for row in rows if not row["pending"]),
    )


def active_cards(tx: Transaction, workspace: str) -> int:
    """How many cards must have a point."""
    row = tx.execute(
        f"SELECT count(*) AS cards FROM cards AS c WHERE workspace = %(workspace)s AND status = 'active' "  # noqa: S608
        f"AND {_PROJECTABLE}",
        {"workspace": workspace, "reusable": _REUSABLE},
    ).fetchone()
    return int(row["cards"]) if row else 0


def forbidden_cards(tx: Transaction, workspace: str) -> list[ForbiddenCard]:
    """Active cards of a type of the ledger that is not reusable, or memories of any other type."""
    rows = tx.execute(
        """
        SELECT card_id, kind, type FROM cards
        WHERE workspace = %(workspace)s AND status = 'active' AND CASE kind
            WHEN 'memory' THEN type <> ALL (%(reusable)s) ELSE type = ANY (%(ledger)s)
        END ORDER BY number
        """,
        {"workspace": workspace, "reusable": _REUSABLE, "ledger": _LEDGER_TYPES},
    )
    return [ForbiddenCard(**row) for row in rows]


def markers_without_card(tx: Transaction, workspace: str) -> list[UnsupportedMarker]:
    """Lines of either origin that say that a decision was promoted, where no card comes from that decision."""
    rows = tx.execute(
        """
        SELECT m.session_id, coalesce('seq:' || m.seq, 'pseq:' || m.pseq) AS line, reference_seq(m.detail)
                   AS decision_seq, d.type
        FROM ledger_entries AS m
        LEFT JOIN ledger_entries AS d
            ON d.workspace = m.workspace AND d.session_id = m.session_id AND d.seq = reference_seq(m.detail)
        WHERE m.workspace = %s AND m.type = 'memory_promoted' AND NOT EXISTS (
            SELECT FROM card_sources AS s
            WHERE s.workspace = m.workspace AND s.session_id = m.session_id
                AND s.decision_seq = reference_seq(m.detail)
        )
        ORDER BY m.session_id, m.entry_id
        """,
        (workspace,),
    )
    return [UnsupportedMarker(**row) for row in rows]
