"""`memory-pipeline repairs`: what was found that only a human may mend."""

from __future__ import annotations

from pathlib import Path

import click

from memory_pipeline.core.display import told_time
from memory_pipeline.harness.contract import RepairListAnswer
from memory_pipeline.harness.options import json_option, open_services, resolve_workspace, workspace_options
from memory_pipeline.harness.output import print_json, print_table, say
from memory_pipeline.operations.cards import MAX_LIMIT
from memory_pipeline.operations.repairs import DEFAULT_LIMIT, list_repairs
from memory_pipeline.store.repairs import RepairProposal, RepairState


@click.group()
def repairs() -> None:
    """Show what a comparison found wrong in the registry itself, for a human to decide."""


@repairs.command("list")
@workspace_options
@click.option("--all", "every", is_flag=True, help="Those that are closed too.")
@click.option("--limit", default=DEFAULT_LIMIT, show_default=True, help=f"Proposals on the page (1 to {MAX_LIMIT}).")
@click.option("--offset", default=0, show_default=True, help="Proposals before the page.")
@json_option
def list_command(slug: str | None, config: Path | None, every: bool, limit: int, offset: int, as_json: bool) -> None:
    """List proposals, newest first. One whose finding is gone is closed as obsolete by the next reconcile."""
    with open_services() as services:
        found = list_repairs(
            services,
            resolve_workspace(slug, config),
            None if every else RepairState.OPEN,
            limit=limit,
            offset=offset,
        )
    if as_json:
        print_json(RepairListAnswer(**dict(found)))
        return
    print_table(
        f"repairs proposed in {found.workspace}: {found.total}",
        ("id", "state", "what", "card", "decision", "what was found", "proposed", "since"),
        [_row(proposal) for proposal in found.proposals],
        empty="none on this page" if found.total else "",
    )
    if found.remaining:
        say(f"{found.remaining} more beyond this page: --offset {offset + len(found.proposals)}")


def _row(proposal: RepairProposal) -> tuple[object, ...]:
    decision = f"seq:{proposal.decision_seq}" if proposal.decision_seq else ""
    return (
        proposal.proposal_id,
        proposal.state,
        proposal.kind,
        proposal.card_id,
        f"{proposal.session_id}:{decision}".strip(":") if proposal.session_id else "",
        proposal.reason,
        proposal.repair,
        told_time(proposal.proposed_at),
    )
