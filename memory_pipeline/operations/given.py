"""What a caller gives to read: a file, or YAML. Nothing that never ends, and nothing that says one thing twice."""

from __future__ import annotations

import stat
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml


def read_file(path: Path, *, longest: int) -> str:
    """The text of a file, which is UTF-8 and has at most `longest` bytes.

    Raises:
        OSError, ValueError: it is no regular file or cannot be read, is longer, or is not UTF-8.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode) or status.st_size > longest:  # a pipe might never end, or never begin
        raise ValueError(f"it is not a regular file of at most {longest:,} bytes")
    return path.read_text(encoding="utf-8-sig")


def read_yaml(text: str) -> object:
    """YAML whose scalars are texts: no dates, numbers or tags that could fail, or mean something else.

    Raises:
        yaml.YAMLError, RecursionError: it is no YAML, names a key twice in one mapping, or nests too deep.
    """
    return yaml.load(text, Loader=_Texts)  # noqa: S506 - a base loader builds texts, lists and mappings only


class _Texts(yaml.BaseLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """A mapping whose keys differ: of two equal ones the last would count, and nobody be told."""
        written: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in written:
                problem = f"the key {key.value!r} is repeated"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            written.add(key.value)
        return super().construct_mapping(node, deep=deep)
