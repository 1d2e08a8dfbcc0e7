"""Rows of the outbox. Each stands for one change of a card that the index has yet to follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from memory_pipeline.store.database import Transaction

MAX_ATTEMPTS = 8
"""After so many tries a row is parked, so that it blocks nothing; `index` queues its card again."""

FIRST_DELAY_SECONDS = 2.0
LONGEST_DELAY_SECONDS = 600.0


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


def try_lock_drain(tx: Transaction, workspace: str) -> bool:
    """Take the right to drain until the transaction ends: one writer per workspace, whatever started it."""
    row = tx.execute(
        "SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0)) AS locked", (f"drain:{workspace}",)
    ).fetchone()
    return bool(row and row["locked"])


def waiting(tx: Transaction, workspace: str, *, limit: int) -> list[WaitingCard]:
    """Cards with rows that are due, oldest first, each once."""
    rows = tx.execute(
        """
        SELECT card_id, max(propagation_id) AS upto FROM propagations
        WHERE workspace = %s AND state = 'pending' AND next_attempt_at <= clock_timestamp()
        GROUP BY card_id ORDER BY min(propagation_id) LIMIT %s
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


def enqueue(tx: Transaction, workspace: str, cards: Mapping[str, int]) -> int:
    """Queue cards again at these revisions, as the indexer, except those that wait already; returns how many."""
    return tx.execute(
        """
        INSERT INTO propagations (workspace, card_id, revision)
        SELECT %(workspace)s, wanted.card_id, wanted.revision
        FROM unnest(%(cards)s::text[], %(revisions)s::integer[]) AS wanted (card_id, revision)
        WHERE NOT EXISTS (
            SELECT FROM propagations AS p
            WHERE p.workspace = %(workspace)s AND p.card_id = wanted.card_id AND p.state = 'pending'
        )
        """,
        {"workspace": workspace, "cards": list(cards.keys()), "revisions": list(cards.values())},
    ).rowcount


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


def postpone(tx: Transaction, workspace: str, card: WaitingCard, error: str) -> None:
    """Record a failed attempt: the next one comes later, with jitter; after the last one the rows are parked."""
    tx.execute(
        """
        UPDATE propagations SET
            attempts = attempts + 1,
            last_error = left(%(error)s, 2000),
            state = CASE WHEN attempts + 1 >= %(most)s THEN 'dead' ELSE 'pending' END,
            next_attempt_at = clock_timestamp() + make_interval(
                secs => least(%(longest)s, %(first)s * power(2, attempts)) * (0.5 + random())
            )
        WHERE workspace = %(workspace)s AND card_id = %(card)s AND propagation_id <= %(upto)s AND state = 'pending'
        """,
        {
            "workspace": workspace,
            "card": card.card_id,
            "upto": card.upto,
            "error": error,
            "most": MAX_ATTEMPTS,
            "first": FIRST_DELAY_SECONDS,
            "longest": LONGEST_DELAY_SECONDS,
        },
    )


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
