"""Taking in a `registry.jsonl`, reviewed before it is applied.

An import is two calls. The first only tells what would happen, with a token over all of it; the second does exactly
that, or stops. It goes batch by batch, one transaction each, and a record that came in once never comes in again:
broken off anywhere, the same call goes on from there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from pydantic import BaseModel, ConfigDict

from memory_pipeline.core.cards import CardKind, Link, MemoryRecord
from memory_pipeline.core.errors import BadInput, BadRegistryFile, ImportChanged
from memory_pipeline.core.ledger import MAX_LINE_BYTES
from memory_pipeline.core.registry import NumberedRecord, Reading, RegistryRecord, read_records
from memory_pipeline.core.text import sha256
from memory_pipeline.operations.services import Services
from memory_pipeline.store import cards, curation, workspaces
from memory_pipeline.store.curation import ImportedRecord, identity_of
from memory_pipeline.store.database import Role, Transaction

BATCH = 200
"""Records in one transaction. Cards that link to one another stay together, however many they are."""

_TOKEN_DIGITS = 32
Progress = Callable[[int], None]
Key = tuple[str, str]


class ImportOutcome(StrEnum):
    """What an import does with a record that it takes."""

    CREATED = "created"
    PROVENANCE_ADDED = "provenance_added"
    KNOWN = "known"


class ImportedLine(BaseModel):
    """One record and what becomes of it. `card_id` is the card that it joins, or became once it was applied."""

    model_config = ConfigDict(frozen=True)

    line_number: int
    workspace: str
    id: str
    subject: str
    outcome: ImportOutcome
    card_id: str | None = None
    warnings: tuple[str, ...] = ()


class RefusedRegistryLine(BaseModel):
    """A line that is not taken, and why."""

    model_config = ConfigDict(frozen=True)

    line_number: int
    reason: str
    message: str


class ImportReport(BaseModel):
    """What an import would do, or did. `expect` names all of it: an import is applied as the token says, or not."""

    model_config = ConfigDict(frozen=True)

    workspace: str
    file: str
    file_sha256: str
    expect: str
    applied: bool
    counts: dict[ImportOutcome, int]
    records: tuple[ImportedLine, ...]
    quarantined: tuple[RefusedRegistryLine, ...]


def review_import(services: Services, workspace: str, file: Path) -> ImportReport:
    """Tell what importing a file would do, as the reviewer. Nothing is written.

    Raises:
        BadRegistryFile: it cannot be read.
        UnknownWorkspace, WorkspaceRetired.
    """
    return _Import.open(services, workspace, file).review(expect="")


def apply_import(
    services: Services,
    workspace: str,
    file: Path,
    *,
    expect: str,
    batch: int = BATCH,
    progress: Progress = lambda _: None,
) -> ImportReport:
    """Import a file as it was reviewed, as the reviewer; a repetition changes nothing and answers the same.

    Args:
        expect: the token of the review.
        progress: told how many records were settled since the last call.

    Raises:
        ImportChanged: file or registry are not as they were reviewed. Batches that were written before stay, and the
            next review calls their records known.
        BadRegistryFile, UnknownWorkspace, WorkspaceRetired.
    """
    if not expect:
        raise BadInput("an import is applied only as it was reviewed", hint="give the token of the review")
    reviewed = _Import.open(services, workspace, file)
    plan = reviewed.review(expect=expect)
    if plan.expect != expect:
        raise ImportChanged(expect[:_TOKEN_DIGITS], plan.expect)
    reviewed.quarantine()
    settled: dict[int, ImportedLine] = {}
    for group in _batches(reviewed.reading.records, plan.records, batch):
        settled.update(reviewed.apply(group, plan, expect))
        progress(len(group))
    records = tuple(settled.get(line.line_number, line) for line in plan.records)
    return plan.model_copy(update={"applied": True, "records": records})


class _Import(NamedTuple):
    """One file on its way into one workspace."""

    services: Services
    workspace: str
    file: Path
    file_sha256: str
    reading: Reading

    @classmethod
    def open(cls, services: Services, workspace: str, file: Path) -> _Import:
        """Read and check the whole file."""
        with services.database.transaction(Role.REVIEWER, workspace, via=services.via) as tx:
            settings = workspaces.get_active(tx, workspace)
        digest = hashlib.sha256()
        try:
            with file.open("rb") as stream:
                reading = read_records(_lines(stream, digest.update), settings.default_schema)
        except OSError as error:
            raise BadRegistryFile(file, f"cannot be read: {error.strerror}") from error
        return cls(services, workspace, file, digest.hexdigest(), reading)

    def review(self, *, expect: str) -> ImportReport:
        """What applying would do. Records that came in under this token are told as they were reviewed."""
        with self.services.database.transaction(Role.REVIEWER, self.workspace, via=self.services.via) as tx:
            lines = _plan(tx, self.workspace, self.reading.records, expect)
        refused = tuple(
            RefusedRegistryLine(line_number=bad.line_number, reason=bad.reason, message=bad.message)
            for bad in self.reading.refused
        )
        return ImportReport(
            workspace=self.workspace,
            file=str(self.file),
            file_sha256=self.file_sha256,
            expect=self._token(lines),
            applied=False,
            counts={outcome: sum(line.outcome is outcome for line in lines) for outcome in ImportOutcome},
            records=lines,
            quarantined=refused,
        )

    def _token(self, lines: Sequence[ImportedLine]) -> str:
        """Of the file, of what becomes of each line, and of the cards: places depend on the workspace's schema too."""
        gist = [
            self.workspace,
            self.file_sha256,
            [_gist(line) for line in lines],
            [identity_of(item.content) for item in self.reading.records],
            [bad.line_number for bad in self.reading.refused],
        ]
        return sha256(json.dumps(gist))[:_TOKEN_DIGITS]

    def quarantine(self) -> None:
        """Keep the lines that are not taken where people find them."""
        if self.reading.refused:
            with self.services.database.transaction(Role.REVIEWER, self.workspace, via=self.services.via) as tx:
                workspaces.get_active(tx, self.workspace)
                curation.quarantine(tx, self.workspace, self.file_sha256, self.reading.refused)

    def apply(self, group: Sequence[NumberedRecord], plan: ImportReport, expect: str) -> dict[int, ImportedLine]:
        """One batch, in one transaction, if it still is what was reviewed."""
        reviewed = {line.line_number: line for line in plan.records}
        with self.services.database.transaction(Role.REVIEWER, self.workspace, via=self.services.via) as tx:
            workspaces.get_active(tx, self.workspace)
            workspaces.lock_cards(tx, self.workspace)
            now = _plan(tx, self.workspace, group, expect, warn=False)
            for line in now:
                if _gist(line) != _gist(reviewed[line.line_number]):
                    raise ImportChanged(expect, f"another one at line {line.line_number}")
            done = {key: found.card_id for key, found in _known(tx, self.workspace, group).items()}
            fresh = [item for item in group if item.record.key not in done]
            targets = {**_targets(tx, self.workspace, group), **self._give_ids(tx, fresh, reviewed)}
            for item in fresh:
                if reviewed[item.line_number].outcome is not ImportOutcome.KNOWN:
                    self._take(tx, item, reviewed[item.line_number], targets, expect)
        return {
            item.line_number: reviewed[item.line_number].model_copy(
                update={"card_id": targets.get(item.record.key, reviewed[item.line_number].card_id)}
            )
            for item in group
        }

    def _give_ids(
        self, tx: Transaction, fresh: Sequence[NumberedRecord], reviewed: Mapping[int, ImportedLine]
    ) -> dict[Key, str]:
        """The card of each record that is new here: the one that it joins, or a new id."""
        joined = {item.record.key: card for item in fresh if (card := reviewed[item.line_number].card_id)}
        created = [item.record.key for item in fresh if item.record.key not in joined]
        return {**joined, **dict(zip(created, cards.next_ids(tx, self.workspace, len(created)), strict=True))}

    def _take(
        self,
        tx: Transaction,
        item: NumberedRecord,
        line: ImportedLine,
        targets: Mapping[Key, str],
        expect: str,
    ) -> None:
        card_id = targets[item.record.key]
        if line.outcome is ImportOutcome.CREATED:
            links = [
                Link(relation=link.relation, target=target)
                for link in item.record.links
                if (target := targets.get((item.record.workspace, link.target))) and target != card_id
            ]
            content = item.content.model_copy(update={"links": tuple(dict.fromkeys(links))})
            cards.insert(tx, self.workspace, card_id, content)
        curation.insert_source(tx, self.workspace, card_id, "import", self._provenance(item.record, line, expect))

    def _provenance(self, record: RegistryRecord, line: ImportedLine, expect: str) -> dict[str, Any]:
        """What is kept of where a record came from."""
        return {
            **record.model_dump(
                mode="json",
                include={
                    "workspace", "id", "revision", "created_at", "created_by", "updated_at", "updated_by", "sources"
                },
            ),
            "file_sha256": self.file_sha256,
            "expect": expect,
            "outcome": line.outcome.value,
        }  # fmt: skip


