"""The other pages of the console in a real browser: a query as it runs, records, outages, and many tabs."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from app.base import embedded_postgres
from tests.support import specs
from tests.support.browser import browsing, static_files
from tests.support.console_pages import (
    api,
    assert_accessible,
    browser_profile,
    create_key,
    signed_in,
    submit,
    ticket_url,
    wait_for_approval,
)
from tests.support.service import ROOT, Service, folder, serving

pytestmark = pytest.mark.long

expect.set_options(timeout=30_000)

EVIL = "<script>document.title='owned'</script>\u202e"
PAGES = (
    "queries",
    "plans",
    "references",
    "artifacts",
    "threads",
    "runtimes",
    "sources",
    "usage",
    "try",
    "operations",
)


@pytest.fixture(scope="module")
def data() -> Iterator[Path]:
    with folder() as at:
        yield at


@pytest.fixture(scope="module")
def service(data: Path) -> Iterator[Service]:
    with serving(data, {"PLANGATE_ALLOW_HOSTS": "127.0.0.1"}) as running:
        with api(running) as http:
            tool = specs.tool("pay", approval="always")
            http.post("/runtimes", json=specs.scripted(tool, tenant="local", name="tools"))
            number = {"type": "number"}
            properties = {"day": {"type": "string"}, "amount": number, "price": number}
            schema = {"type": "object", "properties": properties, "required": ["day"]}
            mock = {
                "interpreter": "mock",
                "mockResponse": f"Hello {EVIL}",
                "inputSchema": schema,
                "references": [{"name": "Note", "schema": {"type": "object"}}],
            }
            http.post("/runtimes", json=specs.spec(tenant="local", name="hello", **mock))
            plans = specs.planning(approvalPolicies={"plans": "always"})
            http.post("/runtimes", json={**plans, "tenant": {"resourceId": "local"}, "name": "plans"})
            http.post("/references", json={"kind": "Note", "runtime": "hello", "value": {"text": EVIL}})
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as chromium:
        yield chromium


@pytest.fixture
def http(service: Service) -> Iterator[httpx.Client]:
    with api(service) as client:
        yield client


@pytest.fixture
def page(browser: Browser, service: Service) -> Iterator[Page]:
    with signed_in(browser, service) as opened:
        yield opened


def pay(http: httpx.Client, amount: int) -> dict[str, Any]:
    return wait_for_approval(http, submit(http, json.dumps({"tool": "pay", "args": {"n": amount}}), "tools"))


def test_a_query_is_sent_and_followed_in_the_console(page: Page) -> None:
    page.get_by_role("link", name="Try it").click()
    page.get_by_role("combobox", name="Runtime").select_option(label="hello, version 1")
    page.get_by_label("Prompt").fill("Say hello.")
    page.get_by_label("day").fill("2013-03-08")
    page.get_by_label("amount").fill("9007199254740993")
    page.get_by_label("price").fill("100.00")
    with page.expect_request(lambda request: request.method == "POST") as sent:
        page.get_by_role("button", name="Send").click()
    assert '{"amount":9007199254740993,"day":"2013-03-08","price":100.00}' in (sent.value.post_data or "")
    conversation = page.get_by_role("region", name="Conversation")
    expect(conversation).to_contain_text("Say hello.")
    model = conversation.get_by_role("group", name="Written by a model")
    expect(model).to_contain_text("<script>")
    expect(model).to_contain_text("U+202E RLO")
    expect(page.get_by_role("region", name="Timeline of the work")).to_be_visible()
    assert "owned" not in page.title()
    page.get_by_role("tab", name="Inputs").click()
    expect(page.get_by_text("2013-03-08")).to_be_visible()
    expect(page.get_by_text("9007199254740993")).to_be_visible()


def test_the_journal_is_searched_and_an_event_has_a_link(
    page: Page, service: Service, http: httpx.Client
) -> None:
    query = submit(http, json.dumps({"script": [{"tool": "pay", "args": {"n": 1}}]}), "tools")
    approval = wait_for_approval(http, query)
    page.goto(f"{service.url}/console/queries/{query}?tab=journal&seq=2")
    expect(page.get_by_role("button", name="query-status").first).to_be_visible()
    expect(page.locator(".line.target")).to_contain_text("queued → running")
    page.get_by_placeholder("Search text or seq").fill(approval["id"])
    expect(page.get_by_role("button", name="approval-required")).to_be_visible()
    expect(page.get_by_role("button", name="query-status")).to_have_count(0)
    page.get_by_role("tab", name="Overview").click()
    expect(page.get_by_role("link", name="Review the approval")).to_be_visible()
    page.get_by_role("button", name="Cancel query…").click()
    page.get_by_role("button", name="Cancel the query now").click()
    expect(page.get_by_text("Canceled").first).to_be_visible()


def test_the_journal_keeps_every_digit(page: Page, service: Service, http: httpx.Client) -> None:
    query = submit(http, "Speak.", "hello", inputs={"day": "2013-03-08"})
    http.get(f"/queries/{query}", params={"waitMs": 20_000})
    first, *_, finish = http.get(f"/queries/{query}/events").json()["events"]
    frames = [
        json.dumps({**first, "seq": 1}),
        json.dumps({**first, "seq": 2, "type": "data-total", "data": {"total": "?"}}).replace(
            '"?"', "[9007199254740993, 100.00]"
        ),
        json.dumps({**finish, "seq": 3}),
    ]
    body = "".join(f"id: c{n}\ndata: {frame}\n\n" for n, frame in enumerate(frames))
    page.route(
        "**/queries/*/stream", lambda route: route.fulfill(content_type="text/event-stream", body=body)
    )
    page.goto(f"{service.url}/console/queries/{query}?tab=journal")
    page.get_by_placeholder("Search text or seq").fill("9007199254740993")
    expect(page.get_by_text("1 of 3 events")).to_be_visible()
    expect(page.get_by_role("region", name="Events")).to_contain_text('{"total": [9007199254740993, 100.00]}')
    page.get_by_role("button", name="data-total").click()
    expect(page.locator(".raw .json-number", has_text="100.00")).to_be_visible()


def execute_actions(page: Page, http: httpx.Client) -> None:
    """Execute the actions that the page shows as dispatched."""
    expect(page.get_by_text("Dispatched").first).to_be_visible()
    claim = {"tools": [{"name": "actions"}], "max": 10}
    for call in http.post("/tool-calls/claim", json=claim).json()["calls"]:
        output = {"entitiesAffected": 2, "summary": "Done."}
        body = {"claimToken": call["claimToken"], "output": output}
        http.post(f"/tool-calls/{call['workId']}/result", json=body)


def test_a_plan_is_approved_and_followed_to_its_end(page: Page, service: Service, http: httpx.Client) -> None:
    query = submit(http, specs.store_and_execute(plan_id="followed"), "plans", agent="chief")
    approval = wait_for_approval(http, query)
    page.goto(f"{service.url}/console/inbox/{approval['id']}")
    page.get_by_role("button", name="Approve").first.click()
    page.get_by_role("button", name="Approve 2 actions").click()
    page.get_by_role("link", name="Follow it").first.click()
    execute_actions(page, http)
    expect(page.get_by_text("2 of 2 done")).to_be_visible()
    expect(page.get_by_text("Done and dusted").first).to_be_visible()


FOCUS = """() => {
  const element = document.activeElement;
  const box = element.getBoundingClientRect();
  const ring = [element, element.closest(".entry")].some((each) => each && parseFloat(getComputedStyle(each).outlineWidth) >= 2
    && getComputedStyle(each).outlineStyle !== "none");
  const top = document.elementFromPoint(box.left + Math.min(box.width, 40) / 2, box.top + Math.min(box.height, 40) / 2);
  const name = (element.getAttribute("aria-label") ?? element.innerText ?? "").trim().split("\\n")[0];
  return { tag: element.tagName, name, ring, isOnTop: top !== null && (element.contains(top) || top.contains(element)) };
}"""


def tab_to(page: Page, tag: str, name: str, *, most: int = 60) -> None:
    """Press Tab until the control has the focus. Each control on the way has a visible ring and is not covered."""
    for _ in range(most):
        page.keyboard.press("Tab")
        focus = page.evaluate(FOCUS)
        if focus["tag"] == "BODY":
            continue
        assert focus["ring"], focus
        assert focus["isOnTop"], focus
        if focus["tag"] == tag and focus["name"].startswith(name):
            return
    pytest.fail(f"Tab does not reach {tag} {name!r}")


def test_the_main_job_is_done_with_keys_only(page: Page, http: httpx.Client) -> None:
    query = submit(http, specs.store_and_execute(plan_id="keys"), "plans", agent="chief")
    approval = wait_for_approval(http, query)
    expect(page.get_by_role("link", name="Routing")).to_be_visible()
    page.keyboard.press("j")
    expect(page.get_by_role("heading", level=1, name="Run 2 actions of Routing")).to_be_focused()
    expect(page.get_by_text("Digest matches the bytes shown")).to_be_visible()
    tab_to(page, "BUTTON", "Graph")
    page.keyboard.press("Enter")
    expect(page.get_by_role("img", name="2 actions")).to_be_visible()
    tab_to(page, "BUTTON", "Reject…")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Reason")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Reject…")).to_be_focused()
    page.keyboard.press("a")
    expect(page.get_by_role("button", name="Approve 2 actions")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="Follow it").last).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    execute_actions(page, http)
    expect(page.get_by_text("2 of 2 done")).to_be_visible()
    expect(page.get_by_role("term").filter(has_text="Cost")).to_be_visible()
    tab_to(page, "BUTTON", "Overview")
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Plans")).to_have_attribute("aria-selected", "true")
    tab_to(page, "A", "Routing")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="Routing")).to_be_focused()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("heading", level=1, name="Routing")).to_be_focused()
    assert http.get(f"/approvals/{approval['id']}").json()["status"] == "approved"


def assert_text_only(page: Page, url: str, *, at_least: int = 1) -> None:
    """Open a page of the console. What others wrote is text there, and its hidden characters are visible."""
    page.goto(url)
    expect(page.locator(".hidden-character", has_text="U+202E RLO")).not_to_have_count(0)
    expect(page.get_by_text("<script>").first).to_be_visible()
    expect(page.locator("main .hidden-character").nth(at_least - 1)).to_be_attached()
    assert (
        page.locator("main script, main img[src='x'], main iframe, main a[href^='javascript']").count() == 0
    )
    assert page.title() != "owned"
    assert "\u202e" not in page.title()


def test_hostile_text_is_text_wherever_it_comes_from(
    page: Page, service: Service, http: httpx.Client
) -> None:
    console = f"{service.url}/console"
    tool = specs.tool("evil", approval="always", description=EVIL)
    evil = http.post("/runtimes", json=specs.scripted(tool, tenant="local", name="evil")).json()["id"]
    assert_text_only(page, f"{console}/runtimes/{evil}")

    aliases = [{"status": status, "alias": EVIL} for status in ("draft", "approved")]
    fact = {"expression": "reason", "label": EVIL, "unit": "<b>\u202e"}
    kind = {**specs.ROUTING, "displayAliases": aliases, "glimpse": {"why": fact}}
    plans = {**specs.planning(approvalPolicies={"plans": "always"}), "plans": [kind]}
    http.post("/runtimes", json={**plans, "tenant": {"resourceId": "local"}, "name": "evilplans"})
    body = {"reason": EVIL, "actions": [{"kind": "book", "seat": EVIL}]}
    query = submit(http, specs.store_and_execute(body, "evil"), "evilplans", agent="chief")
    approval = wait_for_approval(http, query)
    http.post(f"/approvals/{approval['id']}/comments", json={"text": EVIL})
    assert_text_only(page, f"{console}/inbox/{approval['id']}", at_least=5)
    expect(
        page.get_by_role("listitem").filter(has_text="U+202E RLO").filter(has_text="operator")
    ).to_be_visible()
    facts = page.locator("dl.facts").first
    expect(facts.locator("dt", has_text="U+202E RLO")).to_be_visible()
    expect(facts.locator(".written", has_text="U+202E RLO")).to_be_visible()
    assert_text_only(page, f"{console}/plans/{approval['target']}", at_least=4)
    expect(page.locator("dl.facts").nth(1).locator("dt", has_text="U+202E RLO")).to_be_visible()
    assert_text_only(page, f"{console}/plans")
    spoken = submit(http, EVIL, "hello", inputs={"day": EVIL})
    http.get(f"/queries/{spoken}", params={"waitMs": 20_000})
    for tab in ("overview", "journal", "inputs"):
        assert_text_only(page, f"{console}/queries/{spoken}?tab={tab}")
    assert_text_only(page, f"{console}/queries")
    http.post(f"/approvals/{approval['id']}", json={"decision": "reject", "feedback": EVIL})
    assert_text_only(page, f"{console}/inbox/{approval['id']}", at_least=5)

    thread = http.post("/threads", json={"threadKey": EVIL}).json()["id"]
    name = "<script>document.title='owned'<_script>.html"
    http.put(f"/threads/{thread}/files/{name}", content=EVIL.encode(), headers={"content-type": "text/html"})
    publish = {"threadId": thread, "channel": "reports", "path": name, "title": EVIL, "summary": EVIL}
    artifact = http.post("/artifacts", json={**publish, "metadata": {EVIL: EVIL}}).json()["id"]
    assert_text_only(page, f"{console}/artifacts")
    assert_text_only(page, f"{console}/artifacts/{artifact}", at_least=5)
    assert_text_only(page, f"{console}/threads")
    assert_text_only(page, f"{console}/threads/{thread}")
    page.get_by_role("tab", name="Files").click()
    page.get_by_role("button", name="<script>").click()
    expect(page.get_by_role("group", name="From file")).to_contain_text("U+202E RLO")
    assert "owned" not in page.title()


def test_earlier_messages_of_a_thread_are_read_on_request(
    page: Page, service: Service, http: httpx.Client
) -> None:
    thread = http.post("/threads", json={}).json()["id"]

    def respond(route: Route) -> None:
        earlier = "cursor=before" in route.request.url
        text = "The first one." if earlier else "The last one."
        message = {"agent": "solo", "role": "user", "blocks": [{"type": "text", "text": text}]}
        route.fulfill(json={"items": [message], "nextCursor": None if earlier else "before"})

    page.route("**/threads/*/messages*", respond)
    page.goto(f"{service.url}/console/threads/{thread}")
    page.get_by_role("tab", name="Messages").click()
    expect(page.get_by_text("The last one.")).to_be_visible()
    page.get_by_role("button", name="Earlier messages").click()
    expect(page.locator(".prompt")).to_have_text(["The first one.", "The last one."])
    expect(page.get_by_role("button", name="Earlier messages")).to_have_count(0)


def test_a_reference_is_read_page_by_page(page: Page, service: Service, http: httpx.Client) -> None:
    rows = [{"n": n, "text": "x" * 6000} for n in range(120)]
    value = {"rows": rows, "id": 9007199254740993, "more": ["y" * 1000] * 1000}
    made = http.post("/references", json={"kind": "Note", "runtime": "hello", "value": value}).json()
    whole: list[str] = []
    page.on(
        "request", lambda request: whole.append(request.url) if request.url.endswith(made["id"]) else None
    )
    page.goto(f"{service.url}/console/references/Note/{made['id']}")
    page.get_by_role("button", name="Read in part").click()
    expect(page.get_by_text("This object is too large to be read at once.")).to_be_visible()
    page.get_by_role("button", name="rows").click()
    table = page.get_by_role("region", name="Rows")
    expect(page.get_by_text("1–12 of 120")).to_be_visible()  # 50 rows have more than a part may have
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_text("13–24 of 120")).to_be_visible()
    expect(table.get_by_role("row")).to_have_count(13)
    page.get_by_label("Path").fill("id")
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.get_by_text("9007199254740993")).to_be_visible()
    page.get_by_label("Path").fill("rows[")
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("JMESPath")
    assert_accessible(page)
    assert [url for url in whole if "/console/" not in url] == []


def test_operations_show_a_tenant_to_its_admin_and_the_installation_to_its_operator(
    browser: Browser, page: Page, service: Service, http: httpx.Client
) -> None:
    with static_files(ROOT / "docs") as refuses:  # it answers a POST with 501: the outcome is unknown
        plans = specs.planning(
            approvalPolicies={"plans": "never"},
            actionDispatcher={"kind": "http", "url": f"{refuses}/actions", "replay": "never"},
        )
        http.post("/runtimes", json={**plans, "tenant": {"resourceId": "local"}, "name": "lost"})
        query = submit(http, specs.store_and_execute(plan_id="lost"), "lost", agent="chief")
        page.goto(f"{service.url}/console/operations")
        unknown = page.locator("section", has=page.get_by_role("heading", name="Unknown outcomes"))
        unknown.get_by_role("link", name="Settle…").click()
        expect(page.get_by_text("has an unknown outcome").first).to_be_visible()
        note = page.locator(".note.lost").filter(has_text="Action 0").first
        note.get_by_role("button", name="Settle…").click()
        note.get_by_role("button", name="It took effect").click()
        expect(page.get_by_text("has an unknown outcome")).to_have_count(0)
    assert http.get(f"/queries/{query}", params={"waitMs": 20_000}).json()["status"] == "succeeded"
    page.goto(f"{service.url}/console/operations")
    expect(unknown.get_by_text("No outcome is unknown")).to_be_visible()
    for heading in ("Queries that were set aside", "API keys", "Limits and use", "Tenants", "Processes"):
        expect(page.get_by_role("heading", name=heading)).to_be_visible()
    expect(page.get_by_text("Healthy").first).to_be_visible()
    assert_accessible(page)
    with signed_in(browser, service, create_key(service, "ada", ("admin",))) as admin:
        admin.goto(f"{service.url}/console/operations")
        limits = admin.locator("section", has=admin.get_by_role("heading", name="Limits and use"))
        expect(limits.get_by_role("row").filter(has_text="Running queries")).to_contain_text("No limit set")
        expect(admin.get_by_role("heading", name="API keys")).to_be_visible()
        expect(admin.get_by_role("heading", name="Tenants")).to_have_count(0)
        expect(admin.get_by_role("heading", name="Processes")).to_have_count(0)
    with signed_in(browser, service, create_key(service, "rea", ("read",))) as reader:
        reader.goto(f"{service.url}/console/operations")
        expect(reader.get_by_role("heading", name="Unknown outcomes")).to_be_visible()
        expect(reader.get_by_role("heading", name="Limits and use")).to_have_count(0)


def test_a_query_that_was_set_aside_is_listed_and_opened(
    page: Page, service: Service, data: Path, http: httpx.Client
) -> None:
    """The query fails as it does after the third death of its process; the deaths themselves are tested elsewhere."""
    console = f"{service.url}/console"
    page.goto(f"{console}/operations")
    panel = page.locator("section", has=page.get_by_role("heading", name="Queries that were set aside"))
    expect(panel.get_by_text("No query was set aside")).to_be_visible()
    approval = pay(http, 66)
    query = approval["queryId"]
    set_aside(data, query)
    page.reload()
    row = panel.get_by_role("row").filter(has_text='"n": 66')
    expect(row).to_contain_text("operator")
    row.get_by_role("link", name="Open").click()
    expect(page).to_have_url(f"{console}/queries/{query}?tab=overview")
    expect(page.get_by_text("Failed", exact=True).first).to_be_visible()
    expect(page.get_by_text("It ended 3 processes.")).to_be_visible()


def set_aside(data: Path, query: str) -> None:
    async def update() -> None:
        used = embedded_postgres.start(data / "data")
        connection = await asyncpg.connect(used.dsn())
        try:
            await connection.execute(
                "UPDATE queries SET status = 'failed', reason = 'poisoned', ended_at = now(),"
                " lease_epoch = lease_epoch + 1, error = $2 WHERE id = $1",
                query,
                b'{"code":"poisoned","message":"It ended 3 processes."}',
            )
        finally:
            await connection.close()
            used.release()

    with ThreadPoolExecutor(1) as pool:  # this thread runs the loop of the browser
        pool.submit(asyncio.run, update()).result()


def test_a_query_shows_the_state_of_its_thread_and_its_prompts(
    page: Page, service: Service, http: httpx.Client
) -> None:
    writer = {
        **specs.agent("writer", toolkits=["workspace", "variables"]),
        "systemPrompt": f"Count to two. {EVIL}",
    }
    http.post("/runtimes", json=specs.spec(writer, tenant="local", name="state", interpreter="scripted"))
    calls = [("ls", {"_outputPath": "†state.first"}), ("ls", {"_outputPath": "†state.second"})]
    query = submit(http, specs.script(*calls), "state")
    assert http.get(f"/queries/{query}", params={"waitMs": 20_000}).json()["status"] == "succeeded"
    page.goto(f"{service.url}/console/queries/{query}")
    page.get_by_role("tab", name="State 2").click()
    assert page.url.endswith("?tab=state")
    state = page.locator("section", has=page.get_by_role("heading", name="State", exact=True))
    expect(state).to_contain_text("second")
    writes = page.locator("section", has=page.get_by_role("heading", name="Writes"))
    expect(writes.get_by_text("This query")).to_have_count(2)
    writes.get_by_role("button", name="Show the state as of write 1").click()
    expect(page.get_by_text("as of write 1", exact=True)).to_be_visible()
    expect(state).not_to_contain_text("second")
    page.get_by_role("slider").press("ArrowRight")
    expect(state).to_contain_text("second")

    page.get_by_role("tab", name="Prompts 3").click()
    prompt = page.locator("section", has=page.get_by_role("heading", name="writer", exact=True))
    expect(prompt).to_contain_text("Count to two. <script>")
    expect(prompt).to_contain_text("U+202E RLO")
    table = page.locator("section", has=page.get_by_role("heading", name="Model calls of writer"))
    expect(table.get_by_role("row").nth(1)).to_contain_text("kB")
    page.get_by_role("link", name="Messages of the thread").click()
    expect(page.get_by_role("tab", name="Messages")).to_have_attribute("aria-selected", "true")
    assert_accessible(page)


def test_a_query_at_its_limit_is_resumed_and_its_thread_forked(
    page: Page, service: Service, http: httpx.Client
) -> None:
    reader = specs.agent("reader", toolkits=["workspace"])
    limited = {"interpreter": "scripted", "limits": {"maxTurns": 1}}
    http.post("/runtimes", json=specs.spec(reader, tenant="local", name="limited", **limited))
    query = submit(http, specs.script(("ls", {})), "limited")
    page.goto(f"{service.url}/console/queries/{query}")
    expect(page.get_by_text("Waiting: limit reached.")).to_be_visible()
    page.get_by_label("Turns").fill("5")
    page.get_by_role("button", name="Resume with these limits").click()
    expect(page.get_by_text("Succeeded", exact=True).first).to_be_visible()
    page.get_by_role("button", name="Fork thread").click()
    page.wait_for_url("**/console/threads/thr_*")
    assert http.get(f"/queries/{query}").json()["threadId"] not in page.url
    expect(page.get_by_text("This thread has no queries")).to_be_visible()


def test_an_artifact_shows_its_content_and_where_it_came_from(
    page: Page, service: Service, http: httpx.Client
) -> None:
    thread = http.post("/threads", json={}).json()["id"]
    http.put(f"/threads/{thread}/files/rows.csv", content=b"city,sum\nBerlin,7\n")
    http.put(f"/threads/{thread}/files/sum.json", content=b'{"total": 12345678901234567890}')

    def publish(path: str, **more: Any) -> str:
        fields = {"threadId": thread, "channel": "analysis", "path": path, "title": f"Title of {path}"}
        return str(http.post("/artifacts", json={**fields, **more}).json()["id"])

    rows = publish("rows.csv")
    total = publish("sum.json", parentArtifactIds=[rows])
    page.goto(f"{service.url}/console/artifacts/{total}")
    expect(page.get_by_role("group", name="From artifact sum.json")).to_contain_text("12345678901234567890")
    lineage = page.locator("section", has=page.get_by_role("heading", name="Lineage"))
    expect(lineage.get_by_text("Title of rows.csv").first).to_be_visible()
    lineage.get_by_role("link", name="Title of rows.csv").first.click()
    expect(page.get_by_role("cell", name='"Berlin"')).to_be_visible()


def test_usage_has_charts_of_every_kind(page: Page, service: Service, http: httpx.Client) -> None:
    http.post(f"/queries/{pay(http, 67)['queryId']}/cancel")
    spoken = submit(http, "Count me.", "hello", inputs={"day": "2013-03-08"})
    http.get(f"/queries/{spoken}", params={"waitMs": 20_000})
    page.goto(f"{service.url}/console/usage")
    for title, name in (("By agent", "solo"), ("By model", "m"), ("By runtime", "hello")):
        panel = page.locator("section", has=page.get_by_role("heading", name=title, exact=True))
        row = panel.get_by_role("row").filter(has=page.get_by_text(name, exact=True))
        expect(row.locator(".share")).to_be_visible()
    channels = page.locator("section", has=page.get_by_role("heading", name="By channel"))
    expect(channels.get_by_text("Led to no artifact")).to_be_visible()
    expensive = page.locator("section", has=page.get_by_role("heading", name="Most expensive queries"))
    row = expensive.get_by_role("row").filter(has_text="Count me.")
    expect(row).to_contain_text("operator")
    expect(row).to_contain_text("Succeeded")
    failed = page.locator("section", has=page.get_by_role("heading", name="Failed work", exact=True))
    expect(failed.get_by_role("row").filter(has_text="solo")).to_contain_text(re.compile(r"\d of "))
    for measure, title in (
        ("Cost", "Cost by day"),
        ("Failed work", "Tokens of failed work by day"),
        ("Kept out", "Kept out of prompts by day"),
        ("Tokens", "Tokens by day"),
    ):
        page.get_by_role("button", name=measure, exact=True).click()
        expect(page.get_by_role("heading", name=title)).to_be_visible()
    page.get_by_role("button", name="Table").click()
    assert_accessible(page)


def test_a_runtime_shows_its_prompts_and_usage_its_dates(
    page: Page, service: Service, http: httpx.Client
) -> None:
    agent = {**specs.agent("writer"), "systemPrompt": "Write one line, always."}
    made = http.post("/runtimes", json=specs.spec(agent, tenant="local", name="prompted", interpreter="mock"))
    page.goto(f"{service.url}/console/runtimes/{made.json()['id']}")
    page.get_by_role("tab", name="Prompts").click()
    expect(page.get_by_text("Write one line, always.")).to_be_visible()
    with page.expect_request(lambda request: "to=2026-01-11" in request.url and "groupBy=day" in request.url):
        page.goto(f"{service.url}/console/usage?from=2026-01-01&to=2026-01-10")
    expect(page.get_by_text("No tokens in these 10 days")).to_be_visible()
    expect(page.get_by_role("heading", name="By runtime")).to_be_visible()
    page.get_by_role("button", name="Table").click()
    expect(page.get_by_role("cell", name="2026-01-10")).to_be_visible()
    page.get_by_role("button", name="7 days").click()
    expect(page.get_by_role("cell", name="2026-01-10")).to_have_count(0)
    assert "days=7" in page.url


@pytest.mark.timeout(240)
def test_every_page_is_accessible(page: Page, service: Service, http: httpx.Client) -> None:
    query = submit(http, "Say hello.", "hello", inputs={"day": "2013-03-08"})
    http.get(f"/queries/{query}", params={"waitMs": 20_000})
    runtime = http.get("/runtimes").json()["items"][0]["id"]
    thread = http.get(f"/queries/{query}").json()["threadId"]
    http.put(f"/threads/{thread}/files/note.md", content=b"# A note")
    publish = {"threadId": thread, "channel": "reports", "path": "note.md"}
    artifact = http.post("/artifacts", json=publish).json()["id"]
    note = http.get("/references").json()["items"][0]
    proposed = submit(http, specs.store_and_execute(plan_id="seen"), "plans", agent="chief")
    approval = wait_for_approval(http, proposed)
    addresses = [
        *PAGES,
        f"queries/{query}",
        f"queries/{query}?tab=journal",
        f"queries/{query}?tab=state",
        f"queries/{query}?tab=prompts",
        f"runtimes/{runtime}",
        f"threads/{thread}",
        f"threads/{thread}?tab=files",
        f"threads/{thread}?tab=messages",
        f"artifacts/{artifact}",
        f"references/{note['kind']}/{note['id']}",
        f"plans/{approval['target']}",
        f"inbox/{approval['id']}",
    ]
    in_dark = ["usage", f"queries/{query}", f"plans/{approval['target']}", f"inbox/{approval['id']}"]
    for theme, address in (*product(["Light"], addresses), *product(["Dark"], in_dark)):
        page.get_by_role("button", name=theme).click()
        page.goto(f"{service.url}/console/{address}")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.get_by_role("status", name="Loading")).to_have_count(0)
        expect(page.get_by_role("alert")).to_have_count(0)
        assert page.locator("h1").count() == 1
        assert_accessible(page)


def test_eight_tabs_share_one_stream(browser: Browser, service: Service, http: httpx.Client) -> None:
    with browser_profile(browser) as context:
        tabs = [context.new_page() for _ in range(8)]
        tabs[0].goto(ticket_url(service))
        expect(tabs[0].get_by_role("heading", name="Inbox")).to_be_visible()
        for tab in tabs[1:]:
            tab.goto(f"{service.url}/console/inbox")
            expect(tab.get_by_role("heading", name="Inbox")).to_be_visible()
        approval = pay(http, 4711)
        for tab in tabs:
            expect(tab.locator(f"a[href$='{approval['id']}']")).to_be_visible()
        tabs[7].goto(f"{service.url}/console/inbox/{approval['id']}")
        expect(tabs[7].get_by_text("Digest matches the bytes shown")).to_be_visible()
        tabs[7].keyboard.press("a")
        tabs[7].get_by_role("button", name="Approve the call").click()
        for tab in tabs[:7]:
            expect(tab.get_by_text("Decided while you were here")).to_be_visible()


def test_a_hidden_query_page_closes_its_stream(page: Page, service: Service, http: httpx.Client) -> None:
    approval = pay(http, 4712)
    stream = f"/queries/{approval['queryId']}/stream"
    with page.expect_request(lambda request: stream in request.url):
        page.goto(f"{service.url}/console/queries/{approval['queryId']}")
    expect(page.get_by_text("Review the approval")).to_be_visible()
    with page.expect_event("requestfailed", lambda request: stream in request.url):
        show_page(page, visible=False)
    http.post(f"/approvals/{approval['id']}", json={"decision": "reject"})
    with page.expect_request(lambda request: stream in request.url):
        show_page(page, visible=True)
    expect(page.get_by_text("Succeeded", exact=True).first).to_be_visible()


def show_page(page: Page, *, visible: bool) -> None:
    """Hide or show a page as the browser does when another tab is chosen."""
    page.evaluate(
        """(state) => {
            Object.defineProperty(document, "visibilityState", { configurable: true, get: () => state });
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        "visible" if visible else "hidden",
    )


