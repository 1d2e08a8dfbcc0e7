"""Joining what a search found with what links lead to: who takes whose place, who comes along, and in which order.

A pure function of the hits and the edges between cards, so that the same registry gives the same answer.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, TypeAlias


class Step(StrEnum):
    """How one card leads to the next."""

    REQUIRES = "requires"
    RELATED = "related"
    SUPERSEDED_BY = "superseded_by"


FACTORS = {Step.REQUIRES: 0.6, Step.RELATED: 0.4, Step.SUPERSEDED_BY: 1.0}
"""What is left of a card's score where a step leads: with every further step less, and all of it where one card takes
the place of another. From 0.7 on, hits that others require were seen to push better ones down."""


class Edge(NamedTuple):
    """One step from card to card."""

    source: str
    step: Step
    target: str


Path: TypeAlias = tuple[Edge, ...]
"""Steps from a hit to a card. Empty for the hit itself."""


def without_circles(edges: Iterable[Edge]) -> tuple[Edge, ...]:
    """Leave out steps to newer cards that lead back: cards that supersede each other keep their places."""
    edges = tuple(dict.fromkeys(edge for edge in edges if edge.source != edge.target))
    newer = _by_source(edges, Step.SUPERSEDED_BY)
    return tuple(
        edge
        for edge in edges
        if edge.step is not Step.SUPERSEDED_BY or edge.source not in _reachable(edge.target, newer)
    )


def choose(hits: Sequence[str], edges: Sequence[Edge], available: Collection[str], *, limit: int) -> dict[str, Path]:
    """The cards to propose, each with the path by which it was reached, in the order in which they were taken.

    A superseded card's place goes to those that supersede it. Up to `limit` places go to hits, best first. What a kept
    card requires comes along, however many; what it is related to takes places that are free.

    Args:
        hits: best first.
        edges: without circles.
        available: the cards that may be proposed. One that may not can still be on a path, as superseded, or stand in
            the way of an older one.
        limit: places.
    """
    choice = _Choice(edges, available)
    for hit in hits:
        if len(choice.kept) == limit:
            break
        choice.take(hit, (), limit - len(choice.kept))
        if hit in choice.kept:  # found by itself, if after a card whose place it has
            choice.kept[hit] = ()
    free = limit - len(choice.kept)
    choice.complete(list(choice.kept))
    choice.fill(free)
    return choice.kept


def newest(card: str, edges: Iterable[Edge]) -> tuple[str, ...]:
    """The cards that stand in a card's place; itself where none supersedes it."""
    return tuple(end for end, _ in _successors(card, _by_source(edges, Step.SUPERSEDED_BY)))


def joint_scores(own: Mapping[str, float], edges: Iterable[Edge], kept: Collection[str]) -> dict[str, float]:
    """The score of every kept card: its own, or what a step brings it, whichever is higher.

    A step brings the score of the card that it starts from, not below 0, times the step's factor.

    Args:
        own: fused scores, of hits that were superseded too; a card without one has what steps bring it.
        edges: without circles. Counted are those from kept cards, and those from superseded ones.
        kept: the cards to score.
    """
    outgoing: dict[str, list[Edge]] = defaultdict(list)
    for edge in edges:
        if edge.source in kept or edge.step is Step.SUPERSEDED_BY:
            outgoing[edge.source].append(edge)
    scores: dict[str, float] = {}
    waiting = [(-score, card) for card, score in own.items()]
    heapq.heapify(waiting)
    while waiting:  # the highest first, so that the first score of a card is its best
        negative, card = heapq.heappop(waiting)
        if card in scores:
            continue
        scores[card] = -negative
        for edge in outgoing[card]:
            heapq.heappush(waiting, (-(max(-negative, 0.0) * FACTORS[edge.step]), edge.target))
    return {card: scores.get(card, 0.0) for card in kept}


def told(path: Path) -> str:
    """A path in words: `mem-0001 requires mem-0002 superseded by mem-0007`; `search` for a hit."""
    if not path:
        return "search"
    return path[0].source + "".join(f" {edge.step.replace('_', ' ')} {edge.target}" for edge in path)


class _Choice:
    """The cards kept so far, and the steps that lead on from them."""

    def __init__(self, edges: Sequence[Edge], available: Collection[str]) -> None:
        self.available = available
        self.kept: dict[str, Path] = {}
        self._newer, self._requires, self._related = (
            _by_source(edges, step) for step in (Step.SUPERSEDED_BY, Step.REQUIRES, Step.RELATED)
        )

    def take(self, card: str, path: Path, room: int) -> list[str]:
        """Keep a card, or those that supersede it, while there is room. Returns what is new."""
        taken: list[str] = []
        for end, further in _successors(card, self._newer):
            if len(taken) < room and end in self.available and end not in self.kept:
                self.kept[end] = path + further
                taken.append(end)
        return taken

    def complete(self, queue: list[str]) -> None:
        """Take what the cards of a queue require, and what that requires."""
        for source in queue:
            for edge in self._requires.get(source, ()):
                queue += self.take(edge.target, (*self.kept[source], edge), len(self.available))

    def fill(self, free: int) -> None:
        """Take related cards while there are free places, each with what it requires."""
        queue = list(self.kept)
        for source in queue:
            for edge in self._related.get(source, ()):
                taken = self.take(edge.target, (*self.kept[source], edge), free)
                free -= len(taken)
                self.complete(taken)
                queue += taken


def _successors(card: str, newer: Mapping[str, Sequence[Edge]]) -> list[tuple[str, Path]]:
    """The cards at the end of every chain that supersedes a card, nearest first; itself where there is none."""
    paths: dict[str, Path] = {card: ()}
    for reached in (queue := [card]):
        for edge in newer.get(reached, ()):
            if edge.target not in paths:
                paths[edge.target] = (*paths[reached], edge)
                queue.append(edge.target)
    return [(reached, path) for reached, path in paths.items() if reached not in newer]


def _reachable(card: str, newer: Mapping[str, Sequence[Edge]]) -> set[str]:
    reached = {card}
    for source in (queue := [card]):
        for edge in newer.get(source, ()):
            if edge.target not in reached:
                reached.add(edge.target)
                queue.append(edge.target)
    return reached


def _by_source(edges: Iterable[Edge], step: Step) -> dict[str, list[Edge]]:
    found: dict[str, list[Edge]] = {}
    for edge in edges:
        if edge.step is step:
            found.setdefault(edge.source, []).append(edge)
    return found
