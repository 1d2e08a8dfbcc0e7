"""What ops do in the UI, done in the UI: launched, looked at, broken and mended.

The tests follow one another in one control room, as a person's day would.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

import pytest

from memory_pipeline.core.projection import point_id
from memory_pipeline.store import generations
from memory_pipeline.store.database import Role
from memory_pipeline_tests.browser.conftest import CONCEPTS, Room
from memory_pipeline_tests.flows import ask, found

sync_api = pytest.importorskip("playwright.sync_api")
expect = sync_api.expect

pytestmark = pytest.mark.embedded

FIRST, SECOND = CONCEPTS
GRAPH = "/locations/memory_pipeline/asset-groups/index"
CHECK = "/assets/memory_collection?view=checks&checkDetail=index_matches_registry"


def _keep(page: sync_api.Page, name: str) -> None:
    """Keep what is seen, where the environment names a folder for it."""
    if folder := os.environ.get("MEMORY_SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"{name}.png")


def _launch(page: sync_api.Page, job: str, workspace: str) -> None:
    """Run a job for one partition from the launchpad, and see it succeed."""
    page.goto(f"/locations/memory_pipeline/jobs/{job}/playground")
    option = page.get_by_text(workspace, exact=True).last
    for _ in range(40):  # a click that comes before the partitions are loaded opens nothing
        page.get_by_placeholder("Partition").click()
        with contextlib.suppress(sync_api.TimeoutError):
            option.wait_for(timeout=3000)
            break
        page.keyboard.press("Escape")
    option.click()
    page.get_by_role("button", name="Launch Run").click()
    page.wait_for_url("**/runs/*")
    expect(page.get_by_text("Success", exact=True).first).to_be_visible()


def test_a_run_launched_from_the_launchpad_makes_a_memory_findable(room: Room, page: sync_api.Page) -> None:
    _launch(page, "index_job", FIRST)
    _keep(page, "run")

    assert found(ask(room.services, FIRST, CONCEPTS[FIRST]["detail"], place=None)) == ["mem-0001"]


def test_a_backfill_of_two_workspaces_materialises_both(room: Room, page: sync_api.Page) -> None:
    page.goto("/assets/memory_collection?view=partitions")
    page.get_by_role("button", name=re.compile("Materialize")).first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="All", exact=True).click()
    expect(dialog.get_by_text("2 partitions")).to_be_visible()
    dialog.get_by_role("button", name=re.compile("Launch")).click()
    expect(dialog).to_be_hidden()
    page.goto("/runs?view=backfills")
    expect(page.get_by_text("Success", exact=True).first).to_be_visible()
    _keep(page, "backfill")

    page.goto("/assets/memory_collection?view=partitions")
    expect(page.get_by_text(f"Materialized ({len(CONCEPTS)})")).to_be_visible()
    expect(page.get_by_text("Missing (0)")).to_be_visible()
    _keep(page, "partitions")


def test_the_graph_shows_every_asset_with_its_partitions_and_checks(page: sync_api.Page) -> None:
    page.goto("/asset-groups?asset-selection=*")
    for group in ("ledger", "registry", "index"):
        expect(page.get_by_text(group, exact=True).first).to_be_visible()
    page.goto(GRAPH)
    expect(page.get_by_text("memory_collection", exact=True).first).to_be_visible()
    expect(page.get_by_text(re.compile(r"\d+ / \d+ Passed")).first).to_be_visible()
    expect(page.get_by_text("100% filled").first).to_be_visible()
    _keep(page, "graph")


def test_an_asset_tells_what_it_is_and_plots_its_figures(page: sync_api.Page) -> None:
    page.goto("/assets/memory_collection")
    expect(page.get_by_text("one point per active card").first).to_be_visible()
    expect(page.get_by_text("collection", exact=True).first).to_be_visible()
    _keep(page, "asset")
    page.get_by_role("button", name="Plots").click()
    plot = page.locator("canvas").first
    plot.scroll_into_view_if_needed()
    expect(plot).to_be_visible()
    _keep(page, "plots")


def test_a_point_lost_behind_the_back_fails_the_check_and_a_run_mends_it(room: Room, page: sync_api.Page) -> None:
    with room.services.database.transaction(Role.READER, FIRST) as tx:
        serving = generations.serving(tx, FIRST)
    assert serving is not None
    room.services.index.delete(serving.collection, [point_id("mem-0001")])

    # The check's own button is off, for Dagster runs no check of a single partition from there.
    _launch(page, "consistency_job", FIRST)
    page.goto(CHECK)
    expect(page.get_by_text("0 points on the server for 1 active card")).to_be_visible()
    _keep(page, "check-failed")

    _launch(page, "index_job", FIRST)
    page.goto(CHECK)
    expect(page.get_by_text("1 card, 1 point")).to_be_visible()
    assert found(ask(room.services, FIRST, CONCEPTS[FIRST]["detail"], place=None)) == ["mem-0001"]
