"""The pages of the service in a real browser: no other origins, signing in, and protection of sessions."""

from __future__ import annotations

import functools
import http.server
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from docsite.build import build_if_stale
from docsite.freshness import SITE
from tests.support.browser import browsing, static_files
from tests.support.console_pages import assert_accessible
from tests.support.service import Service, folder, serving
from tests.support.specs import mock

pytestmark = pytest.mark.long

expect.set_options(timeout=30_000)

FOLLOW = """(id) => new Promise((resolve, reject) => {
  const types = [];
  const source = new EventSource(`queries/${id}/events`);
  source.addEventListener("finish", () => { source.close(); resolve(types.concat("finish")); });
  source.addEventListener("text", () => types.push("text"));
  source.onerror = () => reject(new Error("the stream broke"));
})"""
SUBMIT = """async () => (await (await fetch("queries", {
  method: "POST",
  headers: { "Content-Type": "application/json", "Plangate-Request": "1" },
  body: JSON.stringify({ prompt: "hi" }),
})).json()).id"""
ATTACK = """async (address) => {
  const tried = {};
  const json = { "Content-Type": "application/json" };
  const body = JSON.stringify({ principal: "mallory", scopes: ["admin"] });
  const attempts = {
    read: { credentials: "include" },
    preflighted: { method: "POST", credentials: "include", headers: { ...json, "Plangate-Request": "1" }, body },
    simple: { method: "POST", credentials: "include", body },
    blind: { method: "POST", credentials: "include", mode: "no-cors", body },
  };
  for (const [name, options] of Object.entries(attempts)) {
    tried[name] = await fetch(`${address}/keys`, options).then((r) => r.type, () => "refused");
  }
  return tried;
}"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browsing() as browser:
        yield browser


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with folder() as at, serving(at) as running:
        yield running


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """A page of a new profile. At the end, it must have loaded nothing that a policy forbids."""
    context = chromium.new_context()
    page = context.new_page()
    violations: list[str] = []
    page.on("console", lambda m: violations.append(m.text) if "Content Security Policy" in m.text else None)
    yield page
    context.close()
    assert violations == []


def client(service: Service, tenant: str = "acme") -> httpx.Client:
    headers = {"authorization": f"Bearer {service.key}", "plangate-tenant": tenant}
    return httpx.Client(base_url=service.url, headers=headers, timeout=30)


def ticket_url(service: Service) -> str:
    """Return the address of the page of the API document with a ticket. `url` leads to the console, which takes tickets
    in the same way."""
    with client(service) as http:
        return str(http.post("/session/tickets").json()["url"]).replace("/console#", "/docs#")


def search_guides(page: Page, words: str, section: str) -> None:
    """Search the site with the keyboard, as a reader does, and open a section that is found."""
    page.locator("dialog[aria-label=Search]").wait_for(state="attached")
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name="Search").fill(words)
    page.get_by_role("option", name=section).first.click()


def test_the_pages_load_nothing_from_other_hosts(page: Page, service: Service) -> None:
    hosts: set[str] = set()
    page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
    page.goto(f"{service.url}/docs")
    page.locator(".opblock-tag").first.wait_for()
    expect(page.locator("#sign-in")).to_be_visible()
    page.goto(f"{service.url}/guides/performance")
    expect(page.locator("article td[align=right]").first).to_have_css("text-align", "-webkit-right")
    search_guides(page, "settle an unknown outcome", "When the outcome is unknown")
    page.wait_for_url("**/guides/plans.html*")
    assert_accessible(page)
    page.get_by_title("Switch to the dark theme").click()
    expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "slate")
    assert_accessible(page)
    page.reload()
    expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "slate")
    assert hosts == {urlsplit(service.url).netloc}


def test_a_ticket_signs_in_and_event_source_follows_a_query(page: Page, service: Service) -> None:
    with client(service) as http:
        http.post("/runtimes", json=mock()).raise_for_status()
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    url = ticket_url(service)
    page.goto(url)
    expect(page.locator("#session")).to_have_text("Signed in as operator (tenant acme)")
    assert page.url == f"{service.url}/docs"
    ticket = urlsplit(url).fragment.partition("=")[2]
    assert not [request for request in requests if ticket in urlsplit(request).path + urlsplit(request).query]
    assert page.evaluate("document.cookie") == ""
    page.reload()
    expect(page.locator("#session")).to_have_text("Signed in as operator (tenant acme)")
    assert page.evaluate(FOLLOW, page.evaluate(SUBMIT))[-2:] == ["text", "finish"]
    page.locator("#sign-out").click()
    expect(page.locator("#sign-in")).to_be_visible()
    assert page.evaluate("fetch('whoami').then((r) => r.status)") == 401


def test_a_used_ticket_is_reported(page: Page, service: Service) -> None:
    url = ticket_url(service)
    page.goto(url)
    expect(page.locator("#sign-out")).to_be_visible()
    page.context.clear_cookies()
    page.goto("about:blank")
    page.goto(url)
    expect(page.locator("#session")).to_contain_text("This ticket was used")
    expect(page.locator("#sign-in")).to_be_visible()


def test_a_page_on_another_port_cannot_use_the_session(
    chromium: Browser, service: Service, tmp_path: Path
) -> None:
    """Another port of one host is the same site, so SameSite does not help against it."""
    (tmp_path / "index.html").write_text("<!doctype html><title>Other</title>")
    context = chromium.new_context()
    page = context.new_page()
    page.goto(ticket_url(service))
    expect(page.locator("#sign-out")).to_be_visible()
    with other_origin(tmp_path) as address:
        page.goto(address)
        tried = page.evaluate(ATTACK, service.url)
    assert tried == {"read": "refused", "preflighted": "refused", "simple": "refused", "blind": "opaque"}
    context.close()
    with client(service) as http:
        assert [key for key in http.get("/keys").json()["items"] if key["principal"] == "mallory"] == []


def test_the_pages_work_below_a_path_prefix(page: Page) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}/plangate"
    with folder() as at, serving(at, {"PLANGATE_PUBLIC_URL": address}, port=port) as running:
        page.goto(address)
        assert page.url == f"{address}/console"
        expect(page.get_by_role("heading", name="Sign in to Plangate")).to_be_visible()
        page.goto(f"{address}/console/inbox/apr_1")
        expect(page.get_by_role("heading", name="Sign in to Plangate")).to_be_visible()
        page.goto(f"{address}/docs")
        page.locator(".opblock-tag").first.wait_for()
        page.locator("input[name=key]").fill(running.key)
        page.locator("input[name=tenant]").fill("acme")
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator("#session")).to_have_text("Signed in as operator (tenant acme)")
        assert page.locator(".servers select").input_value() == address
        page.get_by_role("link", name="Guides").click()
        page.wait_for_url(f"{address}/guides/")
        page.get_by_role("link", name="Operation", exact=True).click()
        page.wait_for_url(f"{address}/guides/operations.html")
        search_guides(page, "decimal_sum", "Facts that no model wrote")
        page.wait_for_url(f"{address}/guides/plans.html*")


def test_the_site_works_on_a_static_host(page: Page) -> None:
    """As anybody can host it: the folder alone, at the root of another server."""
    build_if_stale()
    with static_files(SITE) as origin:
        page.goto(origin)
        page.get_by_role("link", name="Tutorial", exact=True).click()
        page.wait_for_url(f"{origin}/tutorial.html")
        search_guides(page, "decimal_sum", "Facts that no model wrote")
        page.wait_for_url(f"{origin}/plans.html*")


@contextmanager
def other_origin(folder: Path) -> Iterator[str]:
    """Serve a folder at another port of the same host."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=os.fspath(folder))
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
