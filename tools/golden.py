"""Write what users and programs see of Wikiholt to files, to compare two versions of the code.

    .venv/bin/python tools/golden.py OUT [--collections DIR]
    diff -r OUT OTHER

Runs the installed command and its service: help of all commands, settings, errors, the OpenAPI document, the tools of
MCP, the JSON of requests to the demo wikis, and with `--collections` the hits and scores of every judged query. The
outputs of the commit before the code was made smaller are in bench/results/golden.tar.xz.
"""

import argparse
import asyncio
import json
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from bench import collections

PROGRAM = str(Path(sys.executable).parent / "wikiholt")
MODES = ("hybrid", "semantic", "keyword")
WIKIS = ("allotment", "runbook")
VOLATILE = re.compile(
    r'("(?:took_ms|seconds|started_at|finished_at|synced_at|checked_at|indexed_at|pid|disk_bytes|disk_free|uptime_s|'
    r'next_retry_at|last_success_at|chunk_id|etag)": ?)("[^"]*"|[-\d.]+|null)'
)
QUERIES = (
    "what may go on the compost heap",
    "when do we water",
    "slugs",
    "the machine wants to be cleaned",
    '"drip line"',
    "tomatoes -blight",
    "tag:soil compost",
    "path:Growing seeds",
    "title:compost",
    "frost OR ice",
    "composst",
    "rotation",
    "how do I book the laser cutter",
    "xqzvnonsense",
    "ls -la",
    "+composst",
    "key for the shed",
    "watering can",
    "winter",
)

