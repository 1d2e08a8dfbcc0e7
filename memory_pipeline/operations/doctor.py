"""Looking at everything that the pipeline stands on, and saying what to do where something is wrong.

Nothing here writes. A check that cannot be made, since what it needs is down or its secret is not here, says so and
stops no other.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict

from memory_pipeline.core.display import counted
from memory_pipeline.core.errors import (
    ConfigurationError,
    IncompatibleCollection,
    IndexUnavailable,
    MemoryPipelineError,
    MissingSecret,
    NotIndexed,
    RegistryRestored,
    StoresDiffer,
    UnknownWorkspace,
)
from memory_pipeline.core.health import fingerprint
from memory_pipeline.operations.generation import rebuild_due, require_same_registry
from memory_pipeline.operations.health import WorkspaceHealth, measure_health
from memory_pipeline.operations.services import Services
from memory_pipeline.settings import Settings
from memory_pipeline.store import generations, server
from memory_pipeline.store.bootstrap import DAGSTER_ROLE
from memory_pipeline.store.database import Database, Role
from memory_pipeline.store.generations import Generation

State: TypeAlias = Literal["well", "warning", "ill", "unknown"]

TESTED_POSTGRES = 18
TESTED_QDRANT = (1, 19)


class Finding(BaseModel):
    """What one check came to.

    Attributes:
        do: what to do where it is not well.
        exit_code: of its family, where it is ill.
    """

    model_config = ConfigDict(frozen=True)

    check: str
    state: State
    told: str
    do: str = ""
    workspace: str | None = None
    exit_code: int = 0


class Diagnosis(BaseModel):
    """All findings, in the order in which they should be mended."""

    model_config = ConfigDict(frozen=True)

    findings: tuple[Finding, ...]

    @property
    def exit_code(self) -> int:
        """That of the first thing that is ill; 0 where nothing is."""
        return next((finding.exit_code for finding in self.findings if finding.state == "ill"), 0)


def diagnose(services: Services, workspace: str | None = None) -> Iterator[Finding]:
    """Check after check: secrets, PostgreSQL, Qdrant, Ollama, the inbox, then every workspace, or the one named."""
    settings = services.settings
    yield from _secrets(settings)
    with Database(settings, check_migrations=False) as unchecked:  # a schema that lags is a finding, no hindrance
        yield from _asked("postgres", lambda: _postgres(unchecked))
        for role in Role:
            yield from _asked(f"login {role}", lambda role=role: _login(unchecked, role))  # type: ignore[misc]
        yield from _asked("roles", lambda: _roles(unchecked))
    yield from _asked("migrations", lambda: _migrations(services))
    yield from _asked("qdrant", lambda: _qdrant(services))
    yield from _asked("ollama", lambda: _ollama(services))
    yield from _inbox(settings)
    yield from _asked("workspaces", lambda: _workspaces(services, workspace))


def told_once(findings: Iterable[Finding]) -> Iterator[Finding]:
    """The findings, with what keeps PostgreSQL from being reached told by its own check alone.

    A role that fails otherwise, as by its password, is told as it is.
    """
    why = ""
    for finding in findings:
        if finding.state != "ill":
            yield finding
        elif finding.check == "postgres":
            why = _cause(finding)
            yield finding
        elif _cause(finding) != why:
            yield finding
        else:
            unknown = {"state": "unknown", "told": "PostgreSQL is not reached", "do": "mend postgres", "exit_code": 0}
            yield finding.model_copy(update=unknown)


def _cause(finding: Finding) -> str:
    """Why a server could not be used, without the name of the database."""
    return finding.told.rpartition(" is not available: ")[2]


def finding_of(check: str, error: MemoryPipelineError, workspace: str | None = None) -> Finding:
    """An error as a finding. A secret that is not here says nothing about the server: others may have it."""
    state: State = "unknown" if isinstance(error, MissingSecret) else "ill"
    code = 0 if state == "unknown" else error.exit_code
    return Finding(check=check, state=state, told=error.message, do=error.hint, workspace=workspace, exit_code=code)


def _asked(check: str, ask: Callable[[], Iterator[Finding]], workspace: str | None = None) -> Iterator[Finding]:
    try:
        yield from ask()
    except MemoryPipelineError as error:
        yield finding_of(check, error, workspace)


# --- secrets and folders ---------------------------------------------------------------------------------------------


def _secrets(settings: Settings) -> Iterator[Finding]:
    """One finding for all that are here, and one for each that cannot be used."""
    names = [role.value for role in Role if role is not Role.REVIEWER] + [settings.reviewer_login, DAGSTER_ROLE]
    here = [name for name in names if (settings.secrets / name).exists()]
    if not here:
        yield Finding(
            check="secrets",
            state="ill",
            told=f"{settings.secrets} holds the secret of no role",
            do="run memory-pipeline up, or set MEMORY_SECRETS_DIR to the folder that holds them",
            exit_code=ConfigurationError.exit_code,
        )
        return
    unusable = [finding for name in here for finding in _unusable(settings, name)]
    yield from unusable
    absent = sorted(set(names) - set(here))
    if absent:
        told = f"not here: {', '.join(absent)}"
        yield Finding(check="secrets", state="warning", told=told, do="commands of these roles cannot be run from here")
    elif open_to := [name for name in here if _others_can_read(settings, name)]:
        told = f"others on this machine can read {', '.join(open_to)}"
        yield Finding(check="secrets", state="warning", told=told, do=f"chmod 700 {settings.secrets}")
    elif not unusable:
        yield Finding(check="secrets", state="well", told=f"{len(here)} in {settings.secrets}")


def _unusable(settings: Settings, name: str) -> Iterator[Finding]:
    try:
        settings.secret(name)
    except MissingSecret as error:
        yield finding_of("secrets", error).model_copy(update={"state": "ill", "exit_code": error.exit_code})


def _others_can_read(settings: Settings, name: str) -> bool:
    others = stat.S_IRGRP | stat.S_IROTH
    passable = settings.secrets.stat().st_mode & (stat.S_IXGRP | stat.S_IXOTH)
    return bool(passable and (settings.secrets / name).stat().st_mode & others)


def _inbox(settings: Settings) -> Iterator[Finding]:
    inbox = settings.inbox_path
    if inbox.is_dir():
        yield Finding(check="inbox", state="well", told=str(inbox))
    else:
        told = f"{inbox} is not a folder"
        yield Finding(
            check="inbox", state="warning", told=told, do="make it, or set MEMORY_INBOX, if ledgers are dropped"
        )


# --- servers ---------------------------------------------------------------------------------------------------------


def _postgres(database: Database) -> Iterator[Finding]:
    with database.transaction(Role.READER, None) as tx:
        release, shown = server.release(tx)
    if release >= TESTED_POSTGRES:
        yield Finding(check="postgres", state="well", told=f"PostgreSQL {shown}")
    else:
        told = f"PostgreSQL {shown} is older than what was tested with"
        yield Finding(check="postgres", state="warning", told=told, do=f"use PostgreSQL {TESTED_POSTGRES} or newer")


def _login(database: Database, role: Role) -> Iterator[Finding]:
    """Nothing where it works: eight lines that say `well` hide the one that does not."""
    with database.transaction(role, None):
        return
    yield


def _roles(database: Database) -> Iterator[Finding]:
    with database.transaction(Role.READER, None) as tx:
        missing, mighty = server.roles(tx, [*Role, DAGSTER_ROLE])
    if missing or mighty:
        wrong = [f"{name} does not exist" for name in missing] + [f"{name} may {what}" for name, what in mighty]
        yield Finding(
            check="roles",
            state="ill",
            told="; ".join(wrong),
            do="run memory-pipeline bootstrap as the administrator",
            exit_code=ConfigurationError.exit_code,
        )
    else:
        yield Finding(check="roles", state="well", told="each is there, and none is above row-level security")


def _migrations(services: Services) -> Iterator[Finding]:
    with services.database.transaction(Role.READER, None) as tx:
        yield Finding(check="migrations", state="well", told=f"{server.applied(tx)} applied, none is missing")


def _qdrant(services: Services) -> Iterator[Finding]:
    shown = services.index.version()
    services.index.alias_target("memory")  # the version is told without a key, the aliases are not
    if _numbers(shown)[:2] < TESTED_QDRANT:
        tested = ".".join(map(str, TESTED_QDRANT))
        told = f"Qdrant {shown} is older than what was tested with"
        yield Finding(check="qdrant", state="warning", told=told, do=f"use Qdrant {tested} or newer")
    else:
        yield Finding(check="qdrant", state="well", told=f"Qdrant {shown}")


def _ollama(services: Services) -> Iterator[Finding]:
    wanted = services.settings.embedding_model
    version = services.embedder.version()
    model = services.embedder.describe(wanted)
    services.embedder.embed_query(model.name, "ablazione", dimensions=model.dimensions)
    yield Finding(
        check="ollama", state="well", told=f"Ollama {version} embeds with {model.name} ({model.dimensions}-d)"
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.partition("-")[0].split(".") if part.isdigit())


# --- workspaces ------------------------------------------------------------------------------------------------------


def _workspaces(services: Services, only: str | None) -> Iterator[Finding]:
    """What is wrong with each, or one line that says that nothing is."""
    known = [each for each in measure_health(services).workspaces if only in (None, each.extent.workspace)]
    if only is not None and not known:
        raise UnknownWorkspace(only)
    wrong = [
        finding
        for health in known
        for finding in _asked(
            "workspace",
            lambda health=health: _workspace(services, health),  # type: ignore[misc]
            health.extent.workspace,
        )
    ]
    yield from wrong
    if not wrong:
        retired = sum(health.extent.status == "retired" for health in known)
        yield Finding(check="workspaces", state="well", told=f"{len(known)} ({retired} retired)")


def _workspace(services: Services, health: WorkspaceHealth) -> Iterator[Finding]:
    extent = health.extent
    slug = extent.workspace
    if extent.status == "retired":
        return
    with services.database.transaction(Role.READER, slug, via=services.via) as tx:
        serving = generations.serving(tx, slug)
    if serving is not None:
        yield from _asked("collection", lambda: _collection(services, slug, serving), slug)
        yield from _generation(services, slug)
    if health.ailments:
        parked = f"memory-pipeline propagation list -w {slug} shows why, retry tries again"
        yield Finding(
            check="index",
            state="ill",
            told=health.told,
            do=parked if extent.parked else f"memory-pipeline index -w {slug}",
            workspace=slug,
            exit_code=NotIndexed.exit_code,
        )


def _generation(services: Services, slug: str) -> Iterator[Finding]:
    """Nothing where it was built as one built now would be."""
    try:
        differences = rebuild_due(services, slug)
    except MemoryPipelineError as error:
        told = fingerprint((), unknown=error.message).told
        yield Finding(check="generation", state="unknown", told=told, do=error.hint, workspace=slug)
        return
    if differences:
        do = f"memory-pipeline index -w {slug} --rebuild"
        told = fingerprint(differences).told
        yield Finding(check="generation", state="warning", told=told, do=do, workspace=slug)


def _collection(services: Services, slug: str, serving: Generation) -> Iterator[Finding]:
    """Nothing where it can be searched, holds what was seen in it, and belongs to this registry."""
    try:
        shape = services.index.require_compatible(serving.collection, serving.format.dimensions)
        require_same_registry(services, slug, serving, shape)
        points = services.index.count(serving.collection)
    except (IncompatibleCollection, IndexUnavailable, RegistryRestored) as error:
        yield finding_of("collection", error, slug)
        return
    with services.database.transaction(Role.READER, slug, via=services.via) as tx:
        seen = generations.acknowledged_count(tx, slug, serving.number)
    if points < seen:
        yield Finding(
            check="collection",
            state="ill",
            told=f"{counted(points, 'point is', 'points are')} in {serving.collection}, and {seen} were seen there",
            do=f"memory-pipeline reconcile -w {slug}",
            workspace=slug,
            exit_code=StoresDiffer.exit_code,
        )
