"""Named steps at which a process can be made to fail, so that recovery is tested at each of them and not by luck.

`MEMORY_FAILPOINT=<name>[:<action>][@<n>]` arms one of them: the action is taken the n-th time it is reached, the
first time by default, and once. Nothing is armed otherwise, and a step then costs one comparison.

    kill    SIGKILL to this process, the default: nothing is cleaned up
    stop    SIGSTOP to this process: whoever waits for it can take a server away, and lets it go on with SIGCONT
    error   raise `Interrupted`, which nothing catches: a crash inside a process that is to go on
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

VARIABLE = "MEMORY_FAILPOINT"

NAMES = (
    "drain:looked_at",
    "drain:expected",
    "drain:stamped",
    "drain:deleted",
    "drain:removed",
    "embed:answered",
    "drain:embedded",
    "drain:payload_set",
    "drain:written",
    "drain:read_back",
    "drain:settled",
    "drain:aliased",
    "drain:served",
    "rebuild:recorded",
    "rebuild:created",
    "rebuild:filled",
    "rebuild:verified",
    "rebuild:replayed",
    "rebuild:switched",
    "rebuild:aliased",
    "rebuild:dropped",
)
"""Every step, in the order in which its work comes to it. A test holds this list and the code to each other."""


class Action(StrEnum):
    """What happens at an armed step."""

    KILL = "kill"
    STOP = "stop"
    ERROR = "error"


class Interrupted(BaseException):
    """The process stops here, as in a crash. Not an `Exception`: what handles errors must not take it for one."""


@dataclass
class Failpoint:
    """One armed step; `left` counts down to the time at which it acts."""

    name: str
    action: Action = Action.KILL
    left: int = 1

    @classmethod
    def parse(cls, text: str) -> Failpoint:
        """Read `<name>[:<action>][@<n>]`.

        Raises:
            ValueError: no such step, no such action, or a count that is none.
        """
        actions = "|".join(Action)
        match = re.fullmatch(rf"(?P<name>.+?)(:(?P<action>{actions}))?(@(?P<time>[1-9][0-9]*))?", text)
        if match is None or match["name"] not in NAMES:
            raise ValueError(f"{VARIABLE}={text!r}: not <name>[:{actions}][@<n>] with a name of {', '.join(NAMES)}")
        return cls(match["name"], Action(match["action"] or Action.KILL), int(match["time"] or 1))

    def reach(self, name: str) -> None:
        """Act where this is the step, and the time."""
        if name not in NAMES:
            raise ValueError(f"{name!r} is not among the names of steps")
        if name != self.name:
            return
        self.left -= 1
        if self.left:
            return
        match self.action:
            case Action.ERROR:
                raise Interrupted(name)
            case Action.STOP:
                os.kill(os.getpid(), signal.SIGSTOP)
            case Action.KILL:
                os.kill(os.getpid(), signal.SIGKILL)


_armed = Failpoint.parse(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None


def reach(name: str) -> None:
    """Mark a step; it does nothing unless it is armed."""
    if _armed is not None:
        _armed.reach(name)


@contextlib.contextmanager
def armed(text: str) -> Iterator[Failpoint]:
    """Arm a step in this process for a while, as the variable does for a whole process."""
    global _armed  # noqa: PLW0603 - one process, one armed step
    before, _armed = _armed, Failpoint.parse(text)
    try:
        yield _armed
    finally:
        _armed = before
