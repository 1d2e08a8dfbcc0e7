"""`memory-pipeline workspace`."""

from __future__ import annotations

from typing import Any

import click

from memory_pipeline.core.languages import LANGUAGES
from memory_pipeline.core.profile import DEFAULT_PROFILE, PROFILES
from memory_pipeline.core.workspace import Workspace, require_slug
from memory_pipeline.harness.contract import (
    ListedWorkspace,
    WorkspaceAnswer,
    WorkspaceChangeAnswer,
    WorkspaceListAnswer,
)
from memory_pipeline.harness.options import json_option, open_services
from memory_pipeline.harness.output import print_json, print_table, say
from memory_pipeline.operations.workspaces import (
    ChangedWorkspace,
    WorkspaceChanges,
    create_workspace,
    describe_workspaces,
    list_workspaces,
    restore_workspace,
    retire_workspace,
    set_workspace,
    show_workspace,
)


@click.group()
def workspace() -> None:
    """Make workspaces, change them and look at them."""


@workspace.command()
@click.argument("slug")
@click.option("--title", help="A name for people; the slug by default.")
@click.option(
    "--language", required=True, metavar="CODE", help=f"Language of the texts: {', '.join(sorted(LANGUAGES))}."
)
@click.option("--database", required=True, help="Default database of its questions.")
@click.option("--schema", help="Default schema.")
@click.option("--dialect", default="postgresql", show_default=True, help="SQL dialect.")
@click.option("--profile", default=DEFAULT_PROFILE, show_default=True, help=f"One of {', '.join(sorted(PROFILES))}.")
@click.option("--four-eyes", is_flag=True, help="A human may not promote a decision of their own.")
@click.option("--if-missing", is_flag=True, help="Take one that exists with the same settings for done.")
@json_option
def create(
    slug: str,
    title: str | None,
    language: str,
    database: str,
    schema: str | None,
    dialect: str,
    profile: str,
    four_eyes: bool,
    if_missing: bool,
    as_json: bool,
) -> None:
    """Make a workspace, as the owner."""
    wanted = Workspace(
        slug=slug,
        title=title or slug,
        language=language,
        sql_dialect=dialect,
        default_database=database,
        default_schema=schema,
        embedding_profile=profile,
        four_eyes=four_eyes,
    )
    with open_services() as services:
        made = create_workspace(services, wanted, if_missing=if_missing)
    if as_json:
        print_json(WorkspaceAnswer(status="created" if made else "exists", workspace=wanted))
    else:
        click.echo(f"workspace {slug} {'created' if made else 'exists already'}")


@workspace.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List every workspace."""
    with open_services() as services:
        if as_json:
            listed = tuple(ListedWorkspace(**state._asdict()) for state in list_workspaces(services))
            print_json(WorkspaceListAnswer(workspaces=listed))
            return
        found = describe_workspaces(services)
    print_table(
        "workspaces",
        ("slug", "status", "title", "language", "database"),
        [(each.slug, each.status, each.title, each.language, each.default_database) for each in found],
    )


@workspace.command()
@click.argument("slug")
@json_option
def show(slug: str, as_json: bool) -> None:
    """Show one workspace."""
    with open_services() as services:
        found = show_workspace(services, require_slug(slug))
    if as_json:
        print_json(WorkspaceAnswer(status="ok", workspace=found))
    else:
        print_table(f"workspace {slug}", ("setting", "value"), _settings(found))


@workspace.command("set")
@click.argument("slug")
@click.option("--title", help="A name for people.")
@click.option("--language", metavar="CODE", help=f"Language of the texts: {', '.join(sorted(LANGUAGES))}.")
@click.option("--database", "default_database", help="Default database of its questions.")
@click.option("--schema", "default_schema", help="Default schema.")
@click.option("--no-schema", is_flag=True, help="Take the default schema away.")
@click.option("--dialect", "sql_dialect", help="SQL dialect.")
@click.option("--profile", "embedding_profile", help=f"One of {', '.join(sorted(PROFILES))}.")
@click.option(
    "--four-eyes/--no-four-eyes", default=None, help="Whether a human may not promote a decision of their own."
)
@json_option
def set_(slug: str, no_schema: bool, as_json: bool, **settings: str | bool | None) -> None:
    """Change settings of a workspace, as the owner; those that are not named stay."""
    if no_schema and settings["default_schema"] is not None:
        raise click.UsageError("--schema and --no-schema are two wishes: give one")
    given: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    if no_schema:
        given["default_schema"] = None
    with open_services() as services:
        _print_change(set_workspace(services, require_slug(slug), WorkspaceChanges(**given)), as_json=as_json)


@workspace.command()
@click.argument("slug")
@json_option
def retire(slug: str, as_json: bool) -> None:
    """Take a workspace out of use, as the owner: its rows stay, nothing is written, promoted or searched."""
    with open_services() as services:
        _print_change(retire_workspace(services, require_slug(slug)), as_json=as_json)


@workspace.command()
@click.argument("slug")
@json_option
def restore(slug: str, as_json: bool) -> None:
    """Take a retired workspace into use again, as the owner."""
    with open_services() as services:
        _print_change(restore_workspace(services, require_slug(slug)), as_json=as_json)


def _settings(shown: Workspace) -> list[tuple[str, object]]:
    fields = {**shown.model_dump(mode="json"), "four_eyes": "yes" if shown.four_eyes else "no"}
    return list(fields.items())


def _print_change(done: ChangedWorkspace, *, as_json: bool) -> None:
    if as_json:
        print_json(WorkspaceChangeAnswer(status="changed" if done.changed else "unchanged", **dict(done)))
        return
    print_table(
        f"workspace {done.workspace.slug}{' changed' if done.changed else ': nothing to change'}",
        ("setting", "value"),
        _settings(done.workspace),
    )
    if done.rebuild_due:
        say("its index was built for another language or profile, and serves so until it is rebuilt")
