"""What assets, checks, ops and sensors work with: the same `Services` that the command line uses."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

import dagster as dg

from memory_pipeline import logs
from memory_pipeline.operations.services import Services
from memory_pipeline.settings import Settings

SERVICES = "services"
"""The key under which definitions and jobs find the resource."""

VIA = "dagster"
"""The door that is kept with everything written from here."""


class ServicesFromEnvironment(dg.ConfigurableResource[Services]):
    """The three servers, as the environment names them, for the length of one run or tick.

    It has no fields on purpose: nothing of it can be changed from the launchpad, and nothing secret gets into a run's
    configuration. A connection is opened, and a role's secret read, when a role is first used.
    """

    @contextlib.contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Generator[Services, None, None]:
        """Open nothing yet; close on the way out what was opened."""
        settings = Settings()
        logs.configure(settings.log, settings.log_level, run=context.run.run_id if context.run else None)
        with Services(settings, via=VIA) as services:
            yield services
