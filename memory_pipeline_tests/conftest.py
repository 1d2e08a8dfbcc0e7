"""The real stack under the tests: the embedded servers, or those that the environment names.

A test that asks for `settings`, or for anything made of it, is an integration test and is marked as one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from memory_pipeline.core.workspace import Workspace
from memory_pipeline.embedded.stack import EmbeddedStack
from memory_pipeline.harness.setup import start
from memory_pipeline.operations.services import Services
from memory_pipeline.operations.workspaces import create_workspace
from memory_pipeline.settings import Settings
from memory_pipeline.store.database import Role
from memory_pipeline_tests.commands import call

# No test asserts a time: a busy machine is no failure of a property.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

MakeWorkspace = Callable[..., Workspace]
Cli = Callable[..., "subprocess.CompletedProcess[str]"]


def pytest_configure() -> None:
    """Hear SIGINT, which a shell has its background jobs ignore: what tests start and interrupt would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs the servers."""
    for item in items:
        if "settings" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.integration)


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Settings of a stack that is ready: migrated, empty."""
    if "MEMORY_POSTGRES_HOST" in os.environ:
        yield start(Settings(), lambda _: None)
        return
    state = tmp_path_factory.mktemp("stack")
    stack = EmbeddedStack(state)
    try:
        yield start(Settings(state=state), lambda _: None)
    finally:
        stack.down(purge=True, say=lambda _: None)


@pytest.fixture(scope="session")
def services(settings: Settings) -> Iterator[Services]:
    """The collaborators of the use cases, on the real servers."""
    with Services(settings) as opened:
        yield opened


@pytest.fixture
def make_workspace(services: Services) -> Iterator[MakeWorkspace]:
    """Makes workspaces that nothing else uses; their collections go when the test ends."""
    made: list[str] = []

    def make(**settings: Any) -> Workspace:
        defaults = {"title": "Test", "language": "it", "default_database": "cardio", "default_schema": "public"}
        workspace = Workspace(slug=f"t-{uuid.uuid4().hex[:12]}", **{**defaults, **settings})
        create_workspace(services, workspace)
        made.append(workspace.slug)
        return workspace

    yield make
    for slug in made:
        with services.database.transaction(Role.INDEXER, slug) as tx:
            rows = tx.execute("SELECT collection FROM collections").fetchall()
        for row in rows:
            services.index.drop(row["collection"])


@pytest.fixture
def workspace(make_workspace: MakeWorkspace) -> Workspace:
    """A workspace of its own for one test: Italian, database `cardio`, schema `public`."""
    return make_workspace()


@pytest.fixture
def environment(settings: Settings) -> dict[str, str]:
    """The environment of a command that is to use the stack under test."""
    return {**os.environ, "MEMORY_STATE": str(settings.state)}


@pytest.fixture
def cli(environment: dict[str, str], tmp_path: Path) -> Cli:
    """Runs `memory-pipeline` in this process."""

    def run(*arguments: str, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        return call(arguments, environment={**environment, **variables}, folder=tmp_path, stdin=stdin)

    return run


@pytest.fixture
def program(environment: dict[str, str], tmp_path: Path) -> Cli:
    """Runs `memory-pipeline` as a process of its own, as a person would. Each start takes about a second."""

    def run(*arguments: str, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "memory_pipeline", *arguments],
            input=stdin,
            env={**environment, **variables},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run
