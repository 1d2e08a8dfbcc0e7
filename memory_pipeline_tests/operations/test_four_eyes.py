"""Four eyes: who decided does not promote, by the identity that PostgreSQL authenticated."""

from __future__ import annotations

import pytest

from memory_pipeline.core.errors import FourEyes
from memory_pipeline.operations.decide import Outcome
from memory_pipeline.operations.services import Services
from memory_pipeline.operations.workspaces import WorkspaceChanges, set_workspace
from memory_pipeline_tests.conftest import MakeWorkspace
from memory_pipeline_tests.operations.sessions import concept, offer, outcomes, settle, tell, written

pytestmark = pytest.mark.integration


@pytest.fixture
def strict(make_workspace: MakeWorkspace) -> str:
    """A workspace that asks for four eyes."""
    return make_workspace(four_eyes=True).slug


@pytest.fixture
def me(services: Services) -> str:
    """The actor as which the reviewer under test would have decided."""
    return f"human:{services.settings.reviewer_login}"


def test_nobody_promotes_a_decision_of_their_own_and_nothing_of_the_checklist_is_written(
    services: Services, strict: str, me: str
) -> None:
    tell(services, strict, concept("a", actor="model"), concept("b", actor=me), concept("c"))
    shown = offer(services, strict)
    before = written(services, strict)
    with pytest.raises(FourEyes, match="seq:2"):
        settle(services, strict, shown, select=(1, 2), decline=(3,))
    assert written(services, strict) == before


@pytest.mark.parametrize("actor", [None, "model", "human:anna", "agent:memory_reviewer", "human:"])
def test_a_model_nobody_or_somebody_else_is_no_conflict(services: Services, strict: str, actor: str | None) -> None:
    tell(services, strict, concept("a", actor=actor))
    decision = settle(services, strict, offer(services, strict), select=(1,))
    assert outcomes(decision) == [(1, Outcome.CREATED, "mem-0001")]


def test_an_identity_is_the_same_however_it_is_written(services: Services, strict: str, me: str) -> None:
    tell(services, strict, concept("a", actor=f" {me.upper()} "))
    with pytest.raises(FourEyes):
        settle(services, strict, offer(services, strict), select=(1,))


def test_a_folded_decision_of_ones_own_is_one_too(services: Services, strict: str, me: str) -> None:
    tell(services, strict, concept("a", actor="model"), concept("A", detail="regola di a", actor=me))
    with pytest.raises(FourEyes, match="seq:1"):
        settle(services, strict, offer(services, strict), select=(1,))


def test_a_source_for_a_card_that_exists_is_a_promotion_too(services: Services, strict: str, me: str) -> None:
    tell(services, strict, concept("a"))
    settle(services, strict, offer(services, strict), select=(1,))
    tell(services, strict, concept("a", actor=me), session="s2")
    with pytest.raises(FourEyes):
        settle(services, strict, offer(services, strict, "s2"), select=(1,))


def test_a_decision_of_ones_own_may_be_declined(services: Services, strict: str, me: str) -> None:
    tell(services, strict, concept("a", actor=me))
    decision = settle(services, strict, offer(services, strict), decline=(1,))
    assert outcomes(decision) == [(1, Outcome.DECLINED, None)]


def test_the_preview_warns_and_the_setting_counts_as_it_is_when_it_is_decided(
    services: Services, make_workspace: MakeWorkspace, me: str
) -> None:
    workspace = make_workspace().slug
    tell(services, workspace, concept("a", actor=me), concept("b", actor=me))
    free = offer(services, workspace)
    assert [one.candidate.warnings for one in free.candidates] == [(), ()]
    settle(services, workspace, free, select=(1,))
    set_workspace(services, workspace, WorkspaceChanges(four_eyes=True))
    (warning,) = offer(services, workspace).candidates[0].candidate.warnings
    assert services.settings.reviewer_login in warning
    with pytest.raises(FourEyes):
        settle(services, workspace, free, select=(2,))
    assert outcomes(settle(services, workspace, free, select=(1,))) == [(1, Outcome.CREATED, "mem-0001")]
    set_workspace(services, workspace, WorkspaceChanges(four_eyes=False))
    assert outcomes(settle(services, workspace, free, select=(2,))) == [(2, Outcome.CREATED, "mem-0002")]
