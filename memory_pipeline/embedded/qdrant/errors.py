"""What a request can be refused with: one class per status code and wording of the real server."""

from __future__ import annotations

from typing import ClassVar


class ApiError(Exception):
    """An answer other than 200. `status` is the HTTP status, `message` what the body's `status.error` says."""

    status: ClassVar[int] = 500
    prefix: ClassVar[str] = ""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = f"{self.prefix}{message}"


class FormatError(ApiError):
    """The body is not JSON, or not of the shape that this path reads."""

    status = 400
    prefix = "Format error in JSON body: "


class WrongParameter(ApiError):
    """A part of the address or its query cannot be read."""

    status = 400
    prefix = "Deserialize error in path or query parameters: "


class WrongInput(ApiError):
    """The request is well formed and does not fit the collection."""

    status = 400
    prefix = "Wrong input: "


class BodyTooLarge(ApiError):
    """The body is larger than the server takes. The real server answers this with 400, not 413."""

    status = 400
    prefix = "Payload error: "

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"JSON payload ({size} bytes) is larger than allowed (limit: {limit} bytes).")


class NotFound(ApiError):
    """No such collection, alias or point."""

    status = 404
    prefix = "Not found: "


class AlreadyExists(ApiError):
    """A collection of that name is there already."""

    status = 409
    prefix = "Wrong input: "


class ValueRefused(ApiError):
    """A value of the right type that is out of its range, named by its place in the body."""

    status = 422

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"Validation error in JSON body: [{place}: {problem}]")


class NameRefused(ApiError):
    """A name in the address that no collection or vector may have."""

    status = 422

    def __init__(self, problem: str) -> None:
        super().__init__(f"Validation error in path parameters: [name: {problem}]")


class NotServed(ApiError):
    """Qdrant can do this, this server cannot. Never half done, never left out without a word."""

    status = 501

    def __init__(self, what: str) -> None:
        super().__init__(f"The embedded server does not serve {what}; use a real Qdrant")


class EngineFailed(ApiError):
    """The engine broke down on this request; the server and the other collections go on."""

    status = 500
    prefix = "Service internal error: "
