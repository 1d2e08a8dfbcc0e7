"""Every error that a user can meet. Each says what happened, where, and what to do now.

The exit code of the command line belongs to the family, so that a caller can tell them apart without reading text:

| code | family |
|---|---|
| 0 | done |
| 1 | a defect of this program |
| 2 | the command's own words are off |
| 10 | bad input |
| 11 | not found |
| 12 | conflict with what is already there |
| 13 | refused: not allowed, or not in this state |
| 14 | done, answer lost |
| 20 | configuration |
| 30 | PostgreSQL cannot be reached or failed |
| 31 | Qdrant cannot be reached, failed, or holds something incompatible |
| 32 | the embedder cannot be reached, lacks the model, or gave a useless vector |
| 40 | the embedded stack cannot start or stop |
| 50 | index incomplete: not there yet, or something of it still waits |
| 51 | the index and the registry differ |
| 60 | Dagster's webserver, daemon or code location is not well |
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from memory_pipeline.core.display import counted


class MemoryPipelineError(Exception):
    """Base of the family.

    Attributes:
        message: what happened, to which workspace and card.
        hint: what to do now.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    @property
    def name(self) -> str:
        """The name by which the contract tells this error: the class's own."""
        return type(self).__name__

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})"


# --- bad input ---------------------------------------------------------------------------------------------------


class BadInput(MemoryPipelineError):
    """Something given by the caller cannot be used."""

    exit_code = 10


class BadText(BadInput):
    """A text that PostgreSQL or JSON cannot hold."""


class BadDependency(BadInput):
    """A physical dependency that names a part without its parent."""


class BadReference(BadInput):
    """A reference that is not written as `seq:N`, `phase:FN` or `mem-NNNN`."""


class BadWorkspace(BadInput):
    """A workspace's slug, language or setting that cannot be used."""


class BadRuntime(BadInput):
    """A runtime file that cannot be read or lacks a field."""


class BadLedgerLine(BadInput):
    """A line of a ledger that cannot be taken. `reason` is a short code for quarantine tables."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message, hint="correct the line and append it again")
        self.reason = reason


class BadQuestion(BadInput):
    """An empty question, or one longer than is ever embedded."""


class FilterNotAllowed(BadInput):
    """A search filter that tries to replace what the runtime fixes."""


class BadCard(BadInput):
    """Content that cannot be a card of its kind."""


class SelfLink(BadInput):
    """A link from a card to itself."""

    def __init__(self, card: str) -> None:
        super().__init__(f"{card} cannot be linked to itself", hint="name another card of the workspace")


class BadRegistryLine(BadInput):
    """A line of a registry file that an import cannot take. `reason` is a short code for quarantine tables."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message, hint="correct the line and import the file again")
        self.reason = reason


