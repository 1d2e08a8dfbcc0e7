"""The gate: one transaction for a reviewer's checklist, all or nothing, with one answer however often it is asked."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from memory_pipeline.core.errors import (
    AlreadyDecided,
    BadInput,
    CandidateChanged,
    MemoryPipelineError,
    NotInPreview,
    NotReusable,
    PreviewExpired,
    UnknownPreview,
    WorkspaceRetired,
)
from memory_pipeline.core.text import sha256
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.operations.decide import Decision, Outcome, decide
from memory_pipeline.operations.preview import Preview
from memory_pipeline.operations.services import Services
from memory_pipeline.store import cards
from memory_pipeline.store.database import Role
from memory_pipeline_tests.conftest import MakeWorkspace
from memory_pipeline_tests.nasty import STORABLE_TEXTS, line
from memory_pipeline_tests.operations.sessions import (
    MARKERS,
    OUTBOX,
    SOURCES,
    Fields,
    change,
    concept,
    drop,
    offer,
    offered,
    outcomes,
    preview_id,
    retire,
    retraction,
    rolled_back,
    rows,
    settle,
    tell,
    written,
)

pytestmark = pytest.mark.integration


def expire(services: Services, workspace: str) -> None:
    change(services, workspace, "UPDATE previews SET expires_at = now() - interval '1 second'")


@pytest.fixture
def three(services: Services, workspace: Workspace) -> Preview:
    """A preview of three candidates: seqs 1, 2 and 3."""
    tell(services, workspace.slug, concept("a"), concept("b"), concept("c"))
    return offer(services, workspace.slug)


# --- what is written ---------------------------------------------------------------------------------------------


def test_a_checklist_becomes_cards_sources_markers_and_outbox(
    services: Services, workspace: Workspace, three: Preview
) -> None:
    tell(services, workspace.slug, {"type_": "table_promoted", "subject": "t"})  # 4: the harness goes on meanwhile
    decision = settle(services, workspace.slug, three, select=(1, 3), decline=(2,))
    assert outcomes(decision) == [
        (1, Outcome.CREATED, "mem-0001"),
        (2, Outcome.DECLINED, None),
        (3, Outcome.CREATED, "mem-0002"),
    ]
    assert (decision.session, decision.preview_id, decision.pending) == ("s1", three.preview_id, 0)
    assert rows(services, workspace.slug, SOURCES) == [
        ("mem-0001", "s1", 1, "promotion"),
        ("mem-0002", "s1", 3, "promotion"),
    ]
    assert rows(services, workspace.slug, MARKERS) == [
        (1, 4, "F8", "memory_promoted", "seq:1", ["mem-0001"]),
        (2, 4, "F8", "memory_promoted", "seq:3", ["mem-0002"]),
        (3, 4, "F8", "memory_promotion_declined", "seq:2", []),
    ]
    assert rows(services, workspace.slug, OUTBOX) == [("mem-0001", 1, "pending"), ("mem-0002", 1, "pending")]


def test_the_card_is_the_decision_with_its_question_and_keeps_its_first_revision(
    services: Services, workspace: Workspace
) -> None:
    tell(
        services,
        workspace.slug,
        {"type_": "session_opened", "question": "Quante ablazioni?"},
        concept(
            "ablazione",
            rationale="confermato",
            concepts=["aritmia"],
            scope=["per anno"],
            tables=["fact_procedure"],
            dependencies=[{"database": "cardio", "table": "fact_procedure"}],
        ),
    )
    settle(services, workspace.slug, offer(services, workspace.slug), select=(2,))
    with services.database.transaction(Role.READER, workspace.slug) as tx:
        card = cards.get_many(tx, workspace.slug, ["mem-0001"])["mem-0001"]
    assert (card.kind, card.type, card.status, card.revision) == ("memory", "concept_clarified", "active", 1)
    assert (card.subject, card.detail, card.rationale) == ("ablazione", "regola di ablazione", "confermato")
    assert (card.question_context, card.concepts, card.scope) == ("Quante ablazioni?", ("aritmia",), ("per anno",))
    assert [place.path() for place in card.dependencies] == ["cardio/public/fact_procedure"]
    assert card.tables == ()
    ((revision, kept),) = rows(services, workspace.slug, "SELECT revision, card FROM card_revisions")
    assert (revision, kept["subject"], kept["revision"]) == (1, "ablazione", 1)


def test_everything_is_signed_with_the_login_and_the_door(services: Services, workspace: Workspace) -> None:
    tell(services, workspace.slug, concept("a"))
    shown = offer(services, workspace.slug)
    by_command = replace(services, via="cli")
    try:
        settle(by_command, workspace.slug, shown, select=(1,))
    finally:
        by_command.close()
    login = services.settings.reviewer_login
    assert rows(services, workspace.slug, "SELECT created_by, updated_by FROM cards") == [(login, login)]
    assert rows(services, workspace.slug, "SELECT decided_by, via FROM card_sources") == [(login, "cli")]
    assert rows(services, workspace.slug, "SELECT revised_by, via FROM card_revisions") == [(login, "cli")]
    signed = "SELECT recorded_by, actor FROM ledger_entries WHERE origin = 'pipeline'"
    assert rows(services, workspace.slug, signed) == [(login, f"human:{login}")]


def test_markers_count_on_across_calls_and_stand_after_what_the_harness_wrote(
    services: Services, workspace: Workspace, three: Preview
) -> None:
    settle(services, workspace.slug, three, select=(1,))
    tell(services, workspace.slug, concept("d"), concept("e"))
    settle(services, workspace.slug, three, decline=(2,))
    assert [row[:2] for row in rows(services, workspace.slug, MARKERS)] == [(1, 3), (2, 5)]


@pytest.mark.parametrize("text", STORABLE_TEXTS.values(), ids=STORABLE_TEXTS)
def test_an_odd_text_becomes_a_card_that_reads_the_same(services: Services, workspace: Workspace, text: str) -> None:
    tell(
        services,
        workspace.slug,
        concept("a", detail=text, concepts=[text[:50]], dependencies=[{"database": text[:50]}]),
    )
    settle(services, workspace.slug, offer(services, workspace.slug), select=(1,))
    with services.database.transaction(Role.READER, workspace.slug) as tx:
        card = cards.get_many(tx, workspace.slug, ["mem-0001"])["mem-0001"]
    assert (card.detail, card.concepts) == (text.strip(), (text[:50].strip(),))


# --- all or nothing ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("later", "why"),
    [
        pytest.param([retraction(2)], "no longer an effective", id="retracted"),
        pytest.param([rolled_back("F1")], "no longer an effective", id="rolled back"),
        pytest.param([concept("B.", detail="regola di b")], "equivalents", id="an equivalent appeared"),
        pytest.param([{"type_": "session_opened", "question": "Altro?"}], "card", id="the question changed"),
    ],
)
def test_a_candidate_that_changed_stops_the_whole_checklist(
    services: Services, workspace: Workspace, three: Preview, later: list[Fields], why: str
) -> None:
    tell(services, workspace.slug, *later)
    before = written(services, workspace.slug)
    with pytest.raises(CandidateChanged, match=why):
        settle(services, workspace.slug, three, select=(1, 2), decline=(3,))
    assert written(services, workspace.slug) == before


def test_siblings_of_a_candidate_that_changed_stay_valid(
    services: Services, workspace: Workspace, three: Preview
) -> None:
    tell(services, workspace.slug, retraction(2))
    assert outcomes(settle(services, workspace.slug, three, select=(1,), decline=(3,))) == [
        (1, Outcome.CREATED, "mem-0001"),
        (3, Outcome.DECLINED, None),
    ]


def test_an_equivalent_that_went_away_changes_the_candidate_too(services: Services, workspace: Workspace) -> None:
    tell(services, workspace.slug, concept("a"), concept("A"))
    shown = offer(services, workspace.slug)
    tell(services, workspace.slug, retraction(2))
    with pytest.raises(CandidateChanged, match="equivalents"):
        settle(services, workspace.slug, shown, select=(1,))


REFUSED: dict[str, tuple[type[MemoryPipelineError], dict[str, tuple[int, ...]]]] = {
    "a seq outside the preview": (NotInPreview, {"select": (1, 9)}),
    "a seq that is none": (NotInPreview, {"decline": (0,)}),
    "no seq": (BadInput, {}),
    "both verdicts on one": (BadInput, {"select": (1, 2), "decline": (2,)}),
}


@pytest.mark.parametrize(("error", "verdicts"), REFUSED.values(), ids=REFUSED)
def test_a_checklist_that_cannot_be_is_refused_and_nothing_is_written(
    services: Services,
    workspace: Workspace,
    three: Preview,
    error: type[MemoryPipelineError],
    verdicts: dict[str, tuple[int, ...]],
) -> None:
    before = written(services, workspace.slug)
    with pytest.raises(error):
        settle(services, workspace.slug, three, **verdicts)
    assert written(services, workspace.slug) == before


def test_a_preview_of_another_workspace_or_of_nobody_is_unknown(
    services: Services, workspace: Workspace, make_workspace: MakeWorkspace, three: Preview
) -> None:
    other = make_workspace().slug
    for slug, which in ((other, preview_id(three)), (workspace.slug, uuid.uuid4())):
        with pytest.raises(UnknownPreview):
            decide(services, slug, which, selected=[1], declined=[])
    assert written(services, other)["cards"] == 0


def test_an_expired_preview_decides_nothing_new(services: Services, workspace: Workspace, three: Preview) -> None:
    settle(services, workspace.slug, three, select=(1,))
    expire(services, workspace.slug)
    before = written(services, workspace.slug)
    with pytest.raises(PreviewExpired):
        settle(services, workspace.slug, three, select=(1, 2))
    assert written(services, workspace.slug) == before


def test_a_retired_workspace_decides_nothing(services: Services, workspace: Workspace, three: Preview) -> None:
    retire(services, workspace.slug)
    with pytest.raises(WorkspaceRetired):
        settle(services, workspace.slug, three, select=(1,))
    assert written(services, workspace.slug)["cards"] == 0


def _plant(services: Services, workspace: str, shown: Preview, seq: int, **content: Any) -> None:
    """Put a candidate into a preview as the harness's login could, past the code."""
    forged = {"type": "concept_clarified", "subject": "x", "detail": "y", **content}
    with services.database.transaction(Role.HARNESS, workspace) as tx:
        tx.execute(
            """
            INSERT INTO preview_candidates (workspace, preview_id, seq, sha256, candidate) VALUES (%s, %s, %s, %s, %s)
            """,
            (
                workspace,
                shown.preview_id,
                seq,
                sha256("x"),
                Jsonb({"seq": seq, "content": forged, "sha256": sha256("x")}),
            ),
        )


