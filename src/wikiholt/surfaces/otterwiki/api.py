"""The API under /api/v1 of the wiki: Otterwiki says who asks and what they may, the service's own routes answer."""

import logging
from threading import Lock

from flask import Blueprint, Flask, Response, request
from starlette.responses import Response as Built

from wikiholt.errors import WikiholtError
from wikiholt.surfaces.http.app import create_host_app
from wikiholt.surfaces.http.problems import make_problem_response, make_error_response, make_internal_error_response
from wikiholt.surfaces.otterwiki.bridge import BridgeResponse, AsgiBridge
from wikiholt.surfaces.otterwiki.host import PluginRuntime
from wikiholt.surfaces.otterwiki.permissions import SharedKey, build_host_grant, require_csrf_token, load_shared_key
from wikiholt.surfaces.otterwiki.telling import notify_otterwiki
from wikiholt.wiring import Application

_log = logging.getLogger(__name__)

_ALLOWED_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_FORM_MEDIA_TYPES = ("application/x-www-form-urlencoded", "multipart/form-data")
_SAFE_LENGTH = 16
"""Characters that a key needs so that nobody finds it by trying."""
_PUBLIC_PATHS = ("/api/v1/health", "/api/v1/openapi.json")
"""What says nothing of any wiki."""


def register(app: Flask, runtime: PluginRuntime) -> None:
    """Add the API to the wiki."""
    from otterwiki.server import csrf  # noqa: PLC0415 - this is called while that module is being loaded

    shared = load_shared_key(app.config)
    if 0 < len(shared.token) < _SAFE_LENGTH:
        _log.warning("OTTERWIKI_API_KEY is so short that it can be guessed: use at least %d characters", _SAFE_LENGTH)
    api = OtterwikiApi(runtime, shared)
    blueprint = Blueprint("wikiholt_api", __name__, url_prefix="/api/v1")
    for rule in ("/", "/<path:rest>"):
        blueprint.add_url_rule(rule, f"all{len(rule)}", api.handle_request, methods=_ALLOWED_METHODS, provide_automatic_options=False)
    # Who has a key needs no token of a form; who has none is asked for it in the view.
    csrf.exempt(blueprint)
    app.register_blueprint(blueprint)


class OtterwikiApi:
    """Answers requests to the API of whichever wiki they are about."""

    def __init__(self, runtime: PluginRuntime, shared_key: SharedKey) -> None:
        self._runtime = runtime
        self._shared_key = shared_key
        self._lock = Lock()
        self._bridge_cache: tuple[Application, AsgiBridge] | None = None
        self._last_error_message = ""

    def handle_request(self, rest: str = "") -> Response:  # noqa: ARG002 - the whole address is passed on
        try:
            return self._respond()
        except WikiholtError as error:
            return _convert_response(make_problem_response(error))
        except Exception:  # noqa: BLE001 - the visitor gets an answer, the log the rest
            _log.exception("a request to the API failed")
            return _convert_response(make_internal_error_response())

    def _respond(self) -> Response:
        try:
            farm = self._runtime.application
            if request.path in _PUBLIC_PATHS:
                return _to_flask_response(self._get_bridge(farm).call(request.environ, None))
            here = self._runtime.get_current_wiki()
        except WikiholtError as error:
            return self._make_not_set_up_response(error)
        given = build_host_grant(here, self._shared_key)
        if given.key is None and given.can_write:
            require_csrf_token()
        environ = dict(request.environ)
        if request.mimetype in _FORM_MEDIA_TYPES:  # it was read for the token, and holds nothing else that the API takes
            environ["CONTENT_LENGTH"] = "0"
        answered = self._get_bridge(here.application).call(environ, given)
        notify_otterwiki(here, given)
        return _to_flask_response(answered)

    def _make_not_set_up_response(self, error: WikiholtError) -> Response:
        """What is wrong is the owner's to mend, and may name what is no visitor's business: the log has it, once."""
        if self._last_error_message != error.message:
            self._last_error_message = error.message
            _log.error("the API cannot answer: %s (%s)", error.message, error.hint)
        hint = "Whoever runs the wiki finds the reason in its log."
        return _convert_response(make_error_response(503, "not-set-up", "Search is not set up rightly in this wiki.", hint))

    def _get_bridge(self, application: Application) -> AsgiBridge:
        """That of this process: after a fork there is another farm, and its first caller makes the bridge to it."""
        bridged = self._bridge_cache
        if bridged is None or bridged[0] is not application:
            with self._lock:
                bridged = self._bridge_cache
                if bridged is None or bridged[0] is not application:
                    made = AsgiBridge(create_host_app(application), application.settings.limit_body_bytes)
                    self._bridge_cache = bridged = (application, made)
        return bridged[1]


def _to_flask_response(response: BridgeResponse) -> Response:
    return Response(response.body, response.status, list(response.headers))


def _convert_response(response: Built) -> Response:
    return Response(bytes(response.body), response.status_code, list(response.headers.items()))