def _plan(
    tx: Transaction, workspace: str, records: Sequence[NumberedRecord], expect: str, *, warn: bool = True
) -> tuple[ImportedLine, ...]:
    """What becomes of each record as the registry stands."""
    known, own = _known(tx, workspace, records), _own(tx, workspace, records)
    equals = curation.active_with(tx, workspace, CardKind.MEMORY, [identity_of(item.content) for item in records])
    reachable = {item.record.key for item in records} | _targets(tx, workspace, records).keys() if warn else set()
    lines = []
    for item in records:
        outcome, card_id, warnings = _outcome(item, known, own, equals.get(identity_of(item.content)), expect)
        if warn and outcome is not ImportOutcome.KNOWN:
            warnings += _lost_links(item.record, outcome, card_id, reachable)
        lines.append(
            ImportedLine(
                line_number=item.line_number,
                workspace=item.record.workspace,
                id=item.record.id,
                subject=item.content.subject,
                outcome=outcome,
                card_id=card_id,
                warnings=warnings,
            )
        )
    return tuple(lines)


def _outcome(
    item: NumberedRecord,
    known: Mapping[Key, ImportedRecord],
    own: Mapping[Key, MemoryRecord],
    equal: str | None,
    expect: str,
) -> tuple[ImportOutcome, str | None, tuple[str, ...]]:
    if before := known.get(item.record.key):
        if before.imported.get("expect") == expect:
            outcome = ImportOutcome(before.imported["outcome"])
            return outcome, None if outcome is ImportOutcome.CREATED else before.card_id, ()
        newer = item.record.revision != before.imported.get("revision")
        warning = f"imported at revision {before.imported.get('revision')}, the file has {item.record.revision}"
        return ImportOutcome.KNOWN, before.card_id, (warning,) if newer else ()
    if card := own.get(item.record.key):
        newer = item.record.revision != card.revision
        warning = f"{card.id} is {card.status} at revision {card.revision}, the file has {item.record.revision}"
        return ImportOutcome.KNOWN, card.id, (warning,) if newer else ()
    if equal is not None:
        return ImportOutcome.PROVENANCE_ADDED, equal, ()
    return ImportOutcome.CREATED, None, ()


