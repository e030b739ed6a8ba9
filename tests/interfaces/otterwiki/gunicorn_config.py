"""Settings of gunicorn: the master imports libraries, so that they are not imported again by every worker.

The application itself is imported by each worker, as without `--preload`.
"""

import flask_sqlalchemy  # noqa: F401

import wikiholt.interfaces.http.app  # noqa: F401
