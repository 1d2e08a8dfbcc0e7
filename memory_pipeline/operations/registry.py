"""Writing `registry.jsonl` from the store."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from memory_pipeline.operations.files import replacing
from memory_pipeline.operations.services import Services
from memory_pipeline.store import registry, workspaces
from memory_pipeline.store.database import Role


class RegistryFile(BaseModel):
    """A registry file that was written."""

    model_config = ConfigDict(frozen=True)

    workspace: str
    file: str
    cards: int
    bytes: int
    sha256: str


def export_registry(services: Services, workspace: str, file: Path) -> RegistryFile:
    """Write every card of a workspace but the deleted ones, with what stands behind it, as the reader.

    The file is there whole or not at all, and only its owner may read it. It is the same byte for byte as long as the
    cards are.

    Raises:
        BadInput: it cannot be written there.
        UnknownWorkspace.
    """
    digest, written, count = hashlib.sha256(), 0, 0
    with services.database.transaction(Role.READER, workspace, via=services.via) as tx:
        workspaces.get(tx, workspace)
        with replacing(file) as stream:
            for record in registry.stream(tx, workspace):
                line = record.line()
                stream.write(line)
                digest.update(line)
                written, count = written + len(line), count + 1
    return RegistryFile(workspace=workspace, file=str(file), cards=count, bytes=written, sha256=digest.hexdigest())