class BadRegistryFile(BadInput):
    """A registry file that cannot be read or written at all. A line that cannot be taken is quarantined instead."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path}: {why}", hint="name a file that this user may use")


class BadCorpus(BadInput):
    """A folder of cards and questions that cannot be evaluated: a line of it, or all of it."""

    def __init__(self, place: str, why: str) -> None:
        super().__init__(f"{place}: {why}", hint="docs/evaluation.md tells how a corpus is written")


class BadGolden(BadInput):
    """A golden question, or a file of them, that cannot be used."""

    def __init__(
        self, place: str, why: str, *, hint: str = "give question and expected; database and schema are optional"
    ) -> None:
        super().__init__(f"{place}: {why}", hint=hint)


# --- not found ---------------------------------------------------------------------------------------------------


class NotFound(MemoryPipelineError):
    """Something named by the caller does not exist."""

    exit_code = 11


class UnknownWorkspace(NotFound):
    """No workspace of that name, or none that this role may see."""

    def __init__(self, workspace: str) -> None:
        super().__init__(
            f"there is no workspace {workspace!r}",
            hint="memory-pipeline workspace list shows them; memory-pipeline workspace create makes one",
        )


class UnknownSession(NotFound):
    """No session of that id in the workspace."""

    def __init__(self, workspace: str, session: str) -> None:
        super().__init__(
            f"workspace {workspace!r} has no session {session!r}",
            hint="append to its ledger first, or drop <session>.jsonl into the workspace's inbox",
        )


class UnknownPreview(NotFound):
    """No preview of that id in the workspace."""

    def __init__(self, workspace: str, preview: str) -> None:
        super().__init__(
            f"workspace {workspace!r} has no preview {preview!r}",
            hint="run memory-pipeline promote preview and decide on the id that it prints",
        )


class NotInPreview(NotFound):
    """A seq that the preview does not hold."""

    def __init__(self, preview: str, seqs: Iterable[int]) -> None:
        named = ", ".join(f"seq:{seq}" for seq in sorted(seqs))
        super().__init__(f"preview {preview} does not hold {named}", hint="decide only on seqs that the preview shows")


class UnknownCard(NotFound):
    """No card of that id in the workspace."""

    def __init__(self, workspace: str, card: str) -> None:
        super().__init__(
            f"workspace {workspace!r} has no card {card!r}",
            hint="memory-pipeline cards list shows them; an id looks like mem-0001",
        )


# --- conflict ----------------------------------------------------------------------------------------------------


class Conflict(MemoryPipelineError):
    """The request does not fit what is already there."""

    exit_code = 12


class WorkspaceExists(Conflict):
    """A workspace of that name exists with other settings."""


class LedgerSourceConflict(Conflict):
    """A session is fed by one door; this is the other one."""

    def __init__(self, workspace: str, session: str, door: str) -> None:
        super().__init__(
            f"session {session!r} of workspace {workspace!r} is fed by its {door}",
            hint=f"go on writing it by its {door}, or use another session id",
        )


class LedgerTampered(Conflict):
    """The part of a ledger file that was already read has changed."""

    def __init__(self, path: str, line: int) -> None:
        super().__init__(
            f"{path} has changed at or before line {line}, which was already read",
            hint="nothing of it was loaded: restore the file, or let the owner accept it as it is with "
            "memory-pipeline ledger reset-source",
        )


class LedgerMoved(Conflict):
    """A session does not end where the caller of `append` last saw it."""

    def __init__(self, session: str, expected: int, last: int) -> None:
        super().__init__(
            f"session {session!r} ends at seq {last}, not {expected}: nothing was appended",
            hint="after a time-out, memory-pipeline ledger show tells whether the lines are there already; "
            f"append what is missing with --expect-seq {last}",
        )
        self.last = last


class NothingRead(Conflict):
    """A reset of a source of which nothing was read since it began, or was last reset."""

    def __init__(self, workspace: str, session: str) -> None:
        super().__init__(
            f"nothing was read yet of the file of session {session!r} of workspace {workspace!r}",
            hint="there is nothing to reset: memory-pipeline ledger read takes the file as it is",
        )


class PreviewExpired(Conflict):
    """The preview is older than its expiry."""

    def __init__(self, preview: str) -> None:
        super().__init__(f"preview {preview} has expired", hint="run memory-pipeline promote preview again")


class CandidateChanged(Conflict):
    """A candidate is no longer what the reviewer saw."""

    def __init__(self, seq: int, why: str) -> None:
        super().__init__(f"candidate seq:{seq} is not what the preview showed: {why}", hint="preview again and decide")
        self.seq = seq


class AlreadyDecided(Conflict):
    """A candidate was decided before, with the other verdict."""

    def __init__(self, seq: int, verdict: str) -> None:
        super().__init__(
            f"candidate seq:{seq} was already {verdict}", hint="each candidate is decided once; leave it out"
        )
        self.seq = seq


class DuplicateCard(Conflict):
    """An active memory with the same text, dependencies and scope exists."""


class StaleRevision(Conflict):
    """A change was made on a revision that is not the newest any more."""

    def __init__(self, card: str, given: int, newest: int, who: str, when: str) -> None:
        super().__init__(
            f"{card} is at revision {newest} (by {who}, {when}), the change was made on revision {given}",
            hint=f"memory-pipeline cards show {card} --history tells what changed; make the change on {newest}",
        )
        self.newest = newest


class CardDeleted(Conflict):
    """The card is deleted: its row stays, nothing of it changes any more."""

    def __init__(self, card: str, who: str, when: str) -> None:
        super().__init__(
            f"{card} was deleted by {who}, {when}", hint="add a new card if the knowledge holds again; ids stay used"
        )


class ImportChanged(Conflict):
    """An import would do something else than what was reviewed."""

    def __init__(self, reviewed: str, now: str) -> None:
        super().__init__(
            f"the import that was reviewed as {reviewed} would be {now} now: the file or the registry has changed",
            hint="run memory-pipeline registry import without --apply, review it, and apply what it prints",
        )


# --- refused -----------------------------------------------------------------------------------------------------


class Refused(MemoryPipelineError):
    """Not allowed to this role, or not in this state."""

    exit_code = 13


class NotReusable(Refused):
    """A type that never becomes a memory."""

    def __init__(self, type_: str) -> None:
        super().__init__(
            f"a decision of type {type_!r} never becomes a memory", hint="only clarified concepts are reusable"
        )


class NotAConcept(Refused):
    """A subject that is only the name of a fact or dimension table, by its form."""

    def __init__(self, subject: str) -> None:
        super().__init__(
            f"{subject[:80]!r} names a table, and a table is no memory",
            hint="name the concept, and cite the table in the detail or as a dependency",
        )


class EvidenceNotCurated(Refused):
    """A change by curation of what only its own review may change."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"evidence is not {what} by curation: it is live only after the review of its source",
            hint="delete it where it must go, or add a memory or an exemplar of its own",
        )


