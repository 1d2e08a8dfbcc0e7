"""Small corpora for tests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def write_set(folder: Path, **files: Iterable[Mapping[str, Any]]) -> Path:
    """Write a folder of JSON lines: each keyword names a file."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in files.items():
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return folder
