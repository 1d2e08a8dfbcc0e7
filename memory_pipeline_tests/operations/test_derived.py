"""Deciding on what was chosen from the memories of other sessions."""

from __future__ import annotations

from typing import Any

import pytest

from memory_pipeline.core.candidates import LeftOut
from memory_pipeline.core.errors import CandidateChanged
from memory_pipeline.core.text import fingerprint
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.operations.decide import Outcome
from memory_pipeline.operations.preview import Preview
from memory_pipeline.operations.services import Services
from memory_pipeline_tests.conftest import MakeWorkspace
from memory_pipeline_tests.flows import revise
from memory_pipeline_tests.operations.sessions import (
    concept,
    links,
    offer,
    offered,
    outcomes,
    requires,
    settle,
    tell,
    written,
)

pytestmark = pytest.mark.integration


@pytest.fixture
def known(services: Services, workspace: Workspace) -> Workspace:
    """A workspace with mem-0001, on ablation."""
    tell(services, workspace.slug, concept("ablazione"))
    settle(services, workspace.slug, offer(services, workspace.slug), select=(1,))
    return workspace


def chosen(**fields: Any) -> dict[str, Any]:
    """The concept that choosing mem-0001 gives."""
    return concept("Ablazione", **{"detail": "regola di ablazione", "rationale": "scelta mem-0001 in F2", **fields})


def left_out(shown: Preview) -> list[tuple[int, str, str | None]]:
    return [(left.seq, left.reason.value, left.card_id) for left in shown.left_out]


def test_a_memory_chosen_as_it_is_does_not_wait_for_a_verdict(services: Services, known: Workspace) -> None:
    tell(services, known.slug, chosen(), session="s2")
    shown = offer(services, known.slug, "s2")
    assert (shown.pending, shown.preview_id) == (0, None)
    assert left_out(shown) == [(1, LeftOut.Reason.ALREADY_KNOWN, "mem-0001")]


def test_a_memory_chosen_and_changed_is_offered_unselected_and_becomes_a_card_of_its_own(
    services: Services, known: Workspace
) -> None:
    tell(services, known.slug, chosen(detail="regola di ablazione dal 2020"), session="s2")
    shown = offer(services, known.slug, "s2")
    (one,) = shown.candidates
    assert (one.candidate.derived_from, one.candidate.preselected, one.duplicate_of) == (("mem-0001",), False, None)
    assert outcomes(settle(services, known.slug, shown, select=(1,))) == [(1, Outcome.CREATED, "mem-0002")]


def test_a_memory_deleted_since_it_was_chosen_is_offered_again_unselected(services: Services, known: Workspace) -> None:
    tell(services, known.slug, chosen(), session="s2")
    revise(services, known.slug, "mem-0001", status="deleted")
    (one,) = offer(services, known.slug, "s2").candidates
    assert (one.previously, one.candidate.derived_from, one.candidate.preselected) == ("mem-0001", ("mem-0001",), False)
    assert "deleted" in one.candidate.warnings[0]


def test_a_card_of_another_workspace_is_as_good_as_none(
    services: Services, known: Workspace, make_workspace: MakeWorkspace
) -> None:
    other = make_workspace().slug
    tell(services, other, chosen())
    (one,) = offer(services, other).candidates
    assert (one.candidate.derived_from, one.candidate.preselected) == ((), True)
    assert "not in this workspace" in one.candidate.warnings[0]


def test_a_link_to_what_is_known_already_points_to_its_card(services: Services, known: Workspace) -> None:
    tell(services, known.slug, chosen(), concept("b", **requires("seq:1")), session="s2")
    shown = offer(services, known.slug, "s2")
    assert offered(shown) == [(2,)]
    settle(services, known.slug, shown, select=(2,))
    assert links(services, known.slug) == {"mem-0001": [], "mem-0002": ["mem-0001"]}


def test_a_card_that_came_to_say_the_same_since_the_preview_is_named(services: Services, known: Workspace) -> None:
    changed = chosen(detail="regola di ablazione dal 2020")
    tell(services, known.slug, changed, session="s2")
    shown = offer(services, known.slug, "s2")
    with_text = concept("ablazione", detail=changed["detail"])
    revise(services, known.slug, "mem-0001", detail=with_text["detail"], fingerprint=_fingerprint(with_text))
    before = written(services, known.slug)
    with pytest.raises(CandidateChanged, match="mem-0001"):
        settle(services, known.slug, shown, select=(1,))
    assert written(services, known.slug) == before


def _fingerprint(fields: dict[str, Any]) -> str:
    return fingerprint(fields["subject"], fields["detail"])
