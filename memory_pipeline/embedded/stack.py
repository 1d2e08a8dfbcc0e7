"""The local stack of one state folder: PostgreSQL, Qdrant and Ollama, started, watched and stopped together.

The folder:

| path | what |
|---|---|
| `stack.json` | endpoints as settings, and each server's process and port; ports are kept while it is stopped |
| `secrets/` | `postgres` (the administrator's password), `qdrant_api_key`; for their owner alone |
| `logs/` | one log per server |
| `run/` | ready files |
| `postgres/` | the database (as root a link to it, see `postgres_home`) |
| `qdrant/` | collections |
| `up.lock` | held while a command changes the stack |

The servers serve one machine: they listen on the loopback only.
"""

from __future__ import annotations

import os
import pwd
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeAlias

import psutil
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from memory_pipeline.embedded.errors import (
    EmbeddedExtraMissing,
    ServerFailed,
    StackBusy,
    StackOfAnotherUser,
    StateUnusable,
)
from memory_pipeline.embedded.files import end_of, locked, write_atomically
from memory_pipeline.embedded.http_servers import Ollama, Qdrant
from memory_pipeline.embedded.postgres import Postgres
from memory_pipeline.embedded.processes import LOOPBACK
from memory_pipeline.embedded.server import LocalServer, ServerName, Started

Say: TypeAlias = Callable[[str], None]
ServerState: TypeAlias = Literal["running", "stopped", "dead"]

LOCK_SECONDS = 180.0
LONGEST_PATH = 700  # bytes; PostgreSQL takes 1,023, with what lies below the folder
_SAME_START = 2.0  # seconds by which the kernel's account of a process's start may drift with the clock

_UNREADABLE = "stack.json.unreadable"
_OWN = ("stack.json", _UNREADABLE, "secrets", "logs", "run", "qdrant", "dagster", "up.lock")


class ServerStatus(BaseModel):
    """One server. `dead`: it ought to run and does not."""

    model_config = ConfigDict(frozen=True)

    name: ServerName
    state: ServerState
    pid: int | None
    port: int | None
    url: str | None
    log: Path


class StackStatus(BaseModel):
    """The stack of a state folder."""

    model_config = ConfigDict(frozen=True)

    state: Path
    servers: tuple[ServerStatus, ...]


class _Record(BaseModel):
    """What is remembered of a server: its port always, its process while it is meant to run."""

    model_config = ConfigDict(frozen=True)

    port: int = Field(ge=1, le=65535)
    pid: int | None = Field(default=None, ge=1)
    started: float | None = None  # seconds since the epoch


class _StackFile(BaseModel):
    model_config = ConfigDict(frozen=True)

    settings: dict[str, str | int] = Field(default_factory=dict)
    servers: dict[ServerName, _Record] = Field(default_factory=dict)


