"""`memory-pipeline ledger`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import click

from memory_pipeline.core.display import counted
from memory_pipeline.core.errors import BadInput
from memory_pipeline.harness.contract import (
    AppendAnswer,
    ExportAnswer,
    IngestAnswer,
    LedgerAnswer,
    QuarantineAnswer,
    ResetAnswer,
)
from memory_pipeline.harness.options import json_option, open_services, resolve_workspace, workspace_options
from memory_pipeline.harness.output import print_json, print_table, say
from memory_pipeline.operations.files import replacing
from memory_pipeline.operations.inbox import RefusedLine, bounded_lines, read_inbox
from memory_pipeline.operations.ledger import append, export_ledger, list_quarantine, reset_source, show_ledger


@click.group()
def ledger() -> None:
    """Feed a session's ledger and read it back."""


@ledger.command("append")
@workspace_options
@click.option("-s", "--session", required=True, help="The session.")
@click.argument("file", type=click.File("rb"), default="-")
@click.option(
    "--expect-seq", type=click.IntRange(min=0), help="Append only where the session ends at this seq; 0: it is empty."
)
@json_option
def append_command(
    slug: str | None, config: Path | None, session: str, file: BinaryIO, expect_seq: int | None, as_json: bool
) -> int:
    """Append lines, one JSON object each, from FILE or standard input.

    Each good line gets the next seq. Refused lines are answered, not stored, and make the exit code 10.
    """
    with open_services() as services:
        workspace = resolve_workspace(slug, config)
        done = append(services, workspace, session, bounded_lines(file), expect_seq=expect_seq)
    if as_json:
        print_json(AppendAnswer(status="some_refused" if done.refused else "ok", **dict(done)))
    else:
        numbers = f"seq {done.seqs[0]} to {done.seqs[-1]}" if done.seqs else "nothing"
        taken = counted(len(done.seqs), "line")
        click.echo(f"session {session}: {taken} appended ({numbers}), {len(done.refused)} refused")
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
        status = "some_refused" if problems or any(reading.lines_quarantined for reading in readings) else "ok"
        print_json(IngestAnswer(status=status, workspace=workspace, readings=tuple(readings), problems=tuple(problems)))
    else:
        print_table(
            f"inbox of {workspace}",
            ("session", "new entries", "passed over", "quarantined", "last seq"),
            [
                (item.session, item.entries, item.passed_over, item.lines_quarantined, item.last_seq)
                for item in readings
            ],
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


@ledger.command()
@workspace_options
@click.option("-s", "--session", required=True, help="The session.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Into this file, whole or not at all."
)
@json_option
def export(slug: str | None, config: Path | None, session: str, output: Path | None, as_json: bool) -> int:
    """Write every stored row of a session as one JSON object a line, rows of the pipeline among them.

    The lines of the harness can be read again from an inbox. The inbox is not read before.
    """
    if as_json and output is None:
        raise click.UsageError("--json tells of the file: name one with --output FILE")
    with open_services() as services:
        workspace = resolve_workspace(slug, config)
        if output is None:
            return _export_to_pipe(lambda: export_ledger(services, workspace, session, sys.stdout.buffer))
        with replacing(output) as stream:
            done = export_ledger(services, workspace, session, stream)
    if as_json:
        print_json(ExportAnswer(file=str(output), **dict(done)))
    else:
        lines = counted(done.harness, "line")
        say(f"session {session}: {lines} of the harness and {done.pipeline} of the pipeline in {output}")
    return 0


@ledger.command("reset-source")
@workspace_options
@click.option("-s", "--session", required=True, help="The session.")
@click.option("--reason", required=True, help="Why its file changed; kept on record.")
@json_option
def reset_command(slug: str | None, config: Path | None, session: str, reason: str, as_json: bool) -> None:
    """Accept the changed file of a session as it is, as the owner: the way out of LedgerTampered.

    What was read before stays. The next reading passes over every line whose seq is not above the last one stored.
    """
    with open_services() as services:
        done = reset_source(services, resolve_workspace(slug, config), session, reason=reason)
    if as_json:
        print_json(ResetAnswer(**dict(done)))
        return
    click.echo(
        f"session {session}: its file was read up to line {done.reset.lines_read}. The next reading takes it as it is, "
        f"from seq {done.reset.floor_seq + 1} on; what was read before stays as it was read"
    )


@ledger.command()
@workspace_options
@click.option("-s", "--session", help="Only this session.")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(min=0), help="Lines on the page.")
@click.option("--offset", default=0, show_default=True, type=click.IntRange(min=0), help="Lines before the page.")
@json_option
def quarantine(
    slug: str | None, config: Path | None, session: str | None, limit: int, offset: int, as_json: bool
) -> None:
    """List the lines of the inbox's files that were refused, and how many for each reason."""
    with open_services() as services:
        found = list_quarantine(services, resolve_workspace(slug, config), session, limit=limit, offset=offset)
    if as_json:
        print_json(QuarantineAnswer(**dict(found)))
        return
    counts = ", ".join(f"{count.lines} {count.reason}" for count in found.counts)
    print_table(
        f"quarantine of {found.workspace}: {counted(found.total, 'line')}" + (f" ({counts})" if counts else ""),
        ("source", "line", "reason", "what is wrong", "the line begins"),
        [(line.source, line.line_number, line.reason, line.message, line.head) for line in found.lines],
        empty="none on this page" if found.total else "",
    )


def _export_to_pipe(write: Callable[[], object]) -> int:
    """Write to standard output; whoever reads it may have read enough."""
    try:
        write()
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or closing it would fail once more
    return 0


def _print_refused(title: str, lines: Sequence[RefusedLine]) -> None:
    if lines:
        print_table(
            title,
            ("source", "line", "reason", "what is wrong"),
            [(line.source, line.line_number, line.reason, line.message) for line in lines],
        )
