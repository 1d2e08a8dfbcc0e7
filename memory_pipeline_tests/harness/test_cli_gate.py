"""The gate and the settings of a workspace, by commands."""

from __future__ import annotations

import re

import pytest

from memory_pipeline.core.workspace import Workspace
from memory_pipeline.operations.services import Services
from memory_pipeline_tests.conftest import Cli, MakeWorkspace
from memory_pipeline_tests.harness.test_cli import answer
from memory_pipeline_tests.operations.sessions import concept, offer, preview_id, settle, tell

FIVE = {"subject": "follow-up", "detail": "osservato per 5 anni dalla dimissione"}
SIX = {"subject": "follow-up", "detail": "osservato per 6 anni dalla dimissione"}


@pytest.fixture
def session(services: Services, workspace: Workspace) -> list[str]:
    """The options of a session with two near-duplicates."""
    tell(services, workspace.slug, FIVE, SIX)
    return ["-w", workspace.slug, "-s", "s1"]


def test_near_duplicates_are_shown_with_the_numbers_that_differ(cli: Cli, session: list[str]) -> None:
    shown = answer(cli("promote", "preview", *session, "--json"))
    assert (shown["pending"], shown["similarity"]["looked_up"]) == (2, "not_at_all")
    (similar,) = shown["candidates"][1]["similar_to"]
    assert (similar["ref"], similar["numbers_here"], similar["numbers_there"]) == ("seq:1", ["6 anni"], ["5 anni"])
    told = cli("promote", "preview", *session, COLUMNS="250")
    assert "no similar memories were looked up: the workspace has no index yet" in told.stderr
    table = " ".join(told.stdout.split())
    assert "near seq:1 (1.00, but 6 anni against 5 anni)" in table


def test_a_session_closes_once_nothing_waits(
    cli: Cli, services: Services, workspace: Workspace, session: list[str]
) -> None:
    assert answer(cli("session", "close", *session, "--json"), 13)["error"] == "CandidatesPending"
    left = answer(cli("session", "close", *session, "--leave-pending", "--json"))
    assert (left["status"], left["closed_now"], left["left_pending"]) == ("closed", True, [1, 2])
    settle(services, workspace.slug, offer(services, workspace.slug), decline=(1, 2))
    assert " was closed by" in cli("session", "close", *session).stdout
    assert " was already closed by" in cli("session", "close", *session).stdout
    assert "closed by memory_reviewer at " in cli("session", "show", *session).stdout
    assert "session s1: nothing to decide\n" in cli("promote", "preview", *session).stdout


def test_settings_change_by_name_and_a_retired_workspace_answers_so(
    cli: Cli, workspace: Workspace, session: list[str]
) -> None:
    changed = answer(
        cli("workspace", "set", workspace.slug, "--four-eyes", "--no-schema", "--title", "Nuovo", "--json")
    )
    assert (changed["status"], changed["rebuild_due"]) == ("changed", False)
    expected = {"four_eyes": True, "default_schema": None, "title": "Nuovo", "language": workspace.language}
    assert expected.items() <= changed["workspace"].items()
    assert answer(cli("workspace", "set", workspace.slug, "--json"), 10)["error"] == "BadInput"
    assert cli("workspace", "set", workspace.slug, "--schema", "a", "--no-schema").returncode == 2

    retired = cli("workspace", "retire", workspace.slug).stdout
    assert "retired" in retired
    assert re.search(r"four_eyes\W+yes", retired)
    again = " ".join(cli("workspace", "retire", workspace.slug).stdout.split())  # a title folds to its table's width
    assert f"workspace {workspace.slug}: nothing to change" in again
    for command in (["search", *session[:2], "x"], ["session", "close", *session]):
        assert answer(cli(*command, "--json"), 13)["error"] == "WorkspaceRetired"
    restored = answer(cli("workspace", "restore", workspace.slug, "--json"))
    assert (restored["status"], restored["workspace"]["status"]) == ("changed", "active")
    assert answer(cli("workspace", "restore", workspace.slug, "--json"))["status"] == "unchanged"


def test_four_eyes_are_a_refusal_of_their_own(cli: Cli, services: Services, make_workspace: MakeWorkspace) -> None:
    strict = make_workspace(four_eyes=True).slug
    tell(services, strict, concept("a", actor=f"human:{services.settings.reviewer_login}"))
    preview = str(preview_id(offer(services, strict)))
    saved = cli("promote", "save-one", "-w", strict, "--preview", preview, "--seq", "1", "--json")
    assert answer(saved, 13)["error"] == "FourEyes"
