"""`memory-pipeline cards`: looking at cards, and curation."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import click
import yaml

from memory_pipeline.core.cards import CardKind, CardStatus, Link, Relation
from memory_pipeline.core.curation import CardFields
from memory_pipeline.core.display import told_time
from memory_pipeline.core.errors import BadCard
from memory_pipeline.core.history import Revision
from memory_pipeline.harness.contract import CardAnswer, CardListAnswer, curate_answer
from memory_pipeline.harness.options import json_option, open_services, resolve_workspace, workspace_options
from memory_pipeline.harness.output import print_json, print_table, printable, say
from memory_pipeline.operations.cards import DEFAULT_LIMIT, MAX_LIMIT, ShownCard, list_cards, show_card
from memory_pipeline.operations.curate import (
    Curated,
    add_card,
    delete_card,
    edit_card,
    link_card,
    set_kind,
    unlink_card,
)
from memory_pipeline.operations.propagate import propagate_at_once
from memory_pipeline.operations.services import Services
from memory_pipeline.store.curation import CardFilter

_Function = TypeVar("_Function", bound=Callable[..., Any])
_KINDS = click.Choice([kind.value for kind in CardKind])
_LISTS = ("scope", "concepts", "dependencies")

_revision_option = click.option(
    "--revision", type=int, required=True, help="The revision on which the change is made: the one that you read."
)
_relation_option = click.option(
    "--relation", type=click.Choice([relation.value for relation in Relation]), required=True, help="What it says."
)


def _field_options(function: _Function) -> _Function:
    """A card's fields. A list that is given replaces the one that the card has."""
    for option in (
        click.option("--type", "type", help="Of an exemplar; memories have one type only."),
        click.option("--dependency", "dependencies", multiple=True, metavar="YAML", help=(
            "Where it holds, as '{database: cardio, schema: public, table: t, column: c}'; repeatable."
        )),
        click.option("--concept", "concepts", multiple=True, help="A word under which it is found; repeatable."),
        click.option("--scope", multiple=True, help="Descriptive scope; repeatable."),
        click.option("--question-context", help="The question from which it comes."),
        click.option("--rationale", help="Why it holds."),
        click.option("--detail", help="What it means."),
        click.option("--subject", help="What it is about."),
    ):  # fmt: skip
        function = option(function)
    return function


@click.group()
def cards() -> None:
    """Look at cards and change them. Every change is the reviewer's, and a revision of its own."""


@cards.command("list")
@workspace_options
@click.option("--kind", "kinds", type=_KINDS, multiple=True, help="Only this kind; repeatable.")
@click.option(
    "--status",
    "statuses",
    type=click.Choice([status.value for status in CardStatus]),
    multiple=True,
    help="Only this status; repeatable. Without it all but the deleted ones.",
)
@click.option("--text", default="", help="Only cards that hold this text.")
@click.option("--limit", default=DEFAULT_LIMIT, show_default=True, help=f"Cards on the page (1 to {MAX_LIMIT}).")
@click.option("--offset", default=0, show_default=True, help="Cards before the page.")
@json_option
def list_(
    slug: str | None,
    config: Path | None,
    kinds: tuple[str, ...],
    statuses: tuple[str, ...],
    text: str,
    limit: int,
    offset: int,
    as_json: bool,
) -> None:
    """List cards by number."""
    wanted = CardFilter(tuple(map(CardKind, kinds)), tuple(map(CardStatus, statuses)), text)
    with open_services() as services:
        found = list_cards(services, resolve_workspace(slug, config), wanted, limit=limit, offset=offset)
    if as_json:
        print_json(CardListAnswer(**dict(found)))
        return
    print_table(
        f"cards of {found.workspace}: {found.total}",
        ("card", "kind", "status", "revision", "subject", "detail"),
        [(card.id, card.kind, card.status, card.revision, card.subject, card.detail) for card in found.cards],
        empty="none on this page" if found.total else "",
    )
    if found.remaining:
        say(f"{found.remaining} more beyond this page: --offset {offset + len(found.cards)}")


@cards.command()
@workspace_options
@click.argument("card")
@click.option("--history", is_flag=True, help="Every revision: who, when, by which door, and what changed.")
@json_option
def show(slug: str | None, config: Path | None, card: str, history: bool, as_json: bool) -> None:
    """Show one card; its history as the reviewer."""
    with open_services() as services:
        found = show_card(services, resolve_workspace(slug, config), card, history=history)
    if as_json:
        print_json(CardAnswer(**dict(found)))
        return
    _print_card(found)
    for revision in found.history or ():
        _print_revision(revision)


@cards.command()
@workspace_options
@click.option("--kind", type=_KINDS, default=CardKind.MEMORY.value, show_default=True, help="What to add.")
@_field_options
@json_option
def add(slug: str | None, config: Path | None, kind: str, as_json: bool, **given: Any) -> None:
    """Add a card by hand. It passes every check of a promoted one."""
    fields = _fields(given)
    _curate(
        slug, config, lambda services, workspace: add_card(services, workspace, fields, CardKind(kind)), as_json=as_json
    )


