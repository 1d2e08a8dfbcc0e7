"""Jobs: thin ops over the use cases.

`search_job` and `promote_job` hand their answer back as the op's output, as JSON, for whoever executes them in process.
Answers are kept in memory only: a search leaves nothing behind but its run.
"""

# No `from __future__ import annotations` here: Dagster reads the annotations of what it calls as objects.

import os
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, TypeVar
from uuid import UUID

import dagster as dg
from pydantic import Field

from memory_pipeline.core.cards import CardKind, Link, Relation
from memory_pipeline.core.context import SearchFilters
from memory_pipeline.core.curation import CardFields
from memory_pipeline.core.dependencies import Dependency
from memory_pipeline.core.errors import BadInput, CurateFromUiDisabled, DecideFromUiDisabled
from memory_pipeline.defs.failures import named_failures
from memory_pipeline.defs.metadata import table
from memory_pipeline.defs.reporting import report_quietly
from memory_pipeline.defs.resources import VIA
from memory_pipeline.operations.curate import (
    Action,
    Curated,
    add_card,
    delete_card,
    edit_card,
    link_card,
    set_kind,
    unlink_card,
)
from memory_pipeline.operations.decide import decide
from memory_pipeline.operations.links import DEFAULT_DEPTH
from memory_pipeline.operations.preview import DEFAULT_LIMIT as PREVIEW_LIMIT
from memory_pipeline.operations.preview import preview
from memory_pipeline.operations.propagate import propagate_at_once
from memory_pipeline.operations.recall import DEFAULT_LIMIT, OnEmbedderDown, Recall, SearchRequest, recall
from memory_pipeline.operations.services import Services

UI_DECIDE = "MEMORY_UI_DECIDE"

_Member = TypeVar("_Member", bound=StrEnum)

index_job = dg.define_asset_job(
    "index_job",
    selection=dg.AssetSelection.groups("ledger", "registry", "index"),
    description="Derive everything of one workspace: from its inbox to the collection that is searched.",
)

evaluate_job = dg.define_asset_job(
    "evaluate_job",
    selection=dg.AssetSelection.groups("quality"),
    description="Measure how well recall finds the cards of one workspace, and hold it to what was accepted.",
)