@pytest.mark.parametrize("type_", ["table_promoted", "column_promoted", "exemplar"])
@pytest.mark.parametrize("verdict", ["select", "decline"])
def test_a_planted_candidate_of_another_type_is_refused_by_name(
    services: Services, workspace: Workspace, three: Preview, type_: str, verdict: str
) -> None:
    _plant(services, workspace.slug, three, 9, type=type_)
    with pytest.raises(NotReusable):
        settle(services, workspace.slug, three, **{verdict: (1, 9)})
    assert written(services, workspace.slug)["markers"] == 0


def test_a_planted_preview_that_says_something_else_under_the_true_hash_is_refused(
    services: Services, workspace: Workspace, three: Preview
) -> None:
    forged = (
        "UPDATE preview_candidates SET candidate = jsonb_set(candidate, '{content,detail}', '\"altro\"') WHERE seq = 2"
    )
    with services.database.transaction(Role.OWNER, workspace.slug) as tx:
        tx.execute("ALTER TABLE preview_candidates DISABLE TRIGGER append_only")
        tx.execute(forged)
        tx.execute("ALTER TABLE preview_candidates ENABLE TRIGGER append_only")
    with pytest.raises(CandidateChanged, match="card"):
        settle(services, workspace.slug, three, select=(1, 2))
    assert written(services, workspace.slug)["cards"] == 0


