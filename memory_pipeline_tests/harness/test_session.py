"""`memory-pipeline session show`, as a person and as a harness reads it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memory_pipeline.core.workspace import Workspace
from memory_pipeline.operations.services import Services
from memory_pipeline_tests.conftest import Cli
from memory_pipeline_tests.core.rendering import links, texts
from memory_pipeline_tests.nasty import line
from memory_pipeline_tests.operations.sessions import drop, offer, settle

HOSTILE = "\x1b[2J<script>alert(1)</script> \u202eevil ![b](https://evil.example/b)"


@pytest.fixture
def session(services: Services, workspace: Workspace) -> str:
    """A session of three concepts: one promoted, one declined, one that waits; a table hides. Returns the workspace."""
    drop(
        services,
        workspace.slug,
        line(seq=1, type="session_opened", subject=None, question=f"Quante? {HOSTILE}"),
        line(seq=2, subject="ablazione", detail="regola su fact_procedure"),
        line(seq=3, subject="degenza", rationale=HOSTILE),
        line(seq=4, subject=f"recidiva {HOSTILE}"),
        line(seq=5, subject="fact_procedure"),
    )
    settle(services, workspace.slug, offer(services, workspace.slug), select=(2,), decline=(3,))
    return workspace.slug


def test_the_answer_is_the_contracts(cli: Cli, session: str) -> None:
    shown = cli("session", "show", "-w", session, "-s", "s1", "--json")

    assert shown.returncode == 0, shown.stderr
    told = json.loads(shown.stdout)
    assert (told["contract"], told["status"], told["session"], told["undecided"]) == (1, "ok", "s1", 1)
    assert [(one["seqs"], one["card_id"], one["record"]) for one in told["approved"]] == [([2], "mem-0001", "card")]
    assert [(one["seqs"], one["rationale"]) for one in told["declined"]] == [([3], HOSTILE)]
    assert ([one["seqs"] for one in told["pending"]], told["hidden"], told["drift"]) == ([[4]], {"table": 1}, 0)


def test_a_person_sees_tables_and_nothing_that_acts_on_a_terminal(cli: Cli, session: str) -> None:
    shown = cli("session", "show", "-w", session, "-s", "s1")

    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.index("promoted") < shown.stdout.index("declined") < shown.stdout.index("to decide")
    assert "mem-0001" in shown.stdout
    assert "regola su fact_procedure" in shown.stdout
    assert "not told: 1 table" in shown.stderr
    assert not {"\x1b", "\u202e"} & set(shown.stdout)


def test_as_markdown_its_texts_are_escaped(cli: Cli, session: str) -> None:
    shown = cli("session", "show", "-w", session, "-s", "s1", "--markdown")

    assert shown.returncode == 0, shown.stderr
    page = texts(shown.stdout)
    assert (page[0], links(shown.stdout)) == ("Session s1", [])
    assert any("<script>alert(1)</script> evil" in text for text in page)
    assert "<script>" not in shown.stdout


def test_the_inbox_is_read_first(cli: Cli, session: str, services: Services) -> None:
    drop(services, session, line(seq=9, subject="nuova"))

    shown = cli("session", "show", "-w", session, "-s", "s1", "--json")

    assert [one["seqs"] for one in json.loads(shown.stdout)["pending"]] == [[4], [9]]


def test_what_cannot_be_shown_is_named(cli: Cli, session: str, tmp_path: Path) -> None:
    unknown = cli("session", "show", "-w", session, "-s", "s9", "--json")
    assert (unknown.returncode, json.loads(unknown.stdout)["error"]) == (11, "UnknownSession")
    both = cli("session", "show", "-w", session, "-s", "s1", "--json", "--markdown")
    assert (both.returncode, json.loads(both.stdout)["error"]) == (2, "UsageError")
    assert "ask for one" in both.stderr
    assert list(tmp_path.iterdir()) == []
