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

from wikiholt.surfaces.http.visits import RequestContextDep

BodyT = TypeVar("M", bound=BaseModel)


class StrictBody(BaseModel):
    """A body in which a field that is not known is an error, and a number is no text."""

    model_config = ConfigDict(extra="forbid", strict=True)


class LazyBody(Generic[BodyT]):
    """A body that has not been looked at yet."""

    def __init__(self, model: type[BodyT], data: bytes, content_type: str, *, optional: bool) -> None:
        self._model = model
        self._data = data
        self._content_type = content_type
        self._optional = optional

    def read(self) -> BodyT:
        """What the body says; raises RequestValidationError."""
        if self._optional and not self._data:
            return self._model()
        if self._content_type.partition(";")[0].strip().lower() != "application/json":
            raise _build_unreadable_error("it must be sent as Content-Type: application/json")
        try:
            return self._model.model_validate_json(self._data)
        except ValidationError as error:
            faults = error.errors(include_url=False, include_context=False, include_input=False)
            raise RequestValidationError([{**fault, "loc": ("body", *fault["loc"])} for fault in faults]) from None


def read_body(model: type[BodyT], *, optional: bool = False) -> Any:
    """A dependency that gives the body, of who has a key, as something to be read as this model."""

    async def take_body(request: Request, context: RequestContextDep) -> LazyBody[BodyT]:
        await run_in_threadpool(context.require_key)
        kind = request.headers.get("content-type", "")
        return LazyBody(model, await request.body(), kind, optional=optional)

    take_body.body = (model, optional)  # type: ignore[attr-defined]
    return Depends(take_body)


def describe_body(route: APIRoute, schemas: dict[str, Any]) -> dict[str, Any] | None:
    """What a route takes as its body, for the OpenAPI document; the models it is made of go to `schemas`."""
    for dependency in route.dependant.dependencies:
        model, optional = getattr(dependency.call, "body", (None, False))
        if model is not None:
            schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas |= schema.pop("$defs", {})
            return {"required": not optional, "content": {"application/json": {"schema": schema}}}
    return None


def _build_unreadable_error(message: str) -> RequestValidationError:
    return RequestValidationError([{"type": "unreadable", "loc": ("body",), "msg": message}])
