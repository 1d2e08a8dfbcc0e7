"""What sensors ask about all workspaces at once: slugs, counts and ages, never content."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from memory_pipeline.store.database import Transaction

BEGINNING = "0"
"""The cursor before the first change."""


class Change(NamedTuple):
    """A workspace in which something was written, and which parts: `workspace`, `ledger`, `cards`, `index`."""

    workspace: str
    parts: frozenset[str]
    oldest: datetime


class Due(NamedTuple):
    """What waits to be propagated now. `newest` and `attempts` change with every further change or try."""

    workspace: str
    rows: int
    newest: int
    attempts: int
    oldest: datetime


class Extent(NamedTuple):
    """One workspace in counts of cards, and since when the oldest change waits or is not followed."""

    workspace: str
    status: str
    serving: bool
    active: int
    current: int
    leftover: int
    pending: int
    parked: int
    oldest_pending: datetime | None
    oldest_behind: datetime | None


class Pruned(NamedTuple):
    """Rows that were forgotten."""

    propagations: int
    changes: int


def changes(tx: Transaction, since: str) -> tuple[list[Change], str]:
    """What changed from a cursor on, and the next cursor.

    A transaction that is still running is not passed by: the cursor stops before the oldest one.
    """
    rows = tx.execute(
        "SELECT workspace, parts, oldest, upto::text FROM monitor_changes(%s::xid8) ORDER BY oldest, workspace",
        (since,),
    ).fetchall()
    found = [
        Change(row["workspace"], frozenset(row["parts"]), row["oldest"]) for row in rows if row["workspace"] is not None
    ]
    return found, str(rows[0]["upto"])


def has_reached(tx: Transaction, cursor: str) -> bool:
    """Whether this PostgreSQL has come as far as a cursor. One that was restored from a backup may not have."""
    row = tx.execute("SELECT %s::xid8 <= pg_snapshot_xmax(pg_current_snapshot()) AS reached", (cursor,)).fetchone()
    return bool(row and row["reached"])


def due(tx: Transaction) -> list[Due]:
    """Every workspace in which something is due to be propagated, the longest waiting first."""
    rows = tx.execute("SELECT workspace, rows, newest, attempts, oldest FROM monitor_due() ORDER BY oldest, workspace")
    return [Due(**row) for row in rows]


def extents(tx: Transaction) -> list[Extent]:
    """Every workspace but those made for an evaluation, by slug."""
    return [Extent(**row) for row in tx.execute("SELECT * FROM monitor_health()")]


def prune(tx: Transaction, *, days: int) -> Pruned:
    """Forget settled rows of the outbox and shown changes that are older than this, as the indexer."""
    row = tx.execute("SELECT * FROM monitor_prune(make_interval(days => %s))", (days,)).fetchone()
    assert row is not None  # noqa: S101 - the function gives one row
    return Pruned(**row)
