"""Golden questions, and what a workspace's own recall is worth over time."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memory_pipeline.core.cards import CardKind, Link, Relation
from memory_pipeline.core.curation import CardFields
from memory_pipeline.core.dependencies import Dependency
from memory_pipeline.core.errors import (
    BadDependency,
    BadGolden,
    BadText,
    CardDeleted,
    MemoryPipelineError,
    NotMeasured,
    UnknownCard,
)
from memory_pipeline.core.projection import point_id
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.operations.curate import add_cards, delete_card, edit_card, link_card, set_kind
from memory_pipeline.operations.generation import ensure_generation
from memory_pipeline.operations.golden import GoldenQuestion, add_golden, import_golden, list_golden
from memory_pipeline.operations.propagate import drain
from memory_pipeline.operations.quality import (
    accept_quality,
    check_quality,
    measure_quality,
    quality_history,
)
from memory_pipeline.operations.services import Services
from memory_pipeline.store import golden
from memory_pipeline.store.database import Role
from memory_pipeline_tests.flows import ABLATION, MORTALITY, READMISSION, revise

PLACE = Dependency(database="cardio", schema_="public")
BACK = "Chi ha un nuovo ricovero entro 30 giorni dalla dimissione?"
DEAD = "Quanti malati muoiono in reparto?"


@pytest.fixture
def stocked(services: Services, workspace: Workspace) -> str:
    """A workspace with three cards, mem-0001 to mem-0003, none of them in an index yet."""
    add_cards(services, workspace.slug, [CardFields(**card) for card in (ABLATION, READMISSION, MORTALITY)])
    return workspace.slug


@pytest.fixture
def indexed(services: Services, stocked: str) -> str:
    """The same, in its index."""
    assert drain(services, stocked, hurry=True).settled
    return stocked


def asked(question: str = BACK, *expected: str, **place: Any) -> GoldenQuestion:
    return GoldenQuestion(question=question, expected=expected or ("mem-0002",), **place)


def test_a_question_is_kept_once_in_each_place_and_told_with_who_said_so(services: Services, stocked: str) -> None:
    first = add_golden(services, stocked, [asked(), asked(DEAD, "mem-0003")], PLACE)
    again = add_golden(services, stocked, [asked(f" {BACK.upper()} ", "mem-0001", "mem-0002", "mem-0002")], PLACE)
    elsewhere = add_golden(services, stocked, [asked(database="dwh")], PLACE)

    assert [(done.added, done.replaced) for done in (first, again, elsewhere)] == [(2, 0), (0, 1), (1, 0)]
    listed = list_golden(services, stocked).questions
    assert [(each.question, each.expected, each.place) for each in listed] == [
        (BACK.upper(), ("mem-0001", "mem-0002"), PLACE),
        (DEAD, ("mem-0003",), PLACE),
        (BACK, ("mem-0002",), Dependency(database="dwh")),
    ]
    assert {each.added_by for each in listed} == {"memory_reviewer"}


def test_nothing_is_added_where_one_question_cannot_be(services: Services, stocked: str) -> None:
    delete_card(services, stocked, "mem-0001", 1)
    refusals: list[tuple[GoldenQuestion, type[MemoryPipelineError]]] = [
        (asked(BACK, "mem-0009"), UnknownCard),
        (asked(BACK, "mem-0001"), CardDeleted),
        (asked(" ?? "), BadGolden),
        (asked("x" * 8001), BadGolden),
        (asked(schema_="public"), BadGolden),
        *((asked(BACK, card), UnknownCard) for card in ("", "MEM-0002", "mem-\x00", "mem-\udcff", "mem-" + "1" * 30)),
        *((asked(database=text), BadText) for text in ("a\x00", "a\ud800")),
        (asked(database="d", schema_="a\ud800"), BadText),
        (asked(database="d", schema_=" "), BadDependency),
        (asked(database="d" * 256), BadGolden),
        (asked(database="d", schema_="s" * 256), BadGolden),
    ]
    for question, refusal in refusals:
        with pytest.raises(refusal):
            add_golden(services, stocked, [asked(DEAD, "mem-0003"), question], PLACE)

    assert list_golden(services, stocked).questions == ()


def test_a_card_that_no_search_in_the_place_finds_is_refused(services: Services, stocked: str) -> None:
    set_kind(services, stocked, "mem-0001", 1, CardKind.EXEMPLAR)
    revise(services, stocked, "mem-0002", status="retired")
    there = {"dependencies": [{"database": "cardio", "schema": "public", "table": "t"}]}
    edit_card(services, stocked, "mem-0003", 1, CardFields.parse(there))

    for question, why in [
        (asked(BACK, "mem-0001"), "mem-0001 is exemplar"),
        (asked(BACK, "mem-0002"), "mem-0002 is retired"),
        (asked(BACK, "mem-0003", database="dwh"), "mem-0003 does not serve dwh:"),
        (asked(BACK, "mem-0003", database="cardio", schema_="other"), "mem-0003 does not serve cardio/other:"),
    ]:
        with pytest.raises(BadGolden, match=why):
            add_golden(services, stocked, [question], PLACE)

    found = [asked(BACK, "mem-0003"), asked(BACK, "mem-0003", database="CARDIO")]
    assert add_golden(services, stocked, found, PLACE).added == 2


def test_a_place_of_the_longest_names_is_kept_and_a_longer_one_is_no_failure_of_the_server(
    services: Services, stocked: str
) -> None:
    signs = [chr(0x10000 + number * 31) for number in range(2000)]
    longest = asked(database="".join(signs[:255]), schema_="".join(signs[255:510]))
    assert add_golden(services, stocked, [longest], PLACE).added == 1

    reviewing = services.database.transaction(Role.REVIEWER, stocked)
    with pytest.raises(BadText, match="index row"), reviewing as tx:
        golden.put(tx, stocked, BACK, Dependency(database="".join(signs)), ["mem-0002"])


ROWS = [{"question": BACK, "expected": ["mem-0002"]}, {"question": DEAD, "expected": ["mem-0003"], "database": "dwh"}]


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("questions.jsonl", lambda: "\n".join(map(json.dumps, ROWS)) + "\n\n"),
        ("QUESTIONS.JSONL", lambda: "\r\n".join(map(json.dumps, ROWS))),
        ("questions.yaml", lambda: f"- question: {BACK}\n  expected: [mem-0002]\n- {json.dumps(ROWS[1])}\n"),
    ],
)
def test_a_file_brings_all_of_its_questions(
    name: str, written: Callable[[], str], tmp_path: Path, services: Services, stocked: str
) -> None:
    (tmp_path / name).write_text(written(), encoding="utf-8")

    assert import_golden(services, stocked, tmp_path / name, PLACE).added == 2
    assert [(each.question, each.place.database) for each in list_golden(services, stocked).questions] == [
        (BACK, "cardio"),
        (DEAD, "dwh"),
    ]


def test_a_line_ends_where_json_lines_say(tmp_path: Path, services: Services, stocked: str) -> None:
    question = "uno\u2028due\u0085tre"
    written = json.dumps({**ROWS[0], "question": question}, ensure_ascii=False)
    (tmp_path / "a.jsonl").write_text(written + "\n{", encoding="utf-8")

    with pytest.raises(BadGolden, match=r"a\.jsonl:2: it is not JSON"):
        import_golden(services, stocked, tmp_path / "a.jsonl", PLACE)
    (tmp_path / "a.jsonl").write_text(written, encoding="utf-8")
    import_golden(services, stocked, tmp_path / "a.jsonl", PLACE)

    assert [each.question for each in list_golden(services, stocked).questions] == [question]


@pytest.mark.parametrize(
    ("name", "text", "where"),
    [
        ("a.jsonl", json.dumps(ROWS[0]) + "\n{", r"a\.jsonl:2: it is not JSON"),
        ("a.jsonl", '{"question": "?"}', r"a\.jsonl:1: expected"),
        ("a.yaml", "- question: [", "it is not YAML"),
        ("a.yaml", "question: x", "it is not a list"),
        ("a.yaml", "- {question: x, expected: [mem-0001], answer: y}", r"question 1: answer"),
        ("a.yaml", "- {question: x, expected: [mem-0001], question: y}", "'question' is repeated"),
        ("a.jsonl", '{"question": "x", "expected": ["mem-0001"], "question": "y"}', "'question' occurs more than once"),
        ("a.yaml", None, "it cannot be read"),
        (".", None, "it is not a regular file"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_with_the_place(
    name: str, text: str | None, where: str, tmp_path: Path, services: Services
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text, encoding="utf-8")

    with pytest.raises(BadGolden, match=where):
        import_golden(services, "never-asked", tmp_path / name, PLACE)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path, services: Services) -> None:
    os.mkfifo(tmp_path / "a.jsonl")

    with pytest.raises(BadGolden, match="it is not a regular file"):
        import_golden(services, "never-asked", tmp_path / "a.jsonl", PLACE)


def test_figures_are_kept_and_held_against_what_was_accepted(services: Services, indexed: str) -> None:
    assert check_quality(services, indexed).passed
    with pytest.raises(NotMeasured, match=indexed):
        accept_quality(services, indexed)
    add_golden(services, indexed, [asked(), asked(DEAD, "mem-0003")], PLACE)

    good = measure_quality(services, indexed)

    assert good is not None
    assert (good.figures.cards, good.figures.sampled, good.figures.golden) == (3, 3, 2)
    assert (good.figures.self_recall, good.figures.recall_at_1, good.lost, good.missed) == (1.0, 1.0, (), ())
    assert check_quality(services, indexed).passed

    _lose_a_point(services, indexed)
    bad = measure_quality(services, indexed)

    assert bad is not None
    assert bad.lost == ("mem-0002",)
    assert [(missed.question, missed.ranks) for missed in bad.missed] == [(BACK, {"mem-0002": 0})]
    fallen = check_quality(services, indexed)
    assert (fallen.passed, fallen.warns) == (False, True)
    assert "self-recall fell from 1.000 to 0.667" in fallen.told
    assert "R@1 fell from 1.000 to 0.500" in fallen.told

    accepted = accept_quality(services, indexed)

    assert accepted.figures == bad.figures
    assert check_quality(services, indexed).passed
    history = quality_history(services, indexed, 10)
    assert [row.figures.self_recall for row in history] == [pytest.approx(2 / 3), 1.0]
    assert [row.accepted_by for row in history] == ["memory_reviewer", None]


def test_other_golden_questions_begin_a_measure_of_their_own(services: Services, indexed: str) -> None:
    assert measure_quality(services, indexed)
    _lose_a_point(services, indexed)
    assert measure_quality(services, indexed)
    assert not check_quality(services, indexed).passed

    add_golden(services, indexed, [asked(DEAD, "mem-0003")], PLACE)
    assert measure_quality(services, indexed)

    assert check_quality(services, indexed).passed


def test_an_expected_card_that_is_gone_is_told_and_counts_for_nothing(services: Services, indexed: str) -> None:
    add_golden(services, indexed, [asked(BACK, "mem-0002", "mem-0001"), asked(DEAD, "mem-0003")], PLACE)
    for card in ("mem-0001", "mem-0003"):
        delete_card(services, indexed, card, 1)
    drain(services, indexed, hurry=True)

    quality = measure_quality(services, indexed)

    assert quality is not None
    assert quality.gone == ("mem-0001", "mem-0003")
    assert (quality.figures.golden, quality.figures.recall_at_5) == (1, 1.0)


def test_a_card_is_not_lost_because_a_newer_one_takes_its_place(services: Services, indexed: str) -> None:
    newer = Link(relation=Relation.SUPERSEDES, target="mem-0001")
    link_card(services, indexed, "mem-0002", 1, newer)
    assert drain(services, indexed, hurry=True).settled

    quality = measure_quality(services, indexed)

    assert quality is not None
    assert (quality.figures.sampled, quality.lost) == (3, ())


def test_statements_alike_in_many_databases_do_not_hide_each_other(services: Services, workspace: Workspace) -> None:
    fields = {**ABLATION, "dependencies": ()}
    places = [(Dependency(database=f"db{number}"),) for number in range(8)]
    add_cards(services, workspace.slug, [CardFields(**{**fields, "dependencies": place}) for place in places])
    assert drain(services, workspace.slug, hurry=True).settled

    quality = measure_quality(services, workspace.slug)

    assert quality is not None
    assert (quality.figures.sampled, quality.lost) == (8, ())


def test_without_a_card_there_is_nothing_to_measure(services: Services, workspace: Workspace) -> None:
    assert measure_quality(services, workspace.slug) is None


def _lose_a_point(services: Services, workspace: str) -> None:
    """Take mem-0002 out of the index behind the registry's back."""
    services.index.delete(ensure_generation(services, workspace).collection, [point_id("mem-0002")])
