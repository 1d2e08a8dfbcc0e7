"""`runtime.yaml`: what binds a harness to one place. A search can narrow it and never replace it."""

from __future__ import annotations

from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from memory_pipeline.core.dependencies import Dependency
from memory_pipeline.core.errors import BadRuntime
from memory_pipeline.core.languages import require_language
from memory_pipeline.core.workspace import require_slug
from memory_pipeline.operations.given import read_file, read_yaml

_LONGEST = 1_000_000  # bytes
_EXAMPLE = "see docs/harness.md for an example"


class Runtime(BaseModel):
    """Workspace, database, schema and language of one harness."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_alias=True, validate_by_name=True)

    workspace: str
    database: str
    schema_: str | None = Field(default=None, alias="schema")
    language: str | None = None

    @property
    def place(self) -> Dependency:
        """Where its searches look."""
        return Dependency(database=self.database, schema_=self.schema_)


def load_runtime(path: Path) -> Runtime:
    """Read a runtime file.

    Raises:
        BadRuntime: it is no regular file, cannot be read, is not YAML, or has a field missing, repeated, unknown or of
            the wrong shape.
        BadWorkspace, UnknownLanguage, BadDependency, BadText: a value that cannot be.
    """
    try:
        text = read_file(path, longest=_LONGEST)
    except (OSError, ValueError) as error:
        raise BadRuntime(f"{path} cannot be read: {error}", hint=_EXAMPLE) from error
    return parse_runtime(text, str(path))


def parse_runtime(text: str, name: str) -> Runtime:
    """Read the text of a runtime file; `name` tells it in errors, which are those of `load_runtime`."""
    try:
        runtime = Runtime.model_validate(read_yaml(text))
    except (yaml.YAMLError, RecursionError) as error:
        raise BadRuntime(f"{name} is not YAML: {error}", hint=_EXAMPLE) from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]).rstrip("_") or "file"
        raise BadRuntime(f"{name}: {place}: {first['msg']}", hint=_EXAMPLE) from error
    require_slug(runtime.workspace)
    if runtime.language is not None:
        require_language(runtime.language)
    _ = runtime.place  # raises where the place cannot be
    return runtime
