"""The published contract is that of the code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memory_pipeline.core.errors import BadQuestion
from memory_pipeline.harness.contract import ANSWERS, decide_answer, error_answer, json_schema
from memory_pipeline.operations.decide import Decision
from memory_pipeline.operations.propagate import DrainReport, Problem

PUBLISHED = Path(__file__).resolve().parent.parent.parent / "docs" / "contract.schema.json"


def test_the_published_schema_is_current() -> None:
    """To renew it: python -m memory_pipeline.harness.contract > docs/contract.schema.json"""
    assert json.loads(PUBLISHED.read_text(encoding="utf-8")) == json_schema()


def test_every_answer_is_in_the_schema() -> None:
    assert {answer.__name__ for answer in ANSWERS} <= json_schema()["$defs"].keys()


def test_an_error_tells_its_name_its_family_and_what_to_do() -> None:
    told = error_answer(BadQuestion("the question is empty", hint="ask one"))

    assert (told.error, told.exit_code, told.message, told.hint) == (
        "BadQuestion",
        10,
        "the question is empty",
        "ask one",
    )


@pytest.mark.parametrize(
    ("report", "propagation"),
    [
        (DrainReport(), "current"),
        (DrainReport(pending=1), "pending"),
        (DrainReport(parked=1), "pending"),
        (DrainReport(busy=True), "pending"),
        (DrainReport(problem=Problem(error="x", message="Qdrant is down", hint="y", exit_code=31)), "pending"),
    ],
)
def test_a_decision_is_current_only_where_nothing_waits(report: DrainReport, propagation: str) -> None:
    decision = Decision(session="s", preview_id="00000000-0000-0000-0000-000000000000", verdicts=(), pending=0)

    assert decide_answer(decision, report).propagation == propagation
