"""The administrator's part: roles and passwords, made once, never taken from somebody else unasked."""

from __future__ import annotations

import shutil
from pathlib import Path

import psycopg
import pytest

from memory_pipeline.core.errors import SecretsElsewhere
from memory_pipeline.settings import Settings
from memory_pipeline.store.bootstrap import DAGSTER_ROLE, bootstrap
from memory_pipeline.store.database import Database, Role, server_conninfo

pytestmark = pytest.mark.embedded


@pytest.fixture
def elsewhere(settings: Settings, tmp_path: Path) -> Settings:
    """A second installation on the same server, which has the administrator's secret alone."""
    secrets = tmp_path / "secrets"
    secrets.mkdir(mode=0o700)
    shutil.copy(settings.secrets / "postgres", secrets)
    return Settings(**{**{name: getattr(settings, name) for name in Settings.model_fields}, "secrets_dir": secrets})


def test_a_second_installation_cannot_lock_out_the_first(settings: Settings, elsewhere: Settings) -> None:
    with pytest.raises(SecretsElsewhere, match="memory_reviewer"):
        bootstrap(elsewhere)

    assert [file.name for file in elsewhere.secrets.iterdir()] == ["postgres"]
    with psycopg.connect(Database(settings).conninfo(Role.REVIEWER)) as connection:
        row = connection.execute("SELECT session_user").fetchone()
    assert row == ("memory_reviewer",)


def test_a_repetition_changes_no_password_and_secrets_are_their_owners_alone(settings: Settings) -> None:
    before = {file.name: file.read_text() for file in settings.secrets.iterdir()}

    bootstrap(settings)

    assert {file.name: file.read_text() for file in settings.secrets.iterdir()} == before
    assert {file.stat().st_mode & 0o777 for file in settings.secrets.iterdir()} == {0o600}


@pytest.mark.parametrize("database", ["postgres", "template1"])
def test_no_login_reaches_the_databases_that_a_server_comes_with(settings: Settings, database: str) -> None:
    for login in (DAGSTER_ROLE, *Role):
        password = settings.secret(login).get_secret_value()
        with pytest.raises(psycopg.OperationalError, match="permission denied"):
            psycopg.connect(server_conninfo(settings, user=login, password=password, database=database))
