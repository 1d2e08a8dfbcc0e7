"""The border to the engine: its refusals, faults and panics as errors of this server."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal

from memory_pipeline.embedded.qdrant.errors import ApiError, FormatError, NotFound, WrongInput

# How the engine's message begins when the fault is its own and not the request's.
_OWN_FAULTS = ("Service runtime error", "Out of memory", "Inconsistent storage", "Timeout")
_CANCELLED = "Operation cancelled"
_NO_POINT = "No point with id"


class EngineFault(Exception):
    """The engine failed by a fault of its own: disk full, damaged files, a closed shard."""


class EnginePanic(EngineFault):
    """Rust code of the engine panicked. Its shard is not to be trusted with another write."""


class EngineCall:
    """`with EngineCall():` around every call of a shard.

    The engine raises bare `Exception`, and on a panic a class that no module exports and that is no `Exception`: both
    are recognised here on their way out; everything else passes untouched.

    Raises:
        WrongInput, NotFound: the engine refused the request.
        EngineFault, EnginePanic: it failed.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        if kind is None:
            return False
        if kind.__name__ == "PanicException":
            raise EnginePanic(str(error)) from error
        if kind is Exception:
            raise _translated(str(error)) from error
        return False


def built(place: str, factory: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """A part of a request as the engine's object, a value that it cannot take (a path, a date) refused by its place."""
    try:
        return factory(*arguments, **named)
    except (ValueError, OverflowError) as error:
        raise FormatError(f"{place}: {str(error).splitlines()[0]}") from error


def _translated(message: str) -> ApiError | EngineFault:
    if message.startswith(_OWN_FAULTS):
        return EngineFault(message)
    if message.startswith(_NO_POINT):
        return NotFound(f"{message} found")
    if message.startswith(_CANCELLED):
        # Only a formula cancels a query: a variable that some point lacks, a text where a number is needed, ln(-1).
        return WrongInput("the formula has no finite value for some point; give its variables `defaults`")
    return WrongInput(message)
