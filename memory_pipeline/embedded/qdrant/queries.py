"""Reading requests: queries with their prefetches, scrolls, retrievals and counts, JSON to the engine's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import qdrant_edge as edge

from memory_pipeline.embedded.qdrant import body
from memory_pipeline.embedded.qdrant.body import Fields, Json, PointId
from memory_pipeline.embedded.qdrant.engine import built
from memory_pipeline.embedded.qdrant.errors import NotServed, WrongInput
from memory_pipeline.embedded.qdrant.filters import optional_filter, read_filter
from memory_pipeline.embedded.qdrant.formulas import read_formula
from memory_pipeline.embedded.qdrant.schema import UNNAMED, Collection
from memory_pipeline.embedded.qdrant.vectors import read_vector

DEFAULT_LIMIT = 10
_RRF_K = 2

_STAGE = ("prefetch", "query", "using", "filter", "params", "score_threshold", "limit", "lookup_from")
_REQUEST = (*_STAGE, "offset", "with_vector", "with_payload", "shard_key")
_NOT_SERVED = {
    "recommend": "recommendation queries",
    "discover": "discovery queries",
    "context": "context queries",
    "relevance_feedback": "relevance feedback queries",
    "text": "text queries",
}


def read_query(value: Json, collection: Collection, place: str = "") -> Any:
    """One request of `POST /collections/{name}/points/query`."""
    given = body.fields(value, place, _REQUEST)
    body.refuse_shard_key(given)
    stage = _stage(given, collection, place)
    return edge.QueryRequest(
        **stage,
        offset=body.integer(given.get("offset", 0), "offset", high=body.MAX_U32),
        with_payload=read_with_payload(given, default=False),
        with_vector=read_with_vector(given, collection),
    )


def read_query_batch(value: Json, collection: Collection) -> Any:
    """The requests of `POST /collections/{name}/points/query/batch`."""
    given = body.fields(value, "", ("searches",))
    searches = body.items(body.required(given, "searches", ""), "searches")
    queries = [read_query(item, collection, f"searches[{index}].") for index, item in enumerate(searches)]
    return edge.QueryBatchRequest(queries)


def read_scroll(value: Json, collection: Collection) -> Any:
    """The request of `POST /collections/{name}/points/scroll`."""
    known = ("shard_key", "offset", "limit", "filter", "with_payload", "with_vector", "order_by")
    given = body.fields(value, "", known)
    body.refuse_shard_key(given)
    if "order_by" in given and "offset" in given:
        raise WrongInput(
            "Cannot use an `offset` when using `order_by`. The alternative for paging is to use `order_by.start_from` "
            "and a filter to exclude the IDs that you've already seen for the `order_by.start_from` value"
        )
    return edge.ScrollRequest(
        offset=body.point_id(given["offset"], "offset") if "offset" in given else None,
        limit=body.integer(given.get("limit", DEFAULT_LIMIT), "limit", low=1, high=body.MAX_U32),
        filter=optional_filter(given, "filter"),
        with_payload=read_with_payload(given, default=True),
        with_vector=read_with_vector(given, collection),
        order_by=_order_by(given["order_by"]) if "order_by" in given else None,
    )


def read_retrieval(value: Json, collection: Collection) -> tuple[list[PointId], Any, Any]:
    """The ids, payload and vector selectors of `POST /collections/{name}/points`."""
    given = body.fields(value, "", ("ids", "with_payload", "with_vector", "shard_key"))
    body.refuse_shard_key(given)
    ids = body.point_ids(body.required(given, "ids", ""), "ids")
    return ids, read_with_payload(given, default=True), read_with_vector(given, collection)


def read_count(value: Json) -> Any:
    """The request of `POST /collections/{name}/points/count`."""
    given = body.fields(value, "", ("filter", "exact", "shard_key"))
    body.refuse_shard_key(given)
    return edge.CountRequest(body.flag(given.get("exact", True), "exact"), optional_filter(given, "filter"))


def read_with_payload(given: Fields, *, default: bool) -> Any:
    """Which part of the payloads is asked for: all, none, a list of keys, or an object of keys in or out."""
    asked = given.get("with_payload", default)
    if isinstance(asked, bool):
        return asked
    if isinstance(asked, list):
        return built("with_payload", edge.PayloadSelector.Include, body.texts(asked, "with_payload"))
    selector = body.fields(asked, "with_payload", ("include", "exclude"))
    which = body.only_one(selector, "with_payload", ("include", "exclude"))
    factory = edge.PayloadSelector.Include if which == "include" else edge.PayloadSelector.Exclude
    return built("with_payload", factory, body.texts(selector[which], f"with_payload.{which}"))


def read_with_vector(given: Fields, collection: Collection) -> Any:
    """Which vectors are asked for: all, none, or a list of names."""
    asked = given.get("with_vector", False)
    if isinstance(asked, bool):
        return asked
    names = body.texts(asked, "with_vector")
    for name in names:
        if collection.vector(name) is None:
            raise WrongInput(f"Not existing vector name error: {name}")
    return names


def _stage(given: Fields, collection: Collection, place: str) -> Fields:
    if "lookup_from" in given:
        raise NotServed("`lookup_from`")
    prefetches = _prefetches(given, collection, place)
    return {
        "prefetches": prefetches,
        "query": _Scoring(given, len(prefetches), collection, place).read() if "query" in given else None,
        "filter": optional_filter(given, "filter", place),
        "params": _params(given["params"], f"{place}params") if "params" in given else None,
        "score_threshold": body.number(given["score_threshold"], f"{place}score_threshold")
        if "score_threshold" in given
        else None,
        "limit": body.integer(given.get("limit", DEFAULT_LIMIT), f"{place}limit", low=1, high=body.MAX_U32),
    }


def _prefetches(given: Fields, collection: Collection, place: str) -> list[Any]:
    value = given.get("prefetch", [])
    read = []
    for index, item in enumerate(value if isinstance(value, list) else [value]):
        inner = f"{place}prefetch[{index}]"
        read.append(edge.Prefetch(**_stage(body.fields(item, inner, _STAGE), collection, f"{inner}.")))
    return read


class _Scoring:
    """The `query` of a request or prefetch: what its points are scored by."""

    def __init__(self, given: Fields, prefetches: int, collection: Collection, place: str) -> None:
        self._query = given["query"]
        self._using = body.text(given.get("using", UNNAMED), f"{place}using")
        self._prefetches = prefetches
        self._collection = collection
        self._place = f"{place}query"

    def read(self) -> Any:
        query = self._query
        if not isinstance(query, dict) or query.keys() & {"indices", "values"}:
            return self._nearest(query, self._place)
        if "model" in query:
            raise NotServed("inference")
        known = (*_READERS, *_NOT_SERVED)
        if not query.keys() & set(known):
            body.fields(query, self._place, known)  # names what it does not know
        which = body.only_one(query, self._place, known)
        if which in _NOT_SERVED:
            raise NotServed(_NOT_SERVED[which])
        return _READERS[which](self, query)

    def nearest(self, query: Fields) -> Any:
        given = body.fields(query, self._place, ("nearest", "mmr"))
        if "mmr" in given:
            raise NotServed("`mmr`")
        return self._nearest(body.required(given, "nearest", self._place), f"{self._place}.nearest")

    def fusion(self, query: Fields) -> Any:
        given = body.fields(query, self._place, ("fusion",))
        kind = body.choice(body.required(given, "fusion", self._place), f"{self._place}.fusion", ("rrf", "dbsf"))
        return edge.Fusion.Rrf(_RRF_K) if kind == "rrf" else edge.Fusion.Dbsf()

    def rrf(self, query: Fields) -> Any:
        place = f"{self._place}.rrf"
        outer = body.fields(query, self._place, ("rrf",))
        given = body.fields(body.required(outer, "rrf", self._place), place, ("k", "weights"))
        k = body.integer(given.get("k", _RRF_K), f"{place}.k", low=1, high=body.MAX_U32)
        if "weights" not in given:
            return edge.Fusion.Rrf(k)
        weights = body.items(given["weights"], f"{place}.weights")
        return edge.Fusion.Rrf(k, [body.number(weight, f"{place}.weights") for weight in weights])

    def formula(self, query: Fields) -> Any:
        given = body.fields(query, self._place, ("formula", "defaults"))
        formula = body.required(given, "formula", self._place)
        return read_formula(formula, given.get("defaults", {}), self._prefetches, self._place)

    def order_by(self, query: Fields) -> Any:
        given = body.fields(query, self._place, ("order_by",))
        return _order_by(body.required(given, "order_by", self._place))

    def sample(self, query: Fields) -> Any:
        given = body.fields(query, self._place, ("sample",))
        body.choice(body.required(given, "sample", self._place), f"{self._place}.sample", ("random",))
        return edge.Sample.Random

    def _nearest(self, value: object, place: str) -> Any:
        if isinstance(value, str | int) and not isinstance(value, bool):
            body.point_id(value, place)
            raise NotServed("queries by the id of a point")
        return edge.Query.Nearest(read_vector(value, self._using, place, self._collection), self._using)


_READERS: dict[str, Callable[[_Scoring, Fields], Any]] = {
    "nearest": _Scoring.nearest,
    "fusion": _Scoring.fusion,
    "rrf": _Scoring.rrf,
    "formula": _Scoring.formula,
    "order_by": _Scoring.order_by,
    "sample": _Scoring.sample,
}


def _order_by(value: object) -> Any:
    if isinstance(value, str):
        return built("order_by", edge.OrderBy, value)
    given = body.fields(value, "order_by", ("key", "direction", "start_from"))
    key = body.text(body.required(given, "key", "order_by"), "order_by.key")
    direction = body.choice(given.get("direction", "asc"), "order_by.direction", ("asc", "desc"))
    start: Any = given.get("start_from")
    if start is not None and not isinstance(start, str):
        body.number(start, "order_by.start_from")
    return built("order_by", edge.OrderBy, key, getattr(edge.Direction, direction.capitalize()), start)


def _params(value: object, place: str) -> Any:
    given = body.fields(value, place, ("hnsw_ef", "exact", "indexed_only", "idf", "quantization", "acorn"))
    for name in ("quantization", "acorn"):
        if name in given:
            raise NotServed(f"`params.{name}`")
    return edge.SearchParams(
        hnsw_ef=body.integer(given["hnsw_ef"], f"{place}.hnsw_ef", high=body.MAX_U32) if "hnsw_ef" in given else None,
        exact=body.flag(given.get("exact", False), f"{place}.exact"),
        indexed_only=body.flag(given.get("indexed_only", False), f"{place}.indexed_only"),
        idf=_idf(given["idf"], f"{place}.idf") if "idf" in given else None,
    )


def _idf(value: object, place: str) -> Any:
    if value == "global":
        return edge.IdfParams()
    given = body.fields(value, place, ("corpus",))
    return edge.IdfParams(read_filter(body.required(given, "corpus", place), f"{place}.corpus"))
