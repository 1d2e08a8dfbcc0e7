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
from memory_pipeline.harness.runtime import read_yaml
from memory_pipeline.operations.recall import DEFAULT_LIMIT, OnEmbedderDown, Proposal, SearchRequest, recall


@click.command()
@workspace_options
@click.argument("question")
@click.option("-s", "--session", help="Leave out what this session decided already.")
@click.option("--filters", default="{}", metavar="YAML", help="Narrow by table, column, scope, concepts, kinds.")
@click.option("--limit", default=DEFAULT_LIMIT, show_default=True, help="Memories to propose.")
@click.option(
    "--on-embedder-down",
    type=click.Choice([choice.value for choice in OnEmbedderDown]),
    default=OnEmbedderDown.FAIL.value,
    show_default=True,
    help="Fail, or answer from BM25 alone.",
)
@json_option
def search(
    slug: str | None,
    config: Path | None,
    question: str,
    session: str | None,
    filters: str,
    limit: int,
    on_embedder_down: str,
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
                on_embedder_down=OnEmbedderDown(on_embedder_down),
            ),
        )
    if as_json:
        print_json(SearchAnswer(status="degraded" if found.degraded else "ok", **dict(found)))
        return
    if found.degraded:
        say(f"degraded: {found.degraded}")
    print_proposals(found.proposals)
    if found.excluded:
        say("left out: " + ", ".join(f"{count} {reason}" for reason, count in found.excluded.items()))


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
                "" if item.scores.dense is None else f"{item.scores.dense:.3f}",
                f"{item.scores.bm25:.2f}",
                f"{item.scores.fused:.3f}",
            )
            for item in proposals
        ],
        empty="no memory found",
    )


def _yaml(filters: str) -> object:
    try:
        given = read_yaml(filters)
    except (yaml.YAMLError, RecursionError) as error:
        raise BadInput(f"--filters is neither JSON nor YAML: {error}", hint="write {table: fact_orders}") from error
    return {} if given is None else given
