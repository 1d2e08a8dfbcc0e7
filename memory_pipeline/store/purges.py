"""Erasing a workspace: the one exception to the append-only rule. The row that says so comes first, and stays."""

from __future__ import annotations

from graphlib import TopologicalSorter

from psycopg import sql

from memory_pipeline.store.database import SCHEMA, Transaction


def begin(tx: Transaction, workspace: str, reason: str) -> None:
    """Record that a workspace is being purged, as the owner; one that was begun before goes on."""
    tx.execute(
        """
        INSERT INTO purges (workspace, reason)
        SELECT %(workspace)s, %(reason)s
        WHERE NOT EXISTS (SELECT FROM purges WHERE workspace = %(workspace)s AND finished_at IS NULL)
        """,
        {"workspace": workspace, "reason": reason},
    )


def collections(tx: Transaction, workspace: str) -> list[str]:
    """Every collection that was ever made for a workspace, as the owner."""
    rows = tx.execute("SELECT collection FROM collections WHERE workspace = %s ORDER BY collection", (workspace,))
    return [row["collection"] for row in rows]


def delete_rows(tx: Transaction, workspace: str) -> int:
    """Delete every row of a workspace whose purge has begun, as the owner, and say so; returns how many."""
    deleted = 0
    for table in tables(tx):
        statement = sql.SQL("DELETE FROM {} WHERE workspace = %s").format(sql.Identifier(SCHEMA, table))
        deleted += tx.execute(statement, (workspace,)).rowcount
    tx.execute(
        "UPDATE purges SET finished_at = clock_timestamp() WHERE workspace = %s AND finished_at IS NULL", (workspace,)
    )
    return deleted


def tables(tx: Transaction) -> list[str]:
    """Tables with rows of workspaces, each before those that it refers to; from the catalogue, so none is forgotten."""
    rows = tx.execute(
        """
        SELECT
            t.relname AS name,
            ARRAY(
                SELECT r.relname::text
                FROM pg_constraint AS f JOIN pg_class AS r ON r.oid = f.conrelid
                WHERE f.contype = 'f' AND f.confrelid = t.oid AND f.conrelid <> t.oid
            ) AS referring
        FROM pg_class AS t
        JOIN pg_attribute AS a ON a.attrelid = t.oid AND a.attname = 'workspace' AND NOT a.attisdropped
        WHERE t.relnamespace = %s::regnamespace AND t.relkind IN ('r', 'p') AND t.relname <> 'purges'
        ORDER BY t.relname
        """,
        (SCHEMA,),
    )
    return list(TopologicalSorter({row["name"]: row["referring"] for row in rows}).static_order())
