"""`memory-pipeline audit`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from memory_pipeline.core.display import told_time
from memory_pipeline.harness.contract import AuditAnswer
from memory_pipeline.harness.options import json_option, open_services, resolve_workspace, workspace_options
from memory_pipeline.harness.output import print_json, print_table, say
from memory_pipeline.operations.audit import DEFAULT_LIMIT, audit
from memory_pipeline.operations.cards import MAX_LIMIT
from memory_pipeline.store.audit import AuditEvent, AuditFilter

_MOMENT = click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S%z"])


@click.command("audit")
@workspace_options
@click.option("--since", type=_MOMENT, help="Only acts from this moment on; UTC where it names no offset.")
@click.option("--card", help="Only acts on this card.")
@click.option("-s", "--session", help="Only acts on decisions of this session.")
@click.option("--limit", default=DEFAULT_LIMIT, show_default=True, help=f"Acts on the page (1 to {MAX_LIMIT}).")
@click.option("--offset", default=0, show_default=True, help="Acts before the page.")
@json_option
def audit_command(
    slug: str | None,
    config: Path | None,
    since: datetime | None,
    card: str | None,
    session: str | None,
    limit: int,
    offset: int,
    as_json: bool,
) -> None:
    """Show who did what and when, oldest first, as the reviewer."""
    moment = since.replace(tzinfo=UTC) if since and since.tzinfo is None else since
    with open_services() as services:
        found = audit(
            services, resolve_workspace(slug, config), AuditFilter(moment, card, session), limit=limit, offset=offset
        )
    if as_json:
        print_json(AuditAnswer(**dict(found)))
        return
    print_table(
        f"acts in {found.workspace}: {found.total}",
        ("when", "who", "via", "what", "card", "decision", "subject", "changed"),
        [_row(event) for event in found.events],
    )
    if found.remaining:
        say(f"{found.remaining} more beyond this page: --offset {offset + len(found.events)}")


def _row(event: AuditEvent) -> tuple[object, ...]:
    decision = f"seq:{event.decision_seq}" if event.decision_seq else ""
    return (
        told_time(event.at),
        event.actor,
        event.via,
        event.action,
        f"{event.card_id} r{event.revision}" if event.revision else event.card_id,
        f"{event.session_id}:{decision}".strip(":") if event.session_id else "",
        event.subject,
        ", ".join(event.changed) or event.note,
    )