def _lost_links(
    record: RegistryRecord, outcome: ImportOutcome, card_id: str | None, reachable: set[Key]
) -> tuple[str, ...]:
    """Links that the card will not have: to what is not in the registry, or of a record that only adds a source."""
    if outcome is ImportOutcome.PROVENANCE_ADDED:
        return (f"{card_id} is not changed: it does not get the links of this record",) if record.links else ()
    return tuple(
        f"the link {link.relation} {link.target} is left out: no such card comes with the file"
        for link in record.links
        if (record.workspace, link.target) not in reachable
    )


def _known(tx: Transaction, workspace: str, records: Iterable[NumberedRecord]) -> dict[Key, ImportedRecord]:
    return curation.imported_before(tx, workspace, [item.record.key for item in records])


def _own(tx: Transaction, workspace: str, records: Iterable[NumberedRecord]) -> dict[Key, MemoryRecord]:
    """Records that this very registry wrote: equal workspace and id, made at the same moment."""
    ours = {item.record.id: item.record for item in records if item.record.workspace == workspace}
    return {
        ours[card.id].key: card
        for card in cards.get_many(tx, workspace, list(ours)).values()
        if card.created_at == ours[card.id].created_at
    }


def _targets(tx: Transaction, workspace: str, records: Sequence[NumberedRecord]) -> dict[Key, str]:
    """The cards of records that these link to, as far as they are in the registry already."""
    named = {(item.record.workspace, link.target) for item in records for link in item.record.links}
    keys = named | {item.record.key for item in records}
    known = {key: found.card_id for key, found in curation.imported_before(tx, workspace, keys).items()}
    own = {key: card.id for key, card in _own(tx, workspace, records).items()}
    return {**own, **known}


def _gist(line: ImportedLine) -> tuple[int, str, str | None]:
    return line.line_number, line.outcome.value, line.card_id


def _batches(
    records: Sequence[NumberedRecord], lines: Sequence[ImportedLine], size: int
) -> Iterator[list[NumberedRecord]]:
    """The records, in parts of about this size that no link leaves."""
    batch: list[NumberedRecord] = []
    for group in _linked_groups(records):
        batch += group
        if len(batch) >= size:
            yield sorted(batch, key=lambda item: item.line_number)
            batch = []
    if batch:
        yield sorted(batch, key=lambda item: item.line_number)


def _linked_groups(records: Sequence[NumberedRecord]) -> Iterator[list[NumberedRecord]]:
    """Records that links join, however far, in one group; groups in the order of their first record."""
    at = {item.record.key: place for place, item in enumerate(records)}
    neighbours: list[set[int]] = [set() for _ in records]
    for place, item in enumerate(records):
        for link in item.record.links:
            other = at.get((item.record.workspace, link.target))
            if other is not None:
                neighbours[place].add(other)
                neighbours[other].add(place)
    seen: set[int] = set()
    for start in range(len(records)):
        if start in seen:
            continue
        group, waiting = [], [start]
        seen.add(start)
        while waiting:
            place = waiting.pop()
            group.append(records[place])
            fresh = neighbours[place] - seen
            seen |= fresh
            waiting += fresh
        yield group


def _lines(stream: BinaryIO, tell: Callable[[bytes], None]) -> Iterator[bytes]:
    """Lines without their newlines. Of one above the limit only its beginning is kept, enough for it to be refused."""
    while head := stream.readline(MAX_LINE_BYTES + 1):
        tell(head)
        ended = head.endswith(b"\n")
        while not ended and (rest := stream.readline(MAX_LINE_BYTES)):
            tell(rest)
            ended = rest.endswith(b"\n")
        yield head.removesuffix(b"\n")
