"""Which rows of a session count: worked examples. The SQL function is held to the same rules by a property test."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.core.effective import Row, Status, evaluate
from memory_pipeline.core.ledger import CONTROL_TYPES, DECISION_TYPES, MARKER_TYPES

EFFECTIVE, STALE, RETRACTED, CONTROL, INERT = Status

CONCEPT = "concept_clarified"
RETRACTION = "decision_retracted"
ROLLBACK = "phase_rolled_back"
REOPENED = "phase_reopened"
DECLINED = "memory_promotion_declined"


def row(seq: int, type_: str = CONCEPT, phase: str | None = "F1", detail: str = "") -> Row:
    return Row(seq=seq, type=type_, phase=phase, detail=detail)


def marker(after_seq: int, pseq: int = 1, type_: str = DECLINED, detail: str = "seq:1") -> Row:
    return Row(seq=None, type=type_, phase="F8", detail=detail, after_seq=after_seq, pseq=pseq)


def statuses(*rows: Row) -> list[Status]:
    return evaluate(rows)


# --- phases ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phase", "status"),
    [
        ("F1", EFFECTIVE),
        ("F2", EFFECTIVE),
        ("F3", STALE),
        ("F8", STALE),
        (None, EFFECTIVE),
        ("F9", EFFECTIVE),
        ("f3", EFFECTIVE),
    ],
)
def test_a_rollback_makes_its_phase_and_later_ones_stale(phase: str | None, status: Status) -> None:
    assert statuses(row(1, phase=phase), row(2, ROLLBACK, "F4", "phase:F3")) == [status, CONTROL]


@pytest.mark.parametrize(("phase", "status"), [("F2", EFFECTIVE), ("F3", EFFECTIVE), ("F4", STALE), (None, EFFECTIVE)])
def test_a_reopening_makes_only_later_phases_stale(phase: str | None, status: Status) -> None:
    assert statuses(row(1, phase=phase), row(2, REOPENED, "F4", "phase:F3")) == [status, CONTROL]


def test_what_comes_after_a_rollback_counts() -> None:
    assert statuses(row(1), row(2, ROLLBACK, detail="phase:F1"), row(3)) == [STALE, CONTROL, EFFECTIVE]


def test_the_lowest_boundary_above_a_decision_decides() -> None:
    rows = [
        row(1, phase="F2"),
        row(2, ROLLBACK, detail="phase:F2"),
        row(3, phase="F2"),
        row(4, ROLLBACK, detail="phase:F5"),
    ]
    assert statuses(*rows) == [STALE, CONTROL, EFFECTIVE, CONTROL]


@pytest.mark.parametrize("detail", ["", "phase:F9", "F1", "phase:f1", "tutto da rifare"])
def test_a_rollback_to_no_known_phase_does_nothing(detail: str) -> None:
    assert statuses(row(1), row(2, ROLLBACK, detail=detail)) == [EFFECTIVE, CONTROL]


def test_where_a_rollback_was_written_does_not_matter() -> None:
    assert statuses(row(1, phase="F2"), row(2, ROLLBACK, None, "phase:F2")) == [STALE, CONTROL]


@pytest.mark.parametrize("type_", sorted(CONTROL_TYPES))
def test_controls_are_never_stale_nor_retracted(type_: str) -> None:
    rows = [row(1, type_, "F8"), row(2, RETRACTION, detail="seq:1"), row(3, ROLLBACK, detail="phase:F2")]
    assert statuses(*rows) == [CONTROL, INERT, CONTROL]


# --- retractions -------------------------------------------------------------------------------------------------


def test_a_retraction_takes_out_the_decision_that_it_names() -> None:
    assert statuses(row(1), row(2), row(3, RETRACTION, detail="seq:1")) == [RETRACTED, EFFECTIVE, EFFECTIVE]


def test_a_retracted_retraction_takes_nothing_out() -> None:
    rows = [row(1), row(2, RETRACTION, detail="seq:1"), row(3, RETRACTION, detail="seq:2")]
    assert statuses(*rows) == [EFFECTIVE, RETRACTED, EFFECTIVE]


def test_a_chain_of_retractions_is_read_from_its_end() -> None:
    rows = [row(1), *(row(seq, RETRACTION, detail=f"seq:{seq - 1}") for seq in range(2, 7))]
    assert statuses(*rows) == [RETRACTED, EFFECTIVE, RETRACTED, EFFECTIVE, RETRACTED, EFFECTIVE]


def test_two_retractions_of_one_decision_both_have_to_go() -> None:
    twice = [row(1), row(2, RETRACTION, detail="seq:1"), row(3, RETRACTION, detail="seq:1")]
    assert statuses(*twice, row(4, RETRACTION, detail="seq:3")) == [RETRACTED, EFFECTIVE, RETRACTED, EFFECTIVE]


def test_a_stale_retraction_does_not_retract() -> None:
    rows = [row(1, phase="F1"), row(2, RETRACTION, "F3", "seq:1"), row(3, ROLLBACK, detail="phase:F2")]
    assert statuses(*rows) == [EFFECTIVE, STALE, CONTROL]


def test_a_stale_retraction_of_a_retraction_gives_the_first_one_back_its_force() -> None:
    rows = [
        row(1),
        row(2, RETRACTION, "F1", "seq:1"),
        row(3, RETRACTION, "F5", "seq:2"),
        row(4, ROLLBACK, detail="phase:F5"),
    ]
    assert statuses(*rows) == [RETRACTED, EFFECTIVE, STALE, CONTROL]


def test_stale_says_more_than_retracted() -> None:
    rows = [row(1, phase="F3"), row(2, RETRACTION, "F1", "seq:1"), row(3, ROLLBACK, detail="phase:F2")]
    assert statuses(*rows) == [STALE, EFFECTIVE, CONTROL]


@pytest.mark.parametrize("type_", sorted(DECISION_TYPES))
def test_every_decision_can_be_retracted(type_: str) -> None:
    rows = [row(1), row(2, type_, detail="seq:1"), row(3, RETRACTION, detail="seq:2")]
    assert statuses(*rows)[1:] == [RETRACTED, EFFECTIVE]


@pytest.mark.parametrize(
    "target",
    [
        pytest.param("seq:9", id="forward"),
        pytest.param("seq:5", id="itself"),
        pytest.param("seq:3", id="missing"),
        pytest.param("seq:0", id="none at all"),
        pytest.param("seq:2", id="a control"),
        pytest.param("seq:4", id="a marker in the file"),
        pytest.param("seq:8", id="an unknown type"),
        pytest.param("", id="nothing named"),
        pytest.param("seq:1a", id="not a reference"),
    ],
)
def test_a_retraction_of_what_cannot_be_retracted_is_inert(target: str) -> None:
    rows = [
        row(1),
        row(2, "session_opened"),
        row(4, "memory_promoted"),
        row(5, RETRACTION, detail=target),
        row(8, "a_type_of_next_year"),
        row(9),
    ]
    assert statuses(*rows) == [EFFECTIVE, CONTROL, EFFECTIVE, INERT, INERT, EFFECTIVE]


def test_an_inert_retraction_can_still_be_retracted_or_go_stale() -> None:
    assert statuses(row(1, RETRACTION, detail="seq:9"), row(2, RETRACTION, detail="seq:1")) == [RETRACTED, EFFECTIVE]
    assert statuses(row(1, RETRACTION, "F3", "seq:9"), row(2, ROLLBACK, detail="phase:F3")) == [STALE, CONTROL]


@pytest.mark.parametrize("phase", ["F1", "F8", None])
def test_a_type_that_is_not_known_is_inert_and_never_stale(phase: str | None) -> None:
    assert statuses(row(1, "a_type_of_next_year", phase), row(2, ROLLBACK, detail="phase:F1")) == [INERT, CONTROL]


# --- the pipeline's markers --------------------------------------------------------------------------------------


def test_a_rolled_back_f8_undoes_a_refusal_and_leaves_the_concept() -> None:
    assert statuses(row(1), marker(1), row(2, ROLLBACK, "F8", "phase:F8")) == [EFFECTIVE, STALE, CONTROL]


def test_a_reopened_f8_keeps_a_refusal() -> None:
    assert statuses(row(1), marker(1), row(2, REOPENED, "F8", "phase:F8")) == [EFFECTIVE, EFFECTIVE, CONTROL]


def test_a_reopened_f7_undoes_a_refusal() -> None:
    assert statuses(row(1), marker(1), row(2, REOPENED, "F8", "phase:F7")) == [EFFECTIVE, STALE, CONTROL]


def test_a_marker_stands_after_the_row_that_it_names() -> None:
    """Written when the rollback was the newest row, it is a verdict on what came of that."""
    rows = [row(1), row(2, ROLLBACK, "F8", "phase:F8"), marker(2), row(3)]
    assert statuses(*rows) == [EFFECTIVE, CONTROL, EFFECTIVE, EFFECTIVE]


def test_a_marker_before_every_row_can_go_stale() -> None:
    assert statuses(marker(0), row(1, ROLLBACK, detail="phase:F8")) == [STALE, CONTROL]


def test_a_row_of_the_pipeline_moves_no_phase_and_retracts_nothing() -> None:
    rows = [
        row(1, phase="F8"),
        marker(1, 1, ROLLBACK, "phase:F1"),
        marker(1, 2, RETRACTION, "seq:1"),
        marker(1, 3, "session_closed", ""),
    ]
    assert statuses(*rows) == [EFFECTIVE, CONTROL, INERT, CONTROL]


@pytest.mark.parametrize("type_", sorted(MARKER_TYPES))
def test_a_marker_in_a_file_counts_until_it_is_stale(type_: str) -> None:
    rows = [row(1), row(2, type_, "F8", "seq:1")]
    assert statuses(*rows) == [EFFECTIVE, EFFECTIVE]
    assert statuses(*rows, row(3, ROLLBACK, detail="phase:F8")) == [EFFECTIVE, STALE, CONTROL]


# --- the documentation -------------------------------------------------------------------------------------------

DOCUMENT = Path(__file__).parents[2] / "docs" / "ledger.md"
WORKED_ROW = re.compile(r"^\| (\d+) \| (F\d) \| (\w+)(?: \*[^*|]*\*)?(?: `([^`]*)`)? \| (\w+) \|", re.MULTILINE)


def test_the_worked_table_of_the_documentation_is_right() -> None:
    worked = WORKED_ROW.findall(DOCUMENT.read_text(encoding="utf-8"))
    assert len(worked) >= 8
    rows = [row(int(seq), type_, phase, detail) for seq, phase, type_, detail, _ in worked]
    assert evaluate(rows) == [Status(status) for *_, status in worked]


# --- the order of the rows ---------------------------------------------------------------------------------------


def test_a_session_without_rows_has_no_status() -> None:
    assert statuses() == []


TYPES = st.sampled_from([CONCEPT, RETRACTION, RETRACTION, ROLLBACK, REOPENED, DECLINED, "unknown"])
PHASES = st.sampled_from([None, "F1", "F2", "F5", "F8", "F9"])


@given(
    kinds=st.lists(st.tuples(TYPES, PHASES, st.integers(0, 12), st.integers(1, 8)), max_size=12),
    seed=st.integers(0, 1000),
)
def test_statuses_do_not_depend_on_the_order_in_which_rows_are_given(
    kinds: list[tuple[str, str | None, int, int]], seed: int
) -> None:
    rows = [
        row(seq, type_, phase, f"seq:{target} phase:F{boundary}")
        for seq, (type_, phase, target, boundary) in enumerate(kinds, start=1)
    ]
    shuffled = random.Random(seed).sample(rows, len(rows))
    by_seq = dict(zip((given_row.seq for given_row in shuffled), evaluate(shuffled), strict=True))
    assert [by_seq[given_row.seq] for given_row in rows] == evaluate(rows)