class EmbeddedStack:
    """The three servers of one state folder. Any process may use it; changes are made by one at a time."""

    def __init__(self, state: Path) -> None:
        self.state = state.resolve()
        self._file = self.state / "stack.json"
        self._servers: tuple[LocalServer, ...] = (Postgres(self.state), Qdrant(self.state), Ollama(self.state))

    def up(
        self, *, postgres: bool = True, qdrant: bool = True, ollama: bool = True, say: Say = lambda _: None
    ) -> StackStatus:
        """Start those of the wanted servers that do not answer, side by side, and wait until all do.

        A server keeps its port from start to start as long as that port is free. What runs already is left alone, also
        when it is not among the wanted.

        Raises:
            EmbeddedError: a server cannot start. Those that this call had started are stopped again.
        """
        wanted = {"postgres": postgres, "qdrant": qdrant, "ollama": ollama}
        servers = [server for server in self._servers if wanted[server.name]]
        _require_packages(servers)
        with self._folder_errors():
            self._prepare_folder()
            with self._lock(say):
                for folder in ("logs", "run"):
                    (self.state / folder).mkdir(mode=0o700, exist_ok=True)
                known = self._read_or_put_aside(say)
                to_start = [server for server in servers if not self._is_well(server, known, say)]
                if to_start:
                    self._start(to_start, _without_processes(known, to_start), say)
        return self.status()

    def down(self, *, purge: bool = False, say: Say = lambda _: None) -> None:
        """Stop every server of this folder. With `purge`, remove all that the stack ever wrote, data and secrets too.

        Without a state folder, servers that outlived it are found and stopped all the same.

        Raises:
            EmbeddedError: a server could not be stopped, or data could not be removed.
        """
        with self._folder_errors():
            if not self.state.is_dir():
                self._stop(say)
                if purge:
                    self._purge(say)
                return
            self._require_owner()
            with self._lock(say):
                known = self._read_or_put_aside(say)
                self._stop(say)
                self._write(_without_processes(known, self._servers))
                if purge:
                    self._purge(say)

    def status(self) -> StackStatus:
        """Look at every server's process; nothing is asked of it, nothing is changed."""
        with self._folder_errors():
            self._require_owner()
            known = self._read() or _StackFile()
            return StackStatus(state=self.state, servers=tuple(_status(server, known) for server in self._servers))

    # --- starting ----------------------------------------------------------------------------------------------------

    def _is_well(self, server: LocalServer, known: _StackFile, say: Say) -> bool:
        """Whether the server that the stack file speaks of is there and answers."""
        record = known.servers.get(server.name)
        found = server.find()
        if record is not None and _recorded(found, record):
            if server.answers(record.port):
                say(f"{server.title} is running on {_address(record.port)}")
                return True
            say(f"{server.title} does not answer: it is started again")
        elif record is not None and record.pid is not None:
            say(f"{server.title} has died: it is started again")
        elif found:
            say(f"{server.title} is running, but {self._file} does not say so: it is started again")
        return False

    def _start(self, servers: Sequence[LocalServer], known: _StackFile, say: Say) -> None:
        """Start servers side by side: all of them or, if one fails, none. The stack file follows."""
        self._write(known)
        begun = time.monotonic()
        cancelled = threading.Event()
        futures: dict[Future[Started], LocalServer] = {}
        current = known
        try:
            with ThreadPoolExecutor(len(servers), thread_name_prefix="start") as pool, _set_on_error(cancelled):
                for server in servers:
                    record = known.servers.get(server.name)
                    futures[pool.submit(_restart, server, record.port if record else None, cancelled)] = server
                for future in as_completed(futures):
                    server, started = futures[future], future.result()
                    current = _with_process(current, server, started)
                    self._write(current)
                    for note in started.notes:
                        say(f"{server.title}: {note}")
                    say(f"{server.title} is up on {_address(started.port)} after {time.monotonic() - begun:.1f} s")
        except BaseException:
            for future, server in futures.items():
                if not future.exception() and server.stop():
                    say(f"{server.title} was stopped again")
            self._write(_without_processes(current, servers))
            raise

    # --- stopping ----------------------------------------------------------------------------------------------------

    def _stop(self, say: Say) -> None:
        """Stop all servers side by side, each as far as it goes; then raise what went wrong first."""
        with ThreadPoolExecutor(len(self._servers), thread_name_prefix="stop") as pool:
            futures = [(server, pool.submit(server.stop)) for server in self._servers]
        stopped = [server.title for server, future in futures if not future.exception() and future.result()]
        say(f"stopped {', '.join(stopped)}" if stopped else "no server was running")
        for _, future in futures:
            future.result()

    def _purge(self, say: Say) -> None:
        """Remove what is the stack's own; other files in the folder stay, and then the folder stays too."""
        for server in self._servers:
            server.purge()
        for path in (*(self.state / name for name in _OWN), *self.state.glob(".stack.json.*")):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        if self.state.is_dir() and not any(self.state.iterdir()):
            self.state.rmdir()
        say(f"removed the data of the stack in {self.state}")

    # --- the folder --------------------------------------------------------------------------------------------------

    def _prepare_folder(self) -> None:
        if len(os.fsencode(self.state)) > LONGEST_PATH:
            raise StateUnusable(
                self.state, f"its path is longer than {LONGEST_PATH} bytes", hint="set MEMORY_STATE to a shorter path"
            )
        if self.state.exists() and not self.state.is_dir():
            raise StateUnusable(self.state, "it is not a folder")
        self.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._require_owner()

    def _require_owner(self) -> None:
        """Raise unless the stack in the folder, if there is one, was made by this user."""
        try:
            owner = (self.state / "secrets").stat().st_uid
        except FileNotFoundError:
            return
        except PermissionError:
            owner = self.state.stat().st_uid
        if owner != os.geteuid():
            raise StackOfAnotherUser(self.state, _user(owner))

    @contextmanager
    def _folder_errors(self) -> Iterator[None]:
        """What the file system refuses becomes an error that names the folder."""
        try:
            yield
        except OSError as error:
            what = error.strerror or str(error)
            raise StateUnusable(self.state, f"{error.filename}: {what}" if error.filename else what) from error

    @contextmanager
    def _lock(self, say: Say) -> Iterator[None]:
        waiting = "another command is at work on this stack: waiting for it"
        try:
            with locked(self.state / "up.lock", LOCK_SECONDS, lambda: say(waiting)):
                yield
        except TimeoutError as error:
            raise StackBusy(self.state, LOCK_SECONDS) from error

    def _read(self) -> _StackFile | None:
        """What the stack file says: nothing where there is none, `None` where it cannot be understood."""
        try:
            return _StackFile.model_validate_json(self._file.read_bytes())
        except FileNotFoundError:
            return _StackFile()
        except ValidationError:
            return None

    def _read_or_put_aside(self, say: Say) -> _StackFile:
        known = self._read()
        if known is not None:
            return known
        aside = self._file.with_name(_UNREADABLE)
        self._file.replace(aside)
        say(f"{self._file} could not be read: it is now {aside}, and the servers are started again")
        return _StackFile()

    def _write(self, known: _StackFile) -> None:
        settings: dict[str, str | int] = {}
        for server in self._servers:
            record = known.servers.get(server.name)
            if record is not None and record.pid is not None:
                settings |= server.endpoint(record.port)
        write_atomically(self._file, known.model_copy(update={"settings": settings}).model_dump_json(indent=2))