WIKI_PATHS = (
    "/search?q=compost&facets=season&sort=date",
    "/search?q=compost&n=2&offset=2",
    "/search?q=soil&prefix=Growing",
    "/search?q=soil&tag=soil",
    "/search?q=soil&max_chunks_per_page=3",
    "/search?q=soil&n=0",
    "/search",
    "/search?q=a&b=c",
    "/search?q=soil&since=2020-01-01",
    "/semantic-search?q=soil",
    "/similar?path=Growing/Composting",
    "/similar?path=No",
    "/facets",
    "/facets?q=soil",
    "/pages",
    "/pages?limit=2&offset=1",
    "/pages/Growing/Composting",
    "/pages/No",
    "/pages/Growing/Composting/history",
    "/changelog",
    "/status",
    "/links",
    "/me",
    "/keys",
    "/none",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--collections", type=Path)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        write_help(arguments.out)
        run("demo", str(work / "demo"))
        with serve(work / "demo" / "data", work / "demo" / "repositories") as address:
            write_documents(address, arguments.out)
            write_requests(address, arguments.out)
            asyncio.run(write_tools(address, arguments.out))
        if arguments.collections:
            write_hits(arguments.collections, work, arguments.out)


def run(*arguments: str) -> str:
    """The output of the command, of both streams."""
    done = subprocess.run(
        [PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return f"{done.stdout}exit code {done.returncode}\n"


def write_help(out: Path) -> None:
    from wikiholt.interfaces.cli.parser import COMMANDS  # noqa: PLC0415 - what is compared must not be needed to start

    texts = [run("--help")] + [f"== {command}\n{run(command, '--help')}" for command in COMMANDS]
    (out / "help.txt").write_text("\n".join(texts))
    with tempfile.TemporaryDirectory() as empty:
        settings = run("--data", empty, "settings")
        errors = [
            run("--data", empty, *words) for words in (("search", "-w", "none", "x"), ("status", "none"), ("bad",))
        ]
        (out / "settings.txt").write_text(settings.replace(empty, "DATA"))
        (out / "errors.txt").write_text("\n".join(errors).replace(empty, "DATA"))


@contextmanager
def serve(data: Path, *directories: Path) -> Iterator[str]:
    """A running service, by its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [PROGRAM, "--data", str(data), "--set", "limit.address_per_minute=0", "serve", "--port", str(port)]
    process = subprocess.Popen([*command, *map(str, directories)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        while fetch(address, "/readyz")["status"] != 200:
            time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait()


def fetch(address: str, path: str) -> dict[str, object]:
    """Status and JSON of a request, or its text."""
    try:
        with urllib.request.urlopen(address + path, timeout=60) as answer:  # noqa: S310 - a service of its own
            status, body = answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        status, body = error.code, error.read().decode()
    except OSError as error:
        return {"status": 0, "body": str(error)}
    try:
        return {"status": status, "body": json.loads(VOLATILE.sub(r"\1 0", body))}
    except ValueError:
        return {"status": status, "body": body}


def write_json(file: Path, value: object) -> None:
    file.write_text(VOLATILE.sub(r"\1 0", json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False)) + "\n")


def write_documents(address: str, out: Path) -> None:
    write_json(out / "openapi.json", fetch(address, "/openapi.json")["body"])
    (out / "errors.json").write_text(list_error_codes())


def list_error_codes() -> str:
    """Every error class with its code, HTTP status and exit code."""
    from wikiholt import errors  # noqa: PLC0415

    classes = [value for value in vars(errors).values() if isinstance(value, type) and hasattr(value, "code")]
    rows = {
        each.__name__: [str(getattr(each, field, "")) for field in ("code", "status", "exit_code")] for each in classes
    }
    return json.dumps(rows, indent=1, sort_keys=True) + "\n"


def write_requests(address: str, out: Path) -> None:
    """The JSON of requests: searches in all modes, filters, pages, errors."""
    paths = [
        f"/w/{wiki}/api/v1/search?{urlencode({'q': query, 'mode': mode, 'n': 5})}"
        for query in QUERIES
        for wiki in WIKIS[: 1 + (query in QUERIES[:4])]
        for mode in MODES
    ]
    api = "/w/allotment/api/v1"
    paths += [api + path for path in WIKI_PATHS]
    paths += [f"/api/v1/{path}" for path in ("search?q=compost&wiki=allotment", "wikis", "me", "settings", "none")]
    write_json(out / "requests.json", {path: fetch(address, path) for path in paths})


async def write_tools(address: str, out: Path) -> None:
    async with Client(streamable_http_client(f"{address}/w/allotment/mcp")) as client:
        tools = await client.list_tools()
        answer = await client.call_tool("search", {"query": "what may go on the compost heap"})
        value = {"instructions": client.instructions, "tools": [tool.model_dump() for tool in tools.tools]}
        write_json(out / "mcp.json", value | {"search": answer.model_dump()})


def write_hits(directory: Path, work: Path, out: Path) -> None:
    """The first ten hits with scores of all judged queries, in every mode."""
    data = work / "judged"
    for name in collections.SHARED_NAMES:
        collections.write_repository(directory / name, work / f"{name}.git")
        run("--data", str(data), "add", name, str(work / f"{name}.git"))
        run("--data", str(data), "sync", name)
    with serve(data) as address:
        for name in collections.SHARED_NAMES:
            for kind in collections.read_queries(directory / name):
                for mode in MODES:
                    rows = [f"{query}\t{read_hits(address, name, text, mode)}" for query, text in kind.texts.items()]
                    (out / f"hits-{name}-{kind.kind}-{mode}.tsv").write_text("\n".join(rows) + "\n")


def read_hits(address: str, wiki: str, text: str, mode: str) -> str:
    query = urlencode({"q": text[:2000], "mode": mode, "n": 10, "rerank": "false"})
    answer = fetch(address, f"/w/{wiki}/api/v1/search?{query}")
    body = answer["body"]
    if not isinstance(body, dict) or "results" not in body:
        return str(body)
    hits = " ".join(f"{hit['path']}={hit['score']:.4f}" for hit in body["results"])
    return f"{'nothing' if body['nothing_relevant'] else 'answer'} {hits}"


if __name__ == "__main__":
    main()
