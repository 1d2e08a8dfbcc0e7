"""The jobs, executed in process on the real stack."""

from __future__ import annotations

import uuid
from typing import Any

import dagster as dg
import pytest

from memory_pipeline.core.errors import (
    BadInput,
    BadQuestion,
    DecideFromUiDisabled,
    FilterNotAllowed,
    MemoryPipelineError,
    UnknownPreview,
    UnknownSession,
    UnknownWorkspace,
)
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.defs.jobs import UI_DECIDE
from memory_pipeline.operations.index import index
from memory_pipeline.operations.ledger import append
from memory_pipeline.operations.preview import preview
from memory_pipeline.operations.services import Services
from memory_pipeline.settings import Settings
from memory_pipeline.store.database import Role
from memory_pipeline_tests.defs.conftest import RunJob, values
from memory_pipeline_tests.defs.staleness import statuses
from memory_pipeline_tests.flows import ABLATION, READMISSION, ask, closed_port, found, line, promote, with_settings


@pytest.fixture
def from_ui(settings: Settings) -> Any:
    """The collaborators as the UI's runs have them."""
    with Services(settings, via="dagster") as services:
        yield services


def _offered(services: Services, workspace: str) -> str:
    append(services, workspace, "s1", [line(**ABLATION), line(**READMISSION)])
    return str(preview(services, workspace, "s1").preview_id)


def _refused(run: Any, error: type[MemoryPipelineError]) -> MemoryPipelineError:
    with pytest.raises(dg.Failure) as raised:
        run()
    assert isinstance(raised.value.__cause__, error)
    return raised.value.__cause__


def test_a_search_answers_with_the_memory(services: Services, workspace: Workspace, run_job: RunJob) -> None:
    promote(services, workspace.slug, [ABLATION, READMISSION])
    index(services, workspace.slug)

    answer = run_job(
        "search_job",
        "search",
        workspace=workspace.slug,
        question="Quante ablazioni nel 2023?",
        database="cardio",
        schema="public",
        filters={"table": "fact_procedure"},
        limit=1,
    )

    assert [proposal["card"]["id"] for proposal in answer["proposals"]] == ["mem-0001"]
    assert answer["proposals"][0]["sources"] == ["s1:seq:1"]


def test_a_search_leaves_nothing_but_its_run(
    services: Services, workspace: Workspace, run_job: RunJob, instance: dg.DagsterInstance
) -> None:
    promote(services, workspace.slug, [ABLATION])
    index(services, workspace.slug)

    run_job("search_job", "search", workspace=workspace.slug, question="Quante ablazioni?")

    (run,) = instance.get_runs()
    logs = instance.all_logs(run.run_id)
    assert logs
    assert "transcatetere" not in repr(logs)
    assert not [entry for entry in logs if entry.dagster_event and entry.dagster_event.is_step_materialization]
    assert instance.all_asset_keys() == []


def test_a_search_shows_its_answer_where_that_is_asked_for(
    services: Services, workspace: Workspace, run_job: RunJob, instance: dg.DagsterInstance
) -> None:
    promote(services, workspace.slug, [ABLATION])
    index(services, workspace.slug)

    run_job("search_job", "search", workspace=workspace.slug, question="Quante ablazioni?", show_answer=True)

    (run,) = instance.get_runs()
    events = [entry.dagster_event for entry in instance.all_logs(run.run_id) if entry.dagster_event]
    (output,) = [event for event in events if event.is_successful_output]
    (row,) = values(output.step_output_data.metadata)["proposals"]
    assert (row["rank"], row["card"], row["subject"]) == (1, "mem-0001", "ablazione")


@pytest.mark.parametrize(
    ("config", "error"),
    [
        ({"question": "  "}, BadQuestion),
        ({"question": "x" * 100_000}, BadQuestion),
        ({"question": "q", "schema": "public"}, BadInput),
        ({"question": "q", "filters": {"workspace": "other"}}, FilterNotAllowed),
        ({"question": "q", "filters": {"colour": "red"}}, BadInput),
        ({"question": "q", "limit": 0}, BadInput),
        ({"question": "q", "on_embedder_down": "shrug"}, BadInput),
        ({"question": "q", "workspace": "t-never-made"}, UnknownWorkspace),
    ],
)
def test_a_search_that_cannot_be_answered_fails_by_name(
    workspace: Workspace, run_job: RunJob, config: dict[str, Any], error: type[MemoryPipelineError]
) -> None:
    _refused(lambda: run_job("search_job", "search", **{"workspace": workspace.slug, **config}), error)


def test_a_search_can_do_without_its_embedder(services: Services, workspace: Workspace, run_job: RunJob) -> None:
    promote(services, workspace.slug, [ABLATION])
    index(services, workspace.slug)

    with with_settings(services, ollama_url=f"http://127.0.0.1:{closed_port()}") as without_embedder:
        answer = run_job(
            "search_job",
            "search",
            using=without_embedder,
            workspace=workspace.slug,
            question="ablazione",
            on_embedder_down="lexical",
        )

    assert [proposal["card"]["id"] for proposal in answer["proposals"]] == ["mem-0001"]
    assert answer["degraded"]