def _require_packages(servers: Sequence[LocalServer]) -> None:
    missing = {package for server in servers for package in server.missing_packages()}
    if missing:
        raise EmbeddedExtraMissing(sorted(missing))


def _restart(server: LocalServer, port: int | None, cancelled: threading.Event) -> Started:
    server.stop()
    return server.start(port, cancelled)


@contextmanager
def _set_on_error(event: threading.Event) -> Iterator[None]:
    """Tell the other starts to give up as soon as one has failed, or the person at the keyboard has."""
    try:
        yield
    except BaseException:
        event.set()
        raise


def _with_process(known: _StackFile, server: LocalServer, started: Started) -> _StackFile:
    try:
        since = psutil.Process(started.pid).create_time()
    except psutil.NoSuchProcess as error:
        raise ServerFailed(server.title, "ended right after its start", server.log, end_of(server.log)) from error
    record = _Record(port=started.port, pid=started.pid, started=since)
    return known.model_copy(update={"servers": {**known.servers, server.name: record}})


def _without_processes(known: _StackFile, servers: Sequence[LocalServer]) -> _StackFile:
    """The same, with nothing but the ports of `servers`."""
    names = {server.name for server in servers}
    records = {name: _Record(port=record.port) if name in names else record for name, record in known.servers.items()}
    return known.model_copy(update={"servers": records})


def _recorded(found: Sequence[psutil.Process], record: _Record) -> psutil.Process | None:
    """The process that the record means, not merely one that got its number later."""
    for process in found:
        if process.pid == record.pid and abs(process.create_time() - (record.started or 0)) < _SAME_START:
            return process
    return None


def _status(server: LocalServer, known: _StackFile) -> ServerStatus:
    record = known.servers.get(server.name)
    found = server.find()
    meant = _recorded(found, record) if record else None
    return ServerStatus(
        name=server.name,
        state=_state(record, meant, found),
        pid=meant.pid if meant else None,
        port=record.port if record else None,
        url=server.url(record.port) if record else None,
        log=server.log,
    )


def _state(record: _Record | None, meant: psutil.Process | None, found: Sequence[psutil.Process]) -> ServerState:
    if record and record.pid is not None:
        return "running" if meant else "dead"
    return "running" if found else "stopped"


def _address(port: int) -> str:
    return f"{LOOPBACK}:{port}"


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
