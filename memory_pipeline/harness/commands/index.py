"""`memory-pipeline index`."""

from __future__ import annotations

from pathlib import Path

import click

from memory_pipeline.core.display import counted
from memory_pipeline.core.errors import NotIndexed
from memory_pipeline.harness.contract import IndexAnswer, RebuildAnswer
from memory_pipeline.harness.options import json_option, open_services, resolve_workspace, workspace_options
from memory_pipeline.harness.output import print_drain, print_json, print_table, say
from memory_pipeline.operations.embed import Progress
from memory_pipeline.operations.index import index
from memory_pipeline.operations.rebuild import RebuildReport, rebuild
from memory_pipeline.operations.services import Services


@click.command("index")
@workspace_options
@click.option(
    "--rebuild",
    "anew",
    is_flag=True,
    help="Build another index beside the one that serves, as the settings want it now, and switch to it.",
)
@json_option
def index_command(slug: str | None, config: Path | None, anew: bool, as_json: bool) -> int:
    """Bring the workspace's index up to its registry.

    Exit code 50 where something still waits: it is told, and tried again by the next change or the next call.
    """
    with open_services() as services:
        workspace = resolve_workspace(slug, config)
        work = _rebuild if anew else _index
        complete = work(services, workspace, as_json=as_json)
    return 0 if complete else NotIndexed.exit_code


def _index(services: Services, workspace: str, *, as_json: bool) -> bool:
    report = index(services, workspace, _counting("settled"))
    complete = report.drain.settled
    if as_json:
        print_json(IndexAnswer(status="ok" if complete else "incomplete", **dict(report)))
        return complete
    click.echo(f"{report.collection}: {counted(report.cards, 'card')}, {report.queued} queued")
    print_drain(report.drain)
    if report.rebuild_due:
        say("a rebuild is due (memory-pipeline index --rebuild): " + "; ".join(report.rebuild_due))
    if report.rebuild_unknown:
        say(f"whether a rebuild is due cannot be told: {report.rebuild_unknown}")
    return complete


def _rebuild(services: Services, workspace: str, *, as_json: bool) -> bool:
    report = rebuild(services, workspace, _counting("written"))
    complete = report.drain.settled and report.problem is None
    if as_json:
        print_json(RebuildAnswer(status="ok" if complete else "incomplete", **dict(report)))
    else:
        _print_rebuild(report)
    return complete


def _print_rebuild(report: RebuildReport) -> None:
    click.echo(
        f"{report.collection} serves now, with {counted(report.cards, 'card')}: {report.written} written, "
        f"{report.embedded} embedded, {report.replayed} changed meanwhile, {report.mended} mended"
        + (", going on with what an earlier rebuild had left" if report.resumed else "")
    )
    if report.replaced:
        say(f"{report.replaced} is dropped by a later call, once no search can be reading it")
    if report.failed:
        print_table(
            "not in the index, as before",
            ("card", "error", "what happened"),
            [(card.card_id, card.error, card.message) for card in report.failed],
        )
    print_drain(report.drain)
    if report.problem:
        say(f"the alias has not followed yet: {report.problem.message} ({report.problem.hint})")


def _counting(done: str) -> Progress:
    """Tells on standard error how many cards are done."""
    total = 0

    def progress(cards: int) -> None:
        nonlocal total
        total += cards
        if cards:
            say(f"{counted(total, 'card')} {done}")

    return progress