@pytest.mark.parametrize("seq", [4, 9])
def test_a_planted_candidate_that_the_ledger_does_not_hold_is_refused(
    services: Services, workspace: Workspace, three: Preview, seq: int
) -> None:
    tell(services, workspace.slug, {"type_": "table_promoted", "subject": "t"})  # 4
    _plant(services, workspace.slug, three, seq)
    with pytest.raises(CandidateChanged):
        settle(services, workspace.slug, three, select=(1, seq))
    assert written(services, workspace.slug)["cards"] == 0


# --- once and again ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [False, True], ids=["at once", "after the preview expired"])
def test_the_same_call_again_gives_the_same_answer_and_writes_nothing(
    services: Services, workspace: Workspace, three: Preview, late: bool
) -> None:
    first = settle(services, workspace.slug, three, select=(1, 3), decline=(2,))
    before = written(services, workspace.slug)
    if late:
        expire(services, workspace.slug)
    assert settle(services, workspace.slug, three, select=(1, 3), decline=(2,)) == first
    assert written(services, workspace.slug) == before


def test_the_same_call_again_gives_the_same_answer_after_the_ledger_went_on(
    services: Services, workspace: Workspace, three: Preview
) -> None:
    first = settle(services, workspace.slug, three, select=(1,), decline=(2,))
    tell(services, workspace.slug, retraction(1), concept("A.", detail="regola di a"))
    again = settle(services, workspace.slug, three, select=(1,), decline=(2,))
    assert again.verdicts == first.verdicts


