"""Corpora for measuring recall: folders of cards and questions, read from JSON lines.

One folder is one set: `cards.jsonl` or `passages.jsonl`, and `queries.jsonl`. A line is an object; fields that are not
named here are passed over.

- a card: `id`; `subject` or `title`; `detail` or `text`, to which `domain` is appended; `question_context`,
  `rationale`, `concepts`; its place `database`, `schema`, `table`, `column`; `links`, the ids that it requires;
  `first_question_id`, the number of the question that created it; `lang`.
- a query: `id`, `question`, `relevant` (ids of cards), `required_closure` (these and all that they depend on),
  `database` and `schema` where it is asked, `lang`.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError

from memory_pipeline.core.cards import CardContent, CardKind
from memory_pipeline.core.curation import CardFields, blank_content, require_card
from memory_pipeline.core.dependencies import Dependency
from memory_pipeline.core.errors import BadCorpus, MemoryPipelineError
from memory_pipeline.core.languages import require_language
from memory_pipeline.core.ledger import MAX_QUESTION
from memory_pipeline.core.text import is_storable, require_storable

CARDS = ("cards.jsonl", "passages.jsonl")
QUERIES = "queries.jsonl"
DEFAULT_LANGUAGE = "en"

_SUBJECT = 80
"""Signs of the detail that stand for a subject where a card has none."""

_NUMBER = re.compile(r"([0-9]{1,18})$")
_Line = TypeVar("_Line", bound="_Row")


class CorpusCard(NamedTuple):
    """A card as curation takes it, with the corpus's own id. `order`: only questions of a higher number find it."""

    id: str
    fields: CardFields
    content: CardContent
    requires: tuple[str, ...]
    order: int | None


class CorpusQuery(NamedTuple):
    """A question, where it is asked, and the cards that answer it."""

    id: str
    question: str
    language: str | None
    place: Dependency | None
    relevant: tuple[str, ...]
    closure: tuple[str, ...]
    order: int | None


class Corpus(NamedTuple):
    """One set of cards and questions, and the language of most of its texts."""

    name: str
    language: str
    cards: tuple[CorpusCard, ...]
    queries: tuple[CorpusQuery, ...]

    @property
    def grows(self) -> bool:
        """Whether its cards come to exist between its questions."""
        return any(card.order is not None for card in self.cards)

    def database(self) -> str:
        """A database for the workspace that holds it: its first one, its name where it has none."""
        places = (place.database for card in self.cards for place in card.fields.dependencies or ())
        return next(places, self.name)


def load_corpora(path: Path, names: tuple[str, ...] = ()) -> list[Corpus]:
    """Every set of a folder, by the name of its own folder there; the folder itself, where it holds one.

    Args:
        names: only these sets.

    Raises:
        BadCorpus: there is no such folder or set, a file of one cannot be read, or a line cannot be used; names file
            and line.
    """
    try:
        folders = [path] if _is_set(path) else sorted(folder for folder in path.iterdir() if _is_set(folder))
    except OSError as error:
        raise BadCorpus(str(path), error.strerror or "it cannot be read") from error
    # A link goes by its own name: what two of them lead to may be called the same.
    found = {Path(os.path.abspath(folder)).name: folder for folder in folders}
    if missing := [name for name in names if name not in found]:
        raise BadCorpus(str(path), f"there is no set {', '.join(missing)}; there is {', '.join(found) or 'none'}")
    if not found:
        raise BadCorpus(str(path), f"neither {' nor '.join(CARDS)} is in it or in a folder of it")
    return [_load(name, folder) for name, folder in found.items() if not names or name in names]


def _is_set(folder: Path) -> bool:
    return folder.is_dir() and any(_is_there(folder / name) for name in CARDS)


def _is_there(file: Path) -> bool:
    """Whether there is something of that name, be it no file at all: what cannot be read is told, not passed over."""
    try:
        file.lstat()
    except FileNotFoundError:
        return False
    return True