class FourEyes(Refused):
    """A human wants to promote a decision of their own, where the workspace asks for four eyes."""

    def __init__(self, identity: str, seqs: Iterable[int]) -> None:
        named = ", ".join(f"seq:{seq}" for seq in sorted(seqs))
        super().__init__(
            f"{identity} decided {named}, and nobody promotes a decision of their own in this workspace",
            hint="let another reviewer promote it; nothing of the checklist was written",
        )


class CandidatesPending(Refused):
    """A session with undecided candidates is to be closed."""

    def __init__(self, session: str, seqs: Iterable[int]) -> None:
        pending = sorted(seqs)
        named = ", ".join(f"seq:{seq}" for seq in pending[:20]) + (", ..." if len(pending) > 20 else "")
        super().__init__(
            f"session {session!r} has {counted(len(pending), 'undecided candidate')}: {named}",
            hint="decide them with memory-pipeline promote, or close with --leave-pending",
        )


class WorkspaceRetired(Refused):
    """The workspace is retired: nothing is promoted into it or searched in it."""

    def __init__(self, workspace: str) -> None:
        super().__init__(
            f"workspace {workspace!r} is retired", hint="its owner can restore it: memory-pipeline workspace restore"
        )


class NotScratch(Refused):
    """A purge of a workspace that no evaluation made."""

    def __init__(self, workspace: str) -> None:
        super().__init__(
            f"workspace {workspace!r} was not made for an evaluation: it is not purged",
            hint="take it out of use with memory-pipeline workspace retire",
        )


class RoleRefused(Refused):
    """PostgreSQL refused the statement to the role that asked."""


class DecideFromUiDisabled(Refused):
    """A promotion launched from the Dagster UI while that door is shut."""

    def __init__(self) -> None:
        super().__init__(
            "promote_job decides only where MEMORY_UI_DECIDE=1 is set",
            hint="decide with memory-pipeline promote decide, or set the variable for the code location",
        )


class CurateFromUiDisabled(Refused):
    """A change of a card launched from the Dagster UI while that door is shut."""

    def __init__(self) -> None:
        super().__init__(
            "curate_job changes cards only where MEMORY_UI_DECIDE=1 is set",
            hint="change them with memory-pipeline cards, or set the variable for the code location",
        )


