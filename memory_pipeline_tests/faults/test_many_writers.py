"""Many at once, in processes and threads: the registry decides, and the index comes to equal it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from memory_pipeline.core.curation import CardFields
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.operations.cards import show_card
from memory_pipeline.operations.curate import add_card, edit_card
from memory_pipeline.operations.propagate import drain, propagate_at_once
from memory_pipeline.operations.services import Services
from memory_pipeline_tests.faults import jobs, scenes
from memory_pipeline_tests.faults.worker import Worker
from memory_pipeline_tests.flows import ABLATION, ask, found, promote

pytestmark = pytest.mark.embedded

PEOPLE = 4
CHANGES = 5


def _work(services: Services, workspace: str, person: int) -> None:
    """Add cards and edit each of them, with a drain after every change, as the command line does."""
    for turn in range(CHANGES):
        fields = CardFields(subject=f"concetto {person}-{turn}", detail=f"prima stesura di {person} numero {turn}")
        added = add_card(services, workspace, fields).card
        propagate_at_once(services, workspace)
        edit_card(services, workspace, added.id, 1, CardFields(detail=f"stesura definitiva di {person} numero {turn}"))
        propagate_at_once(services, workspace)


def test_people_workers_and_rebuilds_at_once(services: Services, workspace: Workspace) -> None:
    slug = workspace.slug
    promote(services, slug, [ABLATION])
    drain(services, slug)
    wrong: list[object] = []
    over = threading.Event()

    def search() -> None:
        while not over.is_set():
            answer = found(ask(services, slug, ABLATION["detail"]))
            if answer[:1] != ["mem-0001"]:
                wrong.append(answer)

    with ExitStack() as workers, ThreadPoolExecutor(PEOPLE + 1) as pool:
        searching = pool.submit(search)
        rebuilding = [workers.enter_context(Worker(jobs.rebuild_job, services.settings, slug)) for _ in range(2)]
        draining = [workers.enter_context(Worker(jobs.drain_job, services.settings, slug)) for _ in range(2)]
        for working in [pool.submit(_work, services, slug, person) for person in range(PEOPLE)]:
            working.result()
        rebuilt = [worker.answer() for worker in rebuilding]
        for worker in draining:
            worker.answer()
        over.set()
        searching.result()

    assert wrong == []
    assert any(answer != "IndexBusy" for answer in rebuilt)
    scenes.heal(services, slug)
    scenes.require_equal(services, slug)
    for number in range(2, 2 + PEOPLE * CHANGES):
        card = show_card(services, slug, f"mem-{number:04d}").card
        assert card.id in found(ask(services, slug, card.detail, limit=100))
        assert card.detail.startswith("stesura definitiva")
    scenes.require_one_collection(services, slug)
