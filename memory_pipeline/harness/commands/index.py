"""`memory-pipeline index`."""

from __future__ import annotations

from pathlib import Path

import click

from memory_pipeline.core.errors import NotIndexed
from memory_pipeline.harness.contract import IndexAnswer
from memory_pipeline.harness.options import json_option, open_services, resolve_workspace, workspace_options
from memory_pipeline.harness.output import print_json, print_table, say
from memory_pipeline.operations.index import index


@click.command("index")
@workspace_options
@json_option
def index_command(slug: str | None, config: Path | None, as_json: bool) -> int:
    """Bring the workspace's index up to its registry.

    Exit code 50 where something still waits: it is told, and tried again by the next change or the next call.
    """
    done = 0

    def progress(cards: int) -> None:
        nonlocal done
        done += cards
        say(f"{done} cards settled")

    with open_services() as services:
        report = index(services, resolve_workspace(slug, config), progress)
    complete = report.drain.settled
    if as_json:
        print_json(IndexAnswer(status="ok" if complete else "incomplete", **dict(report)))
    else:
        drained = report.drain
        click.echo(
            f"{report.collection}: {report.cards} cards, {report.queued} queued; {drained.upserted} upserted, "
            f"{drained.payload_only} payloads, {drained.removed} removed, {drained.embedded} embedded; "
            f"{drained.pending} pending, {drained.parked} parked"
        )
        if drained.failed:
            print_table(
                "waiting", ("card", "error", "what happened"), [(f.card_id, f.error, f.message) for f in drained.failed]
            )
        if drained.problem:
            say(f"stopped by {drained.problem.error}: {drained.problem.message} ({drained.problem.hint})")
        if report.rebuild_due:
            say("a rebuild is due: " + "; ".join(report.rebuild_due))
    return 0 if complete else NotIndexed.exit_code
