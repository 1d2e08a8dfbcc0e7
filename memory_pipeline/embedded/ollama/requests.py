"""The bodies that the server takes, checked as Ollama does: `null` counts as absent, unknown fields are ignored."""

from __future__ import annotations

import re
from typing import Annotated, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
)

_DURATION = re.compile(r"[-+]?(0|((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))+)")

BodyT = TypeVar("BodyT", bound="Body")


class ApiError(Exception):
    """An error answer: HTTP status and the message under `error`."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def _duration(value: object) -> object:
    if isinstance(value, str) and not _DURATION.fullmatch(value):
        raise ValueError(f"invalid duration {value!r}")
    return value


KeepAlive = Annotated[StrictInt | StrictFloat | StrictStr | None, AfterValidator(_duration)]


class Options(BaseModel):
    """Of Ollama's many options the one that bears on embeddings."""

    model_config = ConfigDict(frozen=True)

    num_ctx: StrictInt | None = None
    """Tokens; lowers the model's context, never raises it."""


class Body(BaseModel):
    """What every request may name the model by."""

    model_config = ConfigDict(frozen=True, protected_namespaces=())

    model: StrictStr | None = None


class EmbedBody(Body):
    """`POST /api/embed`."""

    input: object = None
    truncate: StrictBool | None = None
    dimensions: StrictInt | None = None
    options: Options | None = None
    keep_alive: KeepAlive = None

    def context_length(self, most: int) -> int:
        """Tokens that each text may have: the model's `most`, or fewer if the request says so."""
        asked = self.options.num_ctx if self.options else None
        return min(asked, most) if asked is not None and asked > 0 else most

    def texts(self) -> list[str]:
        """The texts to embed; none for an absent or empty input, which only loads the model.

        Raises:
            ApiError: 400, the input is neither a string nor a list of strings.
        """
        if self.input is None or self.input == "":
            return []
        if isinstance(self.input, str):
            return [self.input]
        if isinstance(self.input, list) and all(isinstance(text, str) for text in self.input):
            return self.input
        raise ApiError(400, "invalid input type")


class ShowBody(Body):
    """`POST /api/show`; `name` is the older word for `model`."""

    name: StrictStr | None = None


def parse(kind: type[BodyT], body: bytes) -> BodyT:
    """Read a request's JSON.

    Raises:
        ApiError: 400, with the first thing wrong: no body, not JSON, not UTF-8, a lone surrogate, a field's type.
    """
    if not body:
        raise ApiError(400, "missing request body")
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise ApiError(400, f"{field}: {first['msg']}" if field else first["msg"]) from error
