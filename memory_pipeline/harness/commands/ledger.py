"""`memory-pipeline ledger`."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import click

from memory_pipeline.core.errors import BadInput
from memory_pipeline.harness.contract import AppendAnswer, IngestAnswer, LedgerAnswer
from memory_pipeline.harness.options import json_option, open_services, resolve_workspace, workspace_options
from memory_pipeline.harness.output import print_json, print_table
from memory_pipeline.operations.ledger import RefusedLine, append, read_inbox, show_ledger


@click.group()
def ledger() -> None:
    """Feed a session's ledger and read it back."""


@ledger.command("append")
@workspace_options
@click.option("-s", "--session", required=True, help="The session.")
@click.argument("file", type=click.File("rb"), default="-")
@json_option
def append_command(slug: str | None, config: Path | None, session: str, file: BinaryIO, as_json: bool) -> int:
    """Append lines, one JSON object each, from FILE or standard input.

    Each good line gets the next seq. Refused lines are answered, not stored, and make the exit code 10.
    """
    with open_services() as services:
        done = append(services, resolve_workspace(slug, config), session, file)
    if as_json:
        print_json(AppendAnswer(status="some_refused" if done.refused else "ok", **dict(done)))
    else:
        numbers = f"seq {done.seqs[0]} to {done.seqs[-1]}" if done.seqs else "nothing"
        click.echo(f"session {session}: {len(done.seqs)} lines appended ({numbers}), {len(done.refused)} refused")
        _print_refused("refused", done.refused)
    return BadInput.exit_code if done.refused else 0


@ledger.command()
@workspace_options
@json_option
def read(slug: str | None, config: Path | None, as_json: bool) -> int:
    """Read every file of the workspace's inbox on from where it was left.

    A file that is refused whole makes the exit code 10; the others load.
    """
    with open_services() as services:
        workspace = resolve_workspace(slug, config)
        readings, problems = read_inbox(services, workspace)
    if as_json:
        status = "some_refused" if problems or any(reading.quarantined for reading in readings) else "ok"
        print_json(IngestAnswer(status=status, workspace=workspace, readings=tuple(readings), problems=tuple(problems)))
    else:
        print_table(
            f"inbox of {workspace}",
            ("session", "new entries", "quarantined", "last seq"),
            [(item.session, item.entries, len(item.quarantined), item.last_seq) for item in readings],
        )
        _print_refused("quarantined", [line for item in readings for line in item.quarantined])
        if problems:
            print_table(
                "refused whole", ("file", "error", "what happened"), [(p.file, p.error, p.message) for p in problems]
            )
    return BadInput.exit_code if problems else 0


@ledger.command()
@workspace_options
@click.option("-s", "--session", required=True, help="The session.")
@json_option
def show(slug: str | None, config: Path | None, session: str, as_json: bool) -> None:
    """Show a session: every entry with what it is worth today."""
    with open_services() as services:
        found = show_ledger(services, resolve_workspace(slug, config), session)
    if as_json:
        print_json(LedgerAnswer(**dict(found)))
        return
    click.echo(f"question: {found.question or '(none)'}")
    print_table(
        f"session {session}",
        ("seq", "phase", "type", "subject", "detail", "status"),
        [
            (
                row.seq if row.seq is not None else f"p{row.pseq}",
                row.phase,
                row.type,
                row.subject,
                row.detail,
                row.status,
            )
            for row in found.rows
        ],
    )
    _print_refused("quarantined", found.quarantined)


def _print_refused(title: str, lines: tuple[RefusedLine, ...] | list[RefusedLine]) -> None:
    if lines:
        print_table(
            title,
            ("source", "line", "reason", "what is wrong"),
            [(line.source, line.line_number, line.reason, line.message) for line in lines],
        )
