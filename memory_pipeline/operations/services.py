"""The collaborators of the use cases: the registry, the embedder and the index, opened when first used."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Self

from memory_pipeline.settings import Settings
from memory_pipeline.store.database import Database

if TYPE_CHECKING:
    from memory_pipeline.embedding.dense import DenseEmbedder
    from memory_pipeline.index.vector_index import VectorIndex


@dataclass
class Services:
    """One process's connections to the three servers.

    Attributes:
        via: the door that asks (`cli`, `dagster`, `http`, `python`); kept with what is written.
    """

    settings: Settings
    via: str = "python"
    database: Database = field(init=False)

    def __post_init__(self) -> None:
        self.database = Database(self.settings)

    @cached_property
    def embedder(self) -> DenseEmbedder:
        """The client of Ollama. Raises `ServersUnknown` where no address is set."""
        from memory_pipeline.embedding.dense import DenseEmbedder  # noqa: PLC0415 - not every command embeds

        self.settings.require_servers("ollama_url")
        return DenseEmbedder(str(self.settings.ollama_url), timeout=self.settings.ollama_timeout)

    @cached_property
    def index(self) -> VectorIndex:
        """The client of Qdrant. Raises `ServersUnknown` where no address is set."""
        from memory_pipeline.index.spread import Spread  # noqa: PLC0415
        from memory_pipeline.index.vector_index import VectorIndex  # noqa: PLC0415 - its client takes a second to import

        settings = self.settings
        settings.require_servers("qdrant_url")
        key = settings.optional_secret("qdrant_api_key")
        return VectorIndex(
            str(settings.qdrant_url),
            api_key=key.get_secret_value() if key else None,
            timeout=settings.qdrant_timeout,
            spread=Spread(settings.qdrant_shards, settings.qdrant_replicas, settings.qdrant_write_consistency),
        )

    def close(self) -> None:
        """Close what was opened."""
        self.database.close()
        for name in ("embedder", "index"):
            if opened := self.__dict__.pop(name, None):
                opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
