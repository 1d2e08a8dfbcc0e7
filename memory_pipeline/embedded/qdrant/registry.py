"""Which collections and aliases there are: one JSON file, replaced as a whole, durable before it counts.

The engine knows single shards only. This file is the commit point for all above them: a collection exists once it is
written here and no longer once it is gone from here, whatever folders are on the disk.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from memory_pipeline.embedded.qdrant.errors import AlreadyExists, NotFound, WrongInput
from memory_pipeline.embedded.qdrant.schema import Collection


class RegistryUnreadable(Exception):
    """The registry file is there and cannot be understood, so nothing may be served or swept."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} cannot be read ({reason}); restore it, or remove the storage folder and index again")


class State(BaseModel):
    """All collections by name, and all aliases with the collection that each stands for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    collections: dict[str, Collection] = Field(default_factory=dict)
    aliases: dict[str, str] = Field(default_factory=dict)

    def resolve(self, name: str) -> str:
        """The name of the collection that a name or alias stands for.

        Raises:
            NotFound: there is neither.
        """
        actual = self.aliases.get(name, name)
        if actual not in self.collections:
            raise NotFound(f"Collection `{name}` doesn't exist!")
        return actual

    def with_collection(self, name: str, collection: Collection) -> State:
        """As this state, with that collection under that name, added or replaced."""
        return self.model_copy(update={"collections": {**self.collections, name: collection}})

    def without_collection(self, name: str) -> State:
        """As this state, without the collection and without its aliases."""
        collections = {other: collection for other, collection in self.collections.items() if other != name}
        aliases = {alias: target for alias, target in self.aliases.items() if target != name}
        return self.model_copy(update={"collections": collections, "aliases": aliases})

    def with_alias(self, alias: str, target: str) -> State:
        """As this state, with the alias standing for the collection, whatever it stood for before."""
        if target not in self.collections:
            raise NotFound(f"Collection `{target}` doesn't exist!")
        if alias in self.collections:
            raise AlreadyExists(f"Collection `{alias}` already exists!")
        return self.model_copy(update={"aliases": {**self.aliases, alias: target}})

    def without_alias(self, alias: str) -> State:
        """As this state, without the alias; the same where there is none, as in the real server."""
        return self.model_copy(update={"aliases": {name: to for name, to in self.aliases.items() if name != alias}})

    def with_renamed_alias(self, old: str, new: str) -> State:
        """As this state, with the alias under its new name."""
        if old not in self.aliases:
            raise NotFound(f"Alias {old} does not exists!")
        return self.without_alias(old).with_alias(new, self.aliases[old])

    def refuse_taken(self, name: str) -> None:
        """Raise where a new collection cannot have this name."""
        if name in self.collections:
            raise AlreadyExists(f"Collection `{name}` already exists!")
        if name in self.aliases:
            raise WrongInput(f"Can't create collection with name {name}. Alias with the same name already exists")


class Registry:
    """The state in memory, and its file. `commit` returns once the new state is on the disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.state = _read(path)

    def commit(self, state: State) -> None:
        """Write the state to a file beside, sync it, put it in place, sync the folder; then it is the state."""
        beside = self._path.with_suffix(".tmp")
        with beside.open("wb") as file:
            file.write(state.model_dump_json(indent=1).encode())
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._path)
        sync_folder(self._path.parent)
        self.state = state


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, as fsync of a file does for its content."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(path: Path) -> State:
    try:
        return State.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return State()
    except ValidationError as error:
        raise RegistryUnreadable(path, f"{error.error_count()} errors, first: {error.errors()[0]['msg']}") from error
