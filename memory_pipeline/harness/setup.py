"""From nothing to a stack that can be used: servers, roles, databases, tables."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import psycopg

from memory_pipeline.core.errors import ConfigurationError, StoreUnavailable
from memory_pipeline.settings import Settings
from memory_pipeline.store.bootstrap import bootstrap
from memory_pipeline.store.database import Database, Role
from memory_pipeline.store.migrations import migrate

Say = Callable[[str], None]


def start(settings: Settings, say: Say) -> Settings:
    """Start the embedded servers that the environment does not name, and bring the schema up to date.

    Returns the settings with the addresses of what was started.

    Raises:
        EmbeddedError: a server cannot start.
        StoreUnavailable, MigrationChanged, MigrationsAhead: the registry cannot be made ready.
        ConfigurationError: the inbox cannot be made.
    """
    from memory_pipeline.embedded.stack import EmbeddedStack

    own_postgres = "MEMORY_POSTGRES_HOST" in os.environ
    EmbeddedStack(settings.state).up(
        postgres=not own_postgres,
        qdrant="MEMORY_QDRANT_URL" not in os.environ,
        ollama="MEMORY_OLLAMA_URL" not in os.environ,
        say=say,
    )
    ready = Settings(**settings.model_dump(include={"state"}))
    if not own_postgres:  # of a server of your own, `bootstrap` is run by its administrator
        try:
            bootstrap(ready, reset_passwords=True)  # a server of this state folder alone: nobody is locked out
        except psycopg.OperationalError as error:
            raise StoreUnavailable(
                f"the administrator cannot prepare PostgreSQL: {error}", hint="look at its log, then run up again"
            ) from error
    for name in apply_migrations(ready):
        say(f"applied migration {name}")
    _make_inbox(ready.inbox_path)
    return ready


def _make_inbox(inbox: Path) -> None:
    try:
        inbox.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"the inbox {inbox} cannot be made: {error.strerror}",
            hint="move away what is there, or set MEMORY_INBOX to a folder that you may write",
        ) from error


def apply_migrations(settings: Settings) -> list[str]:
    """Apply what is missing of the schema, as the owner; returns the names applied.

    Raises:
        StoreUnavailable: PostgreSQL cannot be reached, or does not know the owner yet.
        MigrationChanged, MigrationsAhead: nothing is applied.
    """
    try:
        with psycopg.connect(Database(settings).conninfo(Role.OWNER), autocommit=True) as connection:
            return migrate(connection)
    except psycopg.OperationalError as error:
        raise StoreUnavailable(
            f"PostgreSQL is not available to {Role.OWNER}: {error}",
            hint="run memory-pipeline up, or memory-pipeline bootstrap on a server of your own",
        ) from error
