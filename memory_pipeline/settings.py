"""The one place for settings: the environment first, then what `memory-pipeline up` wrote, then a default.

Endpoints of the embedded stack live in `<state>/stack.json`. A variable of the environment always wins, so that one
variable is enough to use a server of your own with the embedded rest.
"""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from memory_pipeline.core.errors import MissingSecret, ServersUnknown

DEFAULT_STATE = Path(".memory_pipeline")


class Settings(BaseSettings):
    """Where the servers are, which model is wanted, where secrets are read from. Prefix of each variable: `MEMORY_`."""

    model_config = SettingsConfigDict(env_prefix="MEMORY_", frozen=True, extra="ignore")

    state: Path = DEFAULT_STATE
    secrets_dir: Path | None = None

    postgres_host: str | None = None
    postgres_port: int = Field(default=5432, ge=1, le=65535)
    postgres_database: str = "memory"
    postgres_sslmode: str = "prefer"
    postgres_sslrootcert: Path | None = None
    postgres_admin: str = "postgres"
    reviewer_login: str = "memory_reviewer"

    qdrant_url: str | None = None
    fusion: Literal["score", "rrf", "dbsf"] = Field(
        default="score", description="how a search makes one score of its two branches"
    )
    qdrant_timeout: int = Field(default=10, ge=1, le=3600, description="seconds for one request")
    qdrant_shards: int | None = Field(default=None, ge=1, description="of a new collection, in a cluster")
    qdrant_replicas: int | None = Field(default=None, ge=1, description="copies of each shard")
    qdrant_write_consistency: int | None = Field(default=None, ge=1, description="copies that must have a write")

    ollama_url: str | None = None
    ollama_timeout: float = Field(
        default=30.0, gt=0, le=3600, allow_inf_nan=False, description="seconds for one request"
    )
    embedding_model: str = "universal-sentence-encoder"

    inbox: Path | None = None

    log: Literal["off", "text", "json"] = Field(default="off", description="events on standard error")
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    alert_command: str | None = Field(default=None, description="run when a check starts to fail; JSON on its input")
    alert_webhook: SecretStr | None = Field(default=None, description="the same JSON is posted there")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments, then the environment, then the stack file of the state folder that those two name."""
        return init_settings, env_settings, _StackFile(settings_cls)

    @cached_property
    def secrets(self) -> Path:
        """The folder with one file per secret, named as its role or server."""
        return self.secrets_dir or self.state / "secrets"

    @cached_property
    def inbox_path(self) -> Path:
        """The folder into which sessions are dropped as `<workspace>/<session>.jsonl`."""
        return self.inbox or self.state / "inbox"

    def secret(self, name: str) -> SecretStr:
        """Read one secret from its file.

        Raises:
            MissingSecret: the file does not exist, is empty or cannot be read by this user.
        """
        path = self.secrets / name
        try:
            value = path.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise MissingSecret(name, path, error.strerror or "unreadable") from error
        except UnicodeDecodeError as error:
            raise MissingSecret(name, path, "it is not text") from error
        if not value:
            raise MissingSecret(name, path, "the file is empty")
        if not (value.isascii() and value.isprintable()):
            raise MissingSecret(name, path, "it has signs other than printable ASCII, or more than one line")
        return SecretStr(value)

    def optional_secret(self, name: str) -> SecretStr | None:
        """As `secret`, but none where no such file exists (a server without a key)."""
        return self.secret(name) if (self.secrets / name).exists() else None

    def require_servers(self, *names: str) -> None:
        """Raise `ServersUnknown` unless each of `postgres_host`, `qdrant_url`, `ollama_url` asked for is set."""
        missing = [name for name in names if getattr(self, name) is None]
        if missing:
            raise ServersUnknown([f"MEMORY_{name.upper()}" for name in missing], self.state)


class _StackFile(PydanticBaseSettingsSource):
    """Endpoints of the embedded stack, as `up` wrote them; empty where there is no stack."""

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        return self._values.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        return {name: value for name, value in self._values.items() if name in self.settings_cls.model_fields}

    @cached_property
    def _values(self) -> dict[str, Any]:
        state = Path(self.current_state.get("state", DEFAULT_STATE))
        try:
            stack = json.loads((state / "stack.json").read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):  # none, or one that was damaged: `up` writes it anew
            return {}
        settings = stack.get("settings") if isinstance(stack, dict) else None
        return settings if isinstance(settings, dict) and _is_plausible(settings) else {}


def _is_plausible(settings: dict[str, Any]) -> bool:
    """Whether these can be what `up` wrote: one that was damaged must not keep `up` from mending it."""
    port = settings.get("postgres_port", 5432)
    others = [value for name, value in settings.items() if name != "postgres_port"]
    return isinstance(port, int) and 1 <= port <= 65535 and all(isinstance(value, str) for value in others)
