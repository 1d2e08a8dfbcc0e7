"""Numbered SQL files, each applied once, in order, in a transaction of its own, under a lock, with its checksum kept.

A file that was applied and has changed since is refused. A start on a schema that lags behind the code is refused with
the command to run. A library was weighed and left out: this needs one table and one lock, the libraries on offer keep
no checksum of the content.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from psycopg import Connection, sql

from memory_pipeline.core.errors import ConfigurationError, MigrationChanged, MigrationsAhead, MigrationsLag

_FILE = re.compile(r"(\d{3})_[a-z0-9_]+\.sql")
_LOCK = 0x6D656D6F  # "memo": one migrator at a time
_PACKAGE = Path(__file__).resolve().parent.parent


class Migration(NamedTuple):
    """One file: its name (with number), its text and the SHA-256 of its bytes."""

    name: str
    text: str
    sha256: str


def migrations_folder() -> Path:
    """Where the files lie: inside an installed package, or at the top of a checkout."""
    packaged = _PACKAGE / "_deploy" / "sql"
    return packaged if packaged.is_dir() else _PACKAGE.parent / "sql"


def load_migrations(folder: Path | None = None) -> list[Migration]:
    """Every migration of a folder, in order.

    Raises:
        ConfigurationError: none there, a name that is not numbered, or a gap in the numbers.
    """
    folder = folder or migrations_folder()
    files = sorted(folder.glob("*.sql"))
    numbers = [int(found.group(1)) if (found := _FILE.fullmatch(file.name)) else 0 for file in files]
    if not files or numbers != list(range(1, len(files) + 1)):
        raise ConfigurationError(
            f"{folder} does not hold migrations numbered from 001 without a gap",
            hint="reinstall memory-pipeline, or name the new file after the last one",
        )
    return [_load(file) for file in files]


def migrate(connection: Connection[Any], *, upto: int | None = None, folder: Path | None = None) -> list[str]:
    """Apply what is missing, as the owner, and return the names applied.

    Args:
        connection: a connection of the owner in autocommit mode, outside a transaction.
        upto: the last number to apply; all by default.

    Raises:
        MigrationChanged: an applied migration differs from its file; nothing is applied.
        MigrationsAhead: the database knows more than the folder.
    """
    wanted = load_migrations(folder)[:upto]
    connection.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
    try:
        _prepare(connection)
        applied = _applied(connection)
        _compare(applied, load_migrations(folder))
        missing = [migration for migration in wanted if migration.name not in applied]
        for migration in missing:
            _apply(connection, migration)
    finally:
        connection.execute("SELECT pg_advisory_unlock(%s)", (_LOCK,))
    return [migration.name for migration in missing]


def require_current(connection: Connection[Any], *, folder: Path | None = None) -> None:
    """Refuse a schema that is not that of the code.

    Raises:
        MigrationsLag, MigrationsAhead, MigrationChanged: each with what to do.
    """
    known = load_migrations(folder)
    applied = _applied(connection)
    _compare(applied, known)
    if missing := [migration.name for migration in known if migration.name not in applied]:
        raise MigrationsLag(missing)


def _load(file: Path) -> Migration:
    content = file.read_bytes()
    return Migration(file.stem, content.decode("utf-8"), hashlib.sha256(content).hexdigest())


def _prepare(connection: Connection[Any]) -> None:
    with connection.transaction():
        connection.execute("CREATE SCHEMA IF NOT EXISTS memory")
        connection.execute(
            """
            CREATE TABLE IF NOT EXISTS memory.schema_migrations (
                name       text PRIMARY KEY,
                sha256     text NOT NULL,
                applied_at timestamptz NOT NULL DEFAULT now(),
                applied_by text NOT NULL DEFAULT session_user
            )
            """
        )
        connection.execute("GRANT USAGE ON SCHEMA memory TO PUBLIC")
        connection.execute("GRANT SELECT ON memory.schema_migrations TO PUBLIC")


def _applied(connection: Connection[Any]) -> dict[str, str]:
    """Name to checksum of what the database has; empty where the table does not exist yet."""
    known = connection.execute("SELECT to_regclass('memory.schema_migrations')").fetchone()
    if known is None or _only(known) is None:
        return {}
    rows = connection.execute("SELECT concat_ws(' ', name, sha256) FROM memory.schema_migrations ORDER BY name")
    return dict(str(_only(row)).split(" ") for row in rows)


def _only(row: Any) -> object:
    """The one column of a row, whatever the connection's row factory."""
    return next(iter(row.values())) if isinstance(row, Mapping) else row[0]


def _compare(applied: dict[str, str], known: list[Migration]) -> None:
    checksums = {migration.name: migration.sha256 for migration in known}
    if unknown := sorted(applied.keys() - checksums.keys()):
        raise MigrationsAhead(unknown)
    for name, checksum in applied.items():
        if checksums[name] != checksum:
            raise MigrationChanged(name)


def _apply(connection: Connection[Any], migration: Migration) -> None:
    with connection.transaction():
        connection.execute("SET LOCAL search_path = memory, pg_temp")
        connection.execute(sql.SQL(migration.text))
        connection.execute(
            "INSERT INTO memory.schema_migrations (name, sha256) VALUES (%s, %s)", (migration.name, migration.sha256)
        )
