"""A workspace: one body of knowledge, one partition, one index. One workspace never sees another."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, StringConstraints, model_validator

from memory_pipeline.core.errors import BadWorkspace
from memory_pipeline.core.languages import require_language
from memory_pipeline.core.profile import DEFAULT_PROFILE, profile_named
from memory_pipeline.core.text import require_storable

_SLUG = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?")

Name = Annotated[str, StringConstraints(strip_whitespace=True)]


class WorkspaceStatus(StrEnum):
    """Retired: the rows and the partition stay, nothing is promoted or searched."""

    ACTIVE = "active"
    RETIRED = "retired"


class Workspace(BaseModel):
    """What is fixed for every question of one workspace."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    slug: str
    title: Name
    language: str
    sql_dialect: Name = "postgresql"
    default_database: Name
    default_schema: Name | None = None
    embedding_profile: str = DEFAULT_PROFILE
    four_eyes: bool = False
    status: WorkspaceStatus = WorkspaceStatus.ACTIVE

    @model_validator(mode="after")
    def _check(self) -> Self:
        require_slug(self.slug)
        require_language(self.language)
        profile_named(self.embedding_profile)
        for name in ("title", "sql_dialect", "default_database", "default_schema"):
            value = getattr(self, name)
            if value == "":
                raise BadWorkspace(f"the {name} of workspace {self.slug!r} is empty", hint="give it a value")
            require_storable(value or "", f"the {name} of workspace {self.slug!r}")
        return self


def require_slug(slug: str) -> str:
    """Return the slug, or raise `BadWorkspace`. Two underscores in a row are kept for the names of collections."""
    if not _SLUG.fullmatch(slug) or "__" in slug:
        raise BadWorkspace(
            f"{slug!r} cannot name a workspace",
            hint="use 1 to 63 of a-z, 0-9, '-' and '_', starting and ending with a letter or digit, without '__'",
        )
    return slug
