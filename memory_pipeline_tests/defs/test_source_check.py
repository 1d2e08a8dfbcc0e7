"""The check on what stands behind the cards, as Dagster runs it."""

from __future__ import annotations

import dagster as dg

from memory_pipeline.core.workspace import Workspace
from memory_pipeline.defs.assets.registry import memory_cards
from memory_pipeline.defs.checks import sources_still_effective
from memory_pipeline.defs.partitions import WORKSPACE
from memory_pipeline.operations.services import Services
from memory_pipeline.operations.workspaces import retire_workspace
from memory_pipeline_tests.defs.conftest import Materialize, values
from memory_pipeline_tests.flows import ABLATION, MORTALITY, promote
from memory_pipeline_tests.operations.sessions import rolled_back, tell


def _check(instance: dg.DagsterInstance, services: Services, workspace: str) -> dg.AssetCheckEvaluation:
    instance.add_dynamic_partitions(str(WORKSPACE.name), [workspace])
    key = dg.AssetCheckKey(memory_cards.key, "sources_still_effective")
    outcome = dg.materialize(
        [memory_cards, sources_still_effective],
        instance=instance,
        tags={"dagster/partition": workspace},
        resources={"services": services},
        selection=dg.AssetSelection.checks(key),
    )
    (evaluation,) = outcome.get_asset_check_evaluations()
    return evaluation


def test_it_passes_while_every_decision_counts(
    services: Services, workspace: Workspace, instance: dg.DagsterInstance
) -> None:
    promote(services, workspace.slug, [ABLATION])
    evaluation = _check(instance, services, workspace.slug)
    assert evaluation.passed
    assert values(evaluation.metadata)["lapsed"] == []


def test_it_warns_of_a_card_whose_session_was_rolled_back_and_fails_no_run(
    services: Services, workspace: Workspace, instance: dg.DagsterInstance, materialize: Materialize
) -> None:
    promote(services, workspace.slug, [ABLATION], session="s1")
    promote(services, workspace.slug, [MORTALITY], session="s2")
    tell(services, workspace.slug, rolled_back("F1"), session="s1")

    evaluation = _check(instance, services, workspace.slug)

    assert (evaluation.passed, evaluation.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert "mem-0001" in (evaluation.description or "")
    told = values(evaluation.metadata)
    assert (told["cards_without_effective_source"], told["cards_with_some_lapsed_source"]) == (1, 0)
    assert told["lapsed"] == [
        {
            "card": "mem-0001",
            "subject": "ablazione",
            "session": "s1",
            "seq": 1,
            "status": "stale",
            "other sources": 0,
        }
    ]
    run = materialize(workspace.slug)
    assert run.checks_passed
    assert dict(run.rows)["memory_cards: sources_still_effective"].startswith("warns: ")


def test_a_retired_workspace_passes_with_a_note(
    services: Services, workspace: Workspace, instance: dg.DagsterInstance
) -> None:
    promote(services, workspace.slug, [ABLATION])
    tell(services, workspace.slug, rolled_back("F1"))
    retire_workspace(services, workspace.slug)
    evaluation = _check(instance, services, workspace.slug)
    assert evaluation.passed
    assert values(evaluation.metadata) == {"status": "retired"}
