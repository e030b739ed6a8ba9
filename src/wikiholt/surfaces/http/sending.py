"""Bodies of requests: taken as bytes, and understood only once it is clear that who sent them may.

The framework would read JSON before anybody was asked for a key, and in the event loop, where everybody waits for it.
"""

from typing import Any, Generic, TypeVar

from fastapi import Depends
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from wikiholt.surfaces.http.visits import Who

M = TypeVar("M", bound=BaseModel)


class Strict(BaseModel):
    """A body in which a field that is not known is an error, and a number is no text."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Sent(Generic[M]):
    """A body that has not been looked at yet."""

    def __init__(self, model: type[M], data: bytes, kind: str, *, optional: bool) -> None:
        self._model = model
        self._data = data
        self._kind = kind
        self._optional = optional

    def read(self) -> M:
        """What the body says; raises RequestValidationError."""
        if self._optional and not self._data:
            return self._model()
        if self._kind.partition(";")[0].strip().lower() != "application/json":
            raise _unreadable("it must be sent as Content-Type: application/json")
        try:
            return self._model.model_validate_json(self._data)
        except ValidationError as error:
            faults = error.errors(include_url=False, include_context=False, include_input=False)
            raise RequestValidationError([{**fault, "loc": ("body", *fault["loc"])} for fault in faults]) from None


def sent(model: type[M], *, optional: bool = False) -> Any:
    """A dependency that gives the body, of who has a key, as something to be read as this model."""

    async def take(request: Request, who: Who) -> Sent[M]:
        await run_in_threadpool(who.enters)
        kind = request.headers.get("content-type", "")
        return Sent(model, await request.body(), kind, optional=optional)

    take.body = (model, optional)  # type: ignore[attr-defined]
    return Depends(take)


def described_body(route: APIRoute, schemas: dict[str, Any]) -> dict[str, Any] | None:
    """What a route takes as its body, for the OpenAPI document; the models it is made of go to `schemas`."""
    for dependency in route.dependant.dependencies:
        model, optional = getattr(dependency.call, "body", (None, False))
        if model is not None:
            schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas |= schema.pop("$defs", {})
            return {"required": not optional, "content": {"application/json": {"schema": schema}}}
    return None


def _unreadable(message: str) -> RequestValidationError:
    return RequestValidationError([{"type": "unreadable", "loc": ("body",), "msg": message}])