def test_a_new_approval_notifies_a_person_who_looks_elsewhere(
    page: Page, service: Service, http: httpx.Client
) -> None:
    page.add_init_script(
        """globalThis.notified = [];
        globalThis.Notification = class {
            static permission = "default";
            static requestPermission = async () => (Notification.permission = "granted");
            constructor(title, options) { notified.push([title, options.body]); }
        };"""
    )
    page.goto(f"{service.url}/console/inbox")
    page.get_by_role("button", name="Notify me").click()
    expect(page.get_by_role("button", name="Notify me")).to_have_count(0)
    expect(page.locator(".live.live")).to_be_visible()
    seen = pay(http, 4713)
    expect(page.locator(f"a[href*='{seen['id']}']")).to_be_visible()
    assert page.evaluate("notified") == []
    show_page(page, visible=False)
    pay(http, 4714)
    page.wait_for_function("notified.length > 0")
    assert page.evaluate("notified") == [["Plangate: new approval", "pay from solo"]]


def test_the_console_survives_a_restart_of_the_service(browser: Browser) -> None:
    with folder() as at:
        with serving(at) as first:
            port = int(first.url.rsplit(":", 1)[1])
            with api(first) as http:
                tool = specs.tool("pay", approval="always")
                http.post("/runtimes", json=specs.scripted(tool, tenant="local", name="tools"))
                before = pay(http, 1)
            context = browser.new_context()
            page = context.new_page()
            page.goto(ticket_url(first))
            expect(page.locator(f"a[href$='{before['id']}']")).to_be_visible()
            page.locator(f"a[href$='{before['id']}']").click()
            expect(page.get_by_role("button", name="Approve")).to_be_enabled()
            followed = context.new_page()
            followed.goto(f"{first.url}/console/queries/{before['queryId']}?tab=journal")
            expect(followed.get_by_text("running → waiting")).to_be_visible()
            page.bring_to_front()
        expect(page.get_by_text("Offline since")).to_be_visible()
        expect(page.get_by_role("button", name="Approve")).to_be_disabled()
        assert_accessible(page)
        with serving(at, port=port) as second, api(second) as http:
            after = pay(http, 2)
            expect(page.get_by_text("Back online.")).to_be_visible(timeout=60_000)
            expect(page.locator(f"a[href$='{after['id']}']")).to_be_visible()
            expect(page.get_by_role("button", name="Approve")).to_be_enabled()
            http.post(f"/approvals/{before['id']}", json={"decision": "reject"})
            query = http.get(f"/queries/{before['queryId']}", params={"waitMs": 20_000}).json()
            assert query["status"] == "succeeded"
            events = http.get(f"/queries/{query['id']}/events", params={"limit": 500}).json()["events"]
            followed.bring_to_front()
            number = events[-1]["seq"]  # numbered without gaps, so a page with all of them missed none
            expect(followed.get_by_text(f"{number} of {number} events")).to_be_visible(timeout=60_000)
            expect(followed.get_by_text("Complete")).to_be_visible()
        context.close()


