"""Rows of the outbox. Each stands for one change of a card that the index has yet to follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from memory_pipeline.store.database import Transaction

MAX_ATTEMPTS = 8
"""After so many tries a row is parked, so that it blocks nothing; `index` and `propagation retry` try it again."""

FIRST_DELAY_SECONDS = 2.0
LONGEST_DELAY_SECONDS = 600.0
LONGEST_OUTAGE_DELAY_SECONDS = 60.0
"""A server that is down is nobody's fault but its own: such a row is never parked, and follows soon after."""


class PendingWorkspace(NamedTuple):
    """What waits in one workspace, seen without entering it."""

    workspace: str
    pending: int
    dead: int
    oldest: datetime | None


class WaitingCard(NamedTuple):
    """One card with everything that waits for it up to row `upto`."""

    card_id: str
    upto: int


class UnsettledRow(NamedTuple):
    """One row that waits or is parked."""

    card_id: str
    revision: int
    state: str
    attempts: int
    last_error: str | None
    next_attempt_at: datetime
    created_at: datetime


def try_lock_drain(tx: Transaction, workspace: str) -> bool:
    """Take the right to drain until the transaction ends: one writer per workspace, whatever started it."""
    return _try_lock(tx, f"drain:{workspace}")


def try_lock_rebuild(tx: Transaction, workspace: str) -> bool:
    """Take the right to fill the workspace's new collection until the transaction ends: one builder at a time."""
    return _try_lock(tx, f"rebuild:{workspace}")


def require_lock(tx: Transaction) -> None:
    """Make sure that the connection whose transaction holds a lock still stands.

    Raises:
        psycopg.OperationalError: it broke off, and the lock with it: somebody else may hold it now.
    """
    tx.execute("SELECT")


def waiting(tx: Transaction, workspace: str, *, limit: int) -> list[WaitingCard]:
    """Cards with rows that are due, those that are due the longest first, each once.

    Only the first `limit` rows are read, in the order of the index, so that a batch costs the same whatever is behind
    it. A card's rows beyond them go on waiting.
    """
    rows = tx.execute(
        """
        SELECT card_id, max(propagation_id) AS upto
        FROM (
            SELECT card_id, next_attempt_at, propagation_id FROM propagations
            WHERE workspace = %s AND state = 'pending' AND next_attempt_at <= clock_timestamp()
            ORDER BY next_attempt_at, propagation_id LIMIT %s
        ) AS due
        GROUP BY card_id ORDER BY min(next_attempt_at), min(propagation_id)
        """,
        (workspace, limit),
    )
    return [WaitingCard(row["card_id"], row["upto"]) for row in rows]


def make_due(tx: Transaction, workspace: str) -> None:
    """Let nothing wait for a later attempt; parked rows stay parked."""
    tx.execute(
        """
        UPDATE propagations SET next_attempt_at = clock_timestamp()
        WHERE workspace = %s AND state = 'pending' AND next_attempt_at > clock_timestamp()
        """,
        (workspace,),
    )


def retry(tx: Transaction, workspace: str, card: str | None) -> int:
    """Let one card, or all, be tried at once, parked ones with all their attempts before them; returns how many."""
    row = tx.execute(
        """
        WITH again AS (
            UPDATE propagations
            SET attempts = CASE WHEN state = 'dead' THEN 0 ELSE attempts END, state = 'pending',
                next_attempt_at = least(next_attempt_at, clock_timestamp())
            WHERE workspace = %(workspace)s AND state <> 'done' AND (%(card)s::text IS NULL OR card_id = %(card)s)
            RETURNING card_id
        )
        SELECT count(DISTINCT card_id) AS cards FROM again
        """,
        {"workspace": workspace, "card": card},
    ).fetchone()
    return int(row["cards"]) if row else 0


def enqueue(tx: Transaction, workspace: str, cards: Mapping[str, int]) -> int:
    """Queue cards again at these revisions, as the indexer, except those that wait already; returns how many.

    A parked row is tried again rather than joined by a second one for its card.
    """
    queued = {"workspace": workspace, "cards": list(cards.keys()), "revisions": list(cards.values())}
    revived = tx.execute(
        """
        WITH again AS (
            UPDATE propagations SET state = 'pending', attempts = 0, next_attempt_at = clock_timestamp()
            WHERE workspace = %(workspace)s AND card_id = ANY (%(cards)s) AND state = 'dead'
            RETURNING card_id
        )
        SELECT count(DISTINCT card_id) AS cards FROM again
        """,
        queued,
    ).fetchone()
    added = tx.execute(
        """
        INSERT INTO propagations (workspace, card_id, revision)
        SELECT %(workspace)s, wanted.card_id, wanted.revision
        FROM unnest(%(cards)s::text[], %(revisions)s::integer[]) AS wanted (card_id, revision)
        WHERE NOT EXISTS (
            SELECT FROM propagations AS p
            WHERE p.workspace = %(workspace)s AND p.card_id = wanted.card_id AND p.state = 'pending'
        )
        """,
        queued,
    ).rowcount
    return added + (revived["cards"] if revived else 0)


