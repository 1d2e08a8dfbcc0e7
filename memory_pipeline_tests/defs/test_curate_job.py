"""The job that changes cards, executed in process on the real stack."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest

from memory_pipeline.core.errors import (
    BadCard,
    BadInput,
    BadReference,
    CurateFromUiDisabled,
    MemoryPipelineError,
    SelfLink,
    StaleRevision,
    UnknownCard,
    UnknownWorkspace,
)
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.defs.jobs import UI_DECIDE
from memory_pipeline.operations.cards import show_card
from memory_pipeline.operations.propagate import drain
from memory_pipeline.operations.services import Services
from memory_pipeline.settings import Settings
from memory_pipeline_tests.defs.conftest import RunJob
from memory_pipeline_tests.flows import ABLATION, READMISSION, ask, found, promote

DIALYSIS = {"subject": "dialisi", "detail": "seduta di emodialisi ambulatoriale"}


def refused(run: Any, error: type[MemoryPipelineError]) -> None:
    with pytest.raises(dg.Failure) as raised:
        run()
    assert isinstance(raised.value.__cause__, error)


def test_every_action_changes_the_card_and_the_index_follows(
    services: Services, workspace: Workspace, run_job: RunJob
) -> None:
    promote(services, workspace.slug, [ABLATION, READMISSION])
    drain(services, workspace.slug)
    link = {"relation": "requires", "target": "mem-0002"}

    for revision, config in enumerate(
        [
            {"action": "edit", "fields": DIALYSIS},
            {"action": "link", **link},
            {"action": "unlink", **link},
            {"action": "set-kind", "kind": "exemplar", "type": "solved_question"},
            {"action": "delete"},
        ],
        start=1,
    ):
        answer = run_job("curate_job", "curate", workspace=workspace.slug, card="mem-0001", revision=revision, **config)
        assert (answer["curated"]["action"], answer["curated"]["changed"]) == (config["action"], True)
        assert answer["curated"]["card"]["revision"] == revision + 1
        assert answer["propagation"]["pending"] == 0
        if config["action"] == "edit":
            assert found(ask(services, workspace.slug, "emodialisi"))[0] == "mem-0001"

    added = run_job("curate_job", "curate", workspace=workspace.slug, action="add", fields=DIALYSIS)
    assert added["curated"]["card"]["id"] == "mem-0003"
    assert found(ask(services, workspace.slug, "emodialisi"))[0] == "mem-0003"


def test_the_ui_changes_cards_only_where_that_door_is_open(
    settings: Settings, workspace: Workspace, run_job: RunJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"workspace": workspace.slug, "action": "add", "fields": DIALYSIS}
    with Services(settings, via="dagster") as from_ui:
        for value in (None, "", "0", "true"):
            monkeypatch.delenv(UI_DECIDE, raising=False) if value is None else monkeypatch.setenv(UI_DECIDE, value)
            refused(lambda: run_job("curate_job", "curate", using=from_ui, **config), CurateFromUiDisabled)

        monkeypatch.setenv(UI_DECIDE, "1")
        assert run_job("curate_job", "curate", using=from_ui, **config)["curated"]["card"]["id"] == "mem-0001"

        (made,) = show_card(from_ui, workspace.slug, "mem-0001", history=True).history or ()
    assert made.via == "dagster"


@pytest.mark.parametrize(
    ("config", "error"),
    [
        ({"action": "burn"}, BadInput),
        ({"action": "delete"}, BadInput),
        ({"action": "delete", "card": "mem-0001"}, BadInput),
        ({"action": "delete", "card": "mem-0009", "revision": 1}, UnknownCard),
        ({"action": "delete", "card": "mem-0001", "revision": 7}, StaleRevision),
        ({"action": "edit", "card": "mem-0001", "revision": 1, "fields": {"links": []}}, BadCard),
        ({"action": "set-kind", "card": "mem-0001", "revision": 1}, BadInput),
        ({"action": "set-kind", "card": "mem-0001", "revision": 1, "kind": "x"}, BadInput),
        ({"action": "link", "card": "mem-0001", "revision": 1, "relation": "requires"}, BadInput),
        ({"action": "link", "card": "mem-0001", "revision": 1, "target": "mem-0001"}, BadInput),
        (
            {"action": "link", "card": "mem-0001", "revision": 1, "relation": "requires", "target": "mem-0001"},
            SelfLink,
        ),
        ({"action": "link", "card": "mem-0001", "revision": 1, "relation": "requires", "target": "x"}, BadReference),
        ({"action": "add", "fields": DIALYSIS, "workspace": "t-never-made"}, UnknownWorkspace),
    ],
)
def test_a_change_that_cannot_be_fails_by_name(
    services: Services, workspace: Workspace, run_job: RunJob, config: dict[str, Any], error: type[MemoryPipelineError]
) -> None:
    promote(services, workspace.slug, [ABLATION])

    refused(lambda: run_job("curate_job", "curate", **{"workspace": workspace.slug, **config}), error)

    assert show_card(services, workspace.slug, "mem-0001").card.revision == 1
