"""The published contract is that of the code."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import click
import pytest
from jsonschema import Draft202012Validator

from memory_pipeline.core.errors import BadInput, BadQuestion, MemoryPipelineError
from memory_pipeline.harness.commands import dev  # noqa: F401 - its errors are of the family too
from memory_pipeline.harness.contract import ANSWERS, ExportAnswer, decide_answer, error_answer, json_schema
from memory_pipeline.harness.output import print_error, print_json, print_usage_error
from memory_pipeline.operations.decide import Decision
from memory_pipeline.operations.propagate import DrainReport, Problem

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
PUBLISHED = DOCS / "contract.schema.json"
HARNESS = DOCS / "harness.md"


def test_the_published_schema_is_current() -> None:
    """To renew it: python -m memory_pipeline.harness.contract > docs/contract.schema.json"""
    assert json.loads(PUBLISHED.read_text(encoding="utf-8")) == json_schema()


def test_every_answer_is_in_the_schema_and_in_the_table() -> None:
    schema = json_schema()
    names = {answer.__name__ for answer in ANSWERS}

    assert names <= schema["$defs"].keys()
    assert {choice["$ref"].removeprefix("#/$defs/") for choice in schema["anyOf"]} == names
    table = HARNESS.read_text(encoding="utf-8")
    assert {name for name in names if f"| `{name}` |" not in table} == set()


@pytest.mark.parametrize("document", [{"nonsense": 1}, {}, [], {"contract": 1, "status": "ok"}])
def test_what_is_no_answer_is_refused_by_the_schema(document: object) -> None:
    assert not Draft202012Validator(json_schema()).is_valid(document)


def test_what_is_printed_follows_the_schema() -> None:
    schema = Draft202012Validator(json_schema())
    told = error_answer(BadQuestion("the question is empty", hint="ask one"))
    decision = Decision(session="s", preview_id="00000000-0000-0000-0000-000000000000", verdicts=(), pending=0)
    decided = decide_answer(decision, DrainReport())

    for printed in (told, decided):
        schema.validate(json.loads(printed.model_dump_json()))
    assert not schema.is_valid({**json.loads(told.model_dump_json()), "exit_code": "ten"})


def test_the_exit_codes_that_the_docs_give_are_those_of_the_errors() -> None:
    codes = {error.__name__: error.exit_code for error in _family(MemoryPipelineError)}
    table = HARNESS.read_text(encoding="utf-8").partition("## Exit codes")[2].partition("## ")[0]
    rows = {int(code): row for code, row in re.findall(r"^\| (\d+) \|(.+)", table, re.MULTILINE)}
    named = {name: code for code, row in rows.items() for name in re.findall(r"`([A-Z]\w+)`", row)}

    assert set(codes.values()) <= rows.keys()
    assert named == {name: codes.get(name) for name in named}


def _family(error: type[MemoryPipelineError]) -> set[type[MemoryPipelineError]]:
    return {error}.union(*map(_family, error.__subclasses__()))


def test_an_error_tells_its_name_its_family_and_what_to_do() -> None:
    told = error_answer(BadQuestion("the question is empty", hint="ask one"))

    assert (told.error, told.exit_code, told.message, told.hint) == (
        "BadQuestion",
        10,
        "the question is empty",
        "ask one",
    )


def test_a_path_that_is_no_utf8_is_told_by_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    name = os.fsdecode(b"n\xff")

    print_error(BadInput(f"{name} is no file", hint=f"not {name}"), as_json=True)
    print_usage_error(click.UsageError(f"no option {name}"))
    print_json(ExportAnswer(file=name, session="s", harness=0, pipeline=0))

    told, misused, done = map(json.loads, capsys.readouterr().out.splitlines())
    assert (told["message"], told["hint"]) == ("n\\udcff is no file", "not n\\udcff")
    assert misused["message"] == "no option n\\udcff"
    assert done["file"] == "n\\udcff"


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
