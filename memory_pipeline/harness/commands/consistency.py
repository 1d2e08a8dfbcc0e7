"""`memory-pipeline consistency`."""

from __future__ import annotations

from pathlib import Path

import click

from memory_pipeline.core.display import counted
from memory_pipeline.core.drift import Finding
from memory_pipeline.core.errors import StoresDiffer
from memory_pipeline.harness.contract import ConsistencyAnswer
from memory_pipeline.harness.options import json_option, open_services, resolve_workspace, workspace_options
from memory_pipeline.harness.output import print_error, print_json, print_table
from memory_pipeline.operations.consistency import EXAMPLES, DriftReport, check_consistency


@click.command("consistency")
@workspace_options
@click.option(
    "--examples",
    type=click.IntRange(min=0),
    default=EXAMPLES,
    show_default=True,
    help="Findings of each kind to show; all are counted.",
)
@json_option
def consistency_command(slug: str | None, config: Path | None, examples: int, as_json: bool) -> int:
    """Compare the workspace's index with its registry, card by card and point by point. Nothing is changed.

    Exit code 51 where they differ: memory-pipeline reconcile mends it. What waits in the outbox is no difference.
    """
    with open_services() as services:
        report = check_consistency(services, resolve_workspace(slug, config), examples=examples)
    if as_json:
        print_json(ConsistencyAnswer(status="consistent" if report.consistent else "drift", **dict(report)))
    else:
        print_drift(report)
    if report.consistent:
        return 0
    print_error(StoresDiffer(report.workspace, report.total), as_json=False)
    return StoresDiffer.exit_code


def print_drift(report: DriftReport) -> None:
    """A comparison as a person reads it: what was found, then what was looked at."""
    for kind, count in report.counts.items():
        shown = [finding for finding in report.findings if finding.kind is kind]
        more = f" (the first {len(shown)})" if count > len(shown) else ""
        print_table(f"{kind}: {count}{more}", ("where", "what was seen"), [(_place(one), one.detail) for one in shown])
    points = "no collection" if report.points is None else counted(report.points, "point")
    click.echo(
        f"{report.collection or 'no index yet'}: {counted(report.cards, 'card')}, {points}, "
        f"{counted(report.total, 'difference')} in {report.seconds:.1f} s; "
        f"{report.pending} pending, {report.parked} parked, {report.proposed} before a human"
    )


def _place(finding: Finding) -> str:
    decision = f"{finding.session_id}:seq:{finding.decision_seq}" if finding.session_id else ""
    return " ".join(part for part in (finding.card_id, decision, finding.point_id) if part)
