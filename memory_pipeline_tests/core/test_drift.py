"""The rules by which a point is held against its card."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import Any

import pytest

from memory_pipeline.core.cards import CardKind
from memory_pipeline.core.drift import REMEDIES, DriftKind, Owner, Remedy, Wanted, card_drift, point_drift
from memory_pipeline.core.projection import point_id

CARD = "mem-0001"
OWN = point_id(CARD)
NOW, BEFORE = "a" * 64, "b" * 64
WANTED = Wanted(
    card_id=CARD,
    kind=CardKind.MEMORY,
    revision=2,
    sha256=NOW,
    expected_revision=2,
    expected_sha256=NOW,
    acknowledged_sha256=NOW,
)


@dataclass(frozen=True)
class State:
    """A point as it should be, but for what a test changes."""

    point_id: uuid.UUID | int = OWN
    ref: str = CARD
    kind: str = "memory"
    revision: int = 2
    projection_sha256: str = NOW


CURRENT = State()


@pytest.mark.parametrize(
    ("wanted", "point", "kind"),
    [
        ({}, CURRENT, None),
        ({}, None, DriftKind.MISSING),
        ({"expected_revision": None, "expected_sha256": None, "acknowledged_sha256": None}, None, DriftKind.MISSING),
        ({}, replace(CURRENT, kind="exemplar"), DriftKind.WRONG_KIND),
        ({}, replace(CURRENT, kind="", ref="", revision=0, projection_sha256=""), DriftKind.WRONG_KIND),
        ({}, replace(CURRENT, revision=1), DriftKind.STALE),
        ({}, replace(CURRENT, revision=3), DriftKind.STALE),
        ({}, replace(CURRENT, projection_sha256=BEFORE), DriftKind.STALE),
        ({}, replace(CURRENT, ref="mem-0002"), DriftKind.STALE),
        ({"expected_sha256": BEFORE}, replace(CURRENT, projection_sha256=BEFORE), DriftKind.TEXT_CHANGED),
        ({"expected_sha256": BEFORE}, CURRENT, DriftKind.TEXT_CHANGED),
        ({"expected_revision": 1, "expected_sha256": BEFORE}, replace(CURRENT, revision=1), DriftKind.STALE),
        ({"acknowledged_sha256": None}, CURRENT, DriftKind.UNACKNOWLEDGED),
        ({"acknowledged_sha256": BEFORE}, CURRENT, DriftKind.UNACKNOWLEDGED),
        ({"expected_revision": None, "expected_sha256": None, "acknowledged_sha256": None}, CURRENT,
         DriftKind.UNACKNOWLEDGED),
    ],
)  # fmt: skip
def test_a_card_and_its_point(wanted: dict[str, Any], point: State | None, kind: DriftKind | None) -> None:
    found = card_drift(WANTED.model_copy(update=wanted), point)
    assert (found and found.kind) == kind
    if found is not None:
        assert (found.card_id, found.point_id) == (CARD, str(OWN))


@pytest.mark.parametrize(
    ("owner", "point", "kind"),
    [
        (("active", True), CURRENT, None),
        (("active", True), replace(CURRENT, projection_sha256=BEFORE), None),
        (("active", True), replace(CURRENT, point_id=uuid.uuid4()), DriftKind.DUPLICATE),
        (("active", True), replace(CURRENT, point_id=7), DriftKind.DUPLICATE),
        (("deleted", True), CURRENT, DriftKind.ORPHAN),
        (("draft", True), CURRENT, DriftKind.ORPHAN),
        (("active", False), CURRENT, DriftKind.ORPHAN),
        (None, CURRENT, DriftKind.ORPHAN),
        (None, State(point_id=7, ref="", kind="", revision=0, projection_sha256=""), DriftKind.ORPHAN),
    ],
)
def test_a_point_for_itself(owner: tuple[str, bool] | None, point: State, kind: DriftKind | None) -> None:
    known = owner and Owner(card_id=CARD, status=owner[0], projectable=owner[1])
    found = point_drift(point, known or None)
    assert (found and found.kind) == kind


def test_every_kind_has_a_remedy_and_only_the_registry_s_own_are_a_human_s() -> None:
    assert set(REMEDIES) == set(DriftKind)
    assert {kind for kind, remedy in REMEDIES.items() if remedy is Remedy.PROPOSE} == {
        DriftKind.FORBIDDEN_TYPE,
        DriftKind.MARKER_WITHOUT_CARD,
        DriftKind.UNSUPPORTED_CARD,
    }
