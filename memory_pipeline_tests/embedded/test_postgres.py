"""The embedded PostgreSQL: what kind of database it is, and what stands in the way of a start."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from memory_pipeline.embedded.errors import OtherDataVersion, ServerFailed, StateMoved, StateUnusable
from memory_pipeline.embedded.postgres import Postgres
from memory_pipeline.embedded.postgres_home import SHARED
from memory_pipeline.embedded.stack import EmbeddedStack, StackStatus
from memory_pipeline.settings import Settings
from memory_pipeline_tests.embedded.stacks import (
    DEADLINE,
    kill,
    ports,
    run,
    scalar,
    server,
    serving,
    up_in_a_process,
)

pytestmark = pytest.mark.embedded

ROOT = os.geteuid() == 0
only_as_root = pytest.mark.skipif(not ROOT, reason="about what differs for root")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedStack]:
    """PostgreSQL alone, for the tests that leave it in order."""
    stack = EmbeddedStack(tmp_path_factory.mktemp("state"))
    try:
        up(stack)
        run(stack, "CREATE TABLE kept AS SELECT 1 AS n")
        run(stack, "CREATE VIEW extensions AS SELECT extname FROM pg_extension")
        yield stack
    finally:
        stack.down(purge=True)


@pytest.fixture
def own_stack(tmp_path: Path) -> Iterator[EmbeddedStack]:
    """One not yet started, for one test."""
    stack = EmbeddedStack(tmp_path / "state")
    yield stack
    stack.down(purge=True)


def up(stack: EmbeddedStack, said: list[str] | None = None) -> StackStatus:
    return stack.up(qdrant=False, ollama=False, say=(said if said is not None else []).append)


def data(stack: EmbeddedStack) -> Path:
    return Postgres(stack.state).data


# --- what it is ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SHOW server_encoding", "UTF8"),
        ("SELECT datlocprovider::text || datlocale FROM pg_database WHERE datname = 'postgres'", "bC.UTF-8"),
        ("SELECT datctype FROM pg_database WHERE datname = 'postgres'", "C.UTF-8"),
        ("SHOW timezone", "UTC"),
        ("SHOW fsync", "on"),
        ("SHOW max_connections", "200"),
        ("SHOW listen_addresses", "127.0.0.1"),
        ("SHOW unix_socket_directories", ""),
        ("SHOW password_encryption", "scram-sha-256"),
        ("SELECT count(*) FROM pg_hba_file_rules WHERE auth_method <> 'scram-sha-256'", 0),
        ("SELECT lower('ÀTTIVITÀ')", "àttività"),
        ("SELECT 'è' ~ '^\\w$'", True),
        ("SELECT gen_random_uuid() IS NOT NULL", True),
    ],
)
def test_it_is_a_database_of_our_kind(stack: EmbeddedStack, query: str, expected: object) -> None:
    assert scalar(stack, query) == expected


@pytest.mark.parametrize("extension", ["pg_trgm", "vector", "unaccent", "btree_gin"])
def test_extensions_are_there(stack: EmbeddedStack, extension: str) -> None:
    run(stack, f"CREATE EXTENSION IF NOT EXISTS {extension}")
    assert scalar(stack, f"SELECT '{extension}' IN (TABLE extensions)") is True


def test_it_does_not_run_as_root(stack: EmbeddedStack) -> None:
    pid = server(stack.status(), "postgres").pid
    assert pid is not None
    process = psutil.Process(pid)
    assert set(process.uids()) == {data(stack).stat().st_uid}
    assert 0 not in process.uids()
    assert 0 not in process.gids()
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    if ROOT:
        assert "Groups:\t \n" in status
    assert data(stack).stat().st_mode & 0o777 == 0o700


def test_a_failed_statement_does_not_bring_a_password_into_the_log(stack: EmbeddedStack) -> None:
    with pytest.raises(psycopg.errors.UndefinedObject):
        run(stack, "ALTER ROLE no_such_role PASSWORD 'very-secret'")
    log = (stack.state / "logs" / "postgres.log").read_text(encoding="utf-8")
    assert 'role "no_such_role" does not exist' in log
    assert "very-secret" not in log


# --- what stands in the way ------------------------------------------------------------------------------------------


def test_an_initialisation_that_was_killed_is_begun_again(own_stack: EmbeddedStack) -> None:
    process = up_in_a_process(own_stack.state)
    home = data(own_stack).parent
    deadline = time.monotonic() + DEADLINE
    while not list(home.glob("new-*/data/base")):
        assert time.monotonic() < deadline
        time.sleep(0.002)
    for child in psutil.Process(process.pid).children(recursive=True):
        if child.name() in ("initdb", "postgres"):
            child.kill()
    process.kill()
    process.communicate(timeout=DEADLINE)
    assert not data(own_stack).exists()
    assert list(home.glob("new-*"))
    up(own_stack)
    assert scalar(own_stack, "SELECT 1") == 1
    assert not list(home.glob("new-*"))


def test_a_pid_that_now_is_another_programs_is_no_obstacle(stack: EmbeddedStack) -> None:
    before = up(stack)
    kill(before, "postgres")
    owner = data(stack).stat().st_uid
    with subprocess.Popen(["/bin/sleep", "600"], user=owner if ROOT else None) as innocent:
        try:
            pid_file = data(stack) / "postmaster.pid"
            lines = pid_file.read_text(encoding="utf-8").splitlines()
            pid_file.write_text("\n".join([str(innocent.pid), *lines[1:], ""]), encoding="utf-8")
            after = up(stack)
            assert innocent.poll() is None
        finally:
            innocent.kill()
    assert ports(after) == ports(before)
    assert scalar(stack, "SELECT count(*) FROM kept") == 1


def test_children_that_outlive_a_killed_server_are_no_obstacle(stack: EmbeddedStack) -> None:
    before = up(stack)
    pid = server(before, "postgres").pid
    assert pid is not None
    children = psutil.Process(pid).children()
    assert children
    for child in children:
        child.suspend()  # or they would end by themselves
    kill(before, "postgres")
    assert server(stack.status(), "postgres").state == "dead"
    after = up(stack)
    assert ports(after) == ports(before)
    assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    assert scalar(stack, "SELECT count(*) FROM kept") == 1


@pytest.mark.parametrize("loss", ["missing", "empty", "another"])
def test_a_lost_password_is_set_anew(stack: EmbeddedStack, loss: str) -> None:
    up(stack)
    path = stack.state / "secrets" / "postgres"
    lost = path.read_text(encoding="utf-8")
    if loss == "missing":
        path.unlink()
    else:
        path.write_text({"empty": "", "another": "it's another"}[loss], encoding="utf-8")
    said: list[str] = []
    up(stack, said)
    assert any("password" in words for words in said)
    assert path.read_text(encoding="utf-8") != lost
    assert path.stat().st_mode & 0o777 == 0o600
    assert scalar(stack, "SELECT count(*) FROM kept") == 1
    port = Settings(state=stack.state).postgres_port
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(host="127.0.0.1", port=port, user="postgres", password=lost, dbname="postgres")


def test_data_of_another_version_is_not_touched(stack: EmbeddedStack) -> None:
    stack.down()
    version = data(stack) / "PG_VERSION"
    installed = version.read_text(encoding="ascii")
    version.write_text("15\n", encoding="ascii")
    try:
        with pytest.raises(OtherDataVersion, match=r"written by PostgreSQL 15, .* PostgreSQL 18"):
            up(stack)
        assert version.read_text(encoding="ascii") == "15\n"
    finally:
        version.write_text(installed, encoding="ascii")
    up(stack)
    assert scalar(stack, "SELECT count(*) FROM kept") == 1


def test_a_start_that_fails_shows_the_last_lines_of_the_log(stack: EmbeddedStack) -> None:
    stack.down()
    control = data(stack) / "global" / "pg_control"
    aside = control.rename(control.with_name("pg_control.aside"))
    try:
        with pytest.raises(ServerFailed, match="PostgreSQL ended with exit code") as caught:
            up(stack)
        assert "pg_control" in str(caught.value)
        assert str(stack.state / "logs" / "postgres.log") in caught.value.hint
    finally:
        aside.rename(control)
    up(stack)
    assert scalar(stack, "SELECT count(*) FROM kept") == 1


def test_files_in_place_of_a_database_are_left_alone(own_stack: EmbeddedStack) -> None:
    folder = data(own_stack)
    folder.mkdir(parents=True, mode=0o700)
    (folder / "note").touch()
    if ROOT:
        own_stack.state.mkdir(parents=True)
        (own_stack.state / "postgres").symlink_to(folder)
        shutil.chown(folder, "nobody")
    with pytest.raises(StateUnusable, match="not a PostgreSQL database"):
        up(own_stack)
    assert [path.name for path in folder.iterdir()] == ["note"]


def test_clients_do_not_hold_up_a_stop(stack: EmbeddedStack) -> None:
    up(stack)
    settings = Settings(state=stack.state)
    with psycopg.connect(
        host="127.0.0.1",
        port=settings.postgres_port,
        user="postgres",
        password=settings.secret("postgres").get_secret_value(),
        dbname="postgres",
    ) as open_one:
        open_one.execute("INSERT INTO kept VALUES (2)")
        stack.down()
        assert not serving(stack.state)
        with pytest.raises(psycopg.OperationalError):
            open_one.execute("SELECT 1")
        open_one.close()
    up(stack)
    assert scalar(stack, "SELECT count(*) FROM kept") == 1


# --- as root ---------------------------------------------------------------------------------------------------------


@only_as_root
def test_data_and_binaries_are_where_the_account_reaches_them(stack: EmbeddedStack) -> None:
    pid = server(up(stack), "postgres").pid
    assert pid is not None
    assert (stack.state / "postgres").resolve() == data(stack)
    assert data(stack).is_relative_to(SHARED)
    assert (data(stack).parent / "belongs-to").read_text(encoding="utf-8") == f"{stack.state}\n"
    program = Path(psutil.Process(pid).exe())
    assert program.is_relative_to(SHARED)
    assert program.stat().st_mode & 0o005 == 0o005


@only_as_root
def test_a_folder_that_was_moved_is_told_and_works_again_where_it_was(own_stack: EmbeddedStack) -> None:
    up(own_stack)
    own_stack.down()
    elsewhere = EmbeddedStack(own_stack.state.rename(own_stack.state.with_name("elsewhere")))
    with pytest.raises(StateMoved, match="at another path"):
        up(elsewhere)
    elsewhere.state.rename(own_stack.state)
    up(own_stack)
    assert scalar(own_stack, "SELECT 1") == 1


@only_as_root
def test_the_database_of_a_deleted_folder_is_put_aside_until_purged(own_stack: EmbeddedStack) -> None:
    up(own_stack)
    run(own_stack, "CREATE TABLE old AS SELECT 1 AS n")
    shutil.rmtree(own_stack.state)
    said: list[str] = []
    up(own_stack, said)
    [told] = [words for words in said if "an earlier one at this path left a database" in words]
    asides = list(SHARED.glob(f"{data(own_stack).parent.name}-*"))
    assert len(asides) == 1
    assert str(asides[0]) in told
    assert (asides[0] / "postgres" / "PG_VERSION").is_file()
    assert scalar(own_stack, "SELECT count(*) FROM pg_class WHERE relname = 'old'") == 0
    own_stack.down(purge=True)
    assert not asides[0].exists()
    assert not data(own_stack).parent.exists()
