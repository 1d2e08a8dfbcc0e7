"""Jobs: thin ops over the use cases.

`search_job` and `promote_job` hand their answer back as the op's output, as JSON, for whoever executes them in process.
Answers are kept in memory only: a search leaves nothing behind but its run.
"""

# No `from __future__ import annotations` here: Dagster reads the annotations of what it calls as objects.

import os
from typing import Any
from uuid import UUID

import dagster as dg
from pydantic import Field

from memory_pipeline.core.context import SearchFilters
from memory_pipeline.core.dependencies import Dependency
from memory_pipeline.core.errors import BadInput, DecideFromUiDisabled
from memory_pipeline.defs.failures import named_failures
from memory_pipeline.defs.metadata import table
from memory_pipeline.defs.resources import VIA
from memory_pipeline.operations.decide import decide
from memory_pipeline.operations.preview import DEFAULT_LIMIT as PREVIEW_LIMIT
from memory_pipeline.operations.preview import preview
from memory_pipeline.operations.propagate import propagate_at_once
from memory_pipeline.operations.recall import DEFAULT_LIMIT, OnEmbedderDown, Recall, SearchRequest, recall
from memory_pipeline.operations.services import Services

UI_DECIDE = "MEMORY_UI_DECIDE"

index_job = dg.define_asset_job(
    "index_job",
    selection=dg.AssetSelection.all(),
    description="Derive everything of one workspace: from its inbox to the collection that is searched.",
)


class PromoteConfig(dg.Config):
    """A session to preview, or a preview to decide on."""

    workspace: str
    session: str | None = Field(default=None, description="show what this session offers, and keep a snapshot of it")
    preview_id: str | None = Field(default=None, description="decide on this preview")
    selected: list[int] = Field(default=[], description="seqs to promote")
    declined: list[int] = Field(default=[], description="seqs to decline")
    limit: int = Field(default=PREVIEW_LIMIT, description="candidates on the page")
    offset: int = Field(default=0, description="candidates before the page")


class SearchConfig(dg.Config):
    """A question and where it is asked."""

    workspace: str
    question: str
    database: str | None = Field(default=None, description="of the runtime; none searches the whole workspace")
    schema_: str | None = Field(default=None, alias="schema", description="of the runtime")
    session: str | None = Field(default=None, description="leave out what this session settled already")
    filters: dict[str, Any] = Field(default={}, description="table, column, scope, concepts, kinds: they only narrow")
    limit: int = Field(default=DEFAULT_LIMIT, description="memories to propose")
    on_embedder_down: str = Field(default=OnEmbedderDown.FAIL.value, description="fail, or lexical: BM25 alone")
    show_answer: bool = Field(default=False, description="show the answer in the run's log too, which keeps it")


@dg.op
def promote(config: PromoteConfig, services: dg.ResourceParam[Services]) -> dict[str, Any]:
    """Preview a session, or decide on a preview as the reviewer. Returns the answer as JSON.

    From the UI it decides only where MEMORY_UI_DECIDE=1 is set: whoever reaches the UI decides as the reviewer then.
    """
    with named_failures():
        if (config.session is None) is (config.preview_id is None):
            raise BadInput(
                "a promotion needs a session or a preview, and only one of them",
                hint="give session to see what it offers, or preview_id with selected and declined to decide",
            )
        return _preview(config, services, config.session) if config.session else _decide(config, services)


@dg.op
def search(
    context: dg.OpExecutionContext, config: SearchConfig, services: dg.ResourceParam[Services]
) -> dict[str, Any]:
    """Propose memories for a question. Returns the answer as JSON."""
    with named_failures():
        answer = recall(services, _request(config))
    if config.show_answer:
        context.add_output_metadata({"proposals": _shown(answer)})
    return answer.model_dump(mode="json")


@dg.job
def promote_job() -> None:
    """The gate: preview what a session offers, or decide on a preview."""
    promote()


@dg.job
def search_job() -> None:
    """Search a workspace's memories. The answer is the op's output; set show_answer to read it in the UI."""
    search()


def _preview(config: PromoteConfig, services: Services, session: str) -> dict[str, Any]:
    found = preview(services, config.workspace, session, limit=config.limit, offset=config.offset)
    return found.model_dump(mode="json")


def _decide(config: PromoteConfig, services: Services) -> dict[str, Any]:
    if services.via == VIA and os.environ.get(UI_DECIDE) != "1":
        raise DecideFromUiDisabled
    decision = decide(
        services,
        config.workspace,
        _uuid(config.preview_id or ""),
        selected=config.selected,
        declined=config.declined,
    )
    drained = propagate_at_once(services, config.workspace)
    return {"decision": decision.model_dump(mode="json"), "propagation": drained.model_dump(mode="json")}


def _uuid(preview_id: str) -> UUID:
    try:
        return UUID(preview_id)
    except ValueError as error:
        raise BadInput(
            f"{preview_id[:80]!r} is not the id of a preview", hint="use the id that a preview gave"
        ) from error


def _request(config: SearchConfig) -> SearchRequest:
    if config.schema_ and not config.database:
        raise BadInput(f"schema {config.schema_!r} is named without its database", hint="add the database")
    if config.on_embedder_down not in list(OnEmbedderDown):
        raise BadInput(
            f"on_embedder_down cannot be {config.on_embedder_down[:80]!r}",
            hint=f"use one of {', '.join(OnEmbedderDown)}",
        )
    return SearchRequest(
        workspace=config.workspace,
        question=config.question,
        session=config.session,
        place=Dependency(database=config.database, schema_=config.schema_) if config.database else None,
        filters=SearchFilters.parse(config.filters),
        limit=config.limit,
        on_embedder_down=OnEmbedderDown(config.on_embedder_down),
    )


def _shown(answer: Recall) -> dg.TableMetadataValue:
    return table(
        ("rank:int", "card", "subject", "detail", "dense:float", "bm25:float", "fused:float"),
        [
            (
                proposal.rank,
                proposal.card.id,
                proposal.card.subject,
                proposal.card.detail,
                proposal.scores.dense,
                proposal.scores.bm25,
                proposal.scores.fused,
            )
            for proposal in answer.proposals
        ],
    )
