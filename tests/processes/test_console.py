"""The console in a real browser: signing in, the inbox, and every decision, as a reviewer makes them."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support import specs
from tests.support.browser import browsing
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
from tests.support.service import ROOT, Service, folder, plain_environment, serving, started_lines

expect.set_options(timeout=30_000)

EVIL = "<img src=x onerror=\"document.title='owned'\"> Approved\u202e gnp.exe\u200b p\u0430ypal.com"
ACTIONS = [{"kind": "book", "seat": "12A"}, {"kind": "refund", "cents": 9007199254740993}]


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with folder() as at, serving(at) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as chromium:
        yield chromium


def pay_tool() -> dict[str, Any]:
    return specs.tool("pay", approval={"kind": "always", "rememberable": {"free": ["n"]}})


@pytest.fixture(scope="module", autouse=True)
def runtimes(service: Service) -> None:
    two = {"kind": "always", "approvers": {"minimum": 2, "notRequester": True}}
    with api(service) as http:
        http.post("/runtimes", json=specs.scripted(pay_tool(), tenant="local", name="tools"))
        quorum = specs.tool("wire", approval=two)
        http.post("/runtimes", json=specs.scripted(quorum, tenant="local", name="quorum"))
        brief = specs.tool("brief", approval={"kind": "always", "approvalExpiresInMs": 10_000})
        http.post("/runtimes", json=specs.scripted(brief, tenant="local", name="brief"))
        plans = specs.planning(approvalPolicies={"plans": "always"})
        http.post("/runtimes", json={**plans, "tenant": {"resourceId": "local"}, "name": "plans"})


@pytest.fixture
def http(service: Service) -> Iterator[httpx.Client]:
    with api(service) as client:
        yield client


@pytest.fixture
def page(browser: Browser, service: Service) -> Iterator[Page]:
    with signed_in(browser, service) as opened:
        yield opened


def ask_to_pay(
    http: httpx.Client, amount: int, tool: str = "pay", runtime: str = "tools", note: str = ""
) -> dict[str, Any]:
    args: dict[str, Any] = {"n": amount, **({"note": note} if note else {})}
    query = submit(http, json.dumps({"tool": tool, "args": args}), runtime)
    return wait_for_approval(http, query)


def propose(
    http: httpx.Client, body: dict[str, Any], plan_id: str, thread: str | None = None
) -> dict[str, Any]:
    prompt = specs.store_and_execute(body, plan_id)
    query = submit(http, prompt, "plans", agent="chief", **({"threadId": thread} if thread else {}))
    return wait_for_approval(http, query)


def open_approval(page: Page, service: Service, approval: dict[str, Any]) -> None:
    page.goto(f"{service.url}/console/inbox/{approval['id']}")
    expect(page.get_by_text("Digest matches the bytes shown")).to_be_visible()


def wait_for_status(http: httpx.Client, approval: dict[str, Any], status: str) -> dict[str, Any]:
    ends = time.monotonic() + 20
    while (found := http.get(f"/approvals/{approval['id']}").json())["status"] != status:
        assert time.monotonic() < ends, found
        time.sleep(0.1)
    result: dict[str, Any] = found
    return result


@pytest.mark.long
def test_a_key_or_a_ticket_signs_in_and_leaves_no_trace(browser: Browser, service: Service) -> None:
    requests: list[str] = []
    with browser_profile(browser) as context:
        page = context.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.goto(f"{service.url}/")
        assert page.url == f"{service.url}/console"
        expect(page.get_by_role("heading", name="Sign in to Plangate")).to_be_visible()
        assert_accessible(page)
        page.get_by_label("API key").fill("plg_wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_be_visible()
        page.get_by_label("API key").fill(service.key)
        page.get_by_text("Another tenant or principal").click()
        page.get_by_label("Tenant").fill("local")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", name="Inbox")).to_be_visible()
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", name="Sign in to Plangate")).to_be_visible()

        url = ticket_url(service)
        ticket = url.partition("#ticket=")[2]
        page.goto("about:blank")
        page.goto(url.replace("/console#", "/console/queries#"))
        expect(page.get_by_text("operator", exact=True)).to_be_visible()
        assert ticket not in page.url
        assert page.evaluate("document.cookie") == ""
        assert not [url for url in requests if service.key in url or ticket in url.partition("#")[0]]
        page.context.clear_cookies()
        page.goto("about:blank")
        page.goto(url)
        expect(page.get_by_text("This ticket was used")).to_be_visible()
    assert {url.split("/")[2] for url in requests if url.startswith("http")} == {service.url.split("/")[2]}


@pytest.mark.long
def test_commands_print_links_that_sign_in(browser: Browser, service: Service, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text(service.key)
    command = [
        sys.executable,
        "-m",
        "app",
        "console",
        "--print",
        "--url",
        service.url,
        "--key-file",
        str(key),
    ]
    printed = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=ROOT, timeout=60, env=plain_environment()
    )
    with browser_profile(browser) as context:
        page = context.new_page()
        page.goto(printed.stdout.strip())
        expect(page.get_by_role("heading", name="Inbox")).to_be_visible()


@pytest.mark.long
def test_only_a_terminal_gets_the_link_of_a_service(browser: Browser) -> None:
    with folder() as at:
        assert "ticket" not in "".join(started_lines(at, 2))
        terminal, its = pty.openpty()
        command = [sys.executable, "-m", "app", "serve", "--port", "0", "--data-dir", str(at / "data")]
        with subprocess.Popen(
            command, cwd=ROOT, env=plain_environment(), stdout=its, stderr=subprocess.DEVNULL
        ) as serve:
            os.close(its)
            try:
                with os.fdopen(terminal) as lines:
                    link = next(line.split()[-1] for line in lines if "/console#ticket=" in line)
                    with browser_profile(browser) as context:
                        page = context.new_page()
                        page.goto(link)
                        expect(page.get_by_role("heading", name="Inbox")).to_be_visible()
            finally:
                serve.terminate()


def test_the_first_view_is_small_and_the_policy_strict(service: Service) -> None:
    page = httpx.get(f"{service.url}/console/inbox")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "require-trusted-types-for 'script'" in policy
    assert "unsafe" not in policy
    total = 0
    names = {part.split('"')[0] for part in page.text.split("assets/")[1:]}
    assert "app.js" in names
    pending = [name for name in names if not name.startswith("favicon")]
    seen: set[str] = set()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        with httpx.stream("GET", f"{service.url}/console/assets/{name}") as response:
            assert response.headers["content-security-policy"] == policy
            assert response.headers["content-encoding"] == "gzip"
            total += sum(len(chunk) for chunk in response.iter_raw())
        body = httpx.get(f"{service.url}/console/assets/{name}").text
        pending += [part.split('"')[0] for part in body.split('from"./')[1:]]  # only static imports
    assert total < 300_000


@pytest.mark.long
def test_a_reviewer_approves_a_plan_by_its_bytes(page: Page, service: Service, http: httpx.Client) -> None:
    approval = propose(http, {"reason": EVIL, "actions": ACTIONS}, "approve-it")
    row = page.get_by_role("link", name="Routing").first
    expect(row).to_be_visible()
    expect(page).to_have_title("(1) Inbox · Plangate")
    row.click()
    expect(page.get_by_role("heading", name="Run 2 actions of Routing")).to_be_focused()
    expect(page.get_by_text("Digest matches the bytes shown")).to_be_visible()
    expect(page.get_by_role("region", name="Actions")).to_contain_text("9007199254740993")
    model = page.get_by_role("group", name="Written by a model")
    expect(model).to_contain_text("<img src=x onerror=")
    expect(model).to_contain_text("U+202E RLO")
    expect(model).to_contain_text("U+200B ZWSP")
    expect(page.get_by_text("2 hidden characters and 1 look-alike character")).to_be_visible()
    assert "owned" not in page.title()
    assert_accessible(page)
    page.get_by_role("button", name="Graph").click()
    expect(page.get_by_role("img", name="2 actions")).to_be_visible()

    page.keyboard.press("a")
    expect(page.get_by_role("button", name="Approve 2 actions")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_text("Digest matches the bytes shown")).to_be_visible()
    page.keyboard.press("a")
    with page.expect_request(
        lambda request: request.method == "POST" and "/approvals/" in request.url
    ) as sent:
        page.keyboard.press("Enter")
    subject = http.get(f"/approvals/{approval['id']}/subject").content
    assert (sent.value.post_data_json or {})["digest"] == hashlib.sha256(subject).hexdigest()
    expect(page.get_by_text("operator approved this")).to_be_visible()
    assert wait_for_status(http, approval, "approved")["decidedBy"] == "operator"


@pytest.mark.long
def test_a_revision_shows_its_changes(page: Page, service: Service, http: httpx.Client) -> None:
    thread = http.post("/threads", json={}).json()["id"]
    first = propose(http, {"reason": "storm", "actions": ACTIONS}, "revise-it", thread)
    open_approval(page, service, first)
    page.keyboard.press("e")
    page.get_by_label("Feedback").fill("Seat 14C, and no refund.")
    page.get_by_role("button", name="Send back").click()
    expect(page.get_by_text("sent this back")).to_be_visible()
    body = {"reason": "storm", "actions": [{"kind": "book", "seat": "14C"}, {"kind": "book", "seat": "15D"}]}
    second = propose(http, body, "revise-it", thread)
    open_approval(page, service, second)
    changes = page.locator("#changes")
    expect(changes).to_contain_text("Seat 14C, and no refund.")
    expect(changes.locator("del").first).to_have_text('"12A"')
    expect(changes.locator("ins").first).to_have_text('"14C"')
    expect(changes.get_by_text("Added", exact=True)).to_be_visible()
    expect(changes.get_by_text("Removed", exact=True)).to_be_visible()
    page.keyboard.press("c")
    page.get_by_role("textbox", name="Comment").fill(f"Seen. {EVIL}")
    page.get_by_role("button", name="Comment", exact=True).click()
    expect(page.get_by_role("listitem").filter(has_text="Seen.")).to_contain_text("U+202E RLO")
    page.get_by_role("heading", level=1).click()
    page.keyboard.press("r")
    page.get_by_role("textbox", name="Reason").fill("No.")
    page.get_by_role("button", name="Reject plan").click()
    assert wait_for_status(http, second, "rejected")["feedback"] == "No."


@pytest.mark.long
def test_arguments_of_a_call_are_edited_to_the_digit(
    page: Page, service: Service, http: httpx.Client
) -> None:
    approval = ask_to_pay(http, 5, note=EVIL)
    open_approval(page, service, approval)
    expect(page.get_by_role("heading", name="Call pay")).to_be_visible()
    page.keyboard.press("e")
    page.get_by_role("textbox", name="Arguments").fill('{"n": 9007199254740993}')
    expect(page.get_by_role("list", name="Changed arguments")).to_contain_text("9007199254740993")
    page.get_by_role("button", name="Approve edited call").click()
    decided = wait_for_status(http, approval, "approved")
    assert decided["originalArgs"] == {"n": 5, "note": EVIL}
    assert json.loads(http.get(f"/approvals/{approval['id']}/subject").content)["args"] == {
        "n": 9007199254740993
    }


@pytest.mark.long
def test_the_decision_of_somebody_else_is_a_receipt(
    browser: Browser, service: Service, http: httpx.Client
) -> None:
    approval = ask_to_pay(http, 7)
    keys = [create_key(service, "mara"), create_key(service, "priya")]
    with signed_in(browser, service, keys[0]) as mara, signed_in(browser, service, keys[1]) as priya:
        open_approval(mara, service, approval)
        open_approval(priya, service, approval)
        mara.keyboard.press("a")
        expect(mara.get_by_role("button", name="Approve the call")).to_be_focused()
        priya.keyboard.press("r")
        priya.get_by_label("Reason").fill("Too much.")
        priya.get_by_role("button", name="Reject call").click()
        expect(mara.get_by_text("priya rejected this")).to_be_visible()
        expect(mara.get_by_role("button", name="Approve the call")).to_have_count(0)
    assert wait_for_status(http, approval, "rejected")["decidedBy"] == "priya"


@pytest.mark.long
def test_two_people_approve_a_quorum(browser: Browser, service: Service, http: httpx.Client) -> None:
    approval = ask_to_pay(http, 8, "wire", "quorum")
    with signed_in(browser, service) as requester:
        open_page(requester, service, approval)
        expect(requester.get_by_text("You asked for this.")).to_be_visible()
    keys = [create_key(service, "ann"), create_key(service, "bo")]
    with signed_in(browser, service, keys[0]) as ann, signed_in(browser, service, keys[1]) as bo:
        open_approval(ann, service, approval)
        open_approval(bo, service, approval)
        for reviewer in (ann, bo):
            reviewer.keyboard.press("a")
            reviewer.get_by_role("button", name="Approve the call").click()
            if reviewer is ann:
                expect(ann.get_by_text("You voted.")).to_be_visible()
        expect(ann.get_by_text("bo approved this")).to_be_visible()
    assert [vote["principal"] for vote in wait_for_status(http, approval, "approved")["votes"]] == [
        "ann",
        "bo",
    ]


def open_page(page: Page, service: Service, approval: dict[str, Any]) -> None:
    page.goto(f"{service.url}/console/inbox/{approval['id']}")


@pytest.mark.long
def test_an_approval_that_expires_while_it_is_open_says_so(
    page: Page, service: Service, http: httpx.Client
) -> None:
    approval = ask_to_pay(http, 9, "brief", "brief")
    open_page(page, service, approval)
    expect(page.get_by_text("Expired at")).to_be_visible()
    expect(page.get_by_role("button", name="Approve")).to_have_count(0)


@pytest.mark.long
def test_calls_of_one_kind_are_reviewed_and_approved_together(
    page: Page, service: Service, http: httpx.Client
) -> None:
    tip = specs.tool("tip", approval="always")
    http.post("/runtimes", json=specs.scripted(tip, tenant="local", name="tips"))
    approvals = [ask_to_pay(http, amount, "tip", "tips", note="for the crew") for amount in (21, 22, 23)]
    page.get_by_role("link", name="tip × 3").click()
    expect(page.get_by_role("heading", level=1, name="3 calls of tip")).to_be_focused()
    same = page.locator("dl[aria-label='The same in all']")
    expect(same).to_contain_text('"for the crew" same in all 3')
    row = page.get_by_role("row").filter(has_text="22")
    row.get_by_role("checkbox").uncheck()
    assert_accessible(page)
    page.get_by_role("button", name="Approve 2 of 3").click()
    with page.expect_request(
        lambda request: request.method == "POST" and request.url.endswith("/approvals")
    ) as sent:
        page.keyboard.press("Enter")
    decisions = (sent.value.post_data_json or {})["decisions"]
    assert {each["id"]: each["digest"] for each in decisions} == {
        approval["id"]: hashlib.sha256(http.get(f"/approvals/{approval['id']}/subject").content).hexdigest()
        for approval in (approvals[0], approvals[2])
    }
    wait_for_status(http, approvals[0], "approved")
    wait_for_status(http, approvals[2], "approved")
    expect(page.get_by_text("Decided while you were here")).to_be_visible()
    expect(page.locator(f"a[href^='/console/inbox/{approvals[1]['id']}']")).to_be_visible()

    others = [ask_to_pay(http, amount, "tip", "tips") for amount in (24, 25)]
    for approval in others:
        page.goto(f"{service.url}/console/inbox/{approval['id']}")
        expect(page.get_by_text("Digest matches the bytes shown")).to_be_visible()
    page.keyboard.press("x")
    page.get_by_role("button", name="Choose none").click()
    for approval in (approvals[1], *others):
        http.post(f"/approvals/{approval['id']}", json={"decision": "reject"})


@pytest.mark.long
def test_the_service_applies_the_filters_of_the_inbox(
    page: Page, service: Service, http: httpx.Client
) -> None:
    ring = specs.tool("ring", approval="always")
    http.post("/runtimes", json=specs.scripted(ring, pay_tool(), tenant="local", name="filters"))
    rung = ask_to_pay(http, 41, "ring", "filters", note="Needle in the hay")
    paid = ask_to_pay(http, 42, "pay", "filters")
    mine, other = (page.locator(f"a[href*='{approval['id']}']") for approval in (rung, paid))
    expect(mine).to_be_visible()
    expect(other).to_be_visible()
    with page.expect_request(lambda request: "text=needle" in request.url):
        page.get_by_placeholder("Search agent, tool, person, text").fill("needle")
    expect(other).to_have_count(0)
    expect(mine).to_be_visible()
    page.get_by_placeholder("Search agent, tool, person, text").fill("")
    page.get_by_text("Filters", exact=True).click()
    with page.expect_request(lambda request: "tool=ring" in request.url and "runtime=filters" in request.url):
        page.get_by_label("Tool", exact=True).fill("ring")
        page.get_by_label("Runtime", exact=True).fill("filters")
    expect(other).to_have_count(0)
    assert "tool=ring" in page.url
    page.get_by_role("button", name="Save filter").click()
    page.goto(f"{service.url}/console/inbox?from=2001-01-01&to=2001-01-02")
    expect(page.get_by_role("heading", name="No approval matches")).to_be_visible()
    expect(page.get_by_text("from: 2001-01-01, to: 2001-01-02")).to_be_visible()
    page.get_by_role("button", name="Clear filters").click()
    expect(other).to_be_visible()
    page.get_by_role("button", name="ring filters").click()
    expect(mine).to_be_visible()
    expect(other).to_have_count(0)
    counts = http.get("/approvals/counts").json()["pending"]
    page.goto(f"{service.url}/console/inbox")
    expect(page.get_by_role("button", name=f"All {counts}")).to_be_visible()
    for approval in (rung, paid):
        http.post(f"/approvals/{approval['id']}", json={"decision": "reject"})


@pytest.mark.long
def test_for_me_lists_what_this_person_can_decide(
    browser: Browser, service: Service, http: httpx.Client
) -> None:
    wired, paid = ask_to_pay(http, 51, "wire", "quorum"), ask_to_pay(http, 52)
    with signed_in(browser, service) as requester:
        link = requester.locator(f"a[href*='{wired['id']}']")
        expect(requester.get_by_role("button", name="For me")).to_have_attribute("aria-pressed", "true")
        expect(requester.locator(f"a[href*='{paid['id']}']")).to_be_visible()
        expect(link).to_have_count(0)  # the rule excludes the requester
        requester.get_by_role("button", name="All").click()
        expect(link).to_be_visible()
        assert "show=all" in requester.url
        requester.reload()
        expect(link).to_be_visible()
    with signed_in(browser, service, create_key(service, "nia")) as nia:
        link = nia.locator(f"a[href*='{wired['id']}']")
        with nia.expect_request(lambda request: "canDecide=true" in request.url):
            nia.goto(f"{service.url}/console/inbox?show=me&tool=wire")
        expect(link).to_be_visible()
        waiting = http.get("/approvals/counts").json()["pending"]
        expect(nia).to_have_title(f"({waiting}) Inbox · Plangate")
        icon = nia.locator("link[rel=icon]").get_attribute("href") or ""
        assert icon.endswith("/assets/favicon-waiting.svg")
        assert http.get(icon).headers["content-type"] == "image/svg+xml"
        open_approval(nia, service, wired)
        nia.keyboard.press("a")
        nia.get_by_role("button", name="Approve the call").click()
        expect(nia.get_by_text("You voted.")).to_be_visible()
        nia.goto(f"{service.url}/console/inbox?show=me&tool=wire")
        expect(nia.get_by_role("heading", name="No approval matches")).to_be_visible()
        expect(nia).to_have_title(f"({waiting - 1}) Inbox · Plangate")
    for approval in (wired, paid):
        http.post(f"/queries/{approval['queryId']}/cancel")


@pytest.mark.long
def test_actions_of_a_revised_plan_are_matched_by_their_declared_keys(
    page: Page, service: Service, http: httpx.Client
) -> None:
    routing = {**specs.ROUTING, "actionKeys": {"book": ["seat"]}}
    fields = {"seat": {"type": "string"}, "class": {"type": "string"}}
    routing["schema"] = {
        "type": "object",
        "properties": {"actions": {"type": "array", "items": specs.variant("book", **fields)}},
        "required": ["actions"],
    }
    spec = {**specs.planning(approvalPolicies={"plans": "always"}), "plans": [routing]}
    http.post("/runtimes", json={**spec, "tenant": {"resourceId": "local"}, "name": "plans"})

    def book(seat: str, cabin: str) -> dict[str, Any]:
        return {"kind": "book", "seat": seat, "class": cabin}

    thread = http.post("/threads", json={}).json()["id"]
    first = propose(http, {"actions": [book("1A", "first"), book("2B", "coach")]}, "keyed", thread)
    http.post(f"/approvals/{first['id']}", json={"decision": "revise", "feedback": "Move 2B up."})
    second = propose(http, {"actions": [book("2B", "first"), book("3C", "coach")]}, "keyed", thread)
    open_approval(page, service, second)
    table = page.get_by_role("region", name="Actions")
    kept = table.get_by_role("row").filter(has_text="2B")
    expect(kept).to_contain_text("Changed")
    expect(kept.locator("del")).to_have_text('"coach"')
    expect(kept.locator("ins")).to_have_text('"first"')
    expect(table.get_by_role("row").filter(has_text="3C")).to_contain_text("Added")
    removed = table.get_by_role("row").filter(has_text="1A")
    expect(removed).to_contain_text("Removed")
    expect(removed.locator("del").first).to_have_text("book")
    http.post(f"/approvals/{second['id']}", json={"decision": "reject"})


@pytest.mark.long
def test_files_that_a_call_reads_or_publishes_are_shown_as_files(
    page: Page, service: Service, http: httpx.Client
) -> None:
    maker = specs.agent("maker", toolkits=["workspace", "artifacts"])
    gates = dict.fromkeys(("read", "write", "artifact_publish"), "always")
    overrides = {"approvalOverrides": {"tools": {"maker": gates}}}
    http.post(
        "/runtimes",
        json=specs.spec(maker, tenant="local", name="files", interpreter="scripted", **overrides),
    )
    thread = http.post("/threads", json={}).json()["id"]
    for path, text in (
        ("out/rows.csv", f"city,sum\nBerlin,{7}\n"),
        ("out/note.txt", EVIL),
        ("other.txt", ""),
    ):
        http.put(f"/threads/{thread}/files/{path}", content=text.encode())

    def ask(tool: str, **args: Any) -> dict[str, Any]:
        prompt = json.dumps({"tool": tool, "args": args})
        return wait_for_approval(http, submit(http, prompt, "files", threadId=thread))

    def files() -> Any:
        return page.locator("section.panel", has=page.get_by_role("heading", name="Files", exact=True))

    approval = ask("artifact_publish", channel="reports", path="out")
    open_approval(page, service, approval)
    row = files().get_by_role("row").filter(has_text="out/rows.csv")
    expect(row).to_contain_text("Publishes")
    expect(row).to_contain_text("version 1 by operator")
    expect(row).to_contain_text("18 B")
    row.get_by_role("button", name="Preview").click()
    expect(files().get_by_role("cell", name='"Berlin"')).to_be_visible()
    files().get_by_role("row").filter(has_text="out/note.txt").get_by_role("button", name="Preview").click()
    expect(files().get_by_role("group", name="From file out/note.txt")).to_contain_text("U+202E RLO")
    expect(files()).not_to_contain_text("other.txt")
    assert_accessible(page)
    assert "owned" not in page.title()
    http.post(f"/approvals/{approval['id']}", json={"decision": "reject"})

    approval = ask("write", path="out/note.txt", content="A new text.")
    open_approval(page, service, approval)
    expect(files().get_by_role("row").filter(has_text="Writes")).to_contain_text("replaces version 1")
    expect(files().get_by_role("group", name="From the arguments, written by maker")).to_contain_text(
        "A new text."
    )
    http.post(f"/approvals/{approval['id']}", json={"decision": "reject"})

    approval = ask("read", path="out/gone.txt")
    open_approval(page, service, approval)
    expect(files()).to_contain_text("The thread has no file at this path now.")
    http.post(f"/approvals/{approval['id']}", json={"decision": "reject"})


@pytest.mark.long
def test_a_phone_shows_the_list_or_one_approval(
    browser: Browser, service: Service, http: httpx.Client
) -> None:
    approval = ask_to_pay(http, 31, note="on a phone")
    with signed_in(browser, service, viewport={"width": 390, "height": 844}) as page:
        page.get_by_placeholder("Search agent, tool, person, text").fill("on a phone")
        page.get_by_role("link", name="pay").click()
        expect(page.get_by_text("Digest matches the bytes shown")).to_be_visible()
        expect(page.get_by_placeholder("Search agent, tool, person, text")).to_be_hidden()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert_accessible(page)
        page.get_by_role("button", name="Approve").click()
        page.get_by_role("button", name="Approve the call").click()
        wait_for_status(http, approval, "approved")
