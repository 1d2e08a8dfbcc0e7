"""`memory-pipeline promote`: the gate."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import click

from memory_pipeline.core.display import counted
from memory_pipeline.harness.contract import PreviewAnswer, decide_answer
from memory_pipeline.harness.options import json_option, open_services, resolve_workspace, workspace_options
from memory_pipeline.harness.output import print_json, print_table, say
from memory_pipeline.operations.decide import decide
from memory_pipeline.operations.preview import DEFAULT_LIMIT, OfferedCandidate, preview
from memory_pipeline.operations.propagate import propagate_at_once
from memory_pipeline.operations.similar import Similar


@click.group()
def promote() -> None:
    """Preview a session's candidates and decide on them."""


@promote.command("preview")
@workspace_options
@click.option("-s", "--session", required=True, help="The session.")
@click.option("--limit", default=DEFAULT_LIMIT, show_default=True, help="Candidates on the page (1 or more).")
@click.option("--offset", default=0, show_default=True, help="Candidates before the page.")
@json_option
def preview_command(
    slug: str | None, config: Path | None, session: str, limit: int, offset: int, as_json: bool
) -> None:
    """Show what a session offers, and keep a snapshot to decide on."""
    with open_services() as services:
        found = preview(services, resolve_workspace(slug, config), session, limit=limit, offset=offset)
    if as_json:
        print_json(PreviewAnswer(status="ok" if found.pending else "nothing_to_decide", **dict(found)))
        return
    print_table(
        f"session {session}" + (f": {found.pending} to decide" if found.pending else ""),
        ("seq", "pre", "subject", "detail", "notes"),
        [_shown(offer) for offer in found.candidates],
        empty="none on this page" if found.pending else "nothing to decide",
    )
    if found.left_out:
        print_table(
            "left out",
            ("seq", "subject", "reason", "card"),
            [(out.seq, out.subject, out.reason, out.card_id) for out in found.left_out],
        )
    if found.similarity.problem:
        say(f"{found.similarity.looked_up.told}: {found.similarity.problem}")
    if found.remaining:
        say(f"{found.remaining} more beyond this page: --offset {offset + len(found.candidates)}")
    if found.preview_id:
        click.echo(f"preview {found.preview_id} (until {found.expires_at:%Y-%m-%d %H:%M %Z})")


@promote.command("decide")
@workspace_options
@click.option("--preview", "preview_id", type=click.UUID, required=True, help="The preview decided on.")
@click.option("--select", "selected", type=int, multiple=True, metavar="SEQ", help="Promote this one; repeatable.")
@click.option("--decline", "declined", type=int, multiple=True, metavar="SEQ", help="Decline this one; repeatable.")
@json_option
def decide_command(
    slug: str | None,
    config: Path | None,
    preview_id: UUID,
    selected: tuple[int, ...],
    declined: tuple[int, ...],
    as_json: bool,
) -> None:
    """Decide candidates of a preview, all or nothing, as the reviewer."""
    _decide(resolve_workspace(slug, config), preview_id, selected, declined, as_json=as_json)


@promote.command("save-one")
@workspace_options
@click.option("--preview", "preview_id", type=click.UUID, required=True, help="The preview decided on.")
@click.option("--seq", type=int, required=True, help="The candidate to promote.")
@json_option
def save_one(slug: str | None, config: Path | None, preview_id: UUID, seq: int, as_json: bool) -> None:
    """Promote one candidate of a preview, as the reviewer; the others stay open."""
    _decide(resolve_workspace(slug, config), preview_id, (seq,), (), as_json=as_json)


def _decide(
    workspace: str, preview_id: UUID, selected: tuple[int, ...], declined: tuple[int, ...], *, as_json: bool
) -> None:
    with open_services() as services:
        decision = decide(services, workspace, preview_id, selected=selected, declined=declined)
        answer = decide_answer(decision, propagate_at_once(services, workspace))
    if as_json:
        print_json(answer)
        return
    print_table(
        f"session {decision.session}",
        ("seq", "outcome", "card", "warnings"),
        [(item.seq, item.outcome, item.card_id, "; ".join(item.warnings)) for item in decision.verdicts],
    )
    problem = answer.propagation_problem
    click.echo(f"index: {answer.propagation}" + (f" ({problem.error}: {problem.message})" if problem else ""))
    if decision.pending:
        waiting = counted(decision.pending, "candidate of the session is", "candidates of the session are")
        say(f"{waiting} still undecided")


def _shown(offer: OfferedCandidate) -> tuple[object, ...]:
    candidate = offer.candidate
    notes = list(candidate.warnings)
    if candidate.folded_seqs:
        notes.append("stands for seq " + ", ".join(map(str, candidate.folded_seqs)) + " too")
    if candidate.derived_from:
        notes.append("derived from " + ", ".join(candidate.derived_from))
    if offer.duplicate_of:
        notes.append(f"adds a source to {offer.duplicate_of}")
    if offer.previously:
        notes.append(f"was {offer.previously}, deleted")
    notes += map(_told, offer.similar_to)
    preselected = "x" if candidate.preselected else ""
    return candidate.seq, preselected, candidate.content.subject, candidate.content.detail, "; ".join(notes)


def _told(similar: Similar) -> str:
    """A neighbour in a few words, and the numbers that tell both apart."""
    apart = " against ".join(", ".join(numbers) or "none" for numbers in (similar.numbers_here, similar.numbers_there))
    differ = f", but {apart}" if similar.numbers_here or similar.numbers_there else ""
    return f"near {similar.ref} ({similar.score:.2f}{differ}): {similar.detail or similar.subject}"