def enqueue_active(tx: Transaction, workspace: str) -> None:
    """Queue every active card, as the indexer, and let all that wait be tried at once: the collection is empty."""
    make_due(tx, workspace)
    tx.execute(
        "UPDATE propagations SET state = 'pending', attempts = 0, next_attempt_at = clock_timestamp()"
        " WHERE workspace = %s AND state = 'dead'",
        (workspace,),
    )
    tx.execute(
        """
        INSERT INTO propagations (workspace, card_id, revision)
        SELECT c.workspace, c.card_id, c.revision FROM cards AS c
        WHERE c.workspace = %s AND c.status = 'active' AND NOT EXISTS (
            SELECT FROM propagations AS p
            WHERE p.workspace = c.workspace AND p.card_id = c.card_id AND p.state = 'pending'
        )
        ORDER BY c.number
        """,
        (workspace,),
    )


def settle(tx: Transaction, workspace: str, cards: Sequence[WaitingCard]) -> None:
    """Mark as done what waited for these cards, up to the row that was seen: a later change goes on waiting."""
    tx.execute(
        """
        UPDATE propagations AS p SET state = 'done', attempts = attempts + 1, last_error = NULL, settled_at = now()
        FROM unnest(%s::text[], %s::bigint[]) AS seen (card_id, upto)
        WHERE p.workspace = %s AND p.card_id = seen.card_id AND p.propagation_id <= seen.upto AND p.state <> 'done'
        """,
        ([card.card_id for card in cards], [card.upto for card in cards], workspace),
    )


def settle_followed(tx: Transaction, workspace: str, generation: int) -> int:
    """Mark as done what waited for cards that a generation follows at their present revision; returns how many rows.

    A change that commits later has a row of its own, which goes on waiting.
    """
    return tx.execute(
        """
        UPDATE propagations AS w
        SET state = 'done', attempts = attempts + 1, last_error = NULL, settled_at = now()
        FROM cards AS c
        LEFT JOIN projections AS p
            ON p.workspace = c.workspace AND p.card_id = c.card_id AND p.generation = %(generation)s
        WHERE w.workspace = %(workspace)s AND w.state <> 'done' AND c.workspace = w.workspace
            AND c.card_id = w.card_id AND w.revision <= c.revision AND CASE
                WHEN c.status = 'active'
                THEN p.revision = c.revision AND p.acknowledged_sha256 = p.expected_sha256
                ELSE p.expected_sha256 IS NULL AND p.acknowledged_sha256 IS NULL
            END
        """,
        {"workspace": workspace, "generation": generation},
    ).rowcount


def postpone(tx: Transaction, workspace: str, card: WaitingCard, error: str, *, outage: bool = False) -> None:
    """Record a failed attempt: the next one comes later, with jitter; after the last one the rows are parked.

    Args:
        outage: a server was down. That says nothing of the card, so its rows are never parked for it.
    """
    tx.execute(
        """
        UPDATE propagations SET
            -- An outage leaves the last tries to failures of the card's own.
            attempts = CASE WHEN %(outage)s THEN greatest(attempts, least(attempts + 1, %(most)s - 2))
                ELSE attempts + 1 END,
            last_error = left(%(error)s, 2000),
            state = CASE WHEN attempts + 1 >= %(most)s AND NOT %(outage)s THEN 'dead' ELSE 'pending' END,
            next_attempt_at = clock_timestamp() + make_interval(
                secs => least(%(longest)s, %(first)s * power(2, least(attempts, 16))) * (0.5 + random())
            )
        WHERE workspace = %(workspace)s AND card_id = %(card)s AND propagation_id <= %(upto)s AND state = 'pending'
        """,
        {
            "workspace": workspace,
            "card": card.card_id,
            "upto": card.upto,
            "error": error,
            "most": MAX_ATTEMPTS,
            "outage": outage,
            "first": FIRST_DELAY_SECONDS,
            "longest": LONGEST_OUTAGE_DELAY_SECONDS if outage else LONGEST_DELAY_SECONDS,
        },
    )


def unsettled(tx: Transaction, workspace: str, *, limit: int) -> list[UnsettledRow]:
    """Rows that wait or are parked, parked ones first, then the oldest."""
    rows = tx.execute(
        """
        SELECT card_id, revision, state, attempts, last_error, next_attempt_at, created_at
        FROM propagations WHERE workspace = %s AND state <> 'done' ORDER BY state, propagation_id LIMIT %s
        """,
        (workspace, limit),
    )
    return [UnsettledRow(**row) for row in rows]


def count(tx: Transaction, workspace: str) -> tuple[int, int]:
    """Cards that wait, and cards that are parked."""
    row = tx.execute(
        """
        SELECT count(DISTINCT card_id) FILTER (WHERE state = 'pending') AS pending,
               count(DISTINCT card_id) FILTER (WHERE state = 'dead') AS dead
        FROM propagations WHERE workspace = %s AND state <> 'done'
        """,
        (workspace,),
    ).fetchone()
    return (row["pending"], row["dead"]) if row else (0, 0)


def pending_workspaces(tx: Transaction) -> list[PendingWorkspace]:
    """What waits in every workspace: counts and ages only."""
    rows = tx.execute("SELECT workspace, pending, dead, oldest FROM monitor_pending() ORDER BY workspace")
    return [PendingWorkspace(**row) for row in rows]


def _try_lock(tx: Transaction, name: str) -> bool:
    """Take a lock that ends with the transaction, which may take long and must not be ended as idle meanwhile."""
    tx.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
    row = tx.execute("SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0)) AS locked", (name,)).fetchone()
    return bool(row and row["locked"])
