"""A small Hugging Face hub on the loopback interface: the endpoints that huggingface_hub uses to read a repository."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from urllib.parse import unquote, urlsplit

from tests.support.http_server import run_handler

_LFS_SUFFIXES = (".onnx", ".onnx_data", ".safetensors", ".bin")


@dataclass(slots=True)
class HubState:
    """The repositories by name, and what was requested."""

    url: str = ""
    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    licences: dict[str, str] = field(default_factory=dict)
    token: str = ""
    """If set, only requests with this token see a repository."""
    damaged: set[str] = field(default_factory=set)
    """Files that are sent with one byte changed."""
    downloads: list[str] = field(default_factory=list)
    status: int = 0
    """If set, every request gets this status."""

    def get_commit(self, repository: str) -> str:
        files = self.repositories[repository]
        return hashlib.sha1(b"".join(name.encode() + files[name] for name in sorted(files))).hexdigest()


def compute_git_digest(data: bytes) -> str:
    return hashlib.sha1(f"blob {len(data)}\0".encode() + data).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: HubState

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self) -> None:
        state = self.state
        parts = unquote(urlsplit(self.path).path).strip("/").split("/")
        if state.status:
            return self._send(state.status, b"{}")
        if parts[0] == "lfs":
            return self._send_file(*parts[1:3], "/".join(parts[3:]))
        repository = "/".join(parts[2:4] if parts[:2] == ["api", "models"] else parts[:2])
        is_allowed = not state.token or self.headers.get("Authorization") == f"Bearer {state.token}"
        if repository not in state.repositories or not is_allowed:
            return self._send(401, b'{"error": "Repository not found"}', {"X-Error-Code": "RepoNotFound"})
        commit = state.get_commit(repository)
        if parts[0] == "api":
            if len(parts) > 5 and parts[5] not in ("main", commit):
                return self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
            return self._send(200, self._describe(repository, commit))
        name = "/".join(parts[4:])
        if name not in state.repositories[repository]:
            return self._send(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})
        data = state.repositories[repository][name]
        headers = {"X-Repo-Commit": commit}
        if name.endswith(_LFS_SUFFIXES):
            headers |= {
                "X-Linked-Etag": f'"{hashlib.sha256(data).hexdigest()}"',
                "X-Linked-Size": str(len(data)),
                # As on the real hub, large files are on another host.
                "Location": f"{state.url.replace('127.0.0.1', 'localhost')}/lfs/{repository}/{name}",
            }
            return self._send(302, b"", headers)
        return self._send_file(*repository.split("/"), name, headers | {"ETag": f'"{compute_git_digest(data)}"'})

    def _send_file(self, owner: str, project: str, name: str, headers: dict[str, str] | None = None) -> None:
        if self.command == "GET":
            self.state.downloads.append(name)
        data = self.state.repositories[f"{owner}/{project}"][name]
        if name in self.state.damaged:
            data = data[:-1] + bytes([data[-1] ^ 1])
        self._send(200, data, headers)

    def _describe(self, repository: str, commit: str) -> bytes:
        siblings = []
        for name, data in self.state.repositories[repository].items():
            row: dict[str, object] = {"rfilename": name, "size": len(data), "blobId": compute_git_digest(data)}
            if name.endswith(_LFS_SUFFIXES):
                row["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
            siblings.append(row)
        document: dict[str, object] = {"id": repository, "modelId": repository, "sha": commit, "siblings": siblings}
        document |= {"private": False, "disabled": False, "downloads": 0, "likes": 0, "tags": []}
        document["cardData"] = {"license": self.state.licences.get(repository, "mit")}
        return json.dumps(document).encode()

    def _send(self, status: int, data: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


@contextmanager
def run_hub() -> Iterator[HubState]:
    """Serve repositories until the block ends."""
    state = HubState()
    with run_handler(type("Handler", (_Handler,), {"state": state})) as port:
        state.url = f"http://127.0.0.1:{port}"
        yield state
