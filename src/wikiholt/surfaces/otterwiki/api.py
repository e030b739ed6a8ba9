"""The API under /api/v1 of the wiki: Otterwiki says who asks and what they may, the service's own routes answer."""

import logging
from threading import Lock

from flask import Blueprint, Flask, Response, request
from starlette.responses import Response as Built

from wikiholt.errors import WikiholtError
from wikiholt.surfaces.http.app import create_guest_app
from wikiholt.surfaces.http.problems import problem, refused, unexpected
from wikiholt.surfaces.otterwiki.bridge import Answered, Bridge
from wikiholt.surfaces.otterwiki.host import Host
from wikiholt.surfaces.otterwiki.permissions import SharedKey, admission, require_token_of_form, shared_key
from wikiholt.surfaces.otterwiki.telling import tell
from wikiholt.wiring import Farm

_LOG = logging.getLogger(__name__)

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
_SAFE_LENGTH = 16
"""Characters that a key needs so that nobody finds it by trying."""
_OPEN = ("/api/v1/health", "/api/v1/openapi.json")
"""What says nothing of any wiki."""


def register(app: Flask, host: Host) -> None:
    """Add the API to the wiki."""
    from otterwiki.server import csrf  # noqa: PLC0415 - this is called while that module is being loaded

    shared = shared_key(app.config)
    if 0 < len(shared.token) < _SAFE_LENGTH:
        _LOG.warning("OTTERWIKI_API_KEY is so short that it can be guessed: use at least %d characters", _SAFE_LENGTH)
    api = Api(host, shared)
    blueprint = Blueprint("wikiholt_api", __name__, url_prefix="/api/v1")
    for rule in ("/", "/<path:rest>"):
        blueprint.add_url_rule(rule, f"all{len(rule)}", api.view, methods=_METHODS, provide_automatic_options=False)
    # Who has a key needs no token of a form; who has none is asked for it in the view.
    csrf.exempt(blueprint)
    app.register_blueprint(blueprint)


class Api:
    """Answers requests to the API of whichever wiki they are about."""

    def __init__(self, host: Host, shared: SharedKey) -> None:
        self._host = host
        self._shared = shared
        self._lock = Lock()
        self._bridged: tuple[Farm, Bridge] | None = None
        self._trouble = ""

    def view(self, rest: str = "") -> Response:  # noqa: ARG002 - the whole address is passed on
        try:
            return self._answer()
        except WikiholtError as error:
            return _response(problem(error))
        except Exception:  # noqa: BLE001 - the visitor gets an answer, the log the rest
            _LOG.exception("a request to the API failed")
            return _response(unexpected())

    def _answer(self) -> Response:
        try:
            farm = self._host.farm
            if request.path in _OPEN:
                return _sent(self._bridge(farm).call(request.environ, None))
            here = self._host.here()
        except WikiholtError as error:
            return self._not_set_up(error)
        given = admission(here, self._shared)
        if given.key is None and given.changes:
            require_token_of_form()
        environ = dict(request.environ)
        if request.mimetype in _FORMS:  # it was read for the token, and holds nothing else that the API takes
            environ["CONTENT_LENGTH"] = "0"
        answered = self._bridge(here.farm).call(environ, given)
        tell(here, given)
        return _sent(answered)

    def _not_set_up(self, error: WikiholtError) -> Response:
        """What is wrong is the owner's to mend, and may name what is no visitor's business: the log has it, once."""
        if self._trouble != error.message:
            self._trouble = error.message
            _LOG.error("the API cannot answer: %s (%s)", error.message, error.hint)
        hint = "Whoever runs the wiki finds the reason in its log."
        return _response(refused(503, "not-set-up", "Search is not set up rightly in this wiki.", hint))

    def _bridge(self, farm: Farm) -> Bridge:
        """That of this process: after a fork there is another farm, and its first caller makes the bridge to it."""
        bridged = self._bridged
        if bridged is None or bridged[0] is not farm:
            with self._lock:
                bridged = self._bridged
                if bridged is None or bridged[0] is not farm:
                    made = Bridge(create_guest_app(farm), farm.settings.limit_body_bytes)
                    self._bridged = bridged = (farm, made)
        return bridged[1]


def _sent(answered: Answered) -> Response:
    return Response(answered.body, answered.status, list(answered.headers))


def _response(built: Built) -> Response:
    return Response(bytes(built.body), built.status_code, list(built.headers.items()))
