"""Connections: one pool per role, one workspace per transaction, and errors by name.

Every transaction sets its workspace with `SET LOCAL`, so that a pooled connection carries nothing into the next one.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, NewType

import psycopg
from psycopg import Connection, errors
from psycopg.conninfo import make_conninfo
from psycopg.rows import DictRow, dict_row
from psycopg_pool import ConnectionPool, PoolTimeout

from memory_pipeline.core.errors import BadText, RoleRefused, StoreUnavailable
from memory_pipeline.settings import Settings
from memory_pipeline.store.migrations import require_current

SCHEMA = "memory"
CONNECT_TIMEOUT = 5
"""Seconds until a server that does not answer is called unavailable."""

POOL_SIZE = 8
IDLE_SECONDS = 60.0

Transaction = NewType("Transaction", Connection[DictRow])
"""A connection inside a transaction whose workspace is set."""


class Role(StrEnum):
    """The roles of the database; each job connects as its own."""

    OWNER = "memory_owner"
    HARNESS = "memory_harness"
    READER = "memory_reader"
    INDEXER = "memory_indexer"
    REVIEWER = "memory_reviewer"


class Database:
    """The registry's database, opened role by role when a role is first used."""

    def __init__(self, settings: Settings, *, check_migrations: bool = True) -> None:
        self._settings = settings
        self._pools: dict[Role, ConnectionPool[Connection[DictRow]]] = {}
        self._lock = threading.Lock()
        self._unchecked = check_migrations

    @contextlib.contextmanager
    def transaction(self, role: Role, workspace: str | None, *, via: str = "sql") -> Iterator[Transaction]:
        """One transaction as `role` in `workspace` (none sees no rows); committed on the way out.

        Args:
            via: the door that asked (`cli`, `dagster`, `http`, `python`), kept with what is written.

        Raises:
            StoreUnavailable: the server cannot be reached, or broke off; nothing was committed, or the answer to the
                commit was lost.
            RoleRefused: PostgreSQL refused a statement to this role.
            BadText: a value is longer, or nests deeper, than PostgreSQL can take.
            MigrationsLag, MigrationsAhead: schema and code do not fit.
        """
        with _named_errors(role), self._pool(role).connection() as connection, connection.transaction():
            self._check(connection)
            connection.execute(
                "SELECT set_config('memory.workspace', %s, true), set_config('memory.via', %s, true)",
                (workspace or "", via),
            )
            yield Transaction(connection)

    def close(self) -> None:
        """Close every pool. Safe to call twice."""
        with self._lock:
            pools, self._pools = list(self._pools.values()), {}
        for pool in pools:
            pool.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def conninfo(self, role: Role) -> str:
        """The connection string of a role, password included: never log it."""
        settings = self._settings
        settings.require_servers("postgres_host")
        login = settings.reviewer_login if role is Role.REVIEWER else role.value
        return server_conninfo(
            settings,
            user=login,
            password=settings.secret(login).get_secret_value(),
            database=settings.postgres_database,
            options=f"-c search_path={SCHEMA},pg_temp",
        )

    def _pool(self, role: Role) -> ConnectionPool[Connection[DictRow]]:
        with self._lock:
            pool = self._pools.get(role)
            if pool is None:
                conninfo = self.conninfo(role)
                with psycopg.connect(conninfo):  # the pool only says that it waited; this says why
                    pass
                pool = ConnectionPool(
                    conninfo,
                    kwargs={"row_factory": dict_row},
                    min_size=0,
                    max_size=POOL_SIZE,
                    max_idle=IDLE_SECONDS,
                    timeout=CONNECT_TIMEOUT * 2,
                    reconnect_timeout=CONNECT_TIMEOUT,
                    check=ConnectionPool.check_connection,
                    name=role.value,
                    open=True,
                )
                self._pools[role] = pool
            return pool

    def _check(self, connection: Connection[DictRow]) -> None:
        if self._unchecked:
            require_current(connection)
            self._unchecked = False


def login_of(tx: Transaction) -> str:
    """The login that PostgreSQL authenticated for this transaction's connection."""
    row = tx.execute("SELECT session_user AS login").fetchone()
    assert row is not None  # noqa: S101 - an expression gives one row
    return str(row["login"])


def server_conninfo(settings: Settings, *, user: str, password: str, database: str, options: str = "") -> str:
    """A connection string for one login, with the TLS settings.

    What it leaves out the driver takes from the environment (`PGHOSTADDR`, `PGOPTIONS` and their like), which may have
    been set for another server: so what could lead elsewhere is said, with nothing in it where nothing is wanted.
    """
    extra: dict[str, Any] = {"sslmode": settings.postgres_sslmode}
    if settings.postgres_sslrootcert:
        extra["sslrootcert"] = str(settings.postgres_sslrootcert)
    return make_conninfo(
        host=settings.postgres_host,
        port=settings.postgres_port,
        dbname=database,
        user=user,
        password=password,
        connect_timeout=CONNECT_TIMEOUT,
        application_name="memory-pipeline",
        hostaddr="",
        options=options,
        client_encoding="utf8",
        target_session_attrs="any",
        **extra,
    )


@contextlib.contextmanager
def _named_errors(role: Role) -> Iterator[None]:
    """Turn the driver's errors into named ones; constraints are left to whoever knows what they mean."""
    try:
        yield
    except errors.InsufficientPrivilege as error:
        raise RoleRefused(
            f"PostgreSQL refused this to {role}: {_first_line(error)}", hint="use the role whose task it is"
        ) from error
    except errors.SerializationFailure:  # an operational error to the driver; here a card that has moved on
        raise
    except (errors.ProgramLimitExceeded, errors.StatementTooComplex) as error:  # to the driver, the server's trouble
        raise BadText(f"PostgreSQL cannot hold this: {_first_line(error)}", hint="make it shorter") from error
    except (psycopg.OperationalError, PoolTimeout) as error:
        raise StoreUnavailable(
            f"PostgreSQL is not available: {_first_line(error)}",
            hint="run memory-pipeline up, or check MEMORY_POSTGRES_HOST, MEMORY_POSTGRES_PORT and the role's secret",
        ) from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
