"""Errors as Dagster shows them: the name, what happened, and what to do now."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import dagster as dg

from memory_pipeline.core.display import plain
from memory_pipeline.core.errors import (
    EmbedderUnavailable,
    IndexBusy,
    IndexUnavailable,
    MemoryPipelineError,
    ModelMissing,
    StoreUnavailable,
)

RETRY = dg.RetryPolicy(max_retries=2, delay=1, backoff=dg.Backoff.EXPONENTIAL)
"""Seconds: 1, then 2. For a server that is restarting; what is down for longer is for a person."""

_LONGEST = 1000
_TRANSIENT = (StoreUnavailable, IndexUnavailable, EmbedderUnavailable, IndexBusy)


@contextlib.contextmanager
def named_failures() -> Iterator[None]:
    """Turn a named error into a `Failure` that carries it; the error itself stays its cause.

    Only what may pass by itself is tried again by a retry policy.
    """
    try:
        yield
    except MemoryPipelineError as error:
        raise _failure_of(error) from error


def _failure_of(error: MemoryPipelineError) -> dg.Failure:
    return dg.Failure(
        description=plain(f"{error.name}: {error.message}. What to do: {error.hint}.", _LONGEST),
        metadata={
            "error": error.name,
            "message": plain(error.message, _LONGEST),
            "hint": plain(error.hint, _LONGEST),
            "exit_code": error.exit_code,
        },
        allow_retries=isinstance(error, _TRANSIENT) and not isinstance(error, ModelMissing),
    )
