"""The asset that measures recall, and its check: figures that plot, and a fall that is seen."""

from __future__ import annotations

import dagster as dg
import pytest

from memory_pipeline.core.curation import CardFields
from memory_pipeline.core.dependencies import Dependency
from memory_pipeline.core.projection import point_id
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.definitions import defs
from memory_pipeline.defs.jobs import evaluate_job
from memory_pipeline.operations.curate import add_cards
from memory_pipeline.operations.generation import ensure_generation
from memory_pipeline.operations.golden import GoldenQuestion, add_golden
from memory_pipeline.operations.propagate import drain
from memory_pipeline.operations.services import Services
from memory_pipeline.operations.workspaces import retire_workspace
from memory_pipeline_tests.conftest import MakeWorkspace
from memory_pipeline_tests.defs.conftest import QUIET, metadata
from memory_pipeline_tests.flows import ABLATION, MORTALITY, READMISSION


def measure(services: Services, instance: dg.DagsterInstance, workspace: str) -> dg.AssetCheckEvaluation:
    """One run of the job; returns what its check came to."""
    instance.add_dynamic_partitions("workspace", [workspace])
    outcome = defs.resolve_job_def(evaluate_job.name).execute_in_process(
        instance=instance, partition_key=workspace, run_config=QUIET, resources={"services": services}
    )
    (check,) = outcome.get_asset_check_evaluations()
    return check


def test_a_fall_is_measured_shown_and_warned_of(
    services: Services, instance: dg.DagsterInstance, workspace: Workspace
) -> None:
    slug = workspace.slug
    add_cards(services, slug, [CardFields(**card) for card in (ABLATION, READMISSION, MORTALITY)])
    drain(services, slug, hurry=True)
    golden = GoldenQuestion(question="Chi ha un nuovo ricovero entro 30 giorni?", expected=("mem-0002",))
    add_golden(services, slug, [golden], Dependency(database="cardio", schema_="public"))

    assert measure(services, instance, slug).passed
    shown = metadata(instance, "retrieval_quality")
    assert [shown[name] for name in ("self_recall", "ndcg_at_10", "mrr", "cards")] == [1.0, 1.0, 1.0, 3]
    assert (shown["lost"], shown["missed"]) == ([], [])

    services.index.delete(ensure_generation(services, slug).collection, [point_id("mem-0002")])
    fallen = measure(services, instance, slug)

    assert not fallen.passed
    assert fallen.severity is dg.AssetCheckSeverity.WARN
    assert "self-recall fell from 1.000 to 0.667" in (fallen.description or "")
    shown = metadata(instance, "retrieval_quality")
    assert shown["lost"] == [{"card": "mem-0002"}]
    assert shown["missed"] == [{"golden question": golden.question, "card": "mem-0002", "rank": 0}]
    assert [row["recall_at_5"] for row in shown["preview"]] == [0.0, 1.0]


@pytest.mark.parametrize("retired", [False, True])
def test_a_workspace_without_cards_or_out_of_use_is_passed_over(
    retired: bool, services: Services, instance: dg.DagsterInstance, make_workspace: MakeWorkspace
) -> None:
    slug = make_workspace().slug
    if retired:
        retire_workspace(services, slug)

    assert measure(services, instance, slug).passed
    assert metadata(instance, "retrieval_quality")["status"] == ("retired" if retired else "nothing to do")
