"""Time and memory of a step, and the one table that all figures end in."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import psutil
from pydantic import BaseModel, ConfigDict

from memory_pipeline.core import metrics

T = TypeVar("T")

_MEGABYTE = 1024 * 1024


class Step(BaseModel):
    """One thing done once: seconds, and how far this process's memory rose above where it stood before, in MB."""

    model_config = ConfigDict(frozen=True)

    seconds: float
    memory: float


class Figure(BaseModel):
    """One row of the result. `ratio` is `value` over `bare`, unless said otherwise in `goal`."""

    model_config = ConfigDict(frozen=True)

    cards: int
    name: str
    unit: str
    value: float
    bare: float | None = None
    ratio: float | None = None
    goal: str = ""
    reached: bool | None = None
    memory: float | None = None
    notes: dict[str, Any] = {}


def timed(work: Callable[[], T]) -> tuple[T, Step]:
    """Do something and say what it took."""
    before = psutil.Process().memory_info().rss
    _forget_peak()
    start = time.perf_counter()
    result = work()
    seconds = time.perf_counter() - start
    return result, Step(seconds=seconds, memory=max(0, _peak() - before) / _MEGABYTE)


def percentile(values: Sequence[float], share: float) -> float:
    """As `core` defines it; 0 of nothing."""
    return metrics.percentile(values, share) or 0.0


def _forget_peak() -> None:
    """Let the kernel count this process's highest memory anew."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _peak() -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise LookupError("the kernel does not say VmHWM")
