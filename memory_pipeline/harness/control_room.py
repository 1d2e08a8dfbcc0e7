"""Dagster over the stack: its home, and the environment in which it finds its own database and ours."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from memory_pipeline.core.errors import StoreUnavailable
from memory_pipeline.settings import Settings
from memory_pipeline.store.bootstrap import DAGSTER_DATABASE, DAGSTER_ROLE

if TYPE_CHECKING:
    from dagster import DagsterInstance

_PACKAGE = Path(__file__).resolve().parent.parent


def dagster_environment(settings: Settings) -> dict[str, str]:
    """The environment for Dagster's processes. Its home is made in the state folder, with the project's dagster.yaml.

    Raises:
        MissingSecret: the password of Dagster's own login is not there.
        ServersUnknown: no address for PostgreSQL.
    """
    settings.require_servers("postgres_host")
    home = (settings.state / "dagster").resolve()
    home.mkdir(parents=True, exist_ok=True)
    (home / "dagster.yaml").write_bytes(deployed("dagster.yaml").read_bytes())
    return {
        **os.environ,
        "DAGSTER_HOME": str(home),
        "MEMORY_STATE": str(settings.state.resolve()),
        "MEMORY_DAGSTER_PG_URL": _dagster_url(settings),
    }


@contextmanager
def dagster_instance(settings: Settings) -> Iterator[DagsterInstance]:
    """The instance of that home, for a program that runs assets itself.

    Raises:
        StoreUnavailable: its database cannot be reached, or broke off.
    """
    from dagster import DagsterInstance
    from dagster_postgres.utils import DagsterPostgresException
    from sqlalchemy.exc import OperationalError

    os.environ.update(dagster_environment(settings))
    try:
        with DagsterInstance.get() as instance:
            yield instance
    except (DagsterPostgresException, OperationalError) as error:
        raise StoreUnavailable(
            f"Dagster's database is not available: {next(iter(str(error).splitlines()), type(error).__name__)}",
            hint="run memory-pipeline up, then repeat",
        ) from error


def _dagster_url(settings: Settings) -> str:
    """Dagster's own database. It holds the password: handed to Dagster's processes, never shown."""
    password = quote(settings.secret(DAGSTER_ROLE).get_secret_value(), safe="")
    options = {"sslmode": settings.postgres_sslmode}
    if settings.postgres_sslrootcert:
        options["sslrootcert"] = str(settings.postgres_sslrootcert)
    server = f"{settings.postgres_host}:{settings.postgres_port}"
    return f"postgresql+psycopg2://{DAGSTER_ROLE}:{password}@{server}/{DAGSTER_DATABASE}?{urlencode(options)}"


def deployed(name: str) -> Path:
    """A file of the top level: inside an installed package, or at the top of a checkout."""
    packaged = _PACKAGE / "_deploy" / name
    return packaged if packaged.is_file() else _PACKAGE.parent / name
