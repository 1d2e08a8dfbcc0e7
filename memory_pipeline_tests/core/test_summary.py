"""What a session's summary tells, rule by rule, and what it leaves out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.core.cards import CardStatus
from memory_pipeline.core.effective import Row, Status, evaluate
from memory_pipeline.core.ledger import LedgerDraft
from memory_pipeline.core.summary import (
    CardState,
    Concept,
    Hidden,
    Record,
    SessionRow,
    SessionSummary,
    cited_by,
    summarise,
)
from memory_pipeline.core.summary_markdown import LONGEST_PAGE, summaries_markdown, summary_markdown
from memory_pipeline_tests.core.builders import MOMENT, WORKSPACE, card, entry, place
from memory_pipeline_tests.core.rendering import links, texts, tree
from memory_pipeline_tests.nasty import HOSTILE_MARKDOWN

PROMOTED, DECLINED = "memory_promoted", "memory_promotion_declined"
ACTIVE = CardState("mem-0001", CardStatus.ACTIVE)


def row(seq: int, type_: str = "concept_clarified", subject: str | None = "ablazione", **fields: Any) -> SessionRow:
    """An effective row of the harness; `status` and `card` are of the row, the rest of its entry."""
    status, behind = fields.pop("status", Status.EFFECTIVE), fields.pop("card", None)
    return SessionRow(entry(seq, type_, subject, **{"detail": f"regola {subject}", **fields}), status, behind)


def in_file(seq: int, type_: str, target: int | str, **fields: Any) -> SessionRow:
    """A marker of a file, which is history."""
    return row(seq, type_, None, detail=f"seq:{target}", phase="F8", **fields)


def marked(type_: str, target: int, status: Status = Status.EFFECTIVE) -> SessionRow:
    """A marker of the gate."""
    return SessionRow(LedgerDraft(ts=MOMENT, type=type_, phase="F8", detail=f"seq:{target}"), status)


def told(*rows: SessionRow, **fields: Any) -> SessionSummary:
    return summarise("s1", rows, workspace=WORKSPACE, **fields)


def seqs(concepts: tuple[Concept, ...]) -> list[tuple[int, ...]]:
    return [concept.seqs for concept in concepts]


def test_promoted_come_first_then_declined_then_what_waits_each_in_order_of_seq() -> None:
    summary = told(
        row(1, "session_opened", None, question="Quante?"),
        row(2, subject="d"),
        row(3, subject="c", card=CardState("mem-0002", CardStatus.ACTIVE)),
        row(4, subject="b"),
        row(5, subject="a", card=ACTIVE),
        row(6, subject="e"),
        row(7, subject="f"),
        *(marked(DECLINED, seq) for seq in (4, 2)),
        *(marked(PROMOTED, seq) for seq in (5, 3)),
    )

    assert list(type(summary).model_fields)[2:6] == ["approved", "declined", "known", "pending"]
    assert [(one.seqs, one.card_id) for one in summary.approved] == [((3,), "mem-0002"), ((5,), "mem-0001")]
    assert (seqs(summary.declined), seqs(summary.pending)) == ([(2,), (4,)], [(6,), (7,)])
    assert (summary.question, summary.undecided, summary.hidden, summary.drift) == ("Quante?", 2, {}, 0)


def test_a_marker_is_told_as_the_concept_that_it_names() -> None:
    cited = "contata su fact_procedure.cod_paz (`fact_procedure`, dim_paziente); vedi seq:1"
    summary = told(
        row(3, subject="ablazione", detail=cited, rationale="dim_paziente è completa", card=ACTIVE),
        row(4, subject="degenza", detail="giorni in dim_tempo"),
        marked(PROMOTED, 3),
        marked(DECLINED, 4),
    )

    (approved,), (declined,) = summary.approved, summary.declined
    assert (approved.subject, approved.detail, approved.rationale) == ("ablazione", cited, "dim_paziente è completa")
    assert (declined.subject, declined.detail) == ("degenza", "giorni in dim_tempo")


def test_equivalents_are_told_as_one() -> None:
    summary = told(
        row(1, subject="ablazione", detail="regola", card=ACTIVE),
        row(2, subject="altro"),
        row(3, subject=" ABLAZIONE.", detail="regola", card=ACTIVE),
        row(4, subject="ablazione", detail="regola", dependencies=(place("cardio"),)),
        row(5, subject="Altro", detail="regola altro"),
        *(marked(PROMOTED, seq) for seq in (1, 3)),
        *(marked(DECLINED, seq) for seq in (2, 5)),
    )

    assert (seqs(summary.approved), seqs(summary.declined), seqs(summary.pending)) == ([(1, 3)], [(2, 5)], [(4,)])
    assert summary.approved[0].subject == "ablazione"


@pytest.mark.parametrize("type_", [PROMOTED, DECLINED])
@pytest.mark.parametrize("target", ["1", "2", "3", "9", "x", ""])
def test_a_marker_on_anything_but_a_clarified_concept_is_hidden(type_: str, target: str) -> None:
    summary = told(
        row(1, "table_promoted", "fact_procedure"),
        row(2, "session_opened", None, question="Quante?"),
        row(3, "memory_promoted", None, detail="seq:1"),
        in_file(5, type_, target),
    )

    assert (summary.approved, summary.declined, summary.pending) == ((), (), ())
    assert summary.hidden == {Hidden.NO_CONCEPT: 2}


@pytest.mark.parametrize(
    "subject", ["fact_procedure", "dim_paziente", "public.fact_x", '"dim_paziente"', "Ordini", "ordini.", "erp.ordini"]
)
@pytest.mark.parametrize("verdict", [PROMOTED, DECLINED, None])
def test_a_subject_that_is_a_table_is_hidden(subject: str, verdict: str | None) -> None:
    summary = told(
        row(1, "table_promoted", "erp.ordini", tables=("sales.righe",)),
        row(2, subject=subject, card=ACTIVE if verdict == PROMOTED else None),
        row(3, subject="margine"),
        *([marked(verdict, 2)] if verdict else []),
    )

    assert (summary.approved, summary.declined, seqs(summary.pending)) == ((), (), [(3,)])
    assert summary.hidden == {Hidden.TABLE: 1}


def test_what_the_gate_still_offers_is_counted_though_it_is_hidden() -> None:
    summary = told(row(1, "table_promoted", "ordini"), row(2, subject="ordini"), row(3, subject="fact_x"))

    assert (summary.pending, summary.undecided, summary.hidden) == ((), 1, {Hidden.TABLE: 2})


def test_a_table_that_was_retracted_hides_nothing() -> None:
    summary = told(row(1, "table_promoted", "ordini", status=Status.RETRACTED), row(2, subject="ordini"))

    assert (seqs(summary.pending), summary.hidden) == ([(2,)], {})


def test_a_stale_refusal_does_not_count_and_the_concept_waits_again() -> None:
    summary = told(row(1), marked(DECLINED, 1, Status.STALE))

    assert (summary.declined, seqs(summary.pending), summary.hidden) == ((), [(1,)], {Hidden.STALE: 1})


def test_a_promotion_stands_by_its_card_whatever_became_of_the_marker_and_the_decision() -> None:
    summary = told(
        row(1, subject="a", card=ACTIVE, status=Status.STALE),
        row(2, subject="b", card=CardState("mem-0002", CardStatus.DELETED)),
        marked(PROMOTED, 1, Status.STALE),
        marked(DECLINED, 2),
    )

    assert [(one.card_id, one.card_status, one.status) for one in summary.approved] == [
        ("mem-0001", "active", "stale"),
        ("mem-0002", "deleted", "effective"),
    ]
    assert (summary.declined, summary.pending, summary.hidden, summary.drift) == ((), (), {}, 0)


def test_promotions_without_a_card_are_told_apart_by_who_tells_of_them() -> None:
    summary = told(
        row(1, subject="a"), row(2, subject="b"), row(3, subject="c", card=ACTIVE), row(4, subject="d"),
        in_file(5, PROMOTED, 1), in_file(6, PROMOTED, 3), marked(PROMOTED, 2), marked(PROMOTED, 3),
        in_file(7, PROMOTED, 4, status=Status.STALE),
    )  # fmt: skip

    assert [(one.seqs, one.record) for one in summary.approved] == [
        ((1,), Record.HISTORY),
        ((2,), Record.MISSING),
        ((3,), Record.CARD),
    ]
    assert (summary.drift, summary.hidden) == (2, {Hidden.STALE: 1})
    assert seqs(summary.pending) == [(1,), (2,), (4,)]  # the registry has no card: a reviewer decides


def test_a_refusal_in_a_file_counts_as_one_of_the_gate() -> None:
    summary = told(row(1, subject="a"), in_file(2, DECLINED, 1))

    assert (seqs(summary.declined), summary.undecided) == ([(1,)], 0)


def test_the_last_of_several_markers_tells() -> None:
    one = told(row(1), in_file(2, DECLINED, 1), in_file(3, PROMOTED, 1))
    other = told(row(1), in_file(2, PROMOTED, 1), in_file(3, DECLINED, 1))

    assert (seqs(one.approved), one.declined) == ([(1,)], ())
    assert (other.approved, seqs(other.declined)) == ((), [(1,)])


def test_a_decision_that_no_longer_counts_is_told_as_such_where_it_was_decided_and_not_at_all_else() -> None:
    summary = told(
        row(1, subject="a", status=Status.RETRACTED), row(2, subject="b", status=Status.STALE), marked(DECLINED, 1)
    )

    assert [(one.seqs, one.status) for one in summary.declined] == [((1,), "retracted")]
    assert (summary.pending, summary.undecided) == ((), 0)


def test_a_memory_that_was_chosen_and_left_as_it_is_is_known() -> None:
    rows = [row(1, subject="ablazione", detail="regola", rationale="scelta: mem-0007")]
    chosen = card(id="mem-0007", detail="regola")

    assert cited_by(rows) == {"mem-0007"}
    summary = told(*rows, cited={"mem-0007": chosen})
    assert [(one.seqs, one.card_id) for one in summary.known] == [((1,), "mem-0007")]
    assert (summary.pending, summary.undecided) == ((), 0)


def test_the_last_question_is_told() -> None:
    summary = told(
        row(1, "session_opened", None, question="Prima?"),
        row(2, "session_opened", None, question="Seconda?"),
        row(3, "session_opened", None),
    )

    assert (summary.question, summary.approved) == ("Seconda?", ())


LINES = st.tuples(
    st.sampled_from(["concept_clarified"] * 3 + ["table_promoted", PROMOTED, DECLINED, "phase_rolled_back", "odd"]),
    st.sampled_from(["a", "A.", "b", "fact_x", "ordini"]),
    st.integers(0, 9),
    st.sampled_from(["F1", "F4", "F8"]),
    st.booleans(),
)


@given(st.lists(LINES, max_size=9), st.sets(st.integers(1, 9)))
def test_whatever_a_session_holds_each_concept_is_told_once_and_nothing_else_is(
    lines: list[tuple[str, str, int, str, bool]], with_card: set[int]
) -> None:
    made = []
    for seq, (type_, subject, target, phase, _) in enumerate(lines, start=1):
        detail = f"phase:{phase}" if type_ == "phase_rolled_back" else f"seq:{target}"
        behind = CardState(f"mem-{seq:04d}", CardStatus.ACTIVE)
        has_card = seq in with_card and type_ == "concept_clarified"
        made.append(row(seq, type_, subject, detail=detail, phase=phase, card=behind if has_card else None))
    rows = [
        each._replace(status=status)
        for each, status in zip(
            made,
            evaluate([Row(index, e.entry.type, e.entry.phase, e.entry.detail) for index, e in enumerate(made, 1)]),
            strict=True,
        )
    ]

    summary = told(*rows)

    assert summary == told(*rows)
    concepts = {seq for seq, each in enumerate(made, start=1) if each.entry.type == "concept_clarified"}
    decided = [seq for one in (*summary.approved, *summary.declined) for seq in one.seqs]
    waiting = [seq for one in summary.pending for seq in one.seqs]
    assert len(decided) == len(set(decided))
    assert len(waiting) == len(set(waiting))
    assert {*decided, *waiting} <= concepts
    assert {seq for one in summary.approved if one.record is Record.CARD for seq in one.seqs} <= with_card
    assert not {"fact_x"} & {one.subject for one in (*summary.approved, *summary.declined, *summary.pending)}
    assert summary.undecided >= len(summary.pending)


# --- as Markdown -------------------------------------------------------------------------------------------------


def test_as_markdown_each_kind_has_its_list() -> None:
    markdown = summary_markdown(
        told(
            row(1, "session_opened", None, question="Quante?"),
            row(2, subject="a", card=CardState("mem-0002", CardStatus.DELETED), status=Status.STALE),
            row(3, subject="b", rationale="fuori tema"),
            row(4, subject="c"),
            row(5, subject="fact_x"),
            in_file(6, PROMOTED, 4),
            marked(DECLINED, 3),
        )
    )

    assert set(tree(markdown)) == {"heading", "blockquote", "paragraph", "bullet_list", "list_item", "strong"}
    assert texts(markdown) == [
        "Session s1",
        "Quante?",
        "Promoted (2)",
        *("a", "regola a", "seq 2; mem-0002 (deleted); the decision is stale"),
        *("c", "regola c", "seq 4; no card: only the session's file says so"),
        "Declined (1)",
        *("b", "regola b", "fuori tema", "seq 3"),
        "To decide (1)",
        *("c", "regola c", "seq 4"),
        "Not told: decisions about a table (1).",
    ]


def test_an_empty_session_says_so() -> None:
    assert texts(summary_markdown(told())) == ["Session s1", "Nothing was promoted or declined, and nothing waits."]
    assert texts(summaries_markdown([], 0, rows=5)) == ["No session yet."]


def test_however_many_decisions_a_concept_has_its_card_is_told() -> None:
    many = told(*(row(seq, detail="d", card=ACTIVE) for seq in range(1, 200)))

    assert texts(summary_markdown(many))[-1].endswith("…; mem-0001")


def test_a_subject_that_nobody_can_see_says_so() -> None:
    assert "(blank)" in texts(summary_markdown(told(row(1, subject="\u200b"))))


@pytest.mark.parametrize("text", HOSTILE_MARKDOWN.values(), ids=HOSTILE_MARKDOWN)
def test_what_a_session_says_changes_nothing_but_texts(text: str) -> None:
    def page(said: str) -> str:
        fields = {"detail": said, "rationale": said}
        return summary_markdown(
            told(
                row(1, "session_opened", None, question=said[:8000]),
                row(2, subject=f"a {said}", card=ACTIVE, **fields),
                row(3, subject=f"b {said}", **fields),
                row(4, subject=f"c {said}", **fields),
                row(5, "table_promoted", "ordini"),
                marked(DECLINED, 3),
            )
        )

    assert tree(page(text)) == tree(page("x"))
    assert links(page(text)) == []


def test_a_page_shows_what_fits_and_says_what_it_leaves_out() -> None:
    long = told(*(row(seq, subject=f"{seq} " + "|" * 10_000, detail="*" * 10_000) for seq in range(1, 31)))

    one = summaries_markdown([long], 1, rows=7)
    assert tree(one).count("list_item") == 7
    assert "More, not shown: 23." in texts(one)
    worst = summaries_markdown([_longest_session()], 1, rows=10)
    assert texts(worst)[0] == "Session s1"
    many = summaries_markdown([long] * 100, 250, rows=20)
    shown = texts(many).count("Session s1")
    assert 1 <= shown < 100
    assert texts(many)[-1] == f"Older sessions, not shown: {250 - shown}."
    assert len(many) <= LONGEST_PAGE + 100


def _longest_session() -> SessionSummary:
    """Every text of every kind takes as much of a page as a text can."""
    texts_ = {"detail": "*" * 10_000, "rationale": "*" * 10_000}
    rows = [row(1, "session_opened", None, question="*" * 8000)]
    for seq in range(2, 62):
        behind = CardState(f"mem-{seq:04d}", CardStatus.ACTIVE) if seq % 3 == 0 else None
        rows.append(row(seq, subject=f"{seq} " + "*" * 10_000, card=behind, **texts_))
    rows += [marked(DECLINED, seq) for seq in range(2, 62) if seq % 3 == 1]
    return told(*rows)