@cards.command()
@workspace_options
@click.argument("card")
@_revision_option
@_field_options
@click.option("--clear", type=click.Choice(_LISTS), multiple=True, help="Empty this list; repeatable.")
@json_option
def edit(
    slug: str | None,
    config: Path | None,
    card: str,
    revision: int,
    clear: tuple[str, ...],
    as_json: bool,
    **given: Any,
) -> None:
    """Change what a card says or where it holds. What is not given stays."""
    fields = _fields(given, clear)
    _curate(
        slug,
        config,
        lambda services, workspace: edit_card(services, workspace, card, revision, fields),
        as_json=as_json,
    )


@cards.command()
@workspace_options
@click.argument("card")
@_revision_option
@json_option
def delete(slug: str | None, config: Path | None, card: str, revision: int, as_json: bool) -> None:
    """Take a card out of use. Its row and its history stay; its id is never used again."""
    _curate(slug, config, lambda services, workspace: delete_card(services, workspace, card, revision), as_json=as_json)


@cards.command("set-kind")
@workspace_options
@click.argument("card")
@click.argument("kind", type=_KINDS)
@_revision_option
@click.option("--type", "type_", help="Its type in the new kind; the kind's own by default.")
@json_option
def set_kind_command(
    slug: str | None, config: Path | None, card: str, kind: str, revision: int, type_: str | None, as_json: bool
) -> None:
    """Make a card one of another kind. To become a memory it passes every check of one."""
    _curate(
        slug,
        config,
        lambda services, workspace: set_kind(services, workspace, card, revision, CardKind(kind), type_=type_),
        as_json=as_json,
    )


@cards.command()
@workspace_options
@click.argument("card")
@click.argument("target")
@_relation_option
@_revision_option
@json_option
def link(
    slug: str | None, config: Path | None, card: str, target: str, relation: str, revision: int, as_json: bool
) -> None:
    """Let CARD point to TARGET."""
    wanted = Link(relation=Relation(relation), target=target)
    _curate(
        slug,
        config,
        lambda services, workspace: link_card(services, workspace, card, revision, wanted),
        as_json=as_json,
    )


@cards.command()
@workspace_options
@click.argument("card")
@click.argument("target")
@_relation_option
@_revision_option
@json_option
def unlink(
    slug: str | None, config: Path | None, card: str, target: str, relation: str, revision: int, as_json: bool
) -> None:
    """Take a link from CARD to TARGET away."""
    wanted = Link(relation=Relation(relation), target=target)
    _curate(
        slug,
        config,
        lambda services, workspace: unlink_card(services, workspace, card, revision, wanted),
        as_json=as_json,
    )


def _curate(
    slug: str | None, config: Path | None, change: Callable[[Services, str], Curated], *, as_json: bool
) -> None:
    """Make a change, let the index follow it at once, and tell both."""
    workspace = resolve_workspace(slug, config)
    with open_services() as services:
        curated = change(services, workspace)
        answer = curate_answer(curated, propagate_at_once(services, workspace))
    if as_json:
        print_json(answer)
        return
    card, problem = answer.card, answer.propagation_problem
    click.echo(f"{card.id}: {answer.status}, {card.kind}, {card.status}, revision {card.revision}")
    click.echo(f"index: {answer.propagation}" + (f" ({problem.error}: {problem.message})" if problem else ""))


def _fields(given: dict[str, Any], clear: tuple[str, ...] = ()) -> CardFields:
    """The fields that were given; a list that was not is left as it is, or emptied."""
    fields = {name: value for name, value in given.items() if value not in (None, ())}
    if both := sorted(fields.keys() & set(clear)):
        raise click.UsageError(f"--clear {both[0]} and a value for it cannot both be given")
    if "dependencies" in fields:
        fields["dependencies"] = [_dependency(text) for text in fields["dependencies"]]
    return CardFields.parse({**fields, **dict.fromkeys(clear, ())})


def _dependency(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BadCard(
            f"a dependency is not YAML: {error}", hint="write it as '{database: cardio, table: fact_procedure}'"
        ) from error


def _print_card(shown: ShownCard) -> None:
    card = shown.card
    fields = card.model_dump(exclude={"fingerprint", "workspace", "id", "dependencies", "links"})
    rows = [(name, _shown(value)) for name, value in fields.items()]
    rows += [
        ("dependencies", ", ".join(dependency.path() for dependency in card.dependencies)),
        ("links", ", ".join(f"{link.relation} {link.target}" for link in card.links)),
        ("sources", ", ".join(shown.sources)),
    ]
    print_table(card.id, ("field", "value"), rows)


def _shown(value: object) -> object:
    if isinstance(value, datetime):
        return told_time(value)
    return ", ".join(value) if isinstance(value, list | tuple) else value


def _print_revision(revision: Revision) -> None:
    head = f"revision {revision.revision}  {told_time(revision.at)}  {revision.by} via {revision.via}"
    click.echo(printable(head))
    for change in revision.changes:
        click.echo(f"  {change.field}")
        for text in change.lines():
            click.echo("    " + printable(text).replace("\n", "\n      "))
