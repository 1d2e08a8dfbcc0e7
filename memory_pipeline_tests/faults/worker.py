"""A worker in a process of its own that is killed, or stopped and let go on, at a step of its work.

The processes come from multiprocessing's fork server, which has the imports behind it and no connection open. Each job
has two: the worker, and its keeper, which waits for it as only a parent can and tells what becomes of it.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

from memory_pipeline import failpoints
from memory_pipeline.core.errors import MemoryPipelineError
from memory_pipeline.operations.services import Services
from memory_pipeline.settings import Settings

# A message of the keeper: what became of the worker, and its process id, signal or answer.
Event = tuple[str, Any]
Job = Callable[[Services, str], object]

DEADLINE = 120.0
"""Seconds until a worker counts as lost: no assertion, only an end to waiting."""

_context = get_context("forkserver")
_context.set_forkserver_preload([__name__, "memory_pipeline_tests.faults.jobs"])


@dataclass
class Worker:
    """`with Worker(job, settings, workspace, "drain:written:kill") as worker:` starts it; what is left of it is ended.

    Args:
        job: a function of a module, called with services of its own and the workspace.
        failpoint: as in the variable; empty for none.
    """

    job: Job
    settings: Settings
    workspace: str
    failpoint: str = ""
    pid: int = 0
    _running: bool = False
    _events: Connection = field(init=False)
    _keeper: Any = field(init=False)

    def __enter__(self) -> Self:
        self._events, theirs = _context.Pipe(duplex=False)
        known = {name: getattr(self.settings, name) for name in Settings.model_fields}
        self._keeper = _context.Process(target=_keep, args=(theirs, self.job, known, self.workspace, self.failpoint))
        self._keeper.start()
        theirs.close()
        kind, self.pid = self._next()
        assert kind == "started"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._running:
            with suppress(ProcessLookupError):  # it may just have ended, and nobody has asked yet
                os.kill(self.pid, signal.SIGKILL)
        self._keeper.join(DEADLINE)
        self._events.close()

    def until_stopped(self) -> None:
        """Wait until it stands at its step."""
        assert self._next() == ("stopped", signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def until_killed(self) -> None:
        """Wait until it has killed itself at its step."""
        assert self._next() == ("killed", signal.SIGKILL)

    def answer(self) -> Any:
        """Wait for what the job returned, or for the named error that it raised."""
        kind, value = self._next()
        assert kind == "answered", value
        return value

    def _next(self) -> Event:
        assert self._events.poll(DEADLINE), "the worker does nothing any more"
        event: Event = self._events.recv()
        self._running = event[0] in ("started", "stopped")
        return event


def _keep(events: Connection, job: Job, settings: dict[str, Any], workspace: str, failpoint: str) -> None:
    """Start the worker and tell each of its turns."""
    answers, theirs = _context.Pipe(duplex=False)
    pid = os.fork()
    if pid == 0:
        _work(theirs, job, settings, workspace, failpoint)
    theirs.close()
    events.send(("started", pid))
    while True:
        _, status = os.waitpid(pid, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            events.send(("stopped", os.WSTOPSIG(status)))
        elif os.WIFSIGNALED(status):
            events.send(("killed", os.WTERMSIG(status)))
            return
        else:
            events.send(answers.recv() if answers.poll() else ("ended", os.WEXITSTATUS(status)))
            return


def _work(answers: Connection, job: Job, settings: dict[str, Any], workspace: str, failpoint: str) -> None:
    """Do the job and leave without a word to the parent's own clean-up."""
    try:
        armed = failpoints.armed(failpoint) if failpoint else nullcontext()
        with Services(Settings(**settings)) as services, armed:
            answers.send(("answered", _outcome(job, services, workspace)))
    except BaseException:  # noqa: BLE001 - whatever it is, the test is told
        answers.send(("failed", traceback.format_exc()))
    os._exit(0)


def _outcome(job: Job, services: Services, workspace: str) -> object:
    try:
        return job(services, workspace)
    except MemoryPipelineError as error:
        return error.name