# --- configuration -----------------------------------------------------------------------------------------------


class ConfigurationError(MemoryPipelineError):
    """A setting, a secret or the schema's state does not allow a start."""

    exit_code = 20


class ServersUnknown(ConfigurationError):
    """No address for a server that the command needs."""

    def __init__(self, variables: Iterable[str], state: Path) -> None:
        names = tuple(variables)
        super().__init__(
            f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} not set, and no embedded stack runs in {state}",
            hint="run memory-pipeline up, or set " + ("the variable" if len(names) == 1 else "the variables"),
        )


class MissingSecret(ConfigurationError):
    """The file of a secret is missing, empty or not readable."""

    def __init__(self, name: str, path: Path, why: str) -> None:
        super().__init__(
            f"the secret {name!r} cannot be read from {path}: {why}",
            hint="run memory-pipeline up, or set MEMORY_SECRETS_DIR to the folder that holds it",
        )


class SecretsElsewhere(ConfigurationError):
    """Roles exist on the server, made by an installation whose secrets are not here."""

    def __init__(self, roles: Iterable[str], folder: Path) -> None:
        super().__init__(
            f"these roles exist, and their secrets are not in {folder}: {', '.join(roles)}",
            hint="copy the secrets of the installation that made them, or give new ones with --reset-passwords",
        )


class AlertFailed(ConfigurationError):
    """A check started to fail, and whoever is to be told could not be. The next tick tells again."""

    def __init__(self, door: str, why: str) -> None:
        super().__init__(f"{door} did not take an alert: {why}", hint=f"correct {door}, or unset it")


class MigrationsLag(ConfigurationError):
    """The schema is older than the code."""

    def __init__(self, missing: Iterable[str]) -> None:
        super().__init__(
            f"these migrations are not applied: {', '.join(missing)}", hint="run memory-pipeline migrate as the owner"
        )


class MigrationsAhead(ConfigurationError):
    """The schema is newer than the code."""

    def __init__(self, unknown: Iterable[str]) -> None:
        super().__init__(
            f"the database has migrations that this version does not know: {', '.join(unknown)}",
            hint="install the version of memory-pipeline that made them",
        )


class MigrationChanged(ConfigurationError):
    """A migration that was applied differs from the file."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"migration {name} was applied with another content than the file has now",
            hint="restore the file and put the change into a new migration",
        )


class UnknownLanguage(ConfigurationError):
    """A language for which no analyser exists."""

    def __init__(self, language: str, known: Iterable[str]) -> None:
        super().__init__(f"no analyser for language {language!r}", hint=f"use one of {', '.join(sorted(known))}")


class UnknownProfile(ConfigurationError):
    """An embedding profile that this version does not have."""

    def __init__(self, profile: str, known: Iterable[str]) -> None:
        super().__init__(f"no embedding profile {profile!r}", hint=f"use one of {', '.join(sorted(known))}")


# --- servers -----------------------------------------------------------------------------------------------------


class StoreUnavailable(MemoryPipelineError):
    """PostgreSQL cannot be reached, or broke off."""

    exit_code = 30


class IndexUnavailable(MemoryPipelineError):
    """Qdrant cannot be reached, timed out, or answered with an error."""

    exit_code = 31


class IncompatibleCollection(MemoryPipelineError):
    """A collection whose vectors differ from what its generation says. It is never replaced unasked."""

    exit_code = 31


class IndexRefused(IndexUnavailable):
    """Qdrant runs and refuses what was sent: the fault of the request, not of the server."""


class RegistryRestored(MemoryPipelineError):
    """The index was written by a registry that had come further than this one: a backup was restored since."""

    exit_code = 31

    def __init__(self, workspace: str, collection: str) -> None:
        super().__init__(
            f"collection {collection!r} is ahead of workspace {workspace!r} in the registry, which was restored from a "
            "backup: nothing is written to it",
            hint="memory-pipeline index --rebuild builds another one from the registry; searches go on meanwhile",
        )


class EmbedderUnavailable(MemoryPipelineError):
    """Ollama cannot be reached, timed out, or answered with an error."""

    exit_code = 32


class ModelMissing(EmbedderUnavailable):
    """The embedder does not have the model."""

    def __init__(self, model: str, have: Iterable[str]) -> None:
        names = ", ".join(sorted(have)) or "none"
        super().__init__(
            f"the embedder has no model {model!r} (it has: {names})",
            hint=f"run ollama pull {model}, or set MEMORY_EMBEDDING_MODEL",
        )


class ModelChanged(EmbedderUnavailable):
    """The embedder has another model than the index was built with, under the same name."""

    def __init__(self, model: str, built: str, now: str) -> None:
        super().__init__(
            f"model {model!r} is {now[:12]} on the embedder, and the index was built with {built[:12]}: their vectors "
            "cannot be compared",
            hint="memory-pipeline index --rebuild builds the index with the new one; or bring the old one back",
        )


class TextTooLong(EmbedderUnavailable):
    """One text is longer than the model's context. It is never cut silently."""