def test_what_was_decided_before_is_answered_beside_what_is_new(
    services: Services, workspace: Workspace, three: Preview
) -> None:
    settle(services, workspace.slug, three, select=(2,))
    assert outcomes(settle(services, workspace.slug, three, select=(1, 2), decline=(3,))) == [
        (1, Outcome.CREATED, "mem-0002"),
        (2, Outcome.CREATED, "mem-0001"),
        (3, Outcome.DECLINED, None),
    ]


@pytest.mark.parametrize(
    ("first", "then", "told"),
    [
        ({"select": (1,)}, {"decline": (1,), "select": (2,)}, "already promoted"),
        ({"decline": (1,)}, {"select": (1, 2)}, "already declined"),
    ],
)
def test_another_verdict_on_what_was_decided_is_refused_with_the_rest(
    services: Services,
    workspace: Workspace,
    three: Preview,
    first: dict[str, tuple[int, ...]],
    then: dict[str, tuple[int, ...]],
    told: str,
) -> None:
    settle(services, workspace.slug, three, **first)
    before = written(services, workspace.slug)
    with pytest.raises(AlreadyDecided, match=told):
        settle(services, workspace.slug, three, **then)
    assert written(services, workspace.slug) == before


def test_a_refusal_that_a_file_brought_is_a_verdict_too(services: Services, workspace: Workspace) -> None:
    drop(services, workspace.slug, line(seq=1))
    shown = offer(services, workspace.slug)
    drop(services, workspace.slug, line(seq=2, type="memory_promotion_declined", phase="F8", detail="seq:1"))
    assert offer(services, workspace.slug).pending == 0
    with pytest.raises(AlreadyDecided):
        settle(services, workspace.slug, shown, select=(1,))
    assert outcomes(settle(services, workspace.slug, shown, decline=(1,))) == [(1, Outcome.DECLINED, None)]
    assert written(services, workspace.slug)["markers"] == 0


