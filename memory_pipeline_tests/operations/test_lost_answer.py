"""The server commits, the client never hears of it: the same call again gives the answer that was lost."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Iterator

import pytest

from memory_pipeline.core.errors import StoreUnavailable
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.operations.close import close_session
from memory_pipeline.operations.decide import Outcome
from memory_pipeline.operations.services import Services
from memory_pipeline_tests.flows import with_settings
from memory_pipeline_tests.operations.sessions import concept, offer, outcomes, settle, tell, written

pytestmark = pytest.mark.integration


class DeafWire:
    """A wire to PostgreSQL that passes everything on. Once it is cut, a commit goes out and its answer is lost."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.cut = threading.Event()
        self.committed = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # or else the thread goes on waiting
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        deaf = False
        with client, socket.create_connection(self._server) as server, contextlib.suppress(OSError):
            while True:
                for source in select.select([client, server], [], [])[0]:
                    data = source.recv(65536)
                    if not data:
                        return
                    if source is server and deaf:  # the answer to the commit: it is done, and nobody is told
                        self.committed.set()
                        return
                    deaf = deaf or (source is client and self.cut.is_set() and b"COMMIT" in data)
                    (server if source is client else client).sendall(data)


@pytest.fixture
def wire(services: Services) -> Iterator[DeafWire]:
    settings = services.settings
    opened = DeafWire(str(settings.postgres_host), settings.postgres_port)
    yield opened
    opened.close()


@pytest.fixture
def deaf(services: Services, wire: DeafWire) -> Iterator[Services]:
    """The stack with PostgreSQL behind the wire, in plain text so that the wire can read what it carries."""
    using = with_settings(services, postgres_host="127.0.0.1", postgres_port=wire.port, postgres_sslmode="disable")
    yield using
    using.close()


def test_a_decision_whose_answer_was_lost_is_answered_again_and_made_once(
    services: Services, workspace: Workspace, wire: DeafWire, deaf: Services
) -> None:
    tell(services, workspace.slug, concept("a"), concept("b"))
    shown = offer(services, workspace.slug)
    settle(deaf, workspace.slug, shown, decline=(2,))  # the wire carries
    wire.cut.set()
    with pytest.raises(StoreUnavailable):
        settle(deaf, workspace.slug, shown, select=(1,))
    assert wire.committed.wait(10)
    counts = written(services, workspace.slug)
    assert (counts["cards"], counts["sources"], counts["markers"]) == (1, 1, 2)

    wire.cut.clear()
    assert outcomes(settle(deaf, workspace.slug, shown, select=(1,))) == [(1, Outcome.CREATED, "mem-0001")]
    assert written(services, workspace.slug) == counts


def test_a_session_whose_closing_was_not_heard_of_is_closed_once(
    services: Services, workspace: Workspace, wire: DeafWire, deaf: Services
) -> None:
    tell(services, workspace.slug, {"type_": "session_opened", "question": "Quante?"})
    wire.cut.set()
    with pytest.raises(StoreUnavailable):
        close_session(deaf, workspace.slug, "s1")
    assert wire.committed.wait(10)
    assert not close_session(services, workspace.slug, "s1").closed_now
    assert written(services, workspace.slug)["markers"] == 1
