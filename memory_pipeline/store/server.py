"""What PostgreSQL says of itself: its release, its roles, the migrations that it has."""

from __future__ import annotations

from collections.abc import Sequence

from memory_pipeline.store.database import Transaction


def release(tx: Transaction) -> tuple[int, str]:
    """The major release, and the version as it is written."""
    row = tx.execute(
        "SELECT current_setting('server_version_num')::int / 10000 AS major, current_setting('server_version') AS shown"
    ).fetchone()
    assert row is not None  # noqa: S101 - an expression gives one row
    return row["major"], row["shown"]


def roles(tx: Transaction, names: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Those of `names` that do not exist, and those that may what none should, each with what that is."""
    rows = tx.execute(
        """
        SELECT n.name, r.rolname IS NULL AS missing,
               concat_ws(', ', CASE WHEN r.rolsuper THEN 'everything, as a superuser' END,
                               CASE WHEN r.rolbypassrls THEN 'pass by row-level security' END,
                               CASE WHEN r.rolcreaterole THEN 'make roles' END) AS may
        FROM unnest(%s::text[]) AS n (name) LEFT JOIN pg_roles AS r ON r.rolname = n.name
        ORDER BY n.name
        """,
        (list(names),),
    ).fetchall()
    missing = [row["name"] for row in rows if row["missing"]]
    return missing, [(row["name"], row["may"]) for row in rows if row["may"]]


def applied(tx: Transaction) -> int:
    """How many migrations the schema has."""
    row = tx.execute("SELECT count(*) AS applied FROM memory.schema_migrations").fetchone()
    assert row is not None  # noqa: S101 - an aggregate gives one row
    return int(row["applied"])