class UselessVector(EmbedderUnavailable):
    """The embedder gave a vector that is zero, not finite, or of another length."""


class CollectionMissing(IndexUnavailable):
    """The collection that the store names is not on the server. It is rebuilt from PostgreSQL."""

    def __init__(self, collection: str) -> None:
        super().__init__(
            f"collection {collection!r} is not on the Qdrant server",
            hint="run memory-pipeline index for its workspace: it is recreated from PostgreSQL",
        )


class IndexBusy(Conflict):
    """Another writer has the workspace's index."""

    def __init__(self, workspace: str) -> None:
        super().__init__(
            f"the index of workspace {workspace!r} is being written by another process", hint="wait for it, then repeat"
        )


class NotIndexed(MemoryPipelineError):
    """The workspace has no serving index yet."""

    exit_code = 50

    def __init__(self, workspace: str) -> None:
        super().__init__(
            f"workspace {workspace!r} has never been indexed", hint="run memory-pipeline index for it, then search"
        )


class RebuildIncomplete(MemoryPipelineError):
    """A rebuild that would lose what is found today. The index that serves goes on."""

    exit_code = 50

    def __init__(self, workspace: str, why: str) -> None:
        super().__init__(
            f"the rebuild of workspace {workspace!r} was not switched to, the old index serves: {why}",
            hint="mend the cause, then run memory-pipeline index --rebuild again: it goes on from where it stopped",
        )


class StoresDiffer(MemoryPipelineError):
    """A comparison found what the outbox does not explain."""

    exit_code = 51

    def __init__(self, workspace: str, differences: int) -> None:
        super().__init__(
            f"index and registry of workspace {workspace!r} differ in {differences} places",
            hint="memory-pipeline reconcile mends what is derived, and proposes the rest to a human",
        )


class NotMeasured(NotFound):
    """The retrieval quality of the workspace was never measured."""

    def __init__(self, workspace: str) -> None:
        super().__init__(
            f"the retrieval quality of workspace {workspace!r} was never measured",
            hint="materialise its asset retrieval_quality, or launch evaluate_job",
        )


class EvaluationStopped(MemoryPipelineError):
    """Cards of an evaluation that never reached the index: figures without them would mean nothing."""

    exit_code = 50

    def __init__(self, corpus: str, why: str) -> None:
        super().__init__(
            f"the cards of {corpus} are not all in the index: {why}", hint="mend the cause, then evaluate again"
        )


# --- the answer --------------------------------------------------------------------------------------------------


class AnswerLost(MemoryPipelineError):
    """Standard output took no more: what the command was to do is done, its answer is not told."""

    exit_code = 14

    def __init__(self, why: str) -> None:
        super().__init__(
            f"the answer could not be written to standard output: {why}",
            hint="what was asked is done; the same call again gives the answer",
        )


# --- the control room --------------------------------------------------------------------------------------------


class ControlRoomUnavailable(MemoryPipelineError):
    """A process of Dagster, or its database, does not answer as it should."""

    exit_code = 60
