"""What a session offers to its reviewer, and what it keeps back with a reason."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.core.candidates import Derivation, LeftOut, derive, is_table_name
from memory_pipeline.core.cards import CardKind, CardStatus, MemoryRecord
from memory_pipeline.core.ledger import EntryType, LedgerEntry
from memory_pipeline_tests.core.builders import WORKSPACE, card, entry, place, requires

Reason = LeftOut.Reason


def derived(
    *entries: LedgerEntry, promoted: Iterable[int] = (), declined: Iterable[int] = (), **changes: Any
) -> Derivation:
    settings: dict[str, Any] = {"workspace": WORKSPACE, "question": "Quante ablazioni per anno?", **changes}
    return derive(entries, promoted={seq: f"mem-{seq:04d}" for seq in promoted}, declined=declined, **settings)


def offered(derivation: Derivation) -> list[tuple[int, ...]]:
    return [candidate.seqs for candidate in derivation.candidates]


def left_out(derivation: Derivation) -> list[tuple[int, Reason]]:
    return [(left.seq, left.reason) for left in derivation.left_out]


# --- which decisions are offered ---------------------------------------------------------------------------------


@pytest.mark.parametrize("type_", [*sorted(set(EntryType) - {EntryType.CONCEPT_CLARIFIED}), "concept_clarified_2"])
def test_only_clarified_concepts_are_candidates(type_: str) -> None:
    assert derived(entry(1, type_)) == Derivation(candidates=(), left_out=())


def test_candidates_come_in_seq_order_whatever_the_order_of_the_decisions() -> None:
    entries = [entry(9, subject="c"), entry(2, subject="a"), entry(5, subject="b")]
    assert offered(derived(*entries)) == [(2,), (5,), (9,)]


def test_a_promoted_or_declined_concept_is_left_out_with_its_reason() -> None:
    derivation = derived(
        entry(1, subject="a"), entry(2, subject="b"), entry(3, subject="c"), promoted=[1], declined=[3]
    )
    assert offered(derivation) == [(2,)]
    assert left_out(derivation) == [(1, Reason.ALREADY_PROMOTED), (3, Reason.DECLINED)]
    assert [left.card_id for left in derivation.left_out] == ["mem-0001", None]


def test_a_concept_both_declined_and_promoted_is_promoted() -> None:
    assert left_out(derived(entry(1), promoted=[1], declined=[1])) == [(1, Reason.ALREADY_PROMOTED)]


@pytest.mark.parametrize(
    "subject",
    [
        "fact_procedure",
        "DIM_PAZIENTE",
        "public.fact_procedure",
        "cardio.public.dim_paziente",
        " fact_procedure. ",
        '"fact_procedure"',
        'public."fact_procedure"',
        "`dim_paziente`",
        "[dbo].[fact_sales]",
        "fact_ricoveri$2024",
        "dim_attività",
    ],
)
def test_a_subject_that_is_only_a_table_name_is_left_out(subject: str) -> None:
    assert is_table_name(subject)
    assert left_out(derived(entry(1, subject=subject))) == [(1, Reason.TABLE_NAME)]


@pytest.mark.parametrize(
    "subject",
    [
        "fact_procedure per anno",
        "righe di fact_procedure",
        "dimensione paziente",
        "factory_order",
        "artefact_x",
        "fact_",
        "fact",
        "ordini",
        "a.b.c.fact_procedure",
        "fact_procedure = dim_paziente",
    ],
)
def test_a_subject_that_says_more_than_a_table_name_is_offered(subject: str) -> None:
    assert not is_table_name(subject)
    assert offered(derived(entry(1, subject=subject))) == [(1,)]


# --- folding -----------------------------------------------------------------------------------------------------


def test_equivalents_fold_into_the_first_and_their_seqs_are_kept() -> None:
    derivation = derived(entry(4, subject="ablazione"), entry(7, subject=" Ablazione. "), entry(9, subject="ABLAZIONE"))
    assert offered(derivation) == [(4, 7, 9)]
    assert derivation.candidates[0].content.subject == "ablazione"


def test_equivalents_fold_across_what_stands_between_them() -> None:
    assert offered(derived(entry(1, subject="a"), entry(2, subject="b"), entry(3, subject="A"))) == [(1, 3), (2,)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param({"scope": ["per anno"]}, {"scope": ["Per anno!"]}, id="spelling of a scope"),
        pytest.param({"scope": ["a", "b"]}, {"scope": ["b", "a", "A"]}, id="order of a scope"),
        pytest.param(
            {"dependencies": [place("cardio", None, "t")]},
            {"dependencies": [place("CARDIO", "public", "T")]},
            id="the default schema, written or not",
        ),
        pytest.param({"rationale": "x", "concepts": ["a"]}, {"links": [requires("seq:1")]}, id="what is no identity"),
    ],
)
def test_what_is_equivalent_is_folded(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert offered(derived(entry(2, **one), entry(3, **other))) == [(2, 3)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param({"detail": "entro 5 anni"}, {"detail": "entro 6 anni"}, id="another number"),
        pytest.param({"scope": ["per anno"]}, {}, id="another scope"),
        pytest.param({"dependencies": [place("cardio")]}, {}, id="a place and none"),
        pytest.param({"dependencies": [place("cardio")]}, {"dependencies": [place("dwh")]}, id="another place"),
        pytest.param({"subject": "αρρυθμία"}, {"subject": "ανακοπή"}, id="another word of another script"),
    ],
)
def test_what_is_not_equivalent_is_offered_apart(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert offered(derived(entry(2, **one), entry(3, **other))) == [(2,), (3,)]


def test_one_declined_decision_leaves_its_equivalents_on_offer() -> None:
    """The gate marks every seq of a group; a refusal of a single one is older than the others."""
    assert offered(derived(entry(1), entry(2), entry(3), declined=[1])) == [(2, 3)]


# --- the card ----------------------------------------------------------------------------------------------------


def test_the_card_is_the_decision_cleaned_with_the_question_as_its_context() -> None:
    decision = entry(
        1,
        subject=" ablazione ",
        detail=" contata per anno\n",
        rationale=" confermato ",
        concepts=["ablazione", "Ablazione", " "],
        tables=["fact_procedure"],
        dependencies=[place("cardio", None, "fact_procedure")],
        links=[requires("seq:5"), requires("seq:5")],
    )
    (candidate,) = derived(decision, question=" Quante?\n").candidates
    content = candidate.content
    assert (content.subject, content.detail, content.rationale) == ("ablazione", "contata per anno", "confermato")
    assert (content.question_context, content.concepts) == ("Quante?", ("ablazione",))
    assert content.dependencies == (place("cardio", "public", "fact_procedure"),)
    assert content.links == (requires("seq:5"),)
    assert content.tables == ()


# --- warnings ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subject", "table"),
    [
        ("ordini", {"subject": "ordini"}),
        ("Ordini", {"subject": "vendite.ORDINI"}),
        ("vendite.ordini", {"subject": "vendite.ordini"}),
        ("ordini", {"subject": "tabelle", "tables": ["vendite.ordini"]}),
    ],
)
def test_a_concept_named_like_a_table_of_the_question_is_offered_with_a_warning(
    subject: str, table: dict[str, Any]
) -> None:
    (candidate,) = derived(entry(1, "table_promoted", **table), entry(2, subject=subject)).candidates
    assert not candidate.preselected
    assert "also a table" in candidate.warnings[0]


def test_a_concept_that_is_no_table_of_the_question_is_preselected() -> None:
    tables = [entry(1, "table_excluded", "ordini"), entry(2, "table_promoted", "righe_ordini")]
    (candidate,) = derived(*tables, entry(3, subject="ordini")).candidates
    assert candidate.preselected
    assert candidate.warnings == ()


# --- the hash that a decision is held to -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed",
    [
        {"detail": "un'altra regola"},
        {"rationale": "un altro motivo"},
        {"concepts": ["aritmia"]},
        {"scope": ["per anno"]},
        {"dependencies": [place("cardio")]},
        {"links": [requires("seq:5")]},
    ],
)
def test_the_hash_changes_with_whatever_the_card_would_say(changed: dict[str, Any]) -> None:
    assert derived(entry(2, **changed)).candidates[0].sha256 != derived(entry(2)).candidates[0].sha256


def test_the_hash_changes_with_the_question_and_with_the_folded_set() -> None:
    hashes = {
        derived(entry(2)).candidates[0].sha256,
        derived(entry(2), question="Un'altra domanda?").candidates[0].sha256,
        derived(entry(2), entry(3)).candidates[0].sha256,
        derived(entry(2), entry(4)).candidates[0].sha256,
    }
    assert len(hashes) == 4


@pytest.mark.parametrize("unseen", [{"phase": "F2"}, {"actor": "human:rossi"}, {"tables": ["t"]}, {"memories": ["x"]}])
def test_the_hash_does_not_change_with_what_the_card_does_not_hold(unseen: dict[str, Any]) -> None:
    assert derived(entry(2, **unseen)).candidates[0].sha256 == derived(entry(2)).candidates[0].sha256


SUBJECTS = st.sampled_from(["ablazione", "Ablazione", "cardioversione", "fact_x", "ordini"])
DECISIONS = st.lists(
    st.tuples(st.sampled_from(["concept_clarified", "table_promoted"]), SUBJECTS), min_size=1, max_size=10
)


@given(decisions=DECISIONS, random=st.randoms(use_true_random=False), declined=st.sets(st.integers(1, 10)))
def test_every_concept_is_offered_once_or_left_out_once_always_the_same_way(
    decisions: list[tuple[str, str]], random: Any, declined: set[int]
) -> None:
    entries = [entry(seq, type_, subject) for seq, (type_, subject) in enumerate(decisions, start=1)]
    derivation = derived(*entries, declined=declined)
    assert derived(*random.sample(entries, len(entries)), declined=declined) == derivation
    seqs = [seq for group in offered(derivation) for seq in group] + [left.seq for left in derivation.left_out]
    assert sorted(seqs) == [given_entry.seq for given_entry in entries if given_entry.type == "concept_clarified"]


# --- what came from a memory -------------------------------------------------------------------------------------

SAME = {"subject": "Ablazione", "detail": "procedura con ablazione_transcatetere = TRUE."}


def derived_from(cited: MemoryRecord | None, **fields: Any) -> Derivation:
    known = {cited.id: cited} if cited else {}
    return derived(entry(1, **{"rationale": "scelta mem-0001", **SAME, **fields}), cited=known)


@pytest.mark.parametrize("how", [{}, {"rationale": "", "memories": ["mem-0001"]}])
def test_a_memory_chosen_and_left_as_it_is_is_known_already(how: dict[str, Any]) -> None:
    derivation = derived_from(card(), **how)
    assert derivation.candidates == ()
    assert [(left.seq, left.reason, left.card_id) for left in derivation.left_out] == [
        (1, Reason.ALREADY_KNOWN, "mem-0001")
    ]


@pytest.mark.parametrize(
    "changed",
    [
        {"detail": "procedura con ablazione_transcatetere = TRUE o codice 37.34"},
        {"scope": ["per anno"]},
        {"dependencies": [place("cardio")]},
    ],
    ids=["another text", "another scope", "another place"],
)
def test_a_memory_chosen_and_changed_is_a_candidate_that_nobody_selected(changed: dict[str, Any]) -> None:
    (candidate,) = derived_from(card(), **changed).candidates
    assert (candidate.derived_from, candidate.preselected, candidate.warnings) == (("mem-0001",), False, ())


@pytest.mark.parametrize("status", [CardStatus.DELETED, CardStatus.RETIRED])
def test_a_memory_that_is_no_longer_active_does_not_know_it(status: CardStatus) -> None:
    (candidate,) = derived_from(card(status=status)).candidates
    assert (candidate.derived_from, candidate.preselected) == (("mem-0001",), False)
    assert candidate.warnings == (f"it cites mem-0001, which is {status}",)


def test_a_card_of_another_kind_does_not_know_it() -> None:
    (candidate,) = derived_from(card(kind=CardKind.EXEMPLAR, type="exemplar")).candidates
    assert candidate.derived_from == ("mem-0001",)


def test_a_citation_of_a_card_that_does_not_exist_is_a_warning_and_no_origin() -> None:
    (candidate,) = derived_from(None).candidates
    assert (candidate.derived_from, candidate.preselected) == ((), True)
    assert candidate.warnings == ("it cites mem-0001, which is not in this workspace",)


def test_of_several_cited_cards_one_that_says_it_is_enough() -> None:
    cards = {"mem-0001": card(), "mem-0002": card(id="mem-0002", detail="altro")}
    both = entry(1, rationale="mem-0002, poi mem-0001", **SAME)
    assert left_out(derived(both, cited=cards)) == [(1, Reason.ALREADY_KNOWN)]
    (other,) = derived(both.model_copy(update={"detail": "terzo"}), cited=cards).candidates
    assert other.derived_from == ("mem-0002", "mem-0001")


def test_what_was_decided_before_keeps_its_own_reason() -> None:
    chosen = entry(1, rationale="mem-0001", **SAME)
    assert left_out(derived(chosen, cited={"mem-0001": card()}, declined=[1])) == [(1, Reason.DECLINED)]


def test_the_hash_does_not_depend_on_where_a_candidate_came_from() -> None:
    one, other = (derived_from(known, detail="altro").candidates[0] for known in (card(), None))
    assert one.sha256 == other.sha256


# --- what a fold would lose, and who decided ---------------------------------------------------------------------


def test_concepts_and_links_that_only_a_folded_decision_has_are_a_warning() -> None:
    (candidate,) = derived(
        entry(1, concepts=["aritmia"]),
        entry(2, concepts=["Aritmia.", "ritmo"], links=[requires("mem-0003")]),
        entry(3, concepts=["aritmia"]),
    ).candidates
    assert candidate.warnings == ("seq:2 also has ritmo, requires mem-0003, which the card of seq:1 will not get",)
    assert candidate.preselected


@pytest.mark.parametrize(
    ("actors", "humans"),
    [
        ([None], ()),
        (["model"], ()),
        (["human:"], ()),
        (["human:anna"], ("anna",)),
        ([" Human: anna "], ("anna",)),
        (["model", "human:anna", "human:bruno", "human:anna"], ("anna", "bruno")),
    ],
)
def test_the_people_who_decided_are_named_and_warned_of_where_four_eyes_are_asked_for(
    actors: list[str | None], humans: tuple[str, ...]
) -> None:
    entries = [entry(seq, actor=actor) for seq, actor in enumerate(actors, start=1)]
    (plain,) = derived(*entries).candidates
    (strict,) = derived(*entries, workspace=WORKSPACE.model_copy(update={"four_eyes": True})).candidates
    assert (plain.humans, plain.warnings) == (humans, ())
    assert bool(strict.warnings) is bool(humans)
    assert strict.preselected
    assert strict.sha256 == plain.sha256
