"""The paths about collections, aliases, payload indexes and vector names."""

from __future__ import annotations

import datetime

from memory_pipeline.embedded.qdrant import answers, body
from memory_pipeline.embedded.qdrant.answers import Answer
from memory_pipeline.embedded.qdrant.body import Json
from memory_pipeline.embedded.qdrant.calls import Call
from memory_pipeline.embedded.qdrant.errors import NameRefused, NotServed, ValueRefused
from memory_pipeline.embedded.qdrant.indexes import read_index, type_of
from memory_pipeline.embedded.qdrant.registry import State
from memory_pipeline.embedded.qdrant.schema import read_added_vector, read_collection
from memory_pipeline.embedded.qdrant.storage import Storage

_ALIAS_ACTIONS = {
    "create_alias": ("collection_name", "alias_name"),
    "delete_alias": ("alias_name",),
    "rename_alias": ("old_alias_name", "new_alias_name"),
}
_TUNED_LATER = (
    "vectors",
    "sparse_vectors",
    "params",
    "hnsw_config",
    "optimizers_config",
    "quantization_config",
    "strict_mode_config",
)


def list_collections(storage: Storage, _: Call) -> Answer:
    """`GET /collections`."""
    return {"collections": [{"name": name} for name in storage.state.collections]}


def create_collection(storage: Storage, call: Call) -> bool:
    """`PUT /collections/{name}`."""
    problem = body.name_problem(call.collection)
    if problem:
        raise NameRefused(f"collection name {problem}")
    storage.state.refuse_taken(call.collection)
    storage.create(call.collection, read_collection(call.body))
    return True


def update_collection(storage: Storage, call: Call) -> bool:
    """`PATCH /collections/{name}`: its metadata alone. Keys are merged into those there are, a null removes one."""
    given = body.fields(call.body, "", ("metadata", *_TUNED_LATER))
    for name in _TUNED_LATER:
        if name in given:
            raise NotServed(f"a change of `{name}`")
    storage.collection(call.collection)
    if "metadata" in given:
        storage.set_metadata(call.collection, body.payload(given["metadata"], "metadata"))
    return True


def delete_collection(storage: Storage, call: Call) -> bool:
    """`DELETE /collections/{name}`: false where there is no such collection, an alias included."""
    return storage.delete(call.collection)


def collection_exists(storage: Storage, call: Call) -> Answer:
    """`GET /collections/{name}/exists`."""
    return {"exists": call.collection in storage.state.collections or call.collection in storage.state.aliases}


def collection_info(storage: Storage, call: Call) -> Answer:
    """`GET /collections/{name}`."""
    collection = storage.collection(call.collection)
    info = storage.read(call.collection, lambda shard: shard.info())
    indexed = answers.index_points(info)
    return {
        "status": "green",
        "optimizer_status": "ok",
        "indexed_vectors_count": info.indexed_vectors_count,
        "points_count": info.points_count,
        "segments_count": info.segments_count,
        "config": collection.shown(),
        "payload_schema": {
            name: {
                "data_type": type_of(schema),
                **({"params": schema} if isinstance(schema, dict) else {}),
                "points": indexed.get(name, 0),
            }
            for name, schema in collection.indexes.items()
        },
        "update_queue": {"length": 0},
        "created_at": datetime.datetime.fromtimestamp(collection.created_at, datetime.UTC).isoformat(),
    }


def list_aliases(storage: Storage, _: Call) -> Answer:
    """`GET /aliases`."""
    return _aliases(storage.state.aliases)


def collection_aliases(storage: Storage, call: Call) -> Answer:
    """`GET /collections/{name}/aliases`; none for an unknown collection, as in the real server."""
    return _aliases({alias: name for alias, name in storage.state.aliases.items() if name == call.collection})


def change_aliases(storage: Storage, call: Call) -> bool:
    """`POST /collections/aliases`: all actions in their order, or none."""
    given = body.fields(call.body, "", ("actions",))
    actions = [
        _alias_action(item, f"actions[{index}]")
        for index, item in enumerate(body.items(body.required(given, "actions", ""), "actions"))
    ]

    def change(state: State) -> State:
        for kind, names in actions:
            state = _apply(state, kind, names)
        return state

    storage.change_aliases(change)
    return True


def create_index(storage: Storage, call: Call) -> Answer:
    """`PUT /collections/{name}/index`."""
    storage.collection(call.collection)
    field, schema = read_index(call.body)
    return call.updated(storage.set_index(call.collection, field, schema))


def delete_index(storage: Storage, call: Call) -> Answer:
    """`DELETE /collections/{name}/index/{field}`."""
    return call.updated(storage.drop_index(call.collection, call.path["field_name"]))


def create_vector(storage: Storage, call: Call) -> Answer:
    """`PUT /collections/{name}/vectors/{vector}`."""
    storage.collection(call.collection)
    name = call.path["vector_name"]
    return call.updated(storage.add_vector(call.collection, name, read_added_vector(name, call.body)))


def delete_vector(storage: Storage, call: Call) -> Answer:
    """`DELETE /collections/{name}/vectors/{vector}`."""
    return call.updated(storage.drop_vector(call.collection, call.path["vector_name"]))


def _aliases(aliases: dict[str, str]) -> Answer:
    return {"aliases": [{"alias_name": alias, "collection_name": name} for alias, name in aliases.items()]}


def _alias_action(value: Json, place: str) -> tuple[str, list[str]]:
    given = body.fields(value, place, _ALIAS_ACTIONS)
    kind = body.only_one(given, place, _ALIAS_ACTIONS)
    inner = f"{place}.{kind}"
    fields = body.fields(given[kind], inner, _ALIAS_ACTIONS[kind])
    return kind, [body.text(body.required(fields, name, inner), f"{inner}.{name}") for name in _ALIAS_ACTIONS[kind]]


def _apply(state: State, kind: str, names: list[str]) -> State:
    if kind == "delete_alias":
        return state.without_alias(names[0])
    if kind == "rename_alias":
        return state.with_renamed_alias(names[0], _new_alias(names[1]))
    return state.with_alias(_new_alias(names[1]), target=names[0])


def _new_alias(name: str) -> str:
    problem = body.name_problem(name)
    if problem:
        raise ValueRefused("alias_name", problem)
    return name
