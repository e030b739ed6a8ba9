"""Isolation with several worker processes: many clients of two wikis never see a page of the other wiki."""

from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from random import Random

import httpx

from tests.support.tiers import choose
from tests.support.wait import TIMEOUT_S, wait_until
from tests.support.worker_service import WorkerService, make_worker_service

CLIENTS = choose(64, 16)
REQUESTS_PER_CLIENT = choose(100, 3)
PAGE_COUNT = 12
COMMON_TEXT = "the cat sleeps on a sofa"


def make_pages(word: str) -> dict[str, str]:
    return {f"{word} {n}.md": f"# {word} {n}\n\n{COMMON_TEXT} {word}body\n" for n in range(PAGE_COUNT)}


PAGES = {"left": make_pages("zqleft"), "right": make_pages("zqright")}


def search_as(service: WorkerService, slug: str, seed: int) -> int:
    """Search, read and write one wiki with its own key. Returns the number of complete answers."""
    other = "zqright" if slug == "left" else "zqleft"
    random, answered = Random(seed), 0
    headers = {"Authorization": f"Bearer {service.tokens[slug]}"}
    with httpx.Client(base_url=f"{service.url}/w/{slug}/api/v1", headers=headers, timeout=TIMEOUT_S) as client:
        for number in range(REQUESTS_PER_CLIENT):
            requests = [
                client.build_request("GET", "/search", params={"q": f"{COMMON_TEXT} {other}body", "n": 20}),
                client.build_request("GET", "/search", params={"q": "cat", "mode": "semantic", "n": 20}),
                client.build_request("GET", "/pages", params={"limit": 100}),
                client.build_request("GET", f"/pages/{other} 1"),
            ]
            if number == 0:
                body = {"content": f"{COMMON_TEXT} written by zq{slug}"}
                requests = [client.build_request("PUT", f"/pages/new/{seed}", json=body)]
            request = random.choice(requests)
            response = client.send(request)
            while response.status_code == 409 and response.json()["code"] == "busy":
                response = client.send(request)  # on a busy machine, many writers of one wiki wait long
            assert response.status_code in (200, 201, 404), response.text
            document = response.json()
            document.pop("query", None)
            # An error repeats the path of the request.
            assert response.status_code == 404 or other not in str(document)
            answered += response.status_code != 404
    return answered


def count_pages(service: WorkerService, slug: str) -> int:
    """The number of indexed pages, for whose index a search waits."""
    service.find(slug, "cat", fresh="true")
    return len(service.send("GET", f"/w/{slug}/api/v1/pages?limit=1000", slug).json()["pages"])


def test_many_clients_of_two_wikis_over_two_workers_never_see_the_other_wiki(tmp_path: Path) -> None:
    unlimited = {"limit.key_per_minute": 0, "lock.timeout": 120}
    with make_worker_service(tmp_path, PAGES, **unlimited) as service:
        service.start()
        with ThreadPoolExecutor(CLIENTS) as pool:
            pairs = list(product(PAGES, range(CLIENTS // 2)))
            answered = list(pool.map(lambda pair: search_as(service, *pair), pairs))
        assert min(answered) > 0
        for slug, other in (("left", "right"), ("right", "left")):
            wait_until(lambda slug=slug: count_pages(service, slug) == PAGE_COUNT + CLIENTS // 2)  # type: ignore[misc]
            for method, path in (("GET", "search?q=cat"), ("GET", "pages")):
                assert service.send(method, f"/w/{slug}/api/v1/{path}", other).status_code in (401, 403)
        assert service.stop() == 0
