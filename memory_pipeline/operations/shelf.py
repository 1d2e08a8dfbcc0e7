"""The cards of a corpus in the scratch workspace that holds them, as far as they have come to exist."""

from __future__ import annotations

from collections.abc import Sequence

from memory_pipeline.core.cards import Link, Relation
from memory_pipeline.core.errors import EvaluationStopped
from memory_pipeline.operations.corpora import Corpus, CorpusCard
from memory_pipeline.operations.curate import add_cards, link_cards
from memory_pipeline.operations.propagate import drain
from memory_pipeline.operations.services import Services

_BATCH = 256
_WAIT_SECONDS = 60.0


class Shelf:
    """Adds cards as curation adds them, and lets the index follow.

    Attributes:
        ids: the corpus's own ids to those of the workspace. Two that say the same in the same places are one card.
    """

    def __init__(self, services: Services, workspace: str, corpus: Corpus) -> None:
        """Take a workspace without cards; nothing is added yet."""
        self.services = services
        self.workspace = workspace
        self.ids: dict[str, str] = {}
        self._corpus = corpus.name
        self._waiting = sorted(corpus.cards, key=lambda card: -1 if card.order is None else card.order)
        self._cards: dict[tuple[str, str], str] = {}
        self._unlinked: list[tuple[str, str]] = []

    def stock(self, before: int | None) -> None:
        """Add every card that exists before this question, with its links; each is found when this returns.

        Raises:
            EvaluationStopped: one of them is not in the index.
            EmbedderUnavailable, IndexUnavailable: a server does not answer.
        """
        born = sum(is_born(card.order, before) for card in self._waiting)
        if not born:
            return
        cards, self._waiting = self._waiting[:born], self._waiting[born:]
        for first in range(0, born, _BATCH):
            self._add(cards[first : first + _BATCH])
        self._link()
        report = drain(self.services, self.workspace, wait=_WAIT_SECONDS, hurry=True, strict=True)
        if not report.settled:
            failed = "; ".join(f"{card.card_id}: {card.error}: {card.message}" for card in report.failed[:3])
            raise EvaluationStopped(self._corpus, failed or f"{report.pending} wait")

    def _add(self, cards: Sequence[CorpusCard]) -> None:
        fresh: dict[tuple[str, str], CorpusCard] = {}
        for card in cards:
            if (identity := _identity(card)) not in self._cards:
                fresh.setdefault(identity, card)
        added = add_cards(self.services, self.workspace, [card.fields for card in fresh.values()])
        self._cards.update(zip(fresh, (card.id for card in added), strict=True))
        for card in cards:
            self.ids[card.id] = self._cards[_identity(card)]
            self._unlinked += ((card.id, target) for target in card.requires)

    def _link(self) -> None:
        """Set the links both ends of which exist; the others wait for theirs."""
        wanted: dict[str, list[Link]] = {}
        waiting = []
        for source, target in self._unlinked:
            if target not in self.ids:
                waiting.append((source, target))
            elif self.ids[source] != self.ids[target]:
                link = Link(relation=Relation.REQUIRES, target=self.ids[target])
                wanted.setdefault(self.ids[source], []).append(link)
        self._unlinked = waiting
        if wanted:
            link_cards(self.services, self.workspace, wanted)


def is_born(order: int | None, before: int | None) -> bool:
    """Whether a card exists when a question is asked."""
    return order is None or before is None or order < before


def _identity(card: CorpusCard) -> tuple[str, str]:
    return card.content.fingerprint, card.content.dependencies_sha256
