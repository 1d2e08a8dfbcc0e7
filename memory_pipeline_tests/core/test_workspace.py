"""Workspaces: their names, their languages, and settings that are refused before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from memory_pipeline.core.errors import BadText, BadWorkspace, UnknownLanguage, UnknownProfile
from memory_pipeline.core.languages import LANGUAGES, require_language
from memory_pipeline.core.workspace import Workspace, require_slug
from memory_pipeline_tests.core.builders import WORKSPACE
from memory_pipeline_tests.nasty import STORABLE_TEXTS, UNSTORABLE_TEXTS


def made(**changes: Any) -> Workspace:
    return Workspace(**{**WORKSPACE.model_dump(), **changes})


@pytest.mark.parametrize("slug", ["a", "0", "cardio-2", "a_b", "a-_b", "x" * 63, "a" + "-" * 61 + "b"])
def test_a_slug_that_names_a_workspace(slug: str) -> None:
    assert require_slug(slug) == slug
    assert made(slug=slug).slug == slug


@pytest.mark.parametrize(
    "slug",
    ["", "A", "a__b", "_a", "a_", "-a", "a-", "a b", "a.b", "a/b", "..", "è", "x" * 64, "a\n", "a\0", "٣", "аb", " a"],
)
def test_a_slug_that_cannot_name_a_workspace(slug: str) -> None:
    with pytest.raises(BadWorkspace):
        require_slug(slug)
    with pytest.raises(BadWorkspace):
        made(slug=slug)


@pytest.mark.parametrize("slug", STORABLE_TEXTS.values(), ids=STORABLE_TEXTS)
def test_no_odd_text_names_a_workspace(slug: str) -> None:
    with pytest.raises(BadWorkspace):
        require_slug(slug)


@pytest.mark.parametrize("name", ["title", "sql_dialect", "default_database", "default_schema"])
@pytest.mark.parametrize("value", ["", " \t", "\u3000"])
def test_a_blank_setting_is_refused(name: str, value: str) -> None:
    with pytest.raises(BadWorkspace, match=f"the {name} of workspace 'cardiologia' is empty"):
        made(**{name: value})


@pytest.mark.parametrize("name", ["title", "sql_dialect", "default_database", "default_schema"])
def test_a_setting_that_cannot_be_stored_is_refused(name: str) -> None:
    with pytest.raises(BadText):
        made(**{name: UNSTORABLE_TEXTS["NUL"]})


def test_outer_blanks_of_a_setting_do_not_count() -> None:
    """They do not count in dependencies either: the default schema has to be the same place."""
    assert made(default_database=" cardio ", default_schema="public\n") == WORKSPACE


def test_a_workspace_may_have_no_default_schema() -> None:
    assert made(default_schema=None).default_schema is None


@pytest.mark.parametrize("code", LANGUAGES)
def test_a_language_with_an_analyser(code: str) -> None:
    assert made(language=code).language == code


@pytest.mark.parametrize("code", ["de", "IT", "italian", "", "it-IT", "it "])
def test_a_language_without_an_analyser_is_refused_at_once(code: str) -> None:
    with pytest.raises(UnknownLanguage, match="no analyser"):
        require_language(code)
    with pytest.raises(UnknownLanguage):
        made(language=code)


def test_a_profile_that_this_version_has_not_is_refused_at_once() -> None:
    with pytest.raises(UnknownProfile):
        made(embedding_profile="ada-002")
