"""`memory-pipeline reconcile`."""

from __future__ import annotations

from pathlib import Path

import click

from memory_pipeline.core.display import counted
from memory_pipeline.core.errors import NotIndexed
from memory_pipeline.harness.commands.consistency import print_drift
from memory_pipeline.harness.contract import ReconcileAnswer
from memory_pipeline.harness.options import json_option, open_services, resolve_workspace, workspace_options
from memory_pipeline.harness.output import print_json, say
from memory_pipeline.operations.reconcile import ReconcileReport, reconcile


@click.command("reconcile")
@workspace_options
@click.option("--dry-run", is_flag=True, help="Only show what would be mended.")
@json_option
def reconcile_command(slug: str | None, config: Path | None, dry_run: bool, as_json: bool) -> int:
    """Mend what differs between the workspace's index and its registry.

    What is derived is made anew: points are written again or deleted, collection and alias are mended. What a human
    decided is only proposed: memory-pipeline repairs list. Collections of others are never touched.

    Exit code 50 where something still waits, or was not certain enough to be deleted.
    """

    def progress(cards: int) -> None:
        say(f"{counted(cards, 'more card')} settled")

    with open_services() as services:
        report = reconcile(services, resolve_workspace(slug, config), dry_run=dry_run, progress=progress)
    complete = report.complete or report.dry_run
    if as_json:
        status = "dry_run" if report.dry_run else "ok" if complete else "incomplete"
        print_json(ReconcileAnswer(status=status, **dict(report)))
    else:
        print_drift(report.found)
        if not report.dry_run:
            _print_mended(report)
    return 0 if complete else NotIndexed.exit_code


def _print_mended(report: ReconcileReport) -> None:
    for what in report.mended:
        click.echo(f"mended: {what}")
    proposals = report.proposals
    told = f", {proposals.opened} proposed, {proposals.withdrawn} withdrawn" if proposals else ""
    click.echo(
        f"{counted(report.queued, 'card')} queued, {counted(report.deleted, 'point')} deleted, "
        f"{report.doubtful} left as doubtful{told}"
    )
    if report.drain is not None and not report.drain.settled:
        click.echo(f"{report.drain.pending} pending, {report.drain.parked} parked")
    if report.drain is not None and (problem := report.drain.problem):
        say(f"stopped by {problem.error}: {problem.message} ({problem.hint})")
