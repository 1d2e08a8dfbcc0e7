"""Options that several commands share, and what they resolve to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from memory_pipeline import logs
from memory_pipeline.core.errors import BadRuntime
from memory_pipeline.core.workspace import require_slug
from memory_pipeline.harness.runtime import Runtime, load_runtime
from memory_pipeline.operations.services import Services
from memory_pipeline.operations.workspaces import show_workspace
from memory_pipeline.settings import Settings

_Function = TypeVar("_Function", bound=Callable[..., Any])


def json_option(function: _Function) -> _Function:
    """`--json`: only the answer of the contract on standard output."""
    return click.option("--json", "as_json", is_flag=True, help="Print only the JSON answer.")(function)


def workspace_options(function: _Function) -> _Function:
    """`-w` or `-c`: which workspace, by name or by runtime file."""
    function = click.option("-w", "--workspace", "slug", metavar="SLUG", help="The workspace.")(function)
    return click.option(
        "-c",
        "--config",
        "config",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="runtime.yaml: binds workspace, database, schema and language.",
    )(function)


def open_services() -> Services:
    """The collaborators of a command, after the environment and the stack file."""
    settings = Settings()
    logs.configure(settings.log, settings.log_level)
    return Services(settings, via="cli")


def resolve_workspace(slug: str | None, config: Path | None) -> str:
    """The workspace that the options name.

    Raises:
        click.UsageError: none is named.
        BadRuntime: both are, and differ.
    """
    runtime = load_runtime(config) if config else None
    if runtime and slug and slug != runtime.workspace:
        raise BadRuntime(
            f"-w {slug} and {config} (workspace {runtime.workspace}) name two workspaces", hint="give one of them"
        )
    named = slug or (runtime.workspace if runtime else None)
    if named is None:
        raise click.UsageError("name the workspace with -w SLUG or -c runtime.yaml")
    return require_slug(named)


def resolve_runtime(services: Services, slug: str | None, config: Path | None) -> Runtime:
    """The runtime that the options name; with `-w` alone, the workspace's default database and schema.

    Raises:
        BadRuntime: its language is not the workspace's.
        UnknownWorkspace: there is none of that name.
    """
    workspace = show_workspace(services, resolve_workspace(slug, config))
    if config is None:
        return Runtime(workspace=workspace.slug, database=workspace.default_database, schema_=workspace.default_schema)
    runtime = load_runtime(config)
    if runtime.language not in (None, workspace.language):
        raise BadRuntime(
            f"{config} says language {runtime.language!r}, workspace {workspace.slug!r} has {workspace.language!r}",
            hint="correct the file: the language of the index is the workspace's",
        )
    return runtime
