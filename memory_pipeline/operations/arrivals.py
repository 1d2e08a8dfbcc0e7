"""What lies in the inbox, seen from outside: enough to tell that there is something to read, and nothing is read."""

from __future__ import annotations

import os
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from memory_pipeline.operations.services import Services

_LEDGERS = ".jsonl"


def inbox_marks(services: Services, workspaces: Iterable[str]) -> dict[str, str]:
    """By workspace, a mark that changes with every file that comes, grows or is replaced; none for an empty folder."""
    marks = {workspace: _mark(services.settings.inbox_path / workspace) for workspace in workspaces}
    return {workspace: mark for workspace, mark in marks.items() if mark}


def _mark(folder: Path) -> str:
    try:
        with os.scandir(folder) as entries:
            files = sorted((entry.name, entry.stat()) for entry in entries if entry.name.endswith(_LEDGERS))
    except OSError:  # no folder, or a file that went while it was looked at: the next look tells
        return ""
    if not files:
        return ""
    seen = "\n".join(f"{name}:{stat.st_size}:{stat.st_mtime_ns}:{stat.st_ino}" for name, stat in files)
    return sha256(seen.encode("utf-8", "surrogateescape")).hexdigest()[:16]
