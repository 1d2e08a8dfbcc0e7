"""What compose.yaml runs, run outside containers: each service's own words, variables and secrets, no more."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from memory_pipeline.settings import Settings

TOP = Path(__file__).resolve().parent.parent
IMAGE_ENTRYPOINT = ["memory-pipeline"]


def compose() -> dict[str, Any]:
    """The document, with its anchors and merges resolved as compose resolves them."""
    document: dict[str, Any] = yaml.safe_load((TOP / "compose.yaml").read_text(encoding="utf-8"))
    return document


class Composed:
    """The services of this project's own image, on the servers of a stack.

    Host names of compose's network become the addresses of the stack; each service gets a secrets folder with just what
    compose gives it, and the state folder that they share.
    """

    def __init__(self, settings: Settings, folder: Path, **variables: str) -> None:
        self.services: dict[str, dict[str, Any]] = compose()["services"]
        self.state = folder / "state"
        self._settings = settings
        self._folder = folder
        self._addresses = {
            "MEMORY_POSTGRES_HOST": str(settings.postgres_host),
            "MEMORY_POSTGRES_PORT": str(settings.postgres_port),
            "MEMORY_QDRANT_URL": str(settings.qdrant_url),
            "MEMORY_OLLAMA_URL": str(settings.ollama_url),
            "MEMORY_EMBEDDING_MODEL": settings.embedding_model,
            "MEMORY_INBOX": str(folder / "inbox"),
            "MEMORY_CODE_HOST": "127.0.0.1",
            **variables,
        }

    def command(self, name: str, *, port: int | None = None) -> list[str]:
        """What the container runs. Its port is the only word that is another one here."""
        service = self.services[name]
        words = [*service.get("entrypoint", IMAGE_ENTRYPOINT), *service.get("command", ())]
        return with_port(words, port)

    def check(self, name: str, *, port: int | None = None) -> list[str]:
        """What its health check runs."""
        kind, *words = self.services[name]["healthcheck"]["test"]
        assert kind == "CMD"
        return with_port(words, port)

    def environment(self, name: str) -> dict[str, str]:
        """The variables of the image and of the service."""
        given: Mapping[str, str] = self.services[name].get("environment", {})
        set_here = {
            key: self._addresses.get(key, "" if value.startswith("$") else value) for key, value in given.items()
        }
        folder = self._folder / f"secrets-{name}"
        if not folder.exists():
            folder.mkdir(parents=True, mode=0o700)
            for secret in self.services[name].get("secrets", ()):
                (folder / secret).write_bytes((self._settings.secrets / secret).read_bytes())
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("MEMORY_", "DAGSTER_"))}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        image = {"MEMORY_STATE": str(self.state), "MEMORY_SECRETS_DIR": str(folder), "PATH": path}
        return {**inherited, "PYTHONPATH": str(TOP), **image, **set_here}

    def run(self, name: str, words: list[str]) -> subprocess.CompletedProcess[str]:
        """Run words to their end as the service would."""
        return subprocess.run(
            words,
            env=self.environment(name),
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def start(self, name: str, port: int | None = None) -> subprocess.Popen[bytes]:
        """Start a service; what it writes goes to a log in the folder."""
        with self.log(name).open("ab") as log:
            return subprocess.Popen(
                self.command(name, port=port),
                env=self.environment(name),
                cwd=self._folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def log(self, name: str) -> Path:
        return self._folder / f"{name}.log"


def with_port(words: list[str], port: int | None) -> list[str]:
    if port is None:
        return words
    return [str(port) if before == "--port" else word for before, word in zip(["", *words], words, strict=False)]
