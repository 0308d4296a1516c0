"""What tests of the console share: a page that is signed in, approvals that wait, and the checks of every page."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from playwright.sync_api import Browser, BrowserContext, Page

from tests.support.console import SOURCES, link_packages
from tests.support.service import ROOT, Service

IMAGES = ROOT / "docs" / "images"
SERIOUS = ("serious", "critical")


@contextmanager
def api(service: Service, *, key: str | None = None, tenant: str = "local") -> Iterator[httpx.Client]:
    """Connect with the operator's key for a tenant, or with another key."""
    headers = {"authorization": f"Bearer {key or service.key}"}
    if key is None:
        headers["plangate-tenant"] = tenant
    with httpx.Client(base_url=service.url, headers=headers, timeout=60) as client:
        client.event_hooks["response"].append(_raise)
        yield client


def _raise(response: httpx.Response) -> None:
    response.read()
    response.raise_for_status()


def create_key(
    service: Service, principal: str, scopes: tuple[str, ...] = ("read", "approvals:decide")
) -> str:
    with api(service) as http:
        return str(http.post("/keys", json={"principal": principal, "scopes": list(scopes)}).json()["key"])


def ticket_url(service: Service, key: str | None = None) -> str:
    with api(service, key=key) as http:
        return str(http.post("/session/tickets").json()["url"])


@contextmanager
def browser_profile(browser: Browser, **options: Any) -> Iterator[BrowserContext]:
    """Open a profile. At the end, none of its pages has violated the policy, thrown an error or asked for what does not
    exist."""
    context = browser.new_context(**{"viewport": {"width": 1440, "height": 900}, **options})
    problems: list[str] = []
    context.on(
        "console",
        lambda message: (
            problems.append(message.text)
            if any(problem in message.text for problem in ("Content Security Policy", "Trusted", "404"))
            else None
        ),
    )
    context.on("weberror", lambda error: problems.append(str(error.error)))
    try:
        yield context
        assert problems == []
    finally:
        context.close()


@contextmanager
def signed_in(browser: Browser, service: Service, key: str | None = None, **options: Any) -> Iterator[Page]:
    """Open the console in a profile of its own, for the principal of a key."""
    with browser_profile(browser, **options) as context:
        page = context.new_page()
        page.goto(ticket_url(service, key))
        page.get_by_role("navigation").first.wait_for(state="attached")
        yield page


def take_picture(page: Page, name: str) -> None:
    """Take a picture, and keep it if the caller wants new ones. The committed one exists in any case."""
    page.mouse.move(0, 0)
    picture = page.screenshot(animations="disabled")
    if os.environ.get("PLANGATE_WRITE_IMAGES"):
        IMAGES.mkdir(exist_ok=True)
        (IMAGES / name).write_bytes(picture)
    assert (IMAGES / name).stat().st_size > 10_000


def assert_accessible(page: Page) -> None:
    """Fail with what axe calls serious or critical."""
    link_packages()
    page.evaluate((SOURCES / "node_modules" / "axe-core" / "axe.min.js").read_text())
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    serious = [
        {"rule": violation["id"], "nodes": [node["html"][:200] for node in violation["nodes"][:3]]}
        for violation in found["violations"]
        if violation["impact"] in SERIOUS
    ]
    assert serious == [], json.dumps(serious, indent=1)


def submit(http: httpx.Client, prompt: str, runtime: str, **fields: Any) -> str:
    """Start a query and return its id."""
    return str(http.post("/queries", json={"prompt": prompt, "runtime": runtime, **fields}).json()["id"])


def wait_for_approval(http: httpx.Client, query_id: str) -> dict[str, Any]:
    """Return the approval for which a query waits."""
    ends = time.monotonic() + 30
    while not (
        found := http.get("/approvals", params={"queryId": query_id, "status": "pending"}).json()["items"]
    ):
        assert time.monotonic() < ends, http.get(f"/queries/{query_id}").json()
        time.sleep(0.05)
    approval: dict[str, Any] = found[0]
    return approval
