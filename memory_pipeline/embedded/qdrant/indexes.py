"""Payload indexes: the schema of `PUT /collections/{name}/index`, checked, kept as JSON, and made in the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import qdrant_edge as edge

from memory_pipeline.embedded.qdrant import body
from memory_pipeline.embedded.qdrant.body import Json
from memory_pipeline.embedded.qdrant.engine import built
from memory_pipeline.embedded.qdrant.errors import NotServed, WrongInput
from memory_pipeline.embedded.qdrant.schema import Collection

_FLAGS = (
    "on_disk",
    "enable_hnsw",
    "is_tenant",
    "is_principal",
    "prefix",
    "lookup",
    "range",
    "lowercase",
    "ascii_folding",
    "phrase_matching",
)
_EVERY_TYPE = ("type", "on_disk", "memory", "enable_hnsw", "nested")
_OWN_FIELDS: dict[str, tuple[str, ...]] = {
    "keyword": ("is_tenant", "prefix"),
    "integer": ("lookup", "range", "is_principal"),
    "float": ("is_principal",),
    "geo": (),
    "bool": (),
    "datetime": ("is_principal",),
    "uuid": ("is_tenant",),
    "text": (
        *("tokenizer", "min_token_len", "max_token_len", "lowercase", "ascii_folding", "phrase_matching"),
        *("stopwords", "stemmer", "scoring"),
    ),
}
_MEMORY = {"cold": edge.Memory.Cold, "cached": edge.Memory.Cached, "pinned": edge.Memory.Pinned}


def read_index(value: Json) -> tuple[str, Json]:
    """The payload field and the schema asked for, from the body of `PUT /collections/{name}/index`."""
    given = body.fields(value, "", ("field_name", "field_schema"))
    name = body.text(body.required(given, "field_name", ""), "field_name")
    if "field_schema" not in given:
        raise WrongInput("Can't auto-detect payload type, please specify `field_schema` in the request")
    create_index(name, given["field_schema"])  # refuses what the engine could not take
    schema: Json = given["field_schema"]
    return name, schema


def create_index(name: str, schema: Json) -> Any:
    """The engine's operation that makes the index, or makes it anew with another schema."""
    return built("field_name", edge.UpdateOperation.create_field_index, name, _for_engine(schema))


def drop_index(name: str) -> Any:
    """The engine's operation that removes the index; nothing happens where there is none."""
    return built("field_name", edge.UpdateOperation.delete_field_index, name)


def type_of(schema: Json) -> str:
    """`keyword`, `integer` and so on, of a schema that was read."""
    return str(schema["type"] if isinstance(schema, dict) else schema)


def match_indexes(shard: Any, collection: Collection) -> None:
    """Make the shard's indexes those of the registry: a kill between the two writes leaves the shard one too many."""
    there = {name: str(info.data_type).rpartition(".")[2].lower() for name, info in shard.info().payload_schema.items()}
    for name in there.keys() - collection.indexes.keys():
        shard.update(drop_index(name))
    for name, schema in collection.indexes.items():
        if there.get(name) != type_of(schema):
            shard.update(create_index(name, schema))


def _for_engine(schema: Json) -> Any:
    if isinstance(schema, str):
        body.choice(schema, "field_schema", _OWN_FIELDS)
        return getattr(edge.PayloadSchemaType, schema.capitalize())
    which = body.choice(schema.get("type") if isinstance(schema, dict) else schema, "field_schema.type", _OWN_FIELDS)
    given = body.fields(schema, "field_schema", (*_EVERY_TYPE, *_OWN_FIELDS[which]))
    if "scoring" in given:
        raise NotServed("`scoring` of text indexes")
    options = {name: _option(name, item, f"field_schema.{name}") for name, item in given.items() if name != "type"}
    factory = getattr(edge, f"{which.capitalize()}IndexParams")
    return built("field_schema", factory, **options)


def _option(name: str, value: object, place: str) -> Any:
    return _OPTIONS.get(name, body.integer)(value, place)


def _memory(value: object, place: str) -> Any:
    return _MEMORY[body.choice(value, place, _MEMORY)]


def _tokenizer(value: object, place: str) -> Any:
    kinds = ("prefix", "whitespace", "word", "multilingual")
    return getattr(edge.TokenizerType, body.choice(value, place, kinds).capitalize())


def _stopwords(value: object, place: str) -> Any:
    if isinstance(value, str):
        return _member(edge.Language, value, place)
    given = body.fields(value, place, ("languages", "custom"))
    languages = body.texts(given.get("languages", []), f"{place}.languages")
    return edge.StopwordsSet(
        languages={_member(edge.Language, language, f"{place}.languages") for language in languages} or None,
        custom=set(body.texts(given.get("custom", []), f"{place}.custom")) or None,
    )


def _stemmer(value: object, place: str) -> Any:
    given = body.fields(value, place, ("type", "language"))
    if body.choice(body.required(given, "type", place), f"{place}.type", ("snowball", "none")) == "none":
        return edge.DisabledStemmer()
    language = body.text(body.required(given, "language", place), f"{place}.language")
    return edge.SnowballParams(_member(edge.SnowballLanguage, language, f"{place}.language"))


def _member(closed_set: Any, name: str, place: str) -> Any:
    known = {member.lower() for member in dir(closed_set) if member[0].isupper()}
    return getattr(closed_set, body.choice(name, place, known).capitalize())


_OPTIONS: dict[str, Callable[[object, str], Any]] = {
    **dict.fromkeys(_FLAGS, body.flag),
    "nested": body.text,
    "memory": _memory,
    "tokenizer": _tokenizer,
    "stopwords": _stopwords,
    "stemmer": _stemmer,
}
