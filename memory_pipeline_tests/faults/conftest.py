"""A stack of this suite's own, for its servers are killed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from memory_pipeline.embedded.stack import EmbeddedStack
from memory_pipeline.harness.setup import start
from memory_pipeline.operations.services import Services
from memory_pipeline.settings import Settings
from memory_pipeline_tests.embedded.stacks import kill


@dataclass
class Servers:
    """The three servers, to be killed and started again."""

    stack: EmbeddedStack

    def kill(self, name: str) -> None:
        """As a crash would."""
        kill(self.stack.status(), name)

    def restart(self) -> None:
        """Start those that do not run; each keeps its address."""
        self.stack.up()


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Settings of a stack that nothing but this suite uses."""
    state = tmp_path_factory.mktemp("faults")
    try:
        yield start(Settings(state=state), lambda _: None)
    finally:
        EmbeddedStack(state).down(purge=True, say=lambda _: None)


@pytest.fixture(scope="session")
def services(settings: Settings) -> Iterator[Services]:
    """The collaborators of the use cases, in the process of the tests."""
    with Services(settings) as opened:
        yield opened


@pytest.fixture
def servers(settings: Settings) -> Iterator[Servers]:
    """The servers; all run again when the test ends, however it ends."""
    servers = Servers(EmbeddedStack(settings.state))
    yield servers
    servers.restart()