def test_ten_thousand_events_and_a_thousand_actions_stay_short(
    page: Page, service: Service, http: httpx.Client
) -> None:
    query = submit(http, "Speak.", "hello", inputs={"day": "2013-03-08"})
    http.get(f"/queries/{query}", params={"waitMs": 20_000})
    first, *_, finish = http.get(f"/queries/{query}/events").json()["events"]
    progress = {"type": "tool-progress", "toolName": "count", "label": "one more", "agent": "solo"}
    journal = [
        first,
        *({**first, **progress, "seq": seq} for seq in range(2, 10_001)),
        {**finish, "seq": 10_001},
    ]
    frames = "".join(f"id: c{event['seq']}\ndata: {json.dumps(event)}\n\n" for event in journal)
    page.route(
        "**/queries/*/stream", lambda route: route.fulfill(content_type="text/event-stream", body=frames)
    )
    page.goto(f"{service.url}/console/queries/{query}?tab=journal")
    expect(page.get_by_text("10,001 of 10,001 events")).to_be_visible(timeout=90_000)
    expect(page.get_by_text("Complete")).to_be_visible()
    events = page.get_by_role("region", name="Events")
    assert events.locator(".line").count() < 120
    events.evaluate("(scroller) => { scroller.scrollTop = scroller.scrollHeight; }")
    expect(page.get_by_text("new → queued")).to_be_visible()
    assert events.locator(".line").count() < 120

    actions = [{"kind": "book", "seat": f"{n}A"} for n in range(1000)]
    prompt = specs.store_and_execute({"reason": "all", "actions": actions}, "large")
    approval = wait_for_approval(http, submit(http, prompt, "plans", agent="chief"))
    page.goto(f"{service.url}/console/inbox/{approval['id']}")
    expect(page.get_by_role("heading", name="Run 1,000 actions of Routing")).to_be_visible()
    table = page.get_by_role("region", name="Actions")
    expect(table).to_contain_text('"0A"')
    assert table.get_by_role("row").count() < 120
    table.evaluate("(scroller) => { scroller.scrollTop = scroller.scrollHeight; }")
    expect(table).to_contain_text('"999A"')


def test_values_are_read_in_full_before_a_decision(page: Page, service: Service, http: httpx.Client) -> None:
    spec = specs.planning(approvalPolicies={"plans": "always"})
    kinds = [{**specs.ROUTING, "variables": True}]
    http.post("/runtimes", json={**spec, "plans": kinds, "tenant": {"resourceId": "local"}, "name": "values"})
    prompt = specs.store_and_execute(
        {"reason": "one seat", "actions": [{"kind": "book", "seat": "†input.seat"}]}, "v"
    )
    seat = f"12A {EVIL}"
    approval = wait_for_approval(http, submit(http, prompt, "values", agent="chief", inputs={"seat": seat}))
    page.goto(f"{service.url}/console/inbox/{approval['id']}")
    expect(page.get_by_text("1 of 1 value not opened yet")).to_be_visible()
    page.keyboard.press("v")
    viewer = page.locator("#values .viewer")
    expect(viewer).to_contain_text("12A <script>")
    expect(viewer).to_contain_text("U+202E RLO")
    expect(page.get_by_text("not opened yet")).to_have_count(0)
