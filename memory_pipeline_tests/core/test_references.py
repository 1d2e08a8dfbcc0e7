"""Reading `seq:N`, `phase:FN` and `mem-NNNN` in free text."""

from __future__ import annotations

import pytest

from memory_pipeline.core.ledger import MAX_SEQ
from memory_pipeline.core.references import cards_of, decision_of, phase_number, phase_of


@pytest.mark.parametrize(
    ("text", "seq"),
    [
        ("seq:7", 7),
        ("ritratta seq:7, confermata seq:9", 7),
        ("(seq:12)", 12),
        ("vedi:\nseq:3", 3),
        ("èseq:5", 5),
        ("seq:5è", 5),
        ("seq:007", 7),
        (f"seq:{MAX_SEQ}", MAX_SEQ),
        (f"seq:{MAX_SEQ}0", None),
        ("seq:", None),
        ("seq: 7", None),
        ("seq:-7", None),
        ("seq:7a", None),
        ("seq:7_", None),
        ("subseq:7", None),
        ("_seq:7", None),
        ("SEQ:7", None),
        ("seq:٧", None),
        ("seq:1seq:2", None),
        ("", None),
    ],
)
def test_the_first_decision_named_in_a_text(text: str, seq: int | None) -> None:
    assert decision_of(text) == seq


@pytest.mark.parametrize(
    ("text", "phase"),
    [
        ("phase:F1", 1),
        ("si torna a phase:F8.", 8),
        ("phase:F9", None),
        ("phase:F0", None),
        ("phase:F10", None),
        ("phase:f1", None),
        ("xphase:F1", None),
        ("phase:F1 phase:F2", 1),
    ],
)
def test_the_first_phase_named_in_a_text(text: str, phase: int | None) -> None:
    assert phase_of(text) == phase


@pytest.mark.parametrize(
    ("text", "cards"),
    [
        ("da mem-0002 e mem-0001, poi mem-0002", ("mem-0002", "mem-0001")),
        ("mem-10000", ("mem-10000",)),
        ("mem-001", ()),
        ("mem-0001-bis", ()),
        ("xmem-0001", ()),
        ("-mem-0001", ()),
        ("mem-0001_2", ()),
        ("mem-0001mem-0002", ()),
        ("MEM-0001", ()),
        ("mem-0001.", ("mem-0001",)),
    ],
)
def test_every_card_named_in_a_text_in_order_each_once(text: str, cards: tuple[str, ...]) -> None:
    assert cards_of(text) == cards


@pytest.mark.parametrize(
    ("phase", "number"),
    [("F1", 1), ("F8", 8), ("F0", None), ("F9", None), ("f1", None), ("F1 ", None), ("F1\n", None), (None, None)],
)
def test_a_phase_has_a_number_only_by_its_exact_name(phase: str | None, number: int | None) -> None:
    assert phase_number(phase) == number
