"""Changing a workspace's settings, taking it out of use, and taking it back."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from memory_pipeline.core.errors import (
    BadInput,
    BadWorkspace,
    CandidateChanged,
    MemoryPipelineError,
    UnknownLanguage,
    UnknownProfile,
    UnknownWorkspace,
    WorkspaceRetired,
)
from memory_pipeline.core.workspace import Workspace, WorkspaceStatus
from memory_pipeline.operations.index import index
from memory_pipeline.operations.ledger import show_ledger
from memory_pipeline.operations.services import Services
from memory_pipeline.operations.workspaces import (
    WorkspaceChanges,
    restore_workspace,
    retire_workspace,
    set_workspace,
    show_workspace,
)
from memory_pipeline_tests.flows import ABLATION, ask, found, promote
from memory_pipeline_tests.nasty import line
from memory_pipeline_tests.operations.sessions import concept, drop, offer, rows, settle, tell

pytestmark = pytest.mark.integration

HISTORY = "SELECT settings, changed_by FROM workspace_changes ORDER BY change_id"


@pytest.mark.parametrize(
    ("changes", "becomes"),
    [
        ({"title": " Cardiologia "}, {"title": "Cardiologia"}),
        ({"language": "en"}, {"language": "en"}),
        ({"sql_dialect": "duckdb"}, {"sql_dialect": "duckdb"}),
        ({"default_database": "dwh", "default_schema": None}, {"default_database": "dwh", "default_schema": None}),
        ({"embedding_profile": "qwen3"}, {"embedding_profile": "qwen3"}),
        ({"four_eyes": True}, {"four_eyes": True}),
        ({"title": None, "four_eyes": True}, {"four_eyes": True}),
    ],
)
def test_what_is_named_changes_and_the_rest_stays(
    services: Services, workspace: Workspace, changes: dict[str, Any], becomes: dict[str, Any]
) -> None:
    done = set_workspace(services, workspace.slug, WorkspaceChanges(**changes))
    assert done.workspace == workspace.model_copy(update=becomes)
    assert done.changed
    assert show_workspace(services, workspace.slug) == done.workspace


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({}, BadInput),
        ({"title": " "}, BadWorkspace),
        ({"default_schema": ""}, BadWorkspace),
        ({"language": "xx"}, UnknownLanguage),
        ({"embedding_profile": "none"}, UnknownProfile),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_changes(
    services: Services, workspace: Workspace, changes: dict[str, Any], error: type[MemoryPipelineError]
) -> None:
    with pytest.raises(error):
        set_workspace(services, workspace.slug, WorkspaceChanges(**changes))
    assert show_workspace(services, workspace.slug) == workspace


def test_every_state_is_kept_with_who_made_it(services: Services, workspace: Workspace) -> None:
    set_workspace(services, workspace.slug, WorkspaceChanges(four_eyes=True))
    set_workspace(services, workspace.slug, WorkspaceChanges(four_eyes=True))
    retire_workspace(services, workspace.slug)
    kept = rows(services, workspace.slug, HISTORY)
    assert [(settings["four_eyes"], settings["status"]) for settings, _ in kept] == [
        (False, "active"),
        (True, "active"),
        (True, "retired"),
    ]
    assert {who for _, who in kept} == {"memory_owner"}


def test_a_change_of_language_leaves_the_index_serving_and_makes_a_rebuild_due(
    services: Services, workspace: Workspace
) -> None:
    promote(services, workspace.slug, [ABLATION])
    index(services, workspace.slug)
    assert not set_workspace(services, workspace.slug, WorkspaceChanges(title="x")).rebuild_due
    assert set_workspace(services, workspace.slug, WorkspaceChanges(language="en")).rebuild_due
    assert found(ask(services, workspace.slug, "ablazione")) == ["mem-0001"]
    assert not set_workspace(services, workspace.slug, WorkspaceChanges(language="it")).rebuild_due


def test_another_default_schema_changes_what_a_preview_showed(services: Services, workspace: Workspace) -> None:
    tell(services, workspace.slug, concept("a", dependencies=[{"database": "cardio", "table": "t"}]))
    shown = offer(services, workspace.slug)
    set_workspace(services, workspace.slug, WorkspaceChanges(default_schema="dwh"))
    with pytest.raises(CandidateChanged, match="card"):
        settle(services, workspace.slug, shown, select=(1,))


def test_a_retired_workspace_keeps_its_rows_answers_by_name_and_comes_back_as_it_was(
    services: Services, workspace: Workspace
) -> None:
    promote(services, workspace.slug, [ABLATION])
    index(services, workspace.slug)
    tell(services, workspace.slug, concept("b"))
    shown = offer(services, workspace.slug)
    drop(services, workspace.slug, line(seq=1), session="s2")

    done = retire_workspace(services, workspace.slug)
    assert (done.changed, done.workspace.status) == (True, WorkspaceStatus.RETIRED)
    assert not retire_workspace(services, workspace.slug).changed
    refused: list[Callable[[], object]] = [
        lambda: ask(services, workspace.slug, "ablazione"),
        lambda: offer(services, workspace.slug),
        lambda: settle(services, workspace.slug, shown, select=(2,)),
        lambda: tell(services, workspace.slug, concept("c")),
        lambda: offer(services, workspace.slug, "s2"),
        lambda: index(services, workspace.slug),
    ]
    for call in refused:
        with pytest.raises(WorkspaceRetired):
            call()
    assert len(show_ledger(services, workspace.slug, "s1").rows) == 3
    assert set_workspace(services, workspace.slug, WorkspaceChanges(title="vecchio")).workspace.status == "retired"

    assert restore_workspace(services, workspace.slug).workspace.status is WorkspaceStatus.ACTIVE
    assert not restore_workspace(services, workspace.slug).changed
    assert found(ask(services, workspace.slug, "ablazione")) == ["mem-0001"]
    assert offer(services, workspace.slug, "s2").pending == 1
    assert settle(services, workspace.slug, shown, select=(2,)).pending == 0


def test_a_workspace_that_is_not_there_is_named(services: Services) -> None:
    nobody = f"t-{uuid.uuid4().hex[:12]}"
    calls: list[Callable[[], object]] = [
        lambda: set_workspace(services, nobody, WorkspaceChanges(title="x")),
        lambda: retire_workspace(services, nobody),
        lambda: restore_workspace(services, nobody),
    ]
    for call in calls:
        with pytest.raises(UnknownWorkspace):
            call()
