"""`memory-pipeline session`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from memory_pipeline.core.display import told_time
from memory_pipeline.core.summary import Concept, SessionSummary
from memory_pipeline.core.summary_markdown import note_on, summary_markdown
from memory_pipeline.harness.contract import CloseAnswer, SessionAnswer
from memory_pipeline.harness.options import json_option, open_services, resolve_workspace, workspace_options
from memory_pipeline.harness.output import print_json, print_table, printable, say
from memory_pipeline.operations.close import close_session, closing_of
from memory_pipeline.operations.summary import summarise_session
from memory_pipeline.store.ledger import Closing

_LONGEST_TEXT = 10_000


@click.group()
def session() -> None:
    """Look at a session as a whole, and close it."""


@session.command()
@workspace_options
@click.option("-s", "--session", "session_id", required=True, help="The session.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print it as Markdown, its texts escaped.")
@json_option
def show(slug: str | None, config: Path | None, session_id: str, as_markdown: bool, as_json: bool) -> None:
    """Show what became of a session's concepts: promoted, declined, and what waits."""
    if as_json and as_markdown:
        raise click.UsageError("--json and --markdown are two answers: ask for one")
    with open_services() as services:
        workspace = resolve_workspace(slug, config)
        found = summarise_session(services, workspace, session_id)
        closing = None if as_json or as_markdown else closing_of(services, workspace, session_id)
    if as_json:
        print_json(SessionAnswer(**{name: getattr(found, name) for name in SessionSummary.model_fields}))
    elif as_markdown:
        click.echo(summary_markdown(found, longest=_LONGEST_TEXT), nl=False)
    else:
        _print_summary(found)
        if closing:
            click.echo(_told(closing))


@session.command()
@workspace_options
@click.option("-s", "--session", "session_id", required=True, help="The session.")
@click.option("--leave-pending", is_flag=True, help="Close it although candidates are undecided.")
@json_option
def close(slug: str | None, config: Path | None, session_id: str, leave_pending: bool, as_json: bool) -> None:
    """Close a session, as the reviewer; refused while candidates are undecided.

    What is written to it later still counts, and candidates that were left can still be decided.
    """
    with open_services() as services:
        closed = close_session(services, resolve_workspace(slug, config), session_id, leave_pending=leave_pending)
    if as_json:
        print_json(CloseAnswer(**dict(closed)))
        return
    again = "" if closed.closed_now else " already"
    click.echo(f"session {session_id} was{again} closed by {closed.closed_by} at {closed.closed_at:%Y-%m-%d %H:%M %Z}")
    if closed.left_pending:
        say("left undecided: " + ", ".join(f"seq {seq}" for seq in closed.left_pending))


def _told(closing: Closing) -> str:
    left = len(closing.left_pending)
    return f"closed by {closing.by} at {told_time(closing.at)}, with {left} left to decide"


def _print_summary(found: SessionSummary) -> None:
    click.echo(f"question: {printable(found.question) or '(none)'}")
    _print_concepts("promoted", found.approved)
    _print_concepts("declined", found.declined)
    if found.known:
        _print_concepts("known already", found.known)
    _print_concepts("to decide", found.pending)
    if found.hidden:
        say("not told: " + ", ".join(f"{count} {reason}" for reason, count in found.hidden.items()))


def _print_concepts(title: str, concepts: Sequence[Concept]) -> None:
    print_table(
        title,
        ("seq", "subject", "detail", "rationale", "notes"),
        [
            (", ".join(map(str, one.seqs)), one.subject, one.detail, one.rationale, note_on(one).replace("; ", "\n"))
            for one in concepts
        ],
    )
