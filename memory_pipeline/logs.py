"""What happened, for machines: one line of JSON an event, with the ids of what it was about.

A line names workspace, session, card and run, an event and figures; never a text of a card or a question, never a
secret. `bound` puts ids into every line that is written within it, `operation` tells how a use case ended.
"""

from __future__ import annotations

import functools
import json
import logging
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal, ParamSpec, TypeAlias, TypeVar

Mode: TypeAlias = Literal["off", "text", "json"]
Level: TypeAlias = Literal["debug", "info", "warning", "error"]

_logger = logging.getLogger("memory_pipeline.events")
_process_ids: dict[str, str] = {}
_ids: ContextVar[Mapping[str, str]] = ContextVar("memory_pipeline_ids", default={})  # noqa: B039 - never changed

_SLUG = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")  # what else is given as one may be anything

P = ParamSpec("P")
T = TypeVar("T")


def configure(mode: Mode, level: Level = "info", **ids: str | None) -> None:
    """Let events go to standard error, as JSON or as text, or nowhere. A repetition replaces what was set before.

    Args:
        ids: what the whole process is about, the run that it carries out, say: in every line.
    """
    _process_ids.clear()
    _process_ids.update(_given(ids))
    for handler in list(_logger.handlers):
        _logger.removeHandler(handler)
    _logger.propagate = False
    _logger.setLevel(level.upper())
    if mode == "off":
        _logger.addHandler(logging.NullHandler())
        return
    handler = _ToStderr()
    handler.setFormatter(_Json() if mode == "json" else _Text())
    _logger.addHandler(handler)


@contextmanager
def bound(**ids: str | None) -> Iterator[None]:
    """Put ids (`workspace`, `session`, `card`, `run`) into every event within, beside those that are there."""
    token = _ids.set({**_ids.get(), **_given(ids)})
    try:
        yield
    finally:
        _ids.reset(token)


def event(name: str, /, *, level: int = logging.INFO, **figures: Any) -> None:
    """Tell that something happened: `outbox.parked`, with figures and ids. Texts of cards have no place here."""
    if _logger.isEnabledFor(level):
        _logger.log(level, name, extra={"figures": figures, "ids": {**_process_ids, **_ids.get()}})


def operation(
    name: str, figures: Callable[[Any], Mapping[str, Any]] = lambda _: {}
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Let a use case `f(services, workspace, ...)` tell how it ended (`<name>.done`, `<name>.failed`), and how soon.

    Args:
        figures: what to tell of its result; counts and ids.
    """

    def decorate(use_case: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(use_case)
        def told(*args: P.args, **kwargs: P.kwargs) -> T:
            begun = time.perf_counter()
            with bound(workspace=_workspace_of(args)):
                try:
                    result = use_case(*args, **kwargs)
                except Exception as error:
                    # Its name alone: a message may cite what somebody wrote.
                    event(f"{name}.failed", level=logging.WARNING, error=type(error).__name__, ms=_since(begun))
                    raise
                event(f"{name}.done", **figures(result), ms=_since(begun))
                return result

        return told

    return decorate


def _given(ids: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in ids.items() if value is not None}


def _workspace_of(args: tuple[object, ...]) -> str | None:
    """The workspace of `f(services, workspace, ...)`: its slug, or the field of a request that has it."""
    if len(args) < 2:
        return None
    named = args[1]
    for candidate in (named, getattr(named, "workspace", None), getattr(named, "slug", None)):
        if isinstance(candidate, str) and _SLUG.fullmatch(candidate):
            return candidate
    return None


def _since(begun: float) -> float:
    return round((time.perf_counter() - begun) * 1000, 1)


class _ToStderr(logging.Handler):
    """To what standard error is at that moment, for it may have been replaced since."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except (OSError, ValueError):  # full or closed: the work goes on
            return


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    known: dict[str, Any] = {"time": moment, "level": record.levelname.lower(), "event": record.getMessage()}
    return {**known, **getattr(record, "ids", {}), **getattr(record, "figures", {})}


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(_fields(record), ensure_ascii=True, default=str)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = _fields(record)
        head = f"{fields.pop('time')} {fields.pop('level'):7} {fields.pop('event')}"
        return " ".join([head, *(f"{name}={json.dumps(value, default=str)}" for name, value in fields.items())])
