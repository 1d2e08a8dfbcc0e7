"""Telling people that a check has started to fail: a command of theirs, a webhook, or both."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from datetime import datetime

import httpx
from pydantic import BaseModel, ConfigDict

from memory_pipeline.core.errors import AlertFailed
from memory_pipeline.settings import Settings

TIMEOUT_SECONDS = 20.0
COMMAND, WEBHOOK = "MEMORY_ALERT_COMMAND", "MEMORY_ALERT_WEBHOOK"


class Alert(BaseModel):
    """A check that passed before, or never ran, and failed now. `run`: empty where no run made it."""

    model_config = ConfigDict(frozen=True)

    asset: str
    check: str
    workspace: str | None
    severity: str
    description: str
    run: str
    at: datetime


class Alerts(BaseModel):
    """What is told at once."""

    model_config = ConfigDict(frozen=True)

    alerts: tuple[Alert, ...]


def is_anyone_told(settings: Settings) -> bool:
    """Whether a door is set."""
    return bool(settings.alert_command or settings.alert_webhook)


def tell(settings: Settings, alerts: Sequence[Alert]) -> None:
    """Tell all alerts at once, through each door that is set.

    Raises:
        AlertFailed: a door did not take them. The same alerts may be told again: a door that took them hears twice.
    """
    told = Alerts(alerts=tuple(alerts)).model_dump_json()
    if settings.alert_command:
        _run(settings.alert_command, told)
    if settings.alert_webhook:
        _post(settings.alert_webhook.get_secret_value(), told)


def _run(command: str, told: str) -> None:
    """Run a command, without a shell, with the JSON on its input."""
    try:
        done = subprocess.run(
            shlex.split(command), input=told.encode(), capture_output=True, timeout=TIMEOUT_SECONDS, check=False
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise AlertFailed(COMMAND, type(error).__name__) from error
    if done.returncode:
        raise AlertFailed(COMMAND, f"it ended with code {done.returncode}")


def _post(url: str, told: str) -> None:
    """Post the JSON. The address may hold a token: no error shows it."""
    try:
        answer = httpx.post(
            url, content=told.encode(), headers={"content-type": "application/json"}, timeout=TIMEOUT_SECONDS
        )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise AlertFailed(WEBHOOK, type(error).__name__) from None
    if not answer.is_success:
        raise AlertFailed(WEBHOOK, f"it answered {answer.status_code}")
