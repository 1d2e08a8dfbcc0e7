"""`doctor`: every ill that it knows, planted, is found by its name, with what to do and a code of its family."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from dagster._daemon.types import DaemonHeartbeat

from memory_pipeline.core.projection import point_id
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.harness.control_room import daemon_findings, dagster_instance
from memory_pipeline.operations import doctor
from memory_pipeline.operations.doctor import Diagnosis, Finding, diagnose, told_once
from memory_pipeline.operations.propagate import drain
from memory_pipeline.operations.services import Services
from memory_pipeline.operations.workspaces import WorkspaceChanges, set_workspace
from memory_pipeline.settings import Settings
from memory_pipeline.store import generations
from memory_pipeline.store.bootstrap import DAGSTER_ROLE
from memory_pipeline.store.database import Role, server_conninfo
from memory_pipeline_tests.conftest import Cli
from memory_pipeline_tests.flows import ABLATION, closed_port, promote, with_settings
from memory_pipeline_tests.harness.test_cli import answer

pytestmark = pytest.mark.embedded

Look = Callable[..., dict[str, Finding]]


@pytest.fixture
def look(services: Services, workspace: Workspace) -> Look:
    """Findings by check, with some settings changed, of one workspace alone."""

    def look(**changes: Any) -> dict[str, Finding]:
        with with_settings(services, **changes) as changed:
            return {finding.check: finding for finding in told_once(diagnose(changed, workspace.slug))}

    return look


def require(finding: Finding, state: str, code: int, told: str) -> None:
    assert (finding.state, finding.exit_code) == (state, code)
    assert told in finding.told
    assert finding.do


def test_what_is_well_is_said_to_be(look: Look) -> None:
    found = look()

    names = ["secrets", "postgres", "roles", "migrations", "qdrant", "ollama", "inbox", "workspaces"]
    assert {name: finding.state for name, finding in found.items()} == dict.fromkeys(names, "well")
    assert Diagnosis(findings=tuple(found.values())).exit_code == 0


# --- secrets and folders ---------------------------------------------------------------------------------------------


@pytest.fixture
def secrets(settings: Settings, tmp_path: Path) -> Path:
    """A copy of the secrets, to be spoiled."""
    return Path(shutil.copytree(settings.secrets, tmp_path / "secrets"))


def test_secrets_that_are_not_here_are_told_and_blame_no_server(look: Look, secrets: Path) -> None:
    (secrets / "memory_reviewer").unlink()

    found = look(secrets_dir=secrets)

    require(found["secrets"], "warning", 0, "memory_reviewer")
    require(found["login memory_reviewer"], "unknown", 0, "memory_reviewer")
    assert found["postgres"].state == "well"


def test_a_folder_without_any_secret(look: Look, tmp_path: Path) -> None:
    require(look(secrets_dir=tmp_path)["secrets"], "ill", 20, "the secret of no role")


def test_a_secret_that_is_none(look: Look, secrets: Path) -> None:
    (secrets / "memory_indexer").write_text("one line\nand another")

    found = look(secrets_dir=secrets)

    require(found["secrets"], "ill", 20, "memory_indexer")
    assert found["login memory_indexer"].state == "unknown"


def test_secrets_that_others_can_read(look: Look, secrets: Path) -> None:
    secrets.chmod(0o755)
    (secrets / "memory_owner").chmod(0o644)

    require(look(secrets_dir=secrets)["secrets"], "warning", 0, "memory_owner")


def test_an_inbox_that_is_not_there(look: Look, tmp_path: Path) -> None:
    require(look(inbox=tmp_path / "none")["inbox"], "warning", 0, "is not a folder")


# --- servers ---------------------------------------------------------------------------------------------------------


def test_postgresql_that_is_down_keeps_nobody_from_looking_at_the_others(look: Look) -> None:
    found = look(postgres_port=closed_port())

    require(found["postgres"], "ill", 30, "not available")
    for check in ("roles", "migrations", "workspaces", "login memory_owner"):
        require(found[check], "unknown", 0, "PostgreSQL is not reached")
    assert found["qdrant"].state == found["ollama"].state == "well"
    assert Diagnosis(findings=tuple(found.values())).exit_code == 30


def test_what_keeps_postgresql_from_being_reached_is_told_once() -> None:
    def ill(check: str, told: str) -> Finding:
        return Finding(check=check, state="ill", told=told, do="mend it", exit_code=30)

    found = told_once(
        [
            ill("postgres", "PostgreSQL is not available: connection refused"),
            ill("login memory_owner", "PostgreSQL is not available: password authentication failed"),
            ill("qdrant", "Qdrant is not available: no connection"),
            ill("daemon", "Dagster's database is not available: connection refused"),
        ]
    )

    assert [finding.state for finding in found] == ["ill", "ill", "ill", "unknown"]


def test_a_password_that_is_another_one(look: Look, secrets: Path) -> None:
    (secrets / "memory_harness").write_text("another")

    found = look(secrets_dir=secrets)

    require(found["login memory_harness"], "ill", 30, "password authentication failed")
    assert "login memory_reader" not in found


@contextmanager
def as_admin(settings: Settings, do: str, undo: str, database: str = "postgres") -> Iterator[None]:
    password = settings.secret("postgres").get_secret_value()
    conninfo = server_conninfo(settings, user="postgres", password=password, database=database)
    with psycopg.connect(conninfo, autocommit=True) as admin:
        admin.execute(do.encode())
        try:
            yield
        finally:
            admin.execute(undo.encode())


def test_a_role_that_may_too_much(look: Look, settings: Settings) -> None:
    with as_admin(settings, "ALTER ROLE memory_reader BYPASSRLS", "ALTER ROLE memory_reader NOBYPASSRLS"):
        require(look()["roles"], "ill", 20, "memory_reader may pass by row-level security")


def test_a_schema_that_lags(look: Look, settings: Settings) -> None:
    restore = "INSERT INTO memory.schema_migrations SELECT * FROM memory.kept; DROP TABLE memory.kept"
    hide = """
        CREATE TABLE memory.kept AS SELECT * FROM memory.schema_migrations WHERE name LIKE '002%';
        DELETE FROM memory.schema_migrations WHERE name LIKE '002%'
    """
    with as_admin(settings, hide, restore, settings.postgres_database):
        found = look()
    require(found["migrations"], "ill", 20, "002_hybrid_projection")
    assert found["postgres"].state == found["roles"].state == "well"


def test_qdrant_that_is_down_or_refuses_the_key(look: Look, secrets: Path) -> None:
    require(look(qdrant_url=f"http://127.0.0.1:{closed_port()}")["qdrant"], "ill", 31, "no connection")
    (secrets / "qdrant_api_key").write_text("another")
    require(look(secrets_dir=secrets)["qdrant"], "ill", 31, "status 40")


def test_ollama_that_is_down_or_lacks_the_model(look: Look) -> None:
    require(look(ollama_url=f"http://127.0.0.1:{closed_port()}")["ollama"], "ill", 32, "no connection")
    require(look(embedding_model="no-such-model")["ollama"], "ill", 32, "no-such-model")


def test_servers_that_are_older_than_what_was_tested(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "TESTED_POSTGRES", 99)
    monkeypatch.setattr(doctor, "TESTED_QDRANT", (99, 0))

    found = look()

    require(found["postgres"], "warning", 0, "older")
    require(found["qdrant"], "warning", 0, "older")


# --- workspaces ------------------------------------------------------------------------------------------------------


@pytest.fixture
def collection(services: Services, workspace: Workspace) -> str:
    """The collection of a workspace with one memory, indexed."""
    promote(services, workspace.slug, [ABLATION])
    drain(services, workspace.slug)
    with services.database.transaction(Role.READER, workspace.slug) as tx:
        serving = generations.serving(tx, workspace.slug)
    assert serving is not None
    return serving.collection


def test_a_collection_that_is_lost_or_another_one(services: Services, look: Look, collection: str) -> None:
    assert look()["workspaces"].state == "well"
    services.index.drop(collection)
    require(look()["collection"], "ill", 31, "is not on the Qdrant server")
    services.index.create(collection, dimensions=7)
    require(look()["collection"], "ill", 31, "cannot be used")


def test_a_collection_that_lost_its_points_or_is_ahead_of_the_registry(
    services: Services, look: Look, collection: str
) -> None:
    services.index.delete(collection, [point_id("mem-0001")])
    require(look()["collection"], "ill", 51, "0 points are in")
    shape = services.index.shape(collection)
    assert shape is not None
    assert shape.epoch is not None
    services.index.stamp(collection, shape.epoch._replace(counter=shape.epoch.counter + 1))
    found = look()["collection"]
    require(found, "ill", 31, "restored")
    assert "--rebuild" in found.do


@pytest.mark.usefixtures("collection")
def test_a_rebuild_that_is_due(services: Services, look: Look, workspace: Workspace) -> None:
    set_workspace(services, workspace.slug, WorkspaceChanges(language="en"))

    require(look()["generation"], "warning", 0, "language: it -> en")
    unknown = look(ollama_url=f"http://127.0.0.1:{closed_port()}")["generation"]
    require(unknown, "unknown", 0, "whether a rebuild is due cannot be told: ")
    assert "--rebuild" not in unknown.do


def test_a_workspace_that_was_never_indexed(services: Services, look: Look, workspace: Workspace) -> None:
    with with_settings(services, qdrant_url=f"http://127.0.0.1:{closed_port()}") as down:
        promote(down, workspace.slug, [ABLATION])

    require(look()["index"], "ill", 50, "does not serve")


@pytest.mark.usefixtures("collection")
def test_a_card_that_was_parked(services: Services, look: Look, workspace: Workspace) -> None:
    with services.database.transaction(Role.INDEXER, workspace.slug) as tx:
        tx.execute(
            "UPDATE propagations SET state = 'dead', settled_at = NULL WHERE workspace = %s AND card_id = 'mem-0001'",
            (workspace.slug,),
        )

    found = look()["index"]

    require(found, "ill", 50, "parked")
    assert "propagation list" in found.do


# --- the daemon ------------------------------------------------------------------------------------------------------


def test_a_daemon_that_never_ran_lives_or_is_silent(settings: Settings) -> None:
    def beat(ago: float) -> Finding:
        with dagster_instance(settings) as instance:
            instance.wipe_daemon_heartbeats()
            for daemon in instance.get_required_daemon_types():
                instance.add_daemon_heartbeat(DaemonHeartbeat(time.time() - ago, daemon, None, []))
        (finding,) = daemon_findings(settings)
        return finding

    with dagster_instance(settings) as instance:
        instance.wipe_daemon_heartbeats()
    (never,) = daemon_findings(settings)
    require(never, "warning", 0, "never run")
    assert beat(1).state == "well"
    require(beat(86_400), "ill", 60, "SENSOR")
    with dagster_instance(settings) as instance:
        instance.wipe_daemon_heartbeats()


def test_a_database_of_dagster_that_is_down(settings: Settings, services: Services, secrets: Path) -> None:
    (secrets / DAGSTER_ROLE).write_text("another")
    with with_settings(services, secrets_dir=secrets) as changed:
        (finding,) = daemon_findings(changed.settings)

    require(finding, "ill", 30, "Dagster's database is not available")
    assert settings.secret(DAGSTER_ROLE).get_secret_value() not in finding.told


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_command_answers_with_the_worst_and_the_code_of_the_first(cli: Cli, workspace: Workspace) -> None:
    well = answer(cli("doctor", "-w", workspace.slug, "--json"))
    assert well["status"] in ("well", "warning")
    down = {"MEMORY_OLLAMA_URL": f"http://127.0.0.1:{closed_port()}"}
    ill = answer(cli("doctor", "-w", workspace.slug, "--json", **down), 32)
    assert (ill["status"], ill["exit_code"]) == ("ill", 32)
    (found,) = [finding for finding in ill["findings"] if finding["state"] == "ill"]
    assert found["check"] == "ollama"
    shown = cli("doctor", "-w", workspace.slug, **down)
    assert shown.returncode == 32
    assert "MEMORY_OLLAMA_URL" in shown.stdout
    assert answer(cli("doctor", "-w", "no-such", "--json"), 11)["findings"]
