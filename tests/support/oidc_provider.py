"""A real OpenID provider (node-oidc-provider) on a loopback port, and a person who signs in there."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.support.paths import ROOT
from tests.support.wait import TIMEOUT_S

_SCRIPT = ROOT / "tests" / "support" / "oidc_provider.mjs"
CLIENT_ID, CLIENT_SECRET = "wikiholt", "the secret of the client"


@dataclass(frozen=True)
class OidcProvider:
    """A running provider."""

    issuer: str

    def sign_in(self, url: str, person: str, *, cancel: bool = False) -> str:
        """Sign a person in, as a browser that was sent to `url` does. Returns the address that it is sent back to."""
        with httpx.Client(timeout=TIMEOUT_S) as browser:
            response = browser.get(url)
            for _ in range(20):
                if response.is_redirect:
                    target = str(response.next_request.url) if response.next_request else ""
                    if not target.startswith(self.issuer):
                        return target
                    response = browser.get(target)
                    continue
                prompt = re.search(r'name="prompt" value="(\w+)"', response.text)
                assert prompt is not None, response.text[:2000]
                form = {"prompt": prompt[1], "login": person, "password": "any"}
                if cancel:
                    response = browser.get(f"{response.url}/abort")
                else:
                    response = browser.post(str(response.url), data=form)
            raise AssertionError("the provider does not finish the sign-in")


@contextmanager
def run_oidc_provider(persons: Mapping[str, Mapping[str, Any]], *, public: bool = False) -> Iterator[OidcProvider]:
    """Run the provider; skips the test if there is no Node.js."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no Node.js: install Debian's package nodejs to run these tests")
    secret = {} if public else {"client_secret": CLIENT_SECRET}
    client = {
        "client_id": CLIENT_ID,
        "redirect_uris": ["http://127.0.0.1/oidc-callback"],
        "token_endpoint_auth_method": "none" if public else "client_secret_basic",
        **secret,
    }
    argument = json.dumps({"client": client, "persons": persons})
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [node, str(_SCRIPT), argument], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield OidcProvider(process.stdout.readline().strip())
        finally:
            process.terminate()
            process.wait(TIMEOUT_S)
