"""A writer that was thought dead and goes on: it has lost its turn, and what it read is old."""

from __future__ import annotations

import pytest

from memory_pipeline.core.curation import CardFields
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.embedded.stack import EmbeddedStack
from memory_pipeline.operations.curate import delete_card, edit_card
from memory_pipeline.operations.propagate import drain
from memory_pipeline.operations.services import Services
from memory_pipeline_tests.embedded.stacks import run
from memory_pipeline_tests.faults import jobs, scenes
from memory_pipeline_tests.faults.conftest import Servers
from memory_pipeline_tests.faults.worker import Worker

pytestmark = pytest.mark.embedded

LATEST = "giorni di degenza contati dal primo ricovero del paziente"


def _take_the_turn_away(stack: EmbeddedStack) -> None:
    """What a network that forgets a connection does: the server lets go of it, the client knows nothing."""
    run(stack, "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted")


@pytest.mark.parametrize("step", ["drain:embedded", pytest.param("drain:read_back", marks=pytest.mark.faults)])
def test_a_writer_that_comes_late_overwrites_nothing(
    services: Services, servers: Servers, workspace: Workspace, step: str
) -> None:
    slug = workspace.slug
    expected = scenes.changed(services, slug)

    with Worker(jobs.drain_job, services.settings, slug, f"{step}:stop") as worker:
        worker.until_stopped()
        _take_the_turn_away(servers.stack)
        edit_card(services, slug, "mem-0002", 2, CardFields(detail=LATEST))
        delete_card(services, slug, "mem-0007", 1)
        assert drain(services, slug, wait=10, hurry=True).settled
        worker.go_on()
        worker.answer()

    scenes.require_never_stale(services, slug)
    scenes.heal(services, slug)
    scenes.require_equal(services, slug)
    left = {card: text for card, text in expected.memories.items() if card != "mem-0007"}
    scenes.require_recalled(services, slug, scenes.Expected(left | {"mem-0002": LATEST}))
