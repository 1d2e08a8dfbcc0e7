"""Killed at every step between a commit and its acknowledgement: nothing is lost, doubled or stale, and it heals."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from _pytest.mark.structures import ParameterSet

import memory_pipeline
from memory_pipeline.core.errors import NotIndexed
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.failpoints import NAMES
from memory_pipeline.operations.rebuild import rebuild
from memory_pipeline.operations.services import Services
from memory_pipeline_tests.faults import jobs, scenes
from memory_pipeline_tests.faults.conftest import Servers
from memory_pipeline_tests.faults.scenes import Expected
from memory_pipeline_tests.faults.worker import Job, Worker

pytestmark = pytest.mark.embedded

VICTIMS = ("worker", "qdrant", "postgres", "ollama")

# What is killed at a step on every change of the code: the worker, where nothing is said. The rest: make test-faults.
TELLING = {"drain:expected": "ollama", "drain:embedded": "qdrant", "drain:read_back": "postgres"}


class Play(NamedTuple):
    """What is there when a worker starts, and what it does."""

    scene: Callable[[Services, str], Expected]
    job: Job


# A step that only one play comes to; the others are on the way of every drain, or of every rebuild.
PLAYS = {
    "drain:aliased": Play(scenes.fresh, jobs.drain_job),
    "drain:served": Play(scenes.fresh, jobs.drain_job),
    "rebuild:dropped": Play(scenes.replaced, jobs.drain_job),
}


def _play(step: str) -> Play:
    job = jobs.rebuild_job if step.startswith("rebuild:") else jobs.drain_job
    return PLAYS.get(step, Play(scenes.changed, job))


def _kill(step: str, victim: str) -> ParameterSet:
    telling = victim == TELLING.get(step, "worker")
    return pytest.param(step, victim, marks=() if telling else pytest.mark.faults, id=f"{step}-{victim}")


@pytest.mark.parametrize(("step", "victim"), [_kill(step, victim) for step in NAMES for victim in VICTIMS])
def test_a_kill_at_any_step_heals(
    services: Services, servers: Servers, workspace: Workspace, step: str, victim: str
) -> None:
    slug, (scene, job) = workspace.slug, _play(step)
    expected = scene(services, slug)

    if victim == "worker":
        with Worker(job, services.settings, slug, step) as worker:
            worker.until_killed()
    else:
        with Worker(job, services.settings, slug, f"{step}:stop") as worker:
            worker.until_stopped()
            servers.kill(victim)
            worker.go_on()
            worker.answer()
        servers.restart()

    if scene is not scenes.fresh:
        scenes.require_never_stale(services, slug)
    scenes.heal(services, slug)
    scenes.require_equal(services, slug)
    if step.startswith("rebuild:"):
        rebuild(services, slug)
        scenes.require_equal(services, slug)
    scenes.require_recalled(services, slug, expected)
    scenes.require_one_collection(services, slug)


def test_a_first_index_that_is_killed_is_not_searched_half_built(services: Services, workspace: Workspace) -> None:
    expected = scenes.fresh(services, workspace.slug)
    with Worker(jobs.drain_job, services.settings, workspace.slug, "drain:settled") as worker:
        worker.until_killed()

    with pytest.raises(NotIndexed):
        scenes.require_recalled(services, workspace.slug, expected)
    scenes.heal(services, workspace.slug)
    scenes.require_recalled(services, workspace.slug, expected)


def test_a_first_index_by_a_rebuild_that_is_killed_heals(services: Services, workspace: Workspace) -> None:
    expected = scenes.fresh(services, workspace.slug)
    with Worker(jobs.rebuild_job, services.settings, workspace.slug, "rebuild:switched") as worker:
        worker.until_killed()

    scenes.heal(services, workspace.slug)
    scenes.require_equal(services, workspace.slug)
    scenes.require_recalled(services, workspace.slug, expected)
    scenes.require_one_collection(services, workspace.slug)


def test_the_list_of_steps_is_the_code_s() -> None:
    assert sorted(NAMES) == sorted(set(_reached()))
    assert len(NAMES) == len(set(NAMES))


def _reached() -> Iterator[str]:
    """The steps that the code marks: each by its literal name."""
    root = Path(memory_pipeline.__file__).parent
    for path in root.rglob("*.py"):
        if path.name == "failpoints.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "reach":
                (name,) = node.args
                assert isinstance(name, ast.Constant), f"{path.name}:{node.lineno}"
                assert isinstance(name.value, str)
                yield name.value
