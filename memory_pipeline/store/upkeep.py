"""What an index leaves to be done later: removals to look at again, collections to drop, and the registry's epoch."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from memory_pipeline.core.epoch import Epoch
from memory_pipeline.store.database import Transaction


class UpkeepDue(NamedTuple):
    """What is due in one workspace beside its outbox, seen without entering it."""

    workspace: str
    removals: int
    collections: int
    oldest: datetime


class Removal(NamedTuple):
    """A point that was removed and is looked at again. `wanted`: its card has become one that is projected."""

    card_id: str
    wanted: bool


class Leftover(NamedTuple):
    """A collection that nothing uses any more. `generation`: the one that it held; none for a dense-only index."""

    collection: str
    dimensions: int
    generation: int | None


def epoch(tx: Transaction, workspace: str) -> Epoch | None:
    """How far the registry has come; none before its first write to an index."""
    row = tx.execute("SELECT lineage, counter FROM registry_epoch WHERE workspace = %s", (workspace,)).fetchone()
    return Epoch(str(row["lineage"]), row["counter"]) if row else None


def raise_epoch(tx: Transaction, workspace: str) -> Epoch:
    """Go one further, in the transaction that records what is about to be written."""
    row = tx.execute(
        """
        INSERT INTO registry_epoch (workspace) VALUES (%s)
        ON CONFLICT (workspace) DO UPDATE SET counter = registry_epoch.counter + 1
        RETURNING lineage, counter
        """,
        (workspace,),
    ).fetchone()
    assert row is not None  # noqa: S101 - an upsert gives one row
    return Epoch(str(row["lineage"]), row["counter"])


def renew_lineage(tx: Transaction, workspace: str) -> None:
    """Become another registry, for what was written by this one before it was restored."""
    tx.execute("UPDATE registry_epoch SET lineage = gen_random_uuid() WHERE workspace = %s", (workspace,))


def bury(tx: Transaction, workspace: str, generation: int, ids: Sequence[str], *, seconds: float) -> None:
    """Look at removed points again for so long."""
    tx.execute(
        """
        INSERT INTO tombstones (workspace, generation, card_id, verify_until)
        SELECT %(workspace)s, %(generation)s, gone.card_id, clock_timestamp() + make_interval(secs => %(seconds)s)
        FROM unnest(%(ids)s::text[]) AS gone (card_id)
        ON CONFLICT (workspace, generation, card_id) DO UPDATE SET verify_until = excluded.verify_until
        """,
        {"workspace": workspace, "generation": generation, "ids": list(ids), "seconds": seconds},
    )


def removals(tx: Transaction, workspace: str, generation: int, *, limit: int) -> list[Removal]:
    """Removed points that are to be looked at, the oldest first."""
    rows = tx.execute(
        """
        SELECT t.card_id, c.status = 'active' AS wanted
        FROM tombstones AS t JOIN cards AS c USING (workspace, card_id)
        WHERE t.workspace = %s AND t.generation = %s ORDER BY t.verify_until, t.card_id LIMIT %s
        """,
        (workspace, generation, limit),
    )
    return [Removal(**row) for row in rows]


def forget_removals(tx: Transaction, workspace: str, generation: int, ids: Sequence[str]) -> None:
    """Stop looking at these, whenever they were removed."""
    tx.execute(
        "DELETE FROM tombstones WHERE workspace = %s AND generation = %s AND card_id = ANY (%s)",
        (workspace, generation, list(ids)),
    )


def settle_removals(tx: Transaction, workspace: str, generation: int, ids: Sequence[str], looked_at: datetime) -> None:
    """Stop looking at those of these whose time had passed when they were looked at."""
    tx.execute(
        """
        DELETE FROM tombstones
        WHERE workspace = %s AND generation = %s AND card_id = ANY (%s) AND verify_until <= %s
        """,
        (workspace, generation, list(ids), looked_at),
    )


def now(tx: Transaction) -> datetime:
    """The database's clock, which every due time is measured by."""
    row = tx.execute("SELECT clock_timestamp() AS moment").fetchone()
    assert row is not None  # noqa: S101 - an expression gives one row
    moment: datetime = row["moment"]
    return moment


def leftovers(tx: Transaction, workspace: str) -> list[Leftover]:
    """Collections whose time to be dropped has come."""
    rows = tx.execute(
        """
        SELECT c.collection, c.dimensions, g.generation
        FROM collections AS c LEFT JOIN generations AS g USING (workspace, collection)
        WHERE c.workspace = %s AND c.drop_after <= clock_timestamp() AND c.dropped_at IS NULL
            AND (g.state IS NULL OR g.state IN ('replaced', 'failed'))
        ORDER BY c.drop_after, c.collection
        """,
        (workspace,),
    )
    return [Leftover(**row) for row in rows]


def forget_collection(tx: Transaction, workspace: str, leftover: Leftover) -> None:
    """A collection is dropped: what was known of its points goes, and every embedding that nothing uses any more."""
    tx.execute(
        "UPDATE collections SET dropped_at = clock_timestamp() WHERE workspace = %s AND collection = %s",
        (workspace, leftover.collection),
    )
    for table in ("tombstones", "projections"):
        tx.execute(
            f"DELETE FROM {table} WHERE workspace = %s AND generation = %s",  # noqa: S608 - the two names above
            (workspace, leftover.generation),
        )
    prune_embeddings(tx, workspace)


def prune_embeddings(tx: Transaction, workspace: str) -> None:
    """Delete vectors of models and analysers that no generation in use was built with."""
    for table, column, source in (
        ("dense_embeddings", "model_digest", "model_digest"),
        ("sparse_embeddings", "analyser", "analyser"),
    ):
        tx.execute(
            f"""
            DELETE FROM {table} AS e WHERE e.workspace = %s AND NOT EXISTS (
                SELECT FROM generations AS g
                WHERE g.workspace = e.workspace AND g.{source} = e.{column} AND g.state IN ('serving', 'building')
            )
            """,  # noqa: S608 - the names above
            (workspace,),
        )


def due(tx: Transaction) -> list[UpkeepDue]:
    """What is due in every workspace: counts and ages only."""
    rows = tx.execute("SELECT workspace, removals, collections, oldest FROM monitor_upkeep() ORDER BY workspace")
    return [UpkeepDue(**row) for row in rows]
