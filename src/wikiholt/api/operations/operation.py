"""What an operation is: a function with its parameters, the scope it needs, its result, and its HTTP route."""

import inspect
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar, cast

from wikiholt.api.operations.parameters import Parameters
from wikiholt.domain.wiki import Scope

F = TypeVar("F", bound=Callable[..., Any])


class Caching(Enum):
    """How long a client may keep an answer."""

    REVALIDATE = "until it asks again"
    VERSION = "while the index has the same version; the function takes `snapshot`"
    CONTENT = "while the document, which has a `revision`, is the same"
    NEVER = "not at all"


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing that a wiki or its service can do.

    The function takes its subject (such as a WikiSession) and the parameters, and returns the document; its annotations
    name their types. Names in braces in the route are parameters. The others are in the query, or for BodyParameters in
    a JSON object.
    """

    name: str
    route: str
    """The HTTP method and the path; empty if only agents use it."""
    run: Callable[..., Any]
    tag: str
    scope: Scope = Scope.READ
    caching: Caching = Caching.REVALIDATE
    errors: tuple[int, ...] = ()
    """The statuses of errors, besides those that any operation can answer."""
    status: int = 200
    other_results: Mapping[int, tuple[Any, str]] = field(default_factory=dict)
    """Documents of other statuses, with a description."""
    choose_status: Callable[[Any], int] | None = None
    """The status of a document, if there are several."""
    location: str = ""
    """The path of what the operation created, in which names in braces are fields of the document."""
    page_instead: str = ""
    """The operation on a page, if its path can have the same URL: there may be a page `Setup/history`."""
    needs_index: bool = True
    """Whether a function that takes `snapshot` needs it."""
    run_several: Callable[..., Any] | None = None
    """The function for several wikis, of an operation whose parameters name wikis."""
    stream: Callable[..., Generator[Mapping[str, Any]]] | None = None
    """Yields the documents of a streamed answer, if the operation has one and the request asks for it."""
    is_search: bool = False
    """Whether it computes more than it waits, so that only a few of them run at once."""
    attaches: bool = False
    """Whether it needs the permission to attach files, which a host application may grant by itself."""

    @property
    def subject(self) -> type:
        return cast(type, next(iter(self.run.__annotations__.values())))

    @property
    def parameters(self) -> type[Parameters]:
        _, model, *_ = self.run.__annotations__.values()
        return cast(type[Parameters], model)

    @property
    def result(self) -> Any:
        return self.run.__annotations__["return"]

    @property
    def description(self) -> str:
        return inspect.getdoc(self.run) or ""


class OperationTable(list[Operation]):
    """The operations of one kind."""

    def __init__(self, tag: str, **defaults: Any) -> None:
        """`defaults` are fields of each operation."""
        super().__init__()
        self._defaults = {"tag": tag, **defaults}

    def add(self, route: str, name: str = "", **fields: Any) -> Callable[[F], F]:
        """Declare that the function below is an operation, by default of the function's name."""

        def declare(run: F) -> F:
            self.append(Operation(name or run.__name__, route, run, **{**self._defaults, **fields}))
            return run

        return declare