def test_a_session_is_previewed(services: Services, workspace: Workspace, run_job: RunJob) -> None:
    append(services, workspace.slug, "s1", [line(**ABLATION), line(**READMISSION)])

    answer = run_job("promote_job", "promote", workspace=workspace.slug, session="s1", limit=1)

    assert uuid.UUID(answer["preview_id"])
    assert (answer["pending"], answer["remaining"]) == (2, 1)
    assert [offer["candidate"]["seq"] for offer in answer["candidates"]] == [1]


def test_the_ui_decides_only_where_that_door_is_open(
    services: Services, from_ui: Services, workspace: Workspace, run_job: RunJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    preview_id = _offered(services, workspace.slug)
    config = {"workspace": workspace.slug, "preview_id": preview_id, "selected": [1], "declined": [2]}
    for value in (None, "", "0", "true"):
        monkeypatch.delenv(UI_DECIDE, raising=False) if value is None else monkeypatch.setenv(UI_DECIDE, value)
        _refused(lambda: run_job("promote_job", "promote", using=from_ui, **config), DecideFromUiDisabled)
    with services.database.transaction(Role.READER, workspace.slug) as tx:
        assert tx.execute("SELECT FROM cards").fetchall() == []

    monkeypatch.setenv(UI_DECIDE, "1")
    answer = run_job("promote_job", "promote", using=from_ui, **config)

    assert [(verdict["seq"], verdict["outcome"]) for verdict in answer["decision"]["verdicts"]] == [
        (1, "created"),
        (2, "declined"),
    ]
    assert answer["propagation"]["upserted"] == 1
    with services.database.transaction(Role.READER, workspace.slug) as tx:
        (row,) = tx.execute("SELECT via FROM card_sources").fetchall()
    assert row["via"] == "dagster"
    assert found(ask(services, workspace.slug, "ablazione")) == ["mem-0001"]


def test_a_decision_stands_where_the_index_cannot_follow(
    services: Services, workspace: Workspace, run_job: RunJob
) -> None:
    preview_id = _offered(services, workspace.slug)

    with with_settings(services, qdrant_url=f"http://127.0.0.1:{closed_port()}") as without_index:
        answer = run_job(
            "promote_job",
            "promote",
            using=without_index,
            workspace=workspace.slug,
            preview_id=preview_id,
            selected=[1, 2],
        )

    assert [verdict["card_id"] for verdict in answer["decision"]["verdicts"]] == ["mem-0001", "mem-0002"]
    assert answer["propagation"]["problem"]
    with services.database.transaction(Role.READER, workspace.slug) as tx:
        assert len(tx.execute("SELECT FROM cards").fetchall()) == 2


def test_what_was_decided_is_on_the_graph_when_the_job_ends(
    services: Services, workspace: Workspace, run_job: RunJob, instance: dg.DagsterInstance
) -> None:
    instance.add_dynamic_partitions("workspace", [workspace.slug])
    preview_id = _offered(services, workspace.slug)

    run_job("promote_job", "promote", workspace=workspace.slug, preview_id=preview_id, selected=[1], declined=[2])

    assert statuses(instance, workspace.slug) == {}


def test_an_event_log_that_is_broken_takes_no_decision_back(
    services: Services,
    workspace: Workspace,
    run_job: RunJob,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    preview_id = _offered(services, workspace.slug)

    def broken(*_: Any, **__: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(instance, "report_runless_asset_event", broken)
    answer = run_job(
        "promote_job", "promote", workspace=workspace.slug, preview_id=preview_id, selected=[1], declined=[2]
    )

    assert answer["propagation"]["upserted"] == 1
    assert found(ask(services, workspace.slug, "ablazione")) == ["mem-0001"]
    (run,) = instance.get_runs()
    assert run.status is dg.DagsterRunStatus.SUCCESS
    told = [entry.user_message for entry in instance.all_logs(run.run_id)]
    assert any("the graph does not show this yet" in message for message in told)


@pytest.mark.parametrize(
    ("config", "error"),
    [
        ({}, BadInput),
        ({"session": "s1", "preview_id": str(uuid.uuid4()), "selected": [1]}, BadInput),
        ({"session": "s-never-opened"}, UnknownSession),
        ({"preview_id": "not an id", "selected": [1]}, BadInput),
        ({"preview_id": str(uuid.uuid4()), "selected": [1]}, UnknownPreview),
        ({"preview_id": str(uuid.uuid4())}, BadInput),
    ],
)
def test_a_promotion_that_cannot_be_fails_by_name(
    workspace: Workspace, run_job: RunJob, config: dict[str, Any], error: type[MemoryPipelineError]
) -> None:
    _refused(lambda: run_job("promote_job", "promote", workspace=workspace.slug, **config), error)