def test_a_refusal_that_went_stale_may_be_followed_by_either_verdict(
    services: Services, workspace: Workspace, three: Preview
) -> None:
    settle(services, workspace.slug, three, decline=(1, 2))
    tell(services, workspace.slug, rolled_back("F8"))
    again = offer(services, workspace.slug)
    assert offered(again) == [(1,), (2,), (3,)]
    assert outcomes(settle(services, workspace.slug, again, select=(1,), decline=(2,))) == [
        (1, Outcome.CREATED, "mem-0001"),
        (2, Outcome.DECLINED, None),
    ]
    assert offered(offer(services, workspace.slug)) == [(3,)]
    with pytest.raises(AlreadyDecided, match="already promoted"):
        settle(services, workspace.slug, again, decline=(1,))


# --- folded decisions --------------------------------------------------------------------------------------------


@pytest.fixture
def folded(services: Services, workspace: Workspace) -> Preview:
    """A preview of two candidates: seq 1 with 3 and 4 folded into it, and seq 2."""
    same = {"detail": "regola"}
    tell(services, workspace.slug, concept("a", **same), concept("b"), concept("A", **same), concept(" a.", **same))
    return offer(services, workspace.slug)


@pytest.mark.parametrize("named", [(1,), (3,), (4,), (3, 4), (1, 3, 4)])
def test_a_folded_seq_stands_for_its_group(
    services: Services, workspace: Workspace, folded: Preview, named: tuple[int, ...]
) -> None:
    assert offered(folded) == [(1, 3, 4), (2,)]
    (verdict,) = settle(services, workspace.slug, folded, select=named).verdicts
    assert (verdict.seq, verdict.folded_seqs, verdict.card_id) == (1, (3, 4), "mem-0001")
    assert [row[:3] for row in rows(services, workspace.slug, SOURCES)] == [
        ("mem-0001", "s1", 1),
        ("mem-0001", "s1", 3),
        ("mem-0001", "s1", 4),
    ]
    assert [row[4] for row in rows(services, workspace.slug, MARKERS)] == ["seq:1", "seq:3", "seq:4"]
    assert settle(services, workspace.slug, folded, select=(4,)).verdicts == (verdict,)


@pytest.mark.parametrize("named", [(1,), (4,)])
def test_a_group_is_declined_as_a_whole(
    services: Services, workspace: Workspace, folded: Preview, named: tuple[int, ...]
) -> None:
    settle(services, workspace.slug, folded, decline=named)
    assert offered(offer(services, workspace.slug)) == [(2,)]
    assert [row[3:5] for row in rows(services, workspace.slug, MARKERS)] == [
        ("memory_promotion_declined", "seq:1"),
        ("memory_promotion_declined", "seq:3"),
        ("memory_promotion_declined", "seq:4"),
    ]


def test_one_group_cannot_have_both_verdicts(services: Services, workspace: Workspace, folded: Preview) -> None:
    with pytest.raises(BadInput, match="folded"):
        settle(services, workspace.slug, folded, select=(1,), decline=(4,))
    assert written(services, workspace.slug)["markers"] == 0


def test_what_only_a_folded_decision_has_is_a_warning_before_it_is_decided(
    services: Services, workspace: Workspace
) -> None:
    tell(services, workspace.slug, concept("a"), concept("A", detail="regola di a", concepts=["ritmo"]))
    (one,) = offer(services, workspace.slug).candidates
    assert len(one.candidate.warnings) == 1
    assert "ritmo" in one.candidate.warnings[0]
    assert one.candidate.preselected


