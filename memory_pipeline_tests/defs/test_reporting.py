"""What happens outside a run is on the graph, and Dagster's own stale marks are right."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest

from memory_pipeline.core.workspace import Workspace
from memory_pipeline.defs.reporting import report_quietly, report_workspace
from memory_pipeline.operations.index import index
from memory_pipeline.operations.ledger import append
from memory_pipeline.operations.propagate import drain
from memory_pipeline.operations.services import Services
from memory_pipeline.operations.workspaces import restore_workspace, retire_workspace
from memory_pipeline_tests.defs.conftest import Materialize, data_version, metadata
from memory_pipeline_tests.defs.staleness import statuses
from memory_pipeline_tests.flows import (
    ABLATION,
    MORTALITY,
    READMISSION,
    closed_port,
    line,
    promote,
    revise,
    with_settings,
)

MEASURED = ("session_ledger", "effective_ledger", "session_memories", "memory_cards")
DERIVED = ("dense_embeddings", "sparse_embeddings", "memory_collection")


def test_a_workspace_that_no_run_ever_touched_is_shown_whole(
    services: Services, workspace: Workspace, instance: dg.DagsterInstance
) -> None:
    slug = workspace.slug
    promote(services, slug, [ABLATION])
    assert report_workspace(instance, services, slug).assets == MEASURED
    assert statuses(instance, slug) == dict.fromkeys(DERIVED, "missing")

    drain(services, slug)

    assert report_workspace(instance, services, slug).assets == DERIVED
    assert statuses(instance, slug) == {}
    assert report_workspace(instance, services, slug).assets == ()
    told = metadata(instance, "memory_collection")
    assert (told["status"], told["points"], told["pending"], told["lag_seconds"]) == ("reported", 1, 0, 0.0)
    assert instance.get_runs() == []


def test_a_run_and_a_report_say_the_same(
    services: Services, workspace: Workspace, instance: dg.DagsterInstance, materialize: Materialize
) -> None:
    slug = workspace.slug
    promote(services, slug, [ABLATION, READMISSION])
    materialize(slug)
    assert report_workspace(instance, services, slug).assets == ()
    assert statuses(instance, slug) == {}

    revise(services, slug, "mem-0001", detail="ablazione con radiofrequenza")

    assert report_workspace(instance, services, slug).assets == ("memory_cards",)
    # Dagster judges an asset by its direct inputs: what rests on those two is stale once they have moved
    assert statuses(instance, slug) == dict.fromkeys(DERIVED[:2], "stale")
    drain(services, slug)
    assert report_workspace(instance, services, slug).assets == DERIVED
    assert statuses(instance, slug) == {}
    reported = {asset: data_version(instance, asset) for asset in (*MEASURED, *DERIVED)}
    materialize(slug)
    assert {asset: data_version(instance, asset) for asset in (*MEASURED, *DERIVED)} == reported
    assert statuses(instance, slug) == {}


def test_a_line_that_changes_no_card_makes_nothing_stale(
    services: Services, workspace: Workspace, instance: dg.DagsterInstance, materialize: Materialize
) -> None:
    slug = workspace.slug
    promote(services, slug, [ABLATION])
    materialize(slug)

    append(services, slug, "s1", [line("table_excluded", subject="fact_log")])

    # the cards are told again, for they were measured against the ledger as it is now
    assert set(report_workspace(instance, services, slug).assets) == set(MEASURED)
    assert statuses(instance, slug) == {}


def test_a_retired_workspace_is_shown_as_retired_and_comes_back(
    services: Services, workspace: Workspace, instance: dg.DagsterInstance, materialize: Materialize
) -> None:
    slug = workspace.slug
    promote(services, slug, [ABLATION])
    materialize(slug)
    before = data_version(instance, "memory_collection")

    retire_workspace(services, slug)

    assert report_workspace(instance, services, slug).assets == (*MEASURED, *DERIVED)
    assert {metadata(instance, asset)["status"] for asset in (*MEASURED, *DERIVED)} == {"retired"}
    assert statuses(instance, slug) == {}
    restore_workspace(services, slug)
    assert report_workspace(instance, services, slug).assets == (*MEASURED, *DERIVED)
    assert data_version(instance, "memory_collection") == before
    assert statuses(instance, slug) == {}


def test_without_the_index_only_the_registry_is_reported(
    services: Services, workspace: Workspace, instance: dg.DagsterInstance
) -> None:
    promote(services, workspace.slug, [MORTALITY])
    index(services, workspace.slug)
    with with_settings(services, qdrant_url=f"http://127.0.0.1:{closed_port()}") as without_index:
        reported = report_workspace(instance, without_index, workspace.slug)

    assert reported.assets == MEASURED
    assert (reported.problem or "").startswith("IndexUnavailable")
    assert report_workspace(instance, services, workspace.slug).assets == DERIVED


def test_an_event_log_that_fails_is_told_and_raises_nothing(
    services: Services, workspace: Workspace, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("the event log is gone")

    monkeypatch.setattr(instance, "report_runless_asset_event", broken)

    assert report_quietly(instance, services, workspace.slug).problem == "RuntimeError"
