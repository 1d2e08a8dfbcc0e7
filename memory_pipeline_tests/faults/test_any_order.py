"""Whatever happens, in whatever order, the index comes to equal the registry: a state machine against a model."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from memory_pipeline.core.cards import CardKind, Link, Relation
from memory_pipeline.core.curation import CardFields
from memory_pipeline.core.drift import DriftKind
from memory_pipeline.core.errors import NotIndexed
from memory_pipeline.core.projection import point_id
from memory_pipeline.failpoints import NAMES, Interrupted, armed
from memory_pipeline.operations.consistency import check_consistency
from memory_pipeline.operations.curate import Curated, add_card, delete_card, edit_card, link_card, set_kind
from memory_pipeline.operations.index import index
from memory_pipeline.operations.propagate import drain
from memory_pipeline.operations.rebuild import rebuild
from memory_pipeline.operations.reconcile import reconcile
from memory_pipeline.operations.services import Services
from memory_pipeline.store import propagations
from memory_pipeline.store.database import Role
from memory_pipeline_tests.conftest import MakeWorkspace
from memory_pipeline_tests.faults import scenes
from memory_pipeline_tests.flows import ask, found, promote

pytestmark = pytest.mark.embedded

WORDS = ("ricovero", "dimissione", "terapia", "referto", "commessa", "fattura", "margine", "consegna", "protesi")
texts = st.lists(st.sampled_from(WORDS), min_size=2, max_size=4).map(" ".join)
which = st.integers(min_value=0, max_value=10**6)
Work = Callable[[Services, str], object]


@dataclass
class Card:
    """What the registry must hold of a card."""

    revision: int
    detail: str
    kind: CardKind = CardKind.MEMORY
    deleted: bool = False


class AnyOrder(RuleBasedStateMachine):
    """One workspace, one model. A crash is a use case that is broken off at one of its steps."""

    def __init__(self, services: Services, make_workspace: MakeWorkspace) -> None:
        super().__init__()
        self.services, self.make_workspace = services, make_workspace
        self.cards: dict[str, Card] = {}
        self.numbers = 0
        self.lost: set[str] = set()

    @initialize(text=texts)
    def begin(self, text: str) -> None:
        """One card, not indexed yet."""
        self.slug = self.make_workspace().slug
        self.add(text)

    # --- the registry changes ------------------------------------------------------------------------------------

    @rule(text=texts)
    def add(self, text: str) -> None:
        detail = self._distinct(text)
        added = add_card(self.services, self.slug, CardFields(subject=text, detail=detail)).card
        self.cards[added.id] = Card(1, detail)

    @rule(text=texts)
    def promote(self, text: str) -> None:
        detail = self._distinct(text)
        (verdict,) = promote(
            self.services, self.slug, [{"subject": text, "detail": detail}], f"s{self.numbers}"
        ).verdicts
        assert verdict.card_id is not None
        self.cards[verdict.card_id] = Card(1, detail)

    @precondition(lambda self: self.alive)
    @rule(number=which, text=texts)
    def edit(self, number: int, text: str) -> None:
        card_id, card = self._pick(number)
        card.detail = self._distinct(text)
        self._did(edit_card(self.services, self.slug, card_id, card.revision, CardFields(detail=card.detail)))

    @precondition(lambda self: self.alive)
    @rule(number=which)
    def move(self, number: int) -> None:
        """Another scope: neither text changes."""
        card_id, card = self._pick(number)
        self.numbers += 1
        fields = CardFields(scope=(f"ambito {self.numbers}",))
        self._did(edit_card(self.services, self.slug, card_id, card.revision, fields))

    @precondition(lambda self: self.alive)
    @rule(number=which)
    def change_kind(self, number: int) -> None:
        card_id, card = self._pick(number)
        card.kind = CardKind.EXEMPLAR if card.kind is CardKind.MEMORY else CardKind.MEMORY
        self._did(set_kind(self.services, self.slug, card_id, card.revision, card.kind))

    @precondition(lambda self: len(self.alive) > 1)
    @rule(number=which, other=which)
    def link(self, number: int, other: int) -> None:
        card_id, card = self._pick(number)
        target, _ = self._pick(other)
        if target != card_id:
            link = Link(relation=Relation.RELATED, target=target)
            self._did(link_card(self.services, self.slug, card_id, card.revision, link))

    @precondition(lambda self: self.alive)
    @rule(number=which)
    def delete(self, number: int) -> None:
        card_id, card = self._pick(number)
        card.deleted = True
        self._did(delete_card(self.services, self.slug, card_id, card.revision))

    # --- the index follows, or fails to --------------------------------------------------------------------------

    @rule(work=st.sampled_from([drain, index, rebuild, reconcile]))
    def follow(self, work: Work) -> None:
        work(self.services, self.slug)

    @rule(
        work=st.sampled_from([drain, drain, rebuild, reconcile]),
        step=st.sampled_from(NAMES),
        time=st.sampled_from([1, 1, 2]),
    )
    def crash(self, work: Work, step: str, time: int) -> None:
        with armed(f"{step}:error@{time}"), suppress(Interrupted):
            work(self.services, self.slug)

    @rule()
    def wait(self) -> None:
        scenes.pass_time(self.services, self.slug)

    @rule(number=which)
    def lose_a_point(self, number: int) -> None:
        """Behind the registry's back: only a comparison can find it."""
        with suppress(NotIndexed):
            collection = self._collection()
            card_id = sorted(self.cards)[number % len(self.cards)]
            self.services.index.delete(collection, [point_id(card_id)])
            self.lost.add(card_id)

    @rule()
    def search(self) -> None:
        """Whatever waits, nothing is shown that is deleted, of another kind, or as it was."""
        with suppress(NotIndexed):
            answer = ask(self.services, self.slug, " ".join(WORDS), limit=100)
            assert len(set(found(answer))) == len(found(answer))
            for proposal in answer.proposals:
                card = self.cards[proposal.card.id]
                assert (card.deleted, card.kind) == (False, CardKind.MEMORY)
                assert (proposal.card.revision, proposal.card.detail) == (card.revision, card.detail)

    def teardown(self) -> None:
        """What the sensor and the schedule do makes all well, and a second look finds nothing."""
        if not self.cards:
            return
        assert self._missing_after_drains() <= self.lost, "a crash has lost a point, which no drain brings back"
        scenes.heal(self.services, self.slug)
        if self.lost:  # a drain follows the registry alone, and need not see what was lost behind its back
            reconcile(self.services, self.slug)
        scenes.require_equal(self.services, self.slug)
        assert check_consistency(self.services, self.slug).consistent
        for card_id, card in self.cards.items():
            proposed = found(ask(self.services, self.slug, card.detail, limit=100))
            assert (card_id in proposed) is (not card.deleted and card.kind is CardKind.MEMORY)

    # --- helpers -------------------------------------------------------------------------------------------------

    @property
    def alive(self) -> list[str]:
        """Cards that are not deleted."""
        return [card_id for card_id, card in self.cards.items() if not card.deleted]

    def _pick(self, number: int) -> tuple[str, Card]:
        card_id = self.alive[number % len(self.alive)]
        return card_id, self.cards[card_id]

    def _did(self, done: Curated) -> None:
        self.cards[done.card.id].revision = done.card.revision

    def _distinct(self, text: str) -> str:
        self.numbers += 1
        return f"{text} numero {self.numbers}"

    def _missing_after_drains(self) -> set[str | None]:
        """Cards without a point once nothing waits, before anything is mended."""
        with self.services.database.transaction(Role.INDEXER, self.slug) as tx:
            propagations.make_due(tx, self.slug)
        for _ in range(2):
            drain(self.services, self.slug)
        findings = check_consistency(self.services, self.slug).findings
        return {finding.card_id for finding in findings if finding.kind is DriftKind.MISSING}

    def _collection(self) -> str:
        try:
            return scenes.serving(self.services, self.slug).collection
        except AssertionError:
            raise NotIndexed(self.slug) from None


def _run(services: Services, make_workspace: MakeWorkspace, *, examples: int, steps: int, shrink: bool) -> None:
    phases = set(hypothesis.Phase) - (set() if shrink else {hypothesis.Phase.shrink})  # it takes minutes
    run_state_machine_as_test(
        lambda: AnyOrder(services, make_workspace),
        settings=hypothesis.settings(
            max_examples=examples,
            stateful_step_count=steps,
            phases=phases,
            deadline=None,
            suppress_health_check=list(hypothesis.HealthCheck),
        ),
    )


def test_any_order_of_changes_and_crashes(services: Services, make_workspace: MakeWorkspace) -> None:
    _run(services, make_workspace, examples=5, steps=15, shrink=False)


@pytest.mark.faults
def test_any_order_of_many_changes_and_crashes(services: Services, make_workspace: MakeWorkspace) -> None:
    _run(services, make_workspace, examples=60, steps=40, shrink=True)
