"""Cards whose decisions no longer count: they stay, and are told."""

from __future__ import annotations

import pytest

from memory_pipeline.core.workspace import Workspace
from memory_pipeline.operations.provenance import sources_no_longer_effective
from memory_pipeline.operations.services import Services
from memory_pipeline.store.database import Role
from memory_pipeline_tests.conftest import MakeWorkspace
from memory_pipeline_tests.flows import revise
from memory_pipeline_tests.operations.sessions import (
    Fields,
    concept,
    offer,
    reopened,
    retraction,
    rolled_back,
    rows,
    settle,
    tell,
)

pytestmark = pytest.mark.integration


@pytest.fixture
def promoted(services: Services, workspace: Workspace) -> str:
    """A workspace with mem-0001 from two folded decisions of s1, and mem-0002 from s1 and s2."""
    tell(services, workspace.slug, concept("a"), concept("A", detail="regola di a"), concept("b"))
    settle(services, workspace.slug, offer(services, workspace.slug), select=(1, 3))
    tell(services, workspace.slug, concept("b"), session="s2")
    settle(services, workspace.slug, offer(services, workspace.slug, "s2"), select=(1,))
    return workspace.slug


def lapsed(services: Services, workspace: str) -> list[tuple[str, str, int, str, int]]:
    found = sources_no_longer_effective(services, workspace).sources
    return [(one.card_id, one.session_id, one.seq, one.status, one.others) for one in found]


def test_where_every_decision_counts_nothing_is_told(services: Services, promoted: str) -> None:
    tell(services, promoted, concept("c"), rolled_back("F8"), reopened("F1"))
    found = sources_no_longer_effective(services, promoted)
    assert (found.sources, found.unsupported, found.weakened) == ([], [], [])


@pytest.mark.parametrize(
    ("later", "status"), [([rolled_back("F1")], "stale"), ([retraction(1), retraction(2), retraction(3)], "retracted")]
)
def test_a_card_stays_when_its_decision_is_taken_back_and_is_told(
    services: Services, promoted: str, later: list[Fields], status: str
) -> None:
    tell(services, promoted, *later)
    assert lapsed(services, promoted) == [
        ("mem-0001", "s1", 1, status, 0),
        ("mem-0001", "s1", 2, status, 0),
        ("mem-0002", "s1", 3, status, 1),
    ]
    found = sources_no_longer_effective(services, promoted)
    assert (found.unsupported, found.weakened) == (["mem-0001"], ["mem-0002"])
    assert rows(services, promoted, "SELECT DISTINCT status FROM cards") == [("active",)]


def test_one_of_two_folded_decisions_still_holds_the_card(services: Services, promoted: str) -> None:
    tell(services, promoted, retraction(2))
    assert lapsed(services, promoted) == [("mem-0001", "s1", 2, "retracted", 1)]


def test_a_retraction_that_was_retracted_takes_nothing(services: Services, promoted: str) -> None:
    tell(services, promoted, retraction(1), retraction(4))
    assert lapsed(services, promoted) == []


def test_a_card_that_is_deleted_or_that_a_curator_stands_for_is_not_told(services: Services, promoted: str) -> None:
    tell(services, promoted, rolled_back("F1"))
    with services.database.transaction(Role.REVIEWER, promoted) as tx:
        tx.execute(
            "INSERT INTO card_sources (workspace, card_id, provenance) VALUES (%s, 'mem-0001', 'curation')", (promoted,)
        )
    assert sources_no_longer_effective(services, promoted).unsupported == []
    revise(services, promoted, "mem-0001", status="deleted")
    assert {one[0] for one in lapsed(services, promoted)} == {"mem-0002"}


def test_another_workspace_has_none_of_it(services: Services, promoted: str, make_workspace: MakeWorkspace) -> None:
    tell(services, promoted, rolled_back("F1"))
    assert lapsed(services, make_workspace().slug) == []
