"""Bringing a database to the schema of the code, and refusing to work on any other."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import psycopg
import pytest
from psycopg import Connection, errors

from memory_pipeline.core.errors import ConfigurationError, MigrationChanged, MigrationsAhead, MigrationsLag
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.settings import Settings
from memory_pipeline.store import generations, workspaces
from memory_pipeline.store.bootstrap import bootstrap
from memory_pipeline.store.database import Database, Role, server_conninfo
from memory_pipeline.store.migrations import load_migrations, migrate, migrations_folder, require_current
from memory_pipeline_tests.core.builders import content, requires
from memory_pipeline_tests.store.scenes import insert_card, scalar

NAMES = [migration.name for migration in load_migrations()]
NEXT = f"{len(NAMES) + 1:03d}"
"""The number of the first migration that this version has not."""

Owner = Connection[tuple[Any, ...]]


@pytest.fixture
def fresh(settings: Settings) -> Iterator[Settings]:
    """Settings of a database that has roles and nothing else; dropped when the test ends."""
    if not (settings.secrets / settings.postgres_admin).exists():
        pytest.skip("only an administrator can make databases, and its secret is not here")
    name = f"memory_test_{uuid.uuid4().hex[:12]}"
    own = settings.model_copy(update={"postgres_database": name})
    bootstrap(own)
    yield own
    with psycopg.connect(_admin(settings), autocommit=True) as admin:
        admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def owner(fresh: Settings) -> Iterator[Owner]:
    """The owner's connection to the fresh database."""
    with _owner(fresh) as connection:
        yield connection


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the migrations, to be changed."""
    return Path(shutil.copytree(migrations_folder(), tmp_path / "sql"))


# --- applying ----------------------------------------------------------------------------------------------------


def test_a_fresh_database_gets_every_migration_in_order(fresh: Settings, owner: Owner) -> None:
    assert migrate(owner) == NAMES
    require_current(owner)
    with Database(fresh) as database:
        assert scalar(database, Role.READER, None, "SELECT count(*) FROM monitor_workspaces()") == 0


def test_a_second_run_changes_nothing(owner: Owner) -> None:
    migrate(owner)
    before = _applied(owner)
    assert migrate(owner) == []
    assert _applied(owner) == before


def test_a_run_may_stop_early_and_go_on_later(owner: Owner) -> None:
    assert migrate(owner, upto=1) == NAMES[:1]
    assert migrate(owner) == NAMES[1:]


def test_what_was_applied_is_kept_with_its_checksum_and_by_whom(owner: Owner) -> None:
    migrate(owner)
    assert [(name, checksum, by) for name, checksum, _, by in _applied(owner)] == [
        (migration.name, migration.sha256, "memory_owner") for migration in load_migrations()
    ]


def test_preparing_the_server_again_harms_nothing(fresh: Settings, owner: Owner) -> None:
    migrate(owner)
    bootstrap(fresh)
    require_current(owner)


def test_two_migrators_at_once_apply_each_migration_once(fresh: Settings, owner: Owner) -> None:
    together = Barrier(2)

    def run(_: int) -> list[str]:
        with _owner(fresh) as connection:
            together.wait(timeout=30)
            return migrate(connection)

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(run, range(2))) == [[], NAMES]
    assert [row[0] for row in _applied(owner)] == NAMES


# --- from the dense index to the hybrid one ----------------------------------------------------------------------


def test_cards_of_the_dense_index_stay_as_they_are_and_wait_for_both_vectors(fresh: Settings, owner: Owner) -> None:
    migrate(owner, upto=1)
    with Database(fresh, check_migrations=False) as database:
        for slug, count in (("one", 3), ("two", 1), ("none", 0)):
            _make_workspace(database, slug)
            for number in range(1, count + 1):
                insert_card(database, slug, number, content(detail=f"regola {number}", links=(requires("mem-0001"),)))
        with database.transaction(Role.INDEXER, "one") as tx:  # one card is indexed, one still waits, one is deleted
            tx.execute("UPDATE propagations SET state = 'done' WHERE card_id <> 'mem-0002'")
        with database.transaction(Role.REVIEWER, "one") as tx:
            tx.execute("UPDATE cards SET status = 'deleted', revision = 2 WHERE card_id = 'mem-0003'")
        with database.transaction(Role.INDEXER, "one") as tx:
            tx.execute("UPDATE propagations SET state = 'done' WHERE card_id = 'mem-0003'")
        with database.transaction(Role.INDEXER, "two") as tx:
            tx.execute("UPDATE propagations SET state = 'dead', attempts = 8")
        before = {slug: _cards(database, slug) for slug in ("one", "two", "none")}
    assert migrate(owner) == NAMES[1:]
    with Database(fresh) as database:
        assert {slug: _cards(database, slug) for slug in ("one", "two", "none")} == before
        assert _pending(database, "one") == [("mem-0001", 1), ("mem-0002", 1)]
        assert _pending(database, "two") == [("mem-0001", 1)]
        assert _pending(database, "none") == []
        assert scalar(database, Role.READER, "one", "SELECT array_agg(card_id ORDER BY card_id) FROM card_links") == [
            *("mem-0001", "mem-0002", "mem-0003")
        ]
        with database.transaction(Role.READER, "one") as tx:
            assert generations.serving(tx, "one") is None


def test_a_card_that_could_not_be_queued_stops_the_migration(fresh: Settings, owner: Owner) -> None:
    """Under forced row-level security a statement that may see nothing changes nothing, silently."""
    migrate(owner, upto=1)
    with Database(fresh, check_migrations=False) as database:
        _make_workspace(database, "one")
        insert_card(database, "one", 1, content())
        with database.transaction(Role.INDEXER, "one") as tx:
            tx.execute("UPDATE propagations SET state = 'done'")
    owner.execute("DROP POLICY owner ON memory.cards")
    with pytest.raises(errors.RaiseException, match="workspace one: 0 of 1 cards were queued"):
        migrate(owner)
    assert [row[0] for row in _applied(owner)] == NAMES[:1]
    assert _tables(owner).isdisjoint({"generations", "projections", "sparse_embeddings"})


# --- refusing ----------------------------------------------------------------------------------------------------


def test_a_migration_that_changed_after_it_was_applied_is_refused(owner: Owner, folder: Path) -> None:
    migrate(owner)
    _write(folder / "001_registry.sql", (folder / "001_registry.sql").read_text() + "\n-- better worded\n")
    _write(folder / f"{NEXT}_more.sql", "CREATE TABLE more (workspace text);")
    with pytest.raises(MigrationChanged, match="001_registry"):
        migrate(owner, folder=folder)
    with pytest.raises(MigrationChanged, match="001_registry"):
        require_current(owner, folder=folder)
    assert "more" not in _tables(owner)


def test_a_database_that_knows_more_than_the_code_is_refused(fresh: Settings, owner: Owner, folder: Path) -> None:
    _write(folder / f"{NEXT}_later.sql", "CREATE TABLE later (workspace text);")
    migrate(owner, folder=folder)
    with pytest.raises(MigrationsAhead, match=f"{NEXT}_later"):
        migrate(owner)
    with Database(fresh) as database, pytest.raises(MigrationsAhead), database.transaction(Role.READER, None):
        pass


@pytest.mark.parametrize(("upto", "missing"), [(0, NAMES), (1, NAMES[1:])])
def test_a_start_on_a_schema_that_lags_is_refused_with_the_command_to_run(
    fresh: Settings, owner: Owner, upto: int, missing: list[str]
) -> None:
    migrate(owner, upto=upto)
    with Database(fresh) as database:
        for role in (Role.OWNER, Role.READER):
            with pytest.raises(MigrationsLag) as refused, database.transaction(role, None):
                pass
            assert all(name in refused.value.message for name in missing)
            assert "memory-pipeline migrate" in refused.value.hint
        migrate(owner)
        with database.transaction(Role.READER, None) as tx:
            assert workspaces.list_states(tx) == []


def test_a_start_on_a_database_that_was_never_migrated_is_refused(fresh: Settings) -> None:
    with Database(fresh) as database, pytest.raises(MigrationsLag), database.transaction(Role.READER, None):
        pass


def test_a_migration_that_fails_leaves_nothing_and_can_be_mended(owner: Owner, folder: Path) -> None:
    broken = folder / f"{NEXT}_broken.sql"
    _write(broken, "CREATE TABLE half (workspace text);\nSELECT 1 / 0;\n")
    with pytest.raises(errors.DivisionByZero):
        migrate(owner, folder=folder)
    assert [row[0] for row in _applied(owner)] == NAMES
    assert "half" not in _tables(owner)
    _write(broken, "CREATE TABLE half (workspace text);\nSELECT 1 / 1;\n")
    assert migrate(owner, folder=folder) == [f"{NEXT}_broken"]


def test_no_other_role_migrates(fresh: Settings) -> None:
    with (
        psycopg.connect(Database(fresh).conninfo(Role.REVIEWER), autocommit=True) as connection,
        pytest.raises(errors.InsufficientPrivilege),
    ):
        migrate(connection)


# --- the files ---------------------------------------------------------------------------------------------------


def test_the_dense_index_comes_before_the_hybrid_one() -> None:
    assert NAMES[:2] == ["001_registry", "002_hybrid_projection"]


@pytest.mark.parametrize(
    "names",
    [
        pytest.param([], id="none at all"),
        pytest.param(["002_b.sql"], id="not from the first"),
        pytest.param(["001_a.sql", "003_c.sql"], id="a gap"),
        pytest.param(["001_a.sql", "001_b.sql"], id="a number twice"),
        pytest.param(["001_a.sql", "later.sql"], id="no number"),
        pytest.param(["001_a.sql", "002_Caps.sql"], id="capitals"),
        pytest.param(["001_a.sql", "2_b.sql"], id="too few digits"),
    ],
)
def test_a_folder_that_is_not_numbered_through_is_refused(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        _write(tmp_path / name, "SELECT 1;")
    with pytest.raises(ConfigurationError, match="without a gap"):
        load_migrations(tmp_path)


def test_a_checksum_is_over_the_bytes_of_the_file(tmp_path: Path) -> None:
    _write(tmp_path / "001_a.sql", "SELECT 1;")
    (before,) = load_migrations(tmp_path)
    (tmp_path / "001_a.sql").write_bytes(b"SELECT 1;\r\n")
    (after,) = load_migrations(tmp_path)
    assert before.sha256 != after.sha256


# --- helpers -----------------------------------------------------------------------------------------------------


def _admin(settings: Settings) -> str:
    password = settings.secret(settings.postgres_admin).get_secret_value()
    return server_conninfo(settings, user=settings.postgres_admin, password=password, database="postgres")


def _owner(settings: Settings) -> Owner:
    return psycopg.connect(Database(settings).conninfo(Role.OWNER), autocommit=True)


def _write(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")


def _applied(owner: Owner) -> list[tuple[Any, ...]]:
    query = "SELECT name, sha256, applied_at, applied_by FROM memory.schema_migrations ORDER BY name"
    return owner.execute(query).fetchall()


def _tables(owner: Owner) -> set[str]:
    return {name for (name,) in owner.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'memory'")}


def _make_workspace(database: Database, slug: str) -> None:
    with database.transaction(Role.OWNER, slug) as tx:
        workspaces.create(tx, Workspace(slug=slug, title="Test", language="it", default_database="cardio"))


def _cards(database: Database, slug: str) -> list[dict[str, Any]]:
    with database.transaction(Role.READER, slug) as tx:
        return tx.execute("SELECT * FROM cards ORDER BY number").fetchall()


def _pending(database: Database, slug: str) -> list[tuple[str, int]]:
    with database.transaction(Role.INDEXER, slug) as tx:
        rows = tx.execute("SELECT card_id, revision FROM propagations WHERE state = 'pending' ORDER BY card_id")
        return [(row["card_id"], row["revision"]) for row in rows]
