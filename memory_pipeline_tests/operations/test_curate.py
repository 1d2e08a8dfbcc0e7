"""What a reviewer changes by hand: every change a revision, and the index and every search follow it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from memory_pipeline.core.cards import CardContent, CardKind, CardStatus, Link, MemoryRecord, Relation
from memory_pipeline.core.context import SearchFilters
from memory_pipeline.core.curation import CardFields
from memory_pipeline.core.dependencies import Dependency
from memory_pipeline.core.errors import (
    BadCard,
    BadInput,
    BadText,
    CardDeleted,
    DuplicateCard,
    EvidenceNotCurated,
    MemoryPipelineError,
    NotAConcept,
    NotReusable,
    SelfLink,
    StaleRevision,
    UnknownCard,
    UnknownWorkspace,
    WorkspaceRetired,
)
from memory_pipeline.core.projection import point_id
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.operations.cards import list_cards, show_card
from memory_pipeline.operations.curate import (
    Curated,
    add_card,
    delete_card,
    edit_card,
    link_card,
    set_kind,
    unlink_card,
)
from memory_pipeline.operations.propagate import drain, propagate_at_once
from memory_pipeline.operations.recall import Recall
from memory_pipeline.operations.services import Services
from memory_pipeline.store import cards
from memory_pipeline.store.curation import CardFilter
from memory_pipeline.store.database import Role
from memory_pipeline_tests.conftest import MakeWorkspace
from memory_pipeline_tests.flows import (
    ABLATION,
    MORTALITY,
    READMISSION,
    ask,
    closed_port,
    found,
    promote,
    with_settings,
)
from memory_pipeline_tests.nasty import STORABLE_TEXTS, UNSTORABLE_TEXTS
from memory_pipeline_tests.operations.sessions import retire, rows

DIALYSIS = CardFields(subject="dialisi", detail="seduta di emodialisi ambulatoriale")
REQUIRES = Link(relation=Relation.REQUIRES, target="mem-0002")

Change = Callable[[Services, str], Curated]


def trail(services: Services, workspace: str) -> tuple[int, int]:
    """How many revisions were kept, and how many changes were queued."""
    ((revisions,),) = rows(services, workspace, "SELECT count(*) FROM card_revisions")
    ((queued,),) = rows(services, workspace, "SELECT count(*) FROM propagations")
    return revisions, queued


def points(services: Services, workspace: str, card_id: str = "mem-0001") -> int:
    """How many points of a card the server has, asked by id."""
    ((collection,),) = rows(services, workspace, "SELECT collection FROM generations WHERE state = 'serving'")
    return len(services.index.read(collection, [point_id(card_id)]))


def search(services: Services, workspace: str, question: str, *kinds: CardKind) -> Recall:
    return ask(services, workspace, question, filters=SearchFilters(kinds=kinds or (CardKind.MEMORY,)))


def put_evidence(services: Services, workspace: str) -> None:
    """A statement with its source, made live past every door."""
    content = CardContent(type="guideline", subject="linea guida", detail="anticoagulante per tre mesi")
    with services.database.transaction(Role.REVIEWER, workspace) as tx:
        (new_id,) = cards.next_ids(tx, workspace, 1)
        cards.insert(tx, workspace, new_id, content, CardKind.EVIDENCE)


# --- the index and every search follow ---------------------------------------------------------------------------


def test_after_an_edit_the_old_text_misses_and_the_new_one_hits(services: Services, workspace: Workspace) -> None:
    promote(services, workspace.slug, [ABLATION, READMISSION])
    drain(services, workspace.slug)

    done = edit_card(services, workspace.slug, "mem-0001", 1, DIALYSIS)
    drained = propagate_at_once(services, workspace.slug)

    assert (done.changed, done.card.revision, done.card.updated_by) == (True, 2, "memory_reviewer")
    assert (drained.settled, drained.upserted, drained.embedded) == (True, 1, 1)
    answer = search(services, workspace.slug, "sedute di emodialisi")
    assert (found(answer)[0], answer.proposals[0].card.subject) == ("mem-0001", "dialisi")
    old = search(services, workspace.slug, "ablazione transcatetere")
    assert {proposal.card.id: proposal.scores.bm25 for proposal in old.proposals}["mem-0001"] == 0
    assert all("ablazione" not in proposal.card.subject for proposal in old.proposals)


def test_two_edits_both_reach_the_index(services: Services, workspace: Workspace) -> None:
    promote(services, workspace.slug, [ABLATION])
    for revision, detail in enumerate(("prima versione del testo", "seconda versione del testo"), start=1):
        edit_card(services, workspace.slug, "mem-0001", revision, CardFields(detail=detail))
        assert propagate_at_once(services, workspace.slug).settled
        (proposal,) = search(services, workspace.slug, detail).proposals
        assert (proposal.card.detail, proposal.scores.bm25 > 0) == (detail, True)


def test_a_deleted_card_is_gone_by_id_never_recalled_and_its_id_is_never_used_again(
    services: Services, workspace: Workspace
) -> None:
    promote(services, workspace.slug, [ABLATION, READMISSION])
    drain(services, workspace.slug)
    assert points(services, workspace.slug) == 1

    done = delete_card(services, workspace.slug, "mem-0001", 1)
    before = search(services, workspace.slug, "ablazione")
    drained = propagate_at_once(services, workspace.slug)

    assert done.card.status is CardStatus.DELETED
    assert found(before) == ["mem-0002"]
    assert (drained.removed, points(services, workspace.slug)) == (1, 0)
    assert found(search(services, workspace.slug, "ablazione")) == ["mem-0002"]
    assert show_card(services, workspace.slug, "mem-0001").card.detail == ABLATION["detail"]
    assert add_card(services, workspace.slug, CardFields(**ABLATION)).card.id == "mem-0003"


@pytest.mark.parametrize("cards_made", [5])
def test_what_is_made_and_deleted_leaves_no_orphans(services: Services, workspace: Workspace, cards_made: int) -> None:
    promote(services, workspace.slug, [{"subject": f"regola {n}", "detail": f"testo {n}"} for n in range(cards_made)])
    drain(services, workspace.slug)
    ids = [f"mem-{n + 1:04d}" for n in range(cards_made)]

    for card_id in ids:
        delete_card(services, workspace.slug, card_id, 1)
    drain(services, workspace.slug)

    assert [points(services, workspace.slug, card_id) for card_id in ids] == [0] * cards_made


def test_a_card_of_another_kind_keeps_its_one_point_and_the_old_kind_misses_it(
    services: Services, workspace: Workspace
) -> None:
    promote(services, workspace.slug, [ABLATION])
    drain(services, workspace.slug)

    done = set_kind(services, workspace.slug, "mem-0001", 1, CardKind.EXEMPLAR)
    drained = propagate_at_once(services, workspace.slug)

    assert (done.card.kind, done.card.type, done.card.revision) == (CardKind.EXEMPLAR, "exemplar", 2)
    assert (drained.settled, points(services, workspace.slug)) == (True, 1)
    assert found(search(services, workspace.slug, "ablazione")) == []
    assert found(search(services, workspace.slug, "ablazione", CardKind.EXEMPLAR)) == ["mem-0001"]

    back = set_kind(services, workspace.slug, "mem-0001", 2, CardKind.MEMORY)
    propagate_at_once(services, workspace.slug)
    assert (back.card.type, points(services, workspace.slug)) == ("concept_clarified", 1)
    assert found(search(services, workspace.slug, "ablazione")) == ["mem-0001"]
    assert found(search(services, workspace.slug, "ablazione", CardKind.EXEMPLAR)) == []
    assert show_card(services, workspace.slug, "mem-0001").sources == ("s1:seq:1", "curation")


def test_a_change_stands_where_the_index_cannot_follow(services: Services, workspace: Workspace) -> None:
    promote(services, workspace.slug, [ABLATION])
    drain(services, workspace.slug)

    with with_settings(services, qdrant_url=f"http://127.0.0.1:{closed_port()}") as without_index:
        done = edit_card(without_index, workspace.slug, "mem-0001", 1, DIALYSIS)
        drained = propagate_at_once(without_index, workspace.slug)

    assert (done.card.revision, drained.settled, drained.pending) == (2, False, 1)
    assert drained.problem is not None
    assert found(search(services, workspace.slug, "ablazione")) == []  # the old text is never shown for the new one


# --- revisions ---------------------------------------------------------------------------------------------------


def test_every_change_is_a_revision_with_its_actor_and_one_row_in_the_outbox(
    services: Services, workspace: Workspace
) -> None:
    promote(services, workspace.slug, [ABLATION, READMISSION])
    before = trail(services, workspace.slug)
    changes: list[Change] = [
        lambda s, w: edit_card(s, w, "mem-0001", 1, CardFields(concepts=("aritmia",), scope=("budget",))),
        lambda s, w: link_card(s, w, "mem-0001", 2, REQUIRES),
        lambda s, w: unlink_card(s, w, "mem-0001", 3, REQUIRES),
        lambda s, w: set_kind(s, w, "mem-0001", 4, CardKind.EXEMPLAR, type_="solved_question"),
        lambda s, w: delete_card(s, w, "mem-0001", 5),
        lambda s, w: add_card(s, w, DIALYSIS),
    ]

    for count, step in enumerate(changes, start=1):
        assert step(services, workspace.slug).changed
        assert trail(services, workspace.slug) == (before[0] + count, before[1] + count)

    history = show_card(services, workspace.slug, "mem-0001", history=True).history or ()
    assert [(item.revision, item.by, item.via) for item in history] == [
        (number, "memory_reviewer", "python") for number in range(1, 7)
    ]
    assert [[(change.field, change.lines()) for change in item.changes] for item in history] == [
        [],
        [("scope", ("+ budget",)), ("concepts", ("+ aritmia",))],
        [("links", ("+ requires mem-0002",))],
        [("links", ("- requires mem-0002",))],
        [("kind", ("- memory", "+ exemplar")), ("type", ("- concept_clarified", "+ solved_question"))],
        [("status", ("- active", "+ deleted"))],
    ]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda s, w: edit_card(s, w, "mem-0001", 1, CardFields(detail="altro")), id="edit"),
        pytest.param(lambda s, w: delete_card(s, w, "mem-0001", 1), id="delete"),
        pytest.param(lambda s, w: set_kind(s, w, "mem-0001", 1, CardKind.EXEMPLAR), id="set-kind"),
        pytest.param(lambda s, w: link_card(s, w, "mem-0001", 1, REQUIRES), id="link"),
        pytest.param(
            lambda s, w: unlink_card(s, w, "mem-0001", 1, Link(relation=Relation.RELATED, target="mem-0002")),
            id="unlink",
        ),
        pytest.param(lambda s, w: edit_card(s, w, "mem-0001", 3, CardFields(detail="altro")), id="a later one"),
    ],
)
def test_a_change_of_an_older_revision_is_refused_and_shows_the_newer(
    services: Services, workspace: Workspace, change: Change
) -> None:
    promote(services, workspace.slug, [ABLATION, READMISSION])
    newest = link_card(services, workspace.slug, "mem-0001", 1, Link(relation=Relation.RELATED, target="mem-0002")).card
    before = trail(services, workspace.slug)

    with pytest.raises(StaleRevision, match=r"mem-0001 is at revision 2 \(by \w+, .{19} UTC\)") as refused:
        change(services, workspace.slug)

    assert refused.value.newest == 2
    assert "memory_reviewer" in refused.value.message
    assert f"{newest.updated_at:%Y-%m-%d}" in refused.value.message
    assert trail(services, workspace.slug) == before


def test_of_two_edits_at_once_one_wins(services: Services, workspace: Workspace) -> None:
    promote(services, workspace.slug, [ABLATION])
    start = threading.Barrier(4)

    def attempt(number: int) -> MemoryRecord | str:
        start.wait()
        try:
            return edit_card(services, workspace.slug, "mem-0001", 1, CardFields(detail=f"versione {number}")).card
        except StaleRevision as error:
            return error.name

    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(attempt, range(4)))

    (winner,) = [outcome for outcome in outcomes if isinstance(outcome, MemoryRecord)]
    assert outcomes.count("StaleRevision") == 3
    assert (winner.revision, show_card(services, workspace.slug, "mem-0001").card) == (2, winner)


def test_what_is_so_already_is_no_change(services: Services, workspace: Workspace) -> None:
    promote(services, workspace.slug, [ABLATION, READMISSION])
    linked = link_card(services, workspace.slug, "mem-0001", 1, REQUIRES)
    before = trail(services, workspace.slug)

    again = [
        edit_card(services, workspace.slug, "mem-0001", 2, CardFields(**ABLATION)),
        edit_card(services, workspace.slug, "mem-0001", 2, CardFields()),
        set_kind(services, workspace.slug, "mem-0001", 2, CardKind.MEMORY),
        link_card(services, workspace.slug, "mem-0001", 1, REQUIRES),  # repeated after a time-out
        unlink_card(services, workspace.slug, "mem-0001", 1, Link(relation=Relation.RELATED, target="mem-0002")),
    ]

    assert [(item.changed, item.card) for item in again] == [(False, linked.card)] * 5
    assert trail(services, workspace.slug) == before


# --- what a card may become --------------------------------------------------------------------------------------


def test_a_card_added_by_hand_is_found_and_says_so(services: Services, workspace: Workspace) -> None:
    added = add_card(
        services,
        workspace.slug,
        CardFields.parse(
            {
                "subject": " dialisi ",
                "detail": "seduta di emodialisi",
                "concepts": ["Dialisi", "dialisi ", ""],
                "dependencies": [{"database": "cardio", "table": "fact_dialisi"}],
            }
        ),
    )
    propagate_at_once(services, workspace.slug)

    (proposal,) = search(services, workspace.slug, "emodialisi").proposals
    assert (proposal.card, proposal.sources) == (added.card, ("curation",))
    assert (added.card.subject, added.card.concepts, added.card.tables) == ("dialisi", ("Dialisi",), ())
    assert [place.path() for place in added.card.dependencies] == ["cardio/public/fact_dialisi"]


@pytest.mark.parametrize("name", STORABLE_TEXTS)
def test_odd_texts_come_back_as_they_went_in(services: Services, workspace: Workspace, name: str) -> None:
    text = STORABLE_TEXTS[name]
    added = add_card(services, workspace.slug, CardFields(subject="x", detail=f"a{text}b", rationale=f"a{text}b"))
    edited = edit_card(services, workspace.slug, added.card.id, 1, CardFields(question_context=f"a{text}b"))

    card = show_card(services, workspace.slug, added.card.id, history=True).card
    assert (card.detail, card.rationale, card.question_context) == (f"a{text}b",) * 3
    assert edited.card == card


@pytest.mark.parametrize(
    ("kind", "fields", "error"),
    [
        (CardKind.MEMORY, {"subject": "fact_procedure", "detail": "x"}, NotAConcept),
        (CardKind.MEMORY, {"subject": '"dbo"."dim_paziente"', "detail": "x"}, NotAConcept),
        (CardKind.MEMORY, {"subject": "x", "detail": "x", "type": "table_promoted"}, NotReusable),
        (CardKind.MEMORY, {"subject": " ", "detail": "x"}, BadCard),
        (CardKind.MEMORY, {"subject": "x", "detail": " ..."}, BadCard),
        (CardKind.MEMORY, {"subject": "x"}, BadCard),
        (CardKind.MEMORY, {"detail": "x"}, BadCard),
        (CardKind.EXEMPLAR, {"subject": "x", "detail": "x", "type": "concept_clarified"}, BadCard),
        (CardKind.EXEMPLAR, {"subject": "x", "detail": "x", "type": "table_promoted"}, BadCard),
        (CardKind.EXEMPLAR, {"subject": "x", "detail": "x", "type": "Two Words"}, BadCard),
        (CardKind.EVIDENCE, {"subject": "x", "detail": "x"}, EvidenceNotCurated),
        *((CardKind.MEMORY, {"subject": "x", "detail": f"a{text}"}, BadText) for text in ["\x00"]),
        *((CardKind.MEMORY, {"subject": "x", "detail": "x", "concepts": [f"a{text}"]}, BadText) for text in ["\x00"]),
    ],
)
def test_what_cannot_be_a_card_is_refused_and_nothing_is_written(
    services: Services, workspace: Workspace, kind: CardKind, fields: dict[str, Any], error: type[MemoryPipelineError]
) -> None:
    with pytest.raises(error):
        add_card(services, workspace.slug, CardFields.parse(fields), kind)

    assert trail(services, workspace.slug) == (0, 0)


@pytest.mark.parametrize("name", UNSTORABLE_TEXTS)
@pytest.mark.parametrize("field", ["subject", "detail", "rationale", "question_context"])
def test_a_text_that_cannot_be_kept_is_bad_input(
    services: Services, workspace: Workspace, name: str, field: str
) -> None:
    with pytest.raises(BadInput):
        add_card(
            services, workspace.slug, CardFields.parse({"subject": "x", "detail": "x", field: UNSTORABLE_TEXTS[name]})
        )


def test_one_text_in_one_place_is_one_active_memory_whatever_the_way(services: Services, workspace: Workspace) -> None:
    promote(services, workspace.slug, [ABLATION, READMISSION])
    exemplar = add_card(services, workspace.slug, CardFields(**ABLATION), CardKind.EXEMPLAR).card
    before = trail(services, workspace.slug)
    spelled_differently = CardFields(subject="  ABLAZIONE. ", detail=ABLATION["detail"].upper())

    for attempt in (
        lambda: add_card(services, workspace.slug, spelled_differently),
        lambda: edit_card(services, workspace.slug, "mem-0002", 1, spelled_differently),
        lambda: set_kind(services, workspace.slug, exemplar.id, 1, CardKind.MEMORY),
    ):
        with pytest.raises(DuplicateCard, match="mem-0001"):
            attempt()
    with pytest.raises(DuplicateCard, match=exemplar.id):
        add_card(services, workspace.slug, CardFields(**ABLATION), CardKind.EXEMPLAR)
    assert trail(services, workspace.slug) == before

    elsewhere = CardFields(**ABLATION, dependencies=(Dependency(database="another"),))
    assert add_card(services, workspace.slug, elsewhere).changed
    delete_card(services, workspace.slug, "mem-0001", 1)
    assert set_kind(services, workspace.slug, exemplar.id, 1, CardKind.MEMORY).changed


@pytest.mark.parametrize("subjects", [("αιμοκάθαρση", "εμφύτευση"), ("透析", "移植"), ("диализ", "пересадка")])
def test_texts_of_other_scripts_are_cards_of_their_own(
    services: Services, workspace: Workspace, subjects: tuple[str, str]
) -> None:
    made = [add_card(services, workspace.slug, CardFields(subject=subject, detail=subject)) for subject in subjects]

    assert len({item.card.fingerprint for item in made}) == 2
    with pytest.raises(DuplicateCard):
        add_card(services, workspace.slug, CardFields(subject=subjects[0] + ".", detail=subjects[0]))


def test_a_memory_of_another_kind_passes_every_check_to_become_one(services: Services, workspace: Workspace) -> None:
    table = add_card(services, workspace.slug, CardFields(subject="fact_x", detail="SELECT 1"), CardKind.EXEMPLAR).card

    with pytest.raises(NotAConcept):
        set_kind(services, workspace.slug, table.id, 1, CardKind.MEMORY)
    with pytest.raises(NotReusable):
        set_kind(services, workspace.slug, table.id, 1, CardKind.MEMORY, type_="table_promoted")
    with pytest.raises(EvidenceNotCurated):
        set_kind(services, workspace.slug, table.id, 1, CardKind.EVIDENCE)


def test_links_go_to_other_cards_of_the_workspace(services: Services, make_workspace: MakeWorkspace) -> None:
    workspace, other = make_workspace().slug, make_workspace().slug
    promote(services, workspace, [ABLATION, READMISSION])
    promote(services, other, [ABLATION, READMISSION, MORTALITY])
    delete_card(services, workspace, "mem-0002", 1)

    for target, error in {"mem-0001": SelfLink, "mem-0003": UnknownCard, "mem-0002": CardDeleted}.items():
        with pytest.raises(error):
            link_card(services, workspace, "mem-0001", 1, Link(relation=Relation.RELATED, target=target))


def test_a_deleted_card_changes_no_more(services: Services, workspace: Workspace) -> None:
    promote(services, workspace.slug, [ABLATION, READMISSION])
    delete_card(services, workspace.slug, "mem-0001", 1)
    changes: list[Change] = [
        lambda s, w: delete_card(s, w, "mem-0001", 2),
        lambda s, w: edit_card(s, w, "mem-0001", 2, DIALYSIS),
        lambda s, w: set_kind(s, w, "mem-0001", 2, CardKind.EXEMPLAR),
        lambda s, w: link_card(s, w, "mem-0001", 2, REQUIRES),
    ]

    for step in changes:
        with pytest.raises(CardDeleted, match="mem-0001 was deleted by memory_reviewer"):
            step(services, workspace.slug)


def test_evidence_is_only_deleted_here(services: Services, workspace: Workspace) -> None:
    put_evidence(services, workspace.slug)
    promote(services, workspace.slug, [ABLATION])
    changes: list[Change] = [
        lambda s, w: edit_card(s, w, "mem-0001", 1, DIALYSIS),
        lambda s, w: set_kind(s, w, "mem-0001", 1, CardKind.MEMORY),
        lambda s, w: link_card(s, w, "mem-0001", 1, REQUIRES),
    ]

    for step in changes:
        with pytest.raises(EvidenceNotCurated):
            step(services, workspace.slug)
    assert link_card(
        services, workspace.slug, "mem-0002", 1, Link(relation=Relation.RELATED, target="mem-0001")
    ).changed
    assert delete_card(services, workspace.slug, "mem-0001", 1).changed


@pytest.mark.parametrize("card_id", ["mem-9999", "", "mem-1", "MEM-0001", "mem-0001\x00", "'; --", "x" * 10_000])
def test_an_unknown_card(services: Services, workspace: Workspace, card_id: str) -> None:
    for look in (
        lambda: show_card(services, workspace.slug, card_id),
        lambda: delete_card(services, workspace.slug, card_id, 1),
    ):
        with pytest.raises(UnknownCard) as raised:
            look()
        assert len(raised.value.message) < 200


def test_an_unknown_or_retired_workspace(services: Services, workspace: Workspace) -> None:
    promote(services, workspace.slug, [ABLATION])
    retire(services, workspace.slug)

    with pytest.raises(WorkspaceRetired):
        delete_card(services, workspace.slug, "mem-0001", 1)
    with pytest.raises(UnknownWorkspace):
        add_card(services, "t-never-made", DIALYSIS)
    assert show_card(services, workspace.slug, "mem-0001").card.id == "mem-0001"


def test_a_card_made_past_the_lock_is_still_a_duplicate(services: Services, workspace: Workspace) -> None:
    """By SQL, and not committed yet when the look-up is made: the unique index holds what that cannot see."""
    slug = workspace.slug
    content = CardContent(type="concept_clarified", subject=DIALYSIS.subject or "", detail=DIALYSIS.detail or "")
    with ThreadPoolExecutor(1) as pool:
        with services.database.transaction(Role.REVIEWER, slug) as tx:
            cards.insert(tx, slug, "mem-0009", content)
            adding = pool.submit(add_card, services, slug, DIALYSIS)
            _wait_until_blocked_by(services, tx.info.backend_pid)
        with pytest.raises(DuplicateCard):
            adding.result()


def _wait_until_blocked_by(services: Services, pid: int) -> None:
    deadline = time.monotonic() + 30
    while not rows(services, "", "SELECT FROM pg_locks WHERE NOT granted AND %s = ANY (pg_blocking_pids(pid))", pid):
        assert time.monotonic() < deadline, "nobody waits for this transaction"
        time.sleep(0.01)


# --- lists -------------------------------------------------------------------------------------------------------


def test_a_list_is_filtered_and_paged(services: Services, workspace: Workspace) -> None:
    promote(services, workspace.slug, [ABLATION, READMISSION, MORTALITY])
    add_card(services, workspace.slug, CardFields(subject="esempio 100%", detail="SELECT 1"), CardKind.EXEMPLAR)
    delete_card(services, workspace.slug, "mem-0002", 1)

    def listed(**wanted: Any) -> list[str]:
        return [card.id for card in list_cards(services, workspace.slug, CardFilter(**wanted)).cards]

    assert listed() == ["mem-0001", "mem-0003", "mem-0004"]
    assert listed(kinds=(CardKind.EXEMPLAR,)) == ["mem-0004"]
    assert listed(statuses=(CardStatus.DELETED,)) == ["mem-0002"]
    assert listed(text="MORTALITA\u0300") == ["mem-0003"]
    assert listed(text="100%") == ["mem-0004"]
    assert listed(text="0_") == []
    assert listed(text="mem-0001") == ["mem-0001"]
    page = list_cards(services, workspace.slug, CardFilter(), limit=2, offset=1)
    assert ([card.id for card in page.cards], page.total, page.remaining) == (["mem-0003", "mem-0004"], 3, 0)
    for limit, offset in ((0, 0), (1, -1), (10_000, 0)):
        with pytest.raises(BadInput):
            list_cards(services, workspace.slug, CardFilter(), limit=limit, offset=offset)
    with pytest.raises(BadText):
        listed(text="\x00")
