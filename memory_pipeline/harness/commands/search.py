"""`memory-pipeline search`."""

from __future__ import annotations

from pathlib import Path
from textwrap import shorten

import click
import yaml

from memory_pipeline.core.context import SearchFilters
from memory_pipeline.core.errors import BadInput
from memory_pipeline.harness.contract import SearchAnswer
from memory_pipeline.harness.options import json_option, open_services, resolve_runtime, workspace_options
from memory_pipeline.harness.output import print_json, print_table, say
from memory_pipeline.operations.given import read_yaml
from memory_pipeline.operations.links import DEFAULT_DEPTH, MAX_DEPTH
from memory_pipeline.operations.recall import (
    DEFAULT_LIMIT,
    MAX_LIMIT,
    OnEmbedderDown,
    Proposal,
    Recall,
    SearchRequest,
    recall,
)


@click.command()
@workspace_options
@click.argument("question")
@click.option("-s", "--session", help="Leave out cards that this session cites or rejects.")
@click.option("--filters", default="{}", metavar="YAML", help="Narrow by table, column, scope, concepts, kind.")
@click.option(
    "--limit",
    default=DEFAULT_LIMIT,
    show_default=True,
    help=f"Memories to propose (1 to {MAX_LIMIT}); what they require comes along.",
)
@click.option(
    "--depth",
    default=DEFAULT_DEPTH,
    show_default=True,
    help=f"Links followed in a row (0 to {MAX_DEPTH}).",
)
@click.option(
    "--on-embedder-down",
    type=click.Choice([choice.value for choice in OnEmbedderDown]),
    default=OnEmbedderDown.FAIL.value,
    show_default=True,
    help="Fail, or answer from BM25 alone.",
)
@click.option("--explain", is_flag=True, help="Show the scores, the way by which each memory came, and the times.")
@json_option
def search(
    slug: str | None,
    config: Path | None,
    question: str,
    session: str | None,
    filters: str,
    limit: int,
    depth: int,
    on_embedder_down: str,
    explain: bool,
    as_json: bool,
) -> None:
    """Find memories for QUESTION in the runtime's database and schema."""
    with open_services() as services:
        runtime = resolve_runtime(services, slug, config)
        found = recall(
            services,
            SearchRequest(
                workspace=runtime.workspace,
                question=question,
                session=session,
                place=runtime.place,
                filters=SearchFilters.parse(_yaml(filters)),
                limit=limit,
                depth=depth,
                on_embedder_down=OnEmbedderDown(on_embedder_down),
            ),
        )
    if as_json:
        print_json(SearchAnswer(status="degraded" if found.degraded else "ok", **dict(found)))
        return
    if found.degraded:
        say(f"degraded: {found.degraded}")
    if explain:
        print_explanation(found)
    else:
        print_proposals(found.proposals)
    for proposal in found.proposals:
        if proposal.incomplete:
            missing = ", ".join(f"{gap.target} ({gap.reason})" for gap in proposal.incomplete)
            say(f"{proposal.card.id} is incomplete: it requires {missing}")
    if found.excluded:
        say("left out: " + ", ".join(f"{count} {reason}" for reason, count in found.excluded.items()))
    if found.limits:
        say(f"not looked any further: the bound on {', '.join(found.limits)} was reached")


def print_proposals(proposals: tuple[Proposal, ...], title: str = "proposed", *, longest: int | None = None) -> None:
    """A table of memories with their scores; details are shortened to `longest` signs, where that is given."""
    print_table(
        title,
        ("rank", "card", "subject", "detail", "dense", "bm25", "fused"),
        [
            (
                item.rank,
                item.card.id,
                item.card.subject,
                shorten(item.card.detail, longest) if longest else item.card.detail,
                _number(item.scores.dense),
                _number(item.scores.bm25),
                _number(item.scores.fused),
            )
            for item in proposals
        ],
        empty="no memory found",
    )


def print_explanation(found: Recall) -> None:
    """Why each memory is where it is: its scores, what it was ranked by, and the way by which it came."""
    print_table(
        f"proposed from generation {found.generation}",
        ("rank", "card", "subject", "score", "dense", "bm25", "fused", "reached by", "places", "from"),
        [
            (
                item.rank,
                item.card.id,
                shorten(item.card.subject, 40),
                _number(item.score),
                _number(item.scores.dense),
                _number(item.scores.bm25),
                _number(item.scores.fused),
                item.reached_by,
                ", ".join(dependency.path() for dependency in item.card.dependencies),
                ", ".join(item.sources),
            )
            for item in found.proposals
        ],
        empty="no memory found",
    )
    if found.decided:
        say(f"settled by the session: {', '.join(found.decided)}")
    say("ms: " + ", ".join(f"{stage} {spent:.1f}" for stage, spent in found.timings))


def _number(score: float | None) -> str:
    return "" if score is None else f"{score:.3f}"


def _yaml(filters: str) -> object:
    try:
        given = read_yaml(filters)
    except (yaml.YAMLError, RecursionError) as error:
        raise BadInput(f"--filters is neither JSON nor YAML: {error}", hint="write {table: fact_orders}") from error
    return {} if given is None else given
