"""Files for people and other programs: written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from memory_pipeline.core.errors import BadInput


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A stream whose content takes the place of `path` when the block ends well, and leaves no trace when it does not.

    A reader sees the old file or the new one, which only its owner may read: what is exported is often clinical. A link
    is followed: the file that it names is replaced.

    Raises:
        BadInput: the file cannot be written, or `path` is something else than a file.
    """
    target = Path(os.path.realpath(path))
    beside = target.with_name(f".{target.name[:50]}.{secrets.token_hex(4)}")
    try:
        if target.exists() and not target.is_file():
            raise BadInput(f"{path} is not an ordinary file", hint="name a file, or write to standard output")
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        beside.replace(target)
        _sync_folder(target.parent)
    except OSError as error:
        raise BadInput(
            f"{path} cannot be written: {error.strerror}", hint="name a file in a folder where this user may write"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make the renaming itself outlast a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