def test_composed_and_decomposed_letters_and_double_spaces_are_one_concept(
    services: Services, workspace: Workspace
) -> None:
    tell(
        services,
        workspace.slug,
        concept("attività"),
        concept("attivita\u0300"),
        concept(" ATTIVITÀ ", detail="Regola  di attività"),
    )
    shown = offer(services, workspace.slug)
    assert offered(shown) == [(1, 2, 3)]
    settle(services, workspace.slug, shown, select=(1,))
    tell(services, workspace.slug, concept("attivita\u0300"), session="s2")
    (again,) = offer(services, workspace.slug, "s2").candidates
    assert again.duplicate_of == "mem-0001"


def test_an_equivalent_that_comes_after_the_verdict_is_a_candidate_that_knows_the_card(
    services: Services, workspace: Workspace, folded: Preview
) -> None:
    settle(services, workspace.slug, folded, select=(1,), decline=(2,))
    tell(services, workspace.slug, concept("A", detail="regola"))
    shown = offer(services, workspace.slug)
    assert [(one.candidate.seqs, one.duplicate_of) for one in shown.candidates] == [((5,), "mem-0001")]


# --- many at once ------------------------------------------------------------------------------------------------


def at_once(calls: list[Callable[[], Decision]]) -> list[Decision | MemoryPipelineError]:
    def run(call: Callable[[], Decision]) -> Decision | MemoryPipelineError:
        try:
            return call()
        except MemoryPipelineError as error:
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def test_twenty_at_once_for_one_decision_give_one_card_and_one_answer(
    services: Services, workspace: Workspace, three: Preview
) -> None:
    answers = at_once([lambda: settle(services, workspace.slug, three, select=(1,), decline=(2,))] * 20)
    assert answers == [answers[0]] * 20
    assert isinstance(answers[0], Decision)
    assert written(services, workspace.slug) == {"cards": 1, "revisions": 1, "sources": 1, "markers": 2, "outbox": 1}


def test_of_opposite_verdicts_at_once_one_wins_and_the_other_is_told(
    services: Services, workspace: Workspace, three: Preview
) -> None:
    calls: list[Callable[[], Decision]] = [
        lambda: settle(services, workspace.slug, three, select=(1,)),
        lambda: settle(services, workspace.slug, three, decline=(1,)),
    ]
    answers = at_once(calls * 8)
    won = [answer for answer in answers if isinstance(answer, Decision)]
    assert won == [won[0]] * 8
    assert [type(answer) for answer in answers if answer not in won] == [AlreadyDecided] * 8
    assert written(services, workspace.slug)["markers"] == 1


def test_fifty_sessions_at_once_give_fifty_ids(services: Services, workspace: Workspace) -> None:
    shown = []
    for number in range(50):
        tell(services, workspace.slug, concept(f"concetto {number}"), session=f"s{number}")
        shown.append(offer(services, workspace.slug, f"s{number}"))
    answers = at_once([lambda one=one: settle(services, workspace.slug, one, select=(1,)) for one in shown])  # type: ignore[misc]
    given = [answer.verdicts[0].card_id for answer in answers if isinstance(answer, Decision)]
    assert sorted(map(str, given)) == [f"mem-{number:04d}" for number in range(1, 51)]


def test_twenty_sessions_at_once_that_say_the_same_give_one_card_with_twenty_sources(
    services: Services, workspace: Workspace
) -> None:
    shown = []
    for number in range(20):
        tell(services, workspace.slug, concept("ablazione"), session=f"s{number}")
        shown.append(offer(services, workspace.slug, f"s{number}"))
    answers = at_once([lambda one=one: settle(services, workspace.slug, one, select=(1,)) for one in shown])  # type: ignore[misc]
    outcome = [answer.verdicts[0].outcome for answer in answers if isinstance(answer, Decision)]
    assert sorted(outcome) == [Outcome.CREATED] + [Outcome.PROVENANCE_ADDED] * 19
    counts = written(services, workspace.slug)
    assert (counts["cards"], counts["sources"], counts["outbox"]) == (1, 20, 1)
