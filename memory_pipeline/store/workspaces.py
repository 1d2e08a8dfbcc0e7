"""Rows of `workspaces`, and the locks under which a workspace or a session changes."""

from __future__ import annotations

from typing import NamedTuple

from psycopg.errors import UniqueViolation

from memory_pipeline.core.errors import UnknownWorkspace, WorkspaceExists, WorkspaceRetired
from memory_pipeline.core.workspace import Workspace, WorkspaceStatus
from memory_pipeline.store.database import Transaction

_COLUMNS = (
    "workspace AS slug, title, language, sql_dialect, default_database, default_schema, embedding_profile, "
    "four_eyes, status"
)


class WorkspaceState(NamedTuple):
    """What is known of a workspace without entering it."""

    slug: str
    status: WorkspaceStatus


def create(tx: Transaction, workspace: Workspace, *, scratch: bool = False) -> None:
    """Insert a workspace, as the owner.

    Raises:
        WorkspaceExists: the slug is taken.
    """
    try:
        tx.execute(
            """
            INSERT INTO workspaces (workspace, title, language, sql_dialect, default_database, default_schema,
                                    embedding_profile, four_eyes, scratch)
            VALUES (%(slug)s, %(title)s, %(language)s, %(sql_dialect)s, %(default_database)s, %(default_schema)s,
                    %(embedding_profile)s, %(four_eyes)s, %(scratch)s)
            """,
            workspace.model_dump() | {"scratch": scratch},
        )
    except UniqueViolation as error:
        raise WorkspaceExists(
            f"workspace {workspace.slug!r} exists already", hint="choose another slug, or use the one that exists"
        ) from error


def update(tx: Transaction, workspace: Workspace) -> None:
    """Give a workspace other settings or another status, as the owner. A trigger keeps what it was."""
    tx.execute(
        """
        UPDATE workspaces
        SET title = %(title)s, language = %(language)s, sql_dialect = %(sql_dialect)s,
            default_database = %(default_database)s, default_schema = %(default_schema)s,
            embedding_profile = %(embedding_profile)s, four_eyes = %(four_eyes)s, status = %(status)s
        WHERE workspace = %(slug)s
        """,
        workspace.model_dump(mode="json"),
    )


def get(tx: Transaction, slug: str) -> Workspace:
    """The workspace of this transaction.

    Raises:
        UnknownWorkspace: there is none of that name.
    """
    query = f"SELECT {_COLUMNS} FROM workspaces WHERE workspace = %s"  # noqa: S608 - own columns
    row = tx.execute(query, (slug,)).fetchone()
    if row is None:
        raise UnknownWorkspace(slug)
    return Workspace.model_validate(row)


def get_active(tx: Transaction, slug: str) -> Workspace:
    """As `get`, but a retired workspace raises `WorkspaceRetired`."""
    workspace = get(tx, slug)
    if workspace.status is WorkspaceStatus.RETIRED:
        raise WorkspaceRetired(slug)
    return workspace


def list_states(tx: Transaction, *, scratch: bool = False) -> list[WorkspaceState]:
    """Every workspace's slug and status, by slug; those made for an evaluation only where asked for."""
    rows = tx.execute("SELECT workspace, status, scratch FROM monitor_workspaces()").fetchall()
    return [
        WorkspaceState(row["workspace"], WorkspaceStatus(row["status"]))
        for row in rows
        if scratch or not row["scratch"]
    ]


def is_scratch(tx: Transaction, slug: str) -> bool:
    """Whether the workspace of this transaction was made for an evaluation; False where there is none of that name."""
    row = tx.execute("SELECT scratch FROM workspaces WHERE workspace = %s", (slug,)).fetchone()
    return bool(row and row["scratch"])


def scratch_slugs(tx: Transaction) -> list[str]:
    """Every workspace that an evaluation made, by slug."""
    rows = tx.execute("SELECT workspace FROM monitor_workspaces() WHERE scratch")
    return [row["workspace"] for row in rows]


def try_hold_scratch(tx: Transaction, slug: str) -> bool:
    """Take a scratch workspace until the transaction ends, however it ends. False where its maker still lives."""
    row = tx.execute(
        "SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0)) AS held", (f"scratch:{slug}",)
    ).fetchone()
    return bool(row and row["held"])


def lock_cards(tx: Transaction, slug: str) -> None:
    """Hold the workspace's cards until the transaction ends: ids are given and duplicates looked up under this lock."""
    _lock(tx, f"cards:{slug}")


def lock_session(tx: Transaction, slug: str, session_id: str) -> None:
    """Hold one session's ledger until the transaction ends: appending and deciding take turns."""
    _lock(tx, f"session:{slug}:{session_id}")


def _lock(tx: Transaction, name: str) -> None:
    tx.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (name,))
