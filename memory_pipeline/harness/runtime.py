"""`runtime.yaml`: what binds a harness to one place. A search can narrow it and never replace it."""

from __future__ import annotations

import stat
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from memory_pipeline.core.dependencies import Dependency
from memory_pipeline.core.errors import BadRuntime
from memory_pipeline.core.languages import require_language
from memory_pipeline.core.workspace import require_slug

_LONGEST = 1_000_000  # bytes
_EXAMPLE = "see docs/harness.md for an example"


def read_yaml(text: str) -> object:
    """YAML whose scalars are texts: no dates, numbers or tags that could fail, or mean something else.

    Raises:
        yaml.YAMLError, RecursionError: it is no YAML, or nests too deep.
    """
    return yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506 - the base loader builds texts, lists and mappings only


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
        BadRuntime: it is no regular file, cannot be read, is not YAML, or has a field missing, unknown or of the
            wrong shape.
        BadWorkspace, UnknownLanguage, BadDependency: a value that cannot be.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LONGEST:  # a pipe might never end, or never begin
            raise BadRuntime(f"{path} is not a regular file of at most {_LONGEST:,} bytes", hint=_EXAMPLE)
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # the second: a text that is not UTF-8, a path with a NUL in it
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
