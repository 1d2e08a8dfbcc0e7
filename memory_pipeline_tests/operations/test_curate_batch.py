"""Cards added and linked in one go: what one card must pass, each must, and all or none are written."""

from __future__ import annotations

import pytest

from memory_pipeline.core.cards import CardKind, Link, MemoryRecord, Relation
from memory_pipeline.core.curation import CardFields
from memory_pipeline.core.errors import (
    BadCard,
    CardDeleted,
    DuplicateCard,
    EvidenceNotCurated,
    MemoryPipelineError,
    NotAConcept,
    NotReusable,
    SelfLink,
    UnknownCard,
    WorkspaceRetired,
)
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.operations.cards import list_cards, show_card
from memory_pipeline.operations.curate import add_card, add_cards, delete_card, link_cards
from memory_pipeline.operations.services import Services
from memory_pipeline.operations.workspaces import retire_workspace
from memory_pipeline.store.curation import CardFilter
from memory_pipeline.store.database import Role


def fields(subject: str, **more: str) -> CardFields:
    return CardFields(subject=subject, detail=f"what {subject} means", **more)


def requires(target: str) -> Link:
    return Link(relation=Relation.REQUIRES, target=target)


def stored(services: Services, workspace: str) -> tuple[MemoryRecord, ...]:
    return list_cards(services, workspace, CardFilter()).cards


def test_a_batch_is_added_in_order_each_with_its_source_its_revision_and_its_row_in_the_outbox(
    services: Services, workspace: Workspace
) -> None:
    add_card(services, workspace.slug, fields("first"))

    added = add_cards(services, workspace.slug, [fields("second"), fields("third")])

    assert [(card.id, card.subject) for card in added] == [("mem-0002", "second"), ("mem-0003", "third")]
    assert show_card(services, workspace.slug, "mem-0003").sources == ("curation",)
    with services.database.transaction(Role.REVIEWER, workspace.slug) as tx:
        for table in ("card_revisions", "propagations"):
            assert tx.execute(f"SELECT FROM {table}").rowcount == 3
    assert add_cards(services, workspace.slug, []) == []


@pytest.mark.parametrize(
    ("bad", "kind", "refusal"),
    [
        (CardFields(subject="no detail"), CardKind.MEMORY, BadCard),
        (fields("dim_patient"), CardKind.MEMORY, NotAConcept),
        (fields("x", type="table_promoted"), CardKind.MEMORY, NotReusable),
        (fields("x"), CardKind.EVIDENCE, EvidenceNotCurated),
        (fields("There already"), CardKind.MEMORY, DuplicateCard),
        (fields("Good "), CardKind.MEMORY, DuplicateCard),
        (fields("Good "), CardKind.EXEMPLAR, DuplicateCard),
    ],
    ids=["no detail", "table name", "type", "evidence", "duplicate", "duplicate in the batch", "duplicate exemplar"],
)
def test_nothing_is_added_where_one_card_cannot_be(
    bad: CardFields, kind: CardKind, refusal: type[MemoryPipelineError], services: Services, workspace: Workspace
) -> None:
    add_card(services, workspace.slug, fields("there already"))

    with pytest.raises(refusal):
        add_cards(services, workspace.slug, [fields("good"), bad], kind)

    assert [card.subject for card in stored(services, workspace.slug)] == ["there already"]


def test_links_are_added_to_those_that_are_there_and_none_where_one_cannot_be(
    services: Services, workspace: Workspace
) -> None:
    slug = workspace.slug
    add_cards(services, slug, [fields(subject) for subject in ("a", "b", "c", "d")])
    link_cards(services, slug, {"mem-0001": [requires("mem-0002")]})

    linked = link_cards(
        services,
        slug,
        {"mem-0001": [requires("mem-0003"), requires("mem-0002")], "mem-0003": [requires("mem-0001")]},
    )
    again = link_cards(services, slug, {"mem-0001": [requires("mem-0002")]})

    assert [(card.id, card.revision, [link.target for link in card.links]) for card in (*linked, *again)] == [
        ("mem-0001", 3, ["mem-0002", "mem-0003"]),
        ("mem-0003", 2, ["mem-0001"]),
        ("mem-0001", 3, ["mem-0002", "mem-0003"]),
    ]
    delete_card(services, slug, "mem-0004", 1)
    refusals: dict[str, type[MemoryPipelineError]] = {
        "mem-0002": SelfLink, "mem-0004": CardDeleted, "mem-0009": UnknownCard
    }  # fmt: skip
    for target, refusal in refusals.items():
        with pytest.raises(refusal):
            link_cards(services, slug, {"mem-0003": [requires("mem-0002")], "mem-0002": [requires(target)]})
    assert show_card(services, slug, "mem-0003").card.revision == 2
    retire_workspace(services, slug)
    with pytest.raises(WorkspaceRetired):
        add_cards(services, slug, [fields("too late")])
