"""Settings of gunicorn: the master imports libraries, so that they are not imported again by every worker.

The application itself is imported by each worker, as without `--preload`. A worker starts with the usual limit of open
files.
"""

import resource

import flask_sqlalchemy  # noqa: F401

import wikiholt.interfaces.http.app  # noqa: F401

USUAL_FILE_LIMIT = 1024


def post_fork(_server: object, _worker: object) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard > USUAL_FILE_LIMIT:
        resource.setrlimit(resource.RLIMIT_NOFILE, (USUAL_FILE_LIMIT, hard))
