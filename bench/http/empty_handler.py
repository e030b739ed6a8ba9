"""The limit of machine and web framework: a handler that searches nothing and answers with as many bytes.

python -m bench.http.empty_handler PORT BYTES
"""

import sys

import uvicorn
from fastapi import FastAPI
from starlette.responses import Response


def main() -> None:
    port, size = map(int, sys.argv[1:])
    app = FastAPI(openapi_url=None)
    body = b'{"results": ["' + b"x" * size + b'"]}'

    @app.get("/search")
    def search(q: str) -> Response:
        assert q
        return Response(body, media_type="application/json")

    uvicorn.run(app, host="127.0.0.1", port=port, log_config=None, access_log=False)


if __name__ == "__main__":
    main()
