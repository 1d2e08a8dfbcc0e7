"""`memory-pipeline propagation`."""

from __future__ import annotations

from pathlib import Path

import click

from memory_pipeline.core.display import counted, told_time
from memory_pipeline.core.errors import NotIndexed
from memory_pipeline.harness.contract import OutboxAnswer, RetryAnswer
from memory_pipeline.harness.options import json_option, open_services, resolve_workspace, workspace_options
from memory_pipeline.harness.output import print_drain, print_json, print_table
from memory_pipeline.operations.outbox import DEFAULT_LIMIT, MAX_LIMIT, Outbox, outbox, retry


@click.group()
def propagation() -> None:
    """Show changes that the index has yet to follow, and try them again."""


@propagation.command("list")
@workspace_options
@click.option("--limit", type=int, default=DEFAULT_LIMIT, show_default=True, help=f"Rows to show (1 to {MAX_LIMIT}).")
@json_option
def list_(slug: str | None, config: Path | None, limit: int, as_json: bool) -> None:
    """List what waits and what is parked, with the last error of each."""
    with open_services() as services:
        waiting = outbox(services, resolve_workspace(slug, config), limit=limit)
    if as_json:
        print_json(OutboxAnswer(**dict(waiting)))
    else:
        _print(waiting)


@propagation.command("retry")
@workspace_options
@click.option("--card", metavar="ID", help="Make this card due at once; all by default. What else is due is tried too.")
@json_option
def retry_(slug: str | None, config: Path | None, card: str | None, as_json: bool) -> int:
    """Make what waits or is parked due at once, and try what is due.

    Exit code 50 where something still waits.
    """
    with open_services() as services:
        retried = retry(services, resolve_workspace(slug, config), card)
    complete = retried.drain.settled
    if as_json:
        print_json(RetryAnswer(status="ok" if complete else "incomplete", **dict(retried)))
    else:
        click.echo(f"{retried.workspace}: {counted(retried.retried, 'card')} made due")
        print_drain(retried.drain)
    return 0 if complete else NotIndexed.exit_code


def _print(waiting: Outbox) -> None:
    print_table(
        f"{waiting.workspace}: {counted(waiting.pending, 'card')} pending, {waiting.parked} parked",
        ("card", "revision", "state", "attempts", "next attempt", "waiting since", "last error"),
        [
            (
                row.card_id,
                row.revision,
                row.state,
                row.attempts,
                told_time(row.next_attempt_at) if row.next_attempt_at else "when retried",
                told_time(row.since),
                row.last_error,
            )
            for row in waiting.rows
        ],
    )
