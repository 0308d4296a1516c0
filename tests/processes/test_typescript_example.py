"""The example of the TypeScript client, a chat page with approvals, in a real browser on another origin."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.support import specs
from tests.support.browser import browsing, static_files
from tests.support.service import Service, folder, serving
from tests.support.typescript import PACKAGE, build

pytestmark = pytest.mark.long

EVIL = "<img src=x onerror=\"document.title='owned'\">"


@pytest.fixture(scope="module")
def origin() -> Iterator[str]:
    build()
    with static_files(PACKAGE / "example") as url:
        yield url


@pytest.fixture(scope="module")
def service(origin: str) -> Iterator[Service]:
    with folder() as at, serving(at, {"PLANGATE_CORS_ORIGINS": origin}) as running:
        headers = {"Authorization": f"Bearer {running.key}"}
        tool = specs.tool("pay", approval="always")
        spec = specs.scripted(tool, tenant="local", name="chat")
        with httpx.Client(base_url=running.url, headers=headers) as api:
            api.post("/runtimes", json=spec).raise_for_status()
        yield running


@pytest.fixture
def page(service: Service, origin: str) -> Iterator[Page]:
    with browsing() as browser:
        opened = browser.new_page()
        opened.goto(f"{origin}/index.html?runtime=chat&url={service.url}#{service.key}")
        yield opened


def send(page: Page, prompt: str) -> None:
    page.get_by_label("Message").fill(prompt)
    page.get_by_role("button", name="Send").click()


def pay(amount: str, note: str = "") -> str:
    """Return the script of a call. The amount is JSON as it is written."""
    return f'{{"tool": "pay", "args": {{"n": {amount}, "note": {json.dumps(note)}}}}}'


def test_a_person_approves_the_exact_bytes_in_the_page(page: Page, service: Service) -> None:
    send(page, pay("9007199254740993", EVIL))
    expect(page.get_by_role("heading", name="Waits for your approval")).to_be_visible()
    shown = page.locator("pre").inner_text()
    assert "9007199254740993" in shown, "the page shows every digit"
    assert json.dumps(EVIL) in shown, "and what a model wrote is text"
    assert page.title() == "Chat with approvals"
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_text("This approval is approved.")).to_be_visible()
    with httpx.Client(base_url=service.url, headers={"Authorization": f"Bearer {service.key}"}) as api:
        (approval,) = api.get("/approvals", params={"status": "approved"}).json()["items"]
        assert (
            json.loads(api.get(f"/approvals/{approval['id']}/subject").content)["args"]["n"]
            == 9007199254740993
        )


def test_a_person_rejects_in_the_page(page: Page) -> None:
    send(page, pay("1"))
    page.get_by_role("button", name="Reject").click()
    expect(page.get_by_text("This approval is rejected.")).to_be_visible()
    expect(page.locator("p").filter(has_text="rejected and not made")).to_be_visible()