def _load(name: str, folder: Path) -> Corpus:
    if not (is_storable(name) and name.strip()):
        raise BadCorpus(ascii(str(folder)), "the name of a set is to be UTF-8, and not blank")
    lines = [line for file in CARDS for line in _lines(folder / file, _Card)]
    cards = [_card(place, row) for place, row in lines]
    if repeated := [card_id for card_id, count in Counter(card.id for card in cards).items() if count > 1]:
        raise BadCorpus(str(folder), f"{len(repeated)} ids stand for more than one card, {repeated[0]!r} among them")
    asked = list(_lines(folder / QUERIES, _Query))
    grows = any(card.order is not None for card in cards)
    queries = [_query(place, row, numbered=grows) for place, row in asked]
    tongues = [row.lang for _, row in lines if row.lang] or [row.lang for _, row in asked if row.lang]
    language = Counter(tongues).most_common(1)[0][0] if tongues else DEFAULT_LANGUAGE
    return Corpus(name, language, tuple(cards), tuple(queries))


def _none_is_empty(value: Any) -> Any:
    return () if value is None else value


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


_Id = Annotated[str, BeforeValidator(_as_text), Field(min_length=1)]
_Ids = Annotated[tuple[_Id, ...], BeforeValidator(_none_is_empty)]
_Texts = Annotated[tuple[str, ...], BeforeValidator(_none_is_empty)]


class _Row(BaseModel):
    """What a line of either file may have."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: _Id
    database: str | None = None
    schema_: str | None = Field(default=None, alias="schema")
    lang: str | None = None


class _Card(_Row):
    subject: str | None = None
    title: str | None = None
    detail: str | None = None
    text: str | None = None
    domain: str | None = None
    rationale: str | None = None
    question_context: str | None = None
    concepts: _Texts = ()
    table: str | None = None
    column: str | None = None
    links: _Ids = ()
    first_question_id: int | None = None


class _Query(_Row):
    question: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_QUESTION)]
    relevant: _Ids = ()
    required_closure: _Ids = ()


def _card(place: str, row: _Card) -> CorpusCard:
    detail = " ".join(part for part in (row.detail or row.text or row.subject or row.title, row.domain) if part)
    try:
        _require_known(row.lang)
        fields = CardFields(
            subject=row.subject or row.title or _start(detail),
            detail=detail,
            rationale=row.rationale,
            question_context=row.question_context,
            concepts=row.concepts,
            dependencies=(_dependency(row, table=row.table, column=row.column),) if row.database else (),
        )
        content = require_card(CardKind.MEMORY, fields.over(blank_content(CardKind.MEMORY), None))
    except MemoryPipelineError as error:
        raise BadCorpus(place, error.message) from error
    return CorpusCard(row.id, fields, content, row.links, row.first_question_id)


def _query(place: str, row: _Query, *, numbered: bool) -> CorpusQuery:
    number = _NUMBER.search(row.id) if numbered else None
    if numbered and number is None:
        raise BadCorpus(place, f"the cards come to exist between questions, and {row.id!r} ends in no number")
    try:
        _require_known(row.lang)
        require_storable(row.question, "the question")
        asked_in = _dependency(row) if row.database else None
    except MemoryPipelineError as error:
        raise BadCorpus(place, error.message) from error
    order = int(number.group()) if number else None
    return CorpusQuery(row.id, row.question, row.lang, asked_in, row.relevant, row.required_closure, order)


def _require_known(language: str | None) -> None:
    """Refuse a language that no analyser knows, of a question too: figures are told by it."""
    if language:
        require_language(language)


def _dependency(row: _Row, **inner: str | None) -> Dependency:
    return Dependency(database=row.database or "", schema_=row.schema_, **inner)


def _start(text: str) -> str:
    """The first words of a text; nothing of a blank one."""
    text = text.strip()
    if len(text) <= _SUBJECT:
        return text
    return text[: _SUBJECT + 1].rsplit(None, 1)[0][:_SUBJECT]


def _lines(file: Path, model: type[_Line]) -> Iterator[tuple[str, _Line]]:
    """Every line of a file that is not blank, with its place for errors; nothing where there is no such file."""
    try:
        if not _is_there(file):
            return
        if not file.is_file():
            raise BadCorpus(str(file), "it is no file that can be read")
        with file.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                if line.strip():
                    place = f"{file}:{number}"
                    yield place, _parse(place, line, model)
    except OSError as error:
        raise BadCorpus(str(file), error.strerror or "it cannot be read") from error


def _parse(place: str, line: bytes, model: type[_Line]) -> _Line:
    try:
        return model.model_validate(json.loads(line.decode("utf-8-sig"), parse_constant=_refuse))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "line"
        raise BadCorpus(place, f"{field}: {first['msg']}") from error
    except UnicodeDecodeError as error:
        raise BadCorpus(place, "it is not UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise BadCorpus(place, f"it is not JSON: {error}") from error


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")
