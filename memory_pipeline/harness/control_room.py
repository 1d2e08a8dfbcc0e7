"""Dagster over the stack: its home, and the environment in which it finds its own database and ours."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

import psycopg

from memory_pipeline.core.display import told_time
from memory_pipeline.core.errors import ControlRoomUnavailable, MemoryPipelineError, StoreUnavailable
from memory_pipeline.settings import Settings
from memory_pipeline.store.bootstrap import DAGSTER_DATABASE, DAGSTER_ROLE
from memory_pipeline.store.database import server_conninfo

if TYPE_CHECKING:
    from dagster import DagsterInstance

    from memory_pipeline.operations.doctor import Finding

LOCATION = "memory_pipeline"
"""The name of the code location, whoever serves it."""

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
    _write_instance_file(home)
    # Absolute, for Dagster's processes run in folders of their own.
    folders = {
        "MEMORY_STATE": settings.state,
        "MEMORY_SECRETS_DIR": settings.secrets_dir,
        "MEMORY_INBOX": settings.inbox,
    }
    return {
        **os.environ,
        **{name: str(folder.resolve()) for name, folder in folders.items() if folder is not None},
        "DAGSTER_HOME": str(home),
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

    _require_database(settings)
    try:
        with _variables(dagster_environment(settings)), DagsterInstance.get() as instance:
            yield instance
    except (DagsterPostgresException, OperationalError) as error:
        raise _unavailable(error) from error


def _require_database(settings: Settings) -> None:
    """Say at once that Dagster's database is not there: its own code tries for ten seconds, and warns each time."""
    password = settings.secret(DAGSTER_ROLE).get_secret_value()
    settings.require_servers("postgres_host")
    conninfo = server_conninfo(settings, user=DAGSTER_ROLE, password=password, database=DAGSTER_DATABASE)
    try:
        psycopg.connect(conninfo).close()
    except psycopg.OperationalError as error:
        raise _unavailable(error) from error


def _unavailable(error: Exception) -> StoreUnavailable:
    return StoreUnavailable(
        f"Dagster's database is not available: {next(iter(str(error).splitlines()), type(error).__name__)}",
        hint="run memory-pipeline up, then repeat",
    )


@contextmanager
def _variables(wanted: Mapping[str, str]) -> Iterator[None]:
    """The environment that Dagster reads, put back afterwards."""
    before = dict(os.environ)
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name in wanted.keys() - before.keys():
            os.environ.pop(name, None)
        os.environ.update({name: before[name] for name in wanted.keys() & before.keys()})


def daemon_findings(settings: Settings) -> Iterator[Finding]:
    """Whether Dagster's daemon lives: without it sensors, schedules and the queue stand still."""
    from memory_pipeline.operations.doctor import Finding, finding_of

    try:
        with dagster_instance(settings) as instance:
            silent, last = _silent_daemons(instance)
    except MemoryPipelineError as error:
        yield finding_of("daemon", error)
        return
    start = "start it: memory-pipeline dev, or memory-pipeline service daemon"
    if not silent:
        yield Finding(check="daemon", state="well", told="every part gave a sign of life lately")
    elif last is None:
        yield Finding(check="daemon", state="warning", told="it has never run: nothing happens by itself", do=start)
    else:
        told = f"no sign of life from {', '.join(silent)} since {told_time(last)} at the latest"
        code = ControlRoomUnavailable.exit_code
        yield Finding(check="daemon", state="ill", told=told, do=start, exit_code=code)


def _silent_daemons(instance: DagsterInstance) -> tuple[list[str], datetime | None]:
    """The parts of the daemon that are not well, and when any of them was last heard of."""
    from dagster._daemon.controller import get_daemon_statuses

    statuses = get_daemon_statuses(instance, instance.get_required_daemon_types(), ignore_errors=True)
    silent = sorted(name for name, status in statuses.items() if not status.healthy)
    beats = [status.last_heartbeat.timestamp for status in statuses.values() if status.last_heartbeat]
    return silent, datetime.fromtimestamp(max(beats), UTC) if beats else None


def _write_instance_file(home: Path) -> None:
    """Put the project's dagster.yaml into a home; whole, for several processes may share it and start at once."""
    wanted, path = deployed("dagster.yaml").read_bytes(), home / "dagster.yaml"
    if path.is_file() and path.read_bytes() == wanted:
        return
    beside = path.with_name(f".dagster.yaml.{os.getpid()}")
    beside.write_bytes(wanted)
    beside.replace(path)


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
