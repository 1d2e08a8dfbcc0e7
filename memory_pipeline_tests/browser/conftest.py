"""The control room as a person sees it: the real webserver and daemon over a stack of their own, and a real browser."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from memory_pipeline.core.workspace import Workspace
from memory_pipeline.embedded.stack import EmbeddedStack
from memory_pipeline.harness.setup import start
from memory_pipeline.operations.services import Services
from memory_pipeline.operations.workspaces import create_workspace
from memory_pipeline.settings import Settings
from memory_pipeline_tests.flows import ABLATION, READMISSION, closed_port, promote

sync_api = pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright, from the extra dev")

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
CONCEPTS = {"cardiologia": ABLATION, "pronto-soccorso": READMISSION}
"""What each workspace promoted."""

_STARTS_WITHIN = 180.0  # seconds, on a busy machine
_A_STEP = 120_000  # milliseconds; what a run needs on a busy machine


@dataclass(frozen=True)
class Room:
    """A control room that answers at `url`, and the same stack for looking behind it."""

    url: str
    services: Services

    def ask(self, query: str, **variables: object) -> dict[str, Any]:
        """An answer of its GraphQL."""
        told = httpx.post(f"{self.url}/graphql", json={"query": query, "variables": variables}, timeout=60).json()
        assert "errors" not in told, told
        answer: dict[str, Any] = told["data"]
        return answer

    def stop_sensors(self) -> None:
        """Stop every sensor, as its switch in the UI does."""
        found = self.ask(
            """
            { sensorsOrError(repositorySelector: {
                repositoryName: "__repository__", repositoryLocationName: "memory_pipeline"
            }) { ... on Sensors { results { name sensorState { id } } } } }
            """
        )["sensorsOrError"]["results"]
        for sensor in found:
            state = self.ask(
                "mutation ($id: String!) { stopSensor(id: $id) "
                "{ ... on StopSensorMutationResult { instigationState { status } } } }",
                id=sensor["sensorState"]["id"],
            )["stopSensor"]["instigationState"]
            assert state["status"] == "STOPPED", sensor["name"]


@pytest.fixture(scope="session")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    """Two workspaces with a memory each under `memory-pipeline dev`. Its sensors are stopped: a person does it all."""
    if CHROMIUM is None:
        pytest.skip("NOT TESTED IN A BROWSER: there is no Chromium here (Debian: apt-get install chromium)")
    state = tmp_path_factory.mktemp("room") / "state"
    stack = EmbeddedStack(state)
    try:
        settings = start(Settings(state=state), lambda _: None)
        with Services(settings) as services:
            for slug, concept in CONCEPTS.items():
                create_workspace(services, Workspace(slug=slug, title=slug, language="it", default_database="cardio"))
                promote(services, slug, [concept])
            with _serving(state) as url:
                opened = Room(url, services)
                opened.stop_sensors()
                yield opened
    finally:
        stack.down(purge=True, say=lambda _: None)


@pytest.fixture
def page(room: Room) -> Iterator[sync_api.Page]:
    """A tab of its own."""
    with sync_api.sync_playwright() as playwright:
        # Chromium's own sandbox refuses root, which is what CI is.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = browser.new_page(base_url=room.url, viewport={"width": 1500, "height": 950})
        tab.set_default_timeout(_A_STEP)
        sync_api.expect.set_options(timeout=_A_STEP)
        yield tab
        browser.close()


@contextlib.contextmanager
def _serving(state: Path) -> Iterator[str]:
    """`memory-pipeline dev` on a free port, until its assets and partitions can be seen."""
    port = closed_port()
    with (state.parent / "dev.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "memory_pipeline", "dev", "--port", str(port)],
            env={**os.environ, "MEMORY_STATE": str(state)},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_for_partitions(url, process)
        yield url
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)


def _wait_for_partitions(url: str, process: subprocess.Popen[bytes]) -> None:
    """Until the sensor has given every workspace its partition."""
    query = '{ assetNodeOrError(assetKey: {path: ["memory_collection"]}) { ... on AssetNode { partitionKeys } } }'
    deadline = time.monotonic() + _STARTS_WITHIN
    while time.monotonic() < deadline and process.poll() is None:
        try:
            data = httpx.post(f"{url}/graphql", json={"query": query}, timeout=10).json()["data"]
        except (httpx.HTTPError, ValueError, KeyError):
            data = None
        if data and set(data["assetNodeOrError"].get("partitionKeys", ())) >= CONCEPTS.keys():
            return
        time.sleep(0.5)
    raise AssertionError(f"the control room did not open; the command ended with {process.poll()}")