ledger_job = dg.define_asset_job(
    "ledger_job",
    selection=dg.AssetSelection.groups("ledger", "registry"),
    description="Read the inbox of one workspace, and show what of its ledgers counts.",
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
    filters: dict[str, Any] = Field(default={}, description="table, column, scope, concepts, kind: they only narrow")
    limit: int = Field(default=DEFAULT_LIMIT, description="memories to propose; what they require comes along")
    depth: int = Field(default=DEFAULT_DEPTH, description="links followed in a row, 8 at most; 0 for none")
    on_embedder_down: str = Field(default=OnEmbedderDown.FAIL.value, description="fail, or lexical: BM25 alone")
    show_answer: bool = Field(default=False, description="show the answer in the run's log too, which keeps it")


class CurateConfig(dg.Config):
    """One change of one card."""

    workspace: str
    action: str = Field(description=", ".join(Action))
    card: str | None = Field(default=None, description="every action but add needs it")
    revision: int | None = Field(default=None, description="on which the change is made; every action but add needs it")
    kind: str | None = Field(default=None, description="of a new card, or to set")
    type_: str | None = Field(default=None, alias="type", description="in its new kind; the kind's own by default")
    fields: dict[str, Any] = Field(
        default={},
        description="to add or edit: subject, detail, rationale, question_context, scope, concepts, dependencies, type",
    )
    relation: str | None = Field(default=None, description="to link or unlink: requires, related, supersedes")
    target: str | None = Field(default=None, description="to link or unlink: the other card")


@dg.op
def promote(
    context: dg.OpExecutionContext, config: PromoteConfig, services: dg.ResourceParam[Services]
) -> Iterator[dg.Output[dict[str, Any]]]:
    """Preview a session, or decide on a preview as the reviewer. Returns the answer as JSON.

    From the UI it decides only where MEMORY_UI_DECIDE=1 is set: whoever reaches the UI decides as the reviewer then.
    What changed is shown on the graph after the answer.
    """
    with named_failures():
        if (config.session is None) is (config.preview_id is None):
            raise BadInput(
                "a promotion needs a session or a preview, and only one of them",
                hint="give session to see what it offers, or preview_id with selected and declined to decide",
            )
        answer = _preview(config, services, config.session) if config.session else _decide(config, services)
    yield dg.Output(answer)
    _show(context, services, config.workspace)


@dg.op
def curate(
    context: dg.OpExecutionContext, config: CurateConfig, services: dg.ResourceParam[Services]
) -> Iterator[dg.Output[dict[str, Any]]]:
    """Change one card, as the reviewer, and let the index follow. Returns the answer as JSON.

    From the UI it changes cards only where MEMORY_UI_DECIDE=1 is set, as promotions are decided. What changed is shown
    on the graph after the answer.
    """
    with named_failures():
        if services.via == VIA and os.environ.get(UI_DECIDE) != "1":
            raise CurateFromUiDisabled
        curated = _curate(config, services)
        drained = propagate_at_once(services, config.workspace)
    yield dg.Output({"curated": curated.model_dump(mode="json"), "propagation": drained.model_dump(mode="json")})
    _show(context, services, config.workspace)


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
def curate_job() -> None:
    """Curation: add, edit, delete or link a card, or change its kind."""
    curate()


@dg.job
def search_job() -> None:
    """Search a workspace's memories. The answer is the op's output; set show_answer to read it in the UI."""
    search()


JOBS = (index_job, ledger_job, evaluate_job, promote_job, curate_job, search_job)


def _show(context: dg.OpExecutionContext, services: Services, workspace: str) -> None:
    """Show on the graph what changed. The answer is out: nothing that goes wrong here takes it back."""
    if problem := report_quietly(context.instance, services, workspace).problem:
        context.log.warning("the graph does not show this yet; a sensor will: %s", problem)


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


def _curate(config: CurateConfig, services: Services) -> Curated:
    action = _member(Action, config.action, "action")
    kind = _member(CardKind, config.kind, "kind") if config.kind else None
    if action is Action.ADD:
        return add_card(services, config.workspace, CardFields.parse(config.fields), kind or CardKind.MEMORY)
    if config.card is None or config.revision is None:
        raise BadInput(f"{action} needs card and revision", hint="name the card, and the revision that you read")
    change = (services, config.workspace, config.card, config.revision)
    match action:
        case Action.EDIT:
            return edit_card(*change, CardFields.parse(config.fields))
        case Action.DELETE:
            return delete_card(*change)
        case Action.SET_KIND if kind is not None:
            return set_kind(*change, kind, type_=config.type_)
        case Action.LINK | Action.UNLINK if config.target:
            link = Link(relation=_member(Relation, config.relation or "", "relation"), target=config.target)
            return link_card(*change, link) if action is Action.LINK else unlink_card(*change, link)
        case _:
            raise BadInput(f"{action} lacks what it needs", hint="give kind to set-kind; relation and target to link")


def _member(members: type[_Member], value: str, name: str) -> _Member:
    try:
        return members(value)
    except ValueError as error:
        raise BadInput(f"{name} cannot be {value[:80]!r}", hint=f"use one of {', '.join(members)}") from error


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
        depth=config.depth,
        on_embedder_down=OnEmbedderDown(config.on_embedder_down),
    )


def _shown(answer: Recall) -> dg.TableMetadataValue:
    return table(
        (
            *("rank:int", "card", "subject", "detail"),
            *("score:float", "dense:float", "bm25:float", "fused:float", "reached_by"),
        ),
        [
            (
                proposal.rank,
                proposal.card.id,
                proposal.card.subject,
                proposal.card.detail,
                proposal.score,
                proposal.scores.dense,
                proposal.scores.bm25,
                proposal.scores.fused,
                proposal.reached_by,
            )
            for proposal in answer.proposals
        ],
    )
