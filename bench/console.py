"""How fast the console is in a real Chromium: `python -m bench.console` prints the rows of docs/performance.md.

It starts a service of its own and ends it. A long task is a time of more than 50 ms in which the page answers nothing.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from playwright.sync_api import Browser, BrowserContext, Page, Route

from tests.support import specs
from tests.support.browser import browsing
from tests.support.console_pages import api, submit, ticket_url, wait_for_approval
from tests.support.service import Service, folder, serving

ROUNDS: Final = 5
TABS: Final = 8
EVENTS: Final = 10_000
ACTIONS: Final = 1_000
WAIT_MS: Final = 60_000

LONG_TASKS = """
globalThis.longTasks = [];
new PerformanceObserver((list) => longTasks.push(...list.getEntries().map((entry) => entry.duration)))
  .observe({ type: "longtask", buffered: true });
"""
SCROLL = """async (scroller) => {
  const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  longTasks.length = 0;
  const frames = [];
  const end = scroller.scrollHeight - scroller.clientHeight;
  let before = performance.now();
  for (let step = 1; step <= 120; step += 1) {
    scroller.scrollTop = (end * step) / 120;
    await frame();
    frames.push(performance.now() - before);
    before = performance.now();
  }
  return { frames, longTasks };
}"""


def median(measure: Callable[[], float]) -> str:
    values = sorted(measure() for _ in range(ROUNDS))
    return f"{statistics.median(values):.0f} ({values[0]:.0f}–{values[-1]:.0f})"


@contextmanager
def signed_in(browser: Browser, service: Service) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.set_default_timeout(WAIT_MS)
    context.add_init_script(LONG_TASKS)
    page = context.new_page()
    page.goto(ticket_url(service))
    page.get_by_role("heading", name="Inbox").wait_for()
    page.close()
    yield context
    context.close()


def first_view(browser: Browser, service: Service, *, cached: bool) -> float:
    """Return the milliseconds from the start of the navigation until the inbox shows its first approval."""
    with signed_in(browser, service) as context:
        page = context.new_page()
        if not cached:
            context.new_cdp_session(page).send("Network.setCacheDisabled", {"cacheDisabled": True})
        started = time.perf_counter()
        page.goto(f"{service.url}/console/inbox", wait_until="commit")
        page.locator(".entry").first.wait_for()
        return (time.perf_counter() - started) * 1000


def compressed_bytes(browser: Browser, service: Service) -> int:
    """Return the bytes that the first view transfers for its document, scripts and styles."""
    with signed_in(browser, service) as context:
        page = context.new_page()
        session = context.new_cdp_session(page)
        session.send("Network.enable")
        session.send("Network.setCacheDisabled", {"cacheDisabled": True})
        kinds: dict[str, str] = {}
        total = 0

        def finished(event: dict[str, Any]) -> None:
            nonlocal total
            if kinds.get(event["requestId"]) in ("Document", "Script", "Stylesheet", "Image"):
                total += int(event["encodedDataLength"])

        session.on(
            "Network.responseReceived", lambda event: kinds.update({event["requestId"]: event["type"]})
        )
        session.on("Network.loadingFinished", finished)
        page.goto(f"{service.url}/console/inbox")
        page.locator(".entry").first.wait_for()
        return total


def scrolled(page: Page, region: str) -> str:
    """Scroll a list from its start to its end in 120 steps. Return how long its frames and its long tasks took."""
    found = page.get_by_role("region", name=region).evaluate(SCROLL)
    frames = sorted(found["frames"])
    tasks = found["longTasks"]
    longest = f", longest {max(tasks):.0f} ms" if tasks else ""
    return (
        f"frame {statistics.median(frames):.0f} ms median, {frames[int(len(frames) * 0.95)]:.0f} ms p95; "
        f"{len(tasks)} long tasks{longest}"
    )


def journal(browser: Browser, service: Service) -> tuple[str, str]:
    with api(service) as http:
        query = submit(http, "Speak.", "hello")
        http.get(f"/queries/{query}", params={"waitMs": 20_000})
        first, *_, finish = http.get(f"/queries/{query}/events").json()["events"]
    progress = {**first, "type": "tool-progress", "toolName": "count", "label": "one more"}
    events = [
        first,
        *({**progress, "seq": seq} for seq in range(2, EVENTS + 1)),
        {**finish, "seq": EVENTS + 1},
    ]
    body = "".join(f"id: c{event['seq']}\ndata: {json.dumps(event)}\n\n" for event in events)

    def stream(route: Route) -> None:
        route.fulfill(content_type="text/event-stream", body=body)

    with signed_in(browser, service) as context:
        page = context.new_page()
        page.route("**/queries/*/stream", stream)
        started = time.perf_counter()
        page.goto(f"{service.url}/console/queries/{query}?tab=journal")
        page.get_by_text(f"{EVENTS + 1:,} of {EVENTS + 1:,} events").wait_for()
        ready = (time.perf_counter() - started) * 1000
        return f"{ready:.0f} ms", scrolled(page, "Events")


def large_plan(browser: Browser, service: Service) -> tuple[str, str]:
    actions = [{"kind": "book", "seat": f"{n}A"} for n in range(ACTIONS)]
    prompt = specs.store_and_execute({"reason": "all", "actions": actions}, "large")
    with api(service) as http:
        approval = wait_for_approval(http, submit(http, prompt, "plans", agent="chief"))
    with signed_in(browser, service) as context:
        page = context.new_page()
        started = time.perf_counter()
        page.goto(f"{service.url}/console/inbox/{approval['id']}")
        page.get_by_text("Digest matches the bytes shown").wait_for()
        ready = (time.perf_counter() - started) * 1000
        return f"{ready:.0f} ms", scrolled(page, "Actions")


def eight_tabs(browser: Browser, service: Service) -> str:
    """Return how long it takes until all tabs show a new approval, from the request that causes it."""
    with signed_in(browser, service) as context, api(service) as http:
        tabs = [context.new_page() for _ in range(TABS)]
        for tab in tabs:
            tab.goto(f"{service.url}/console/inbox")
            tab.locator(".live.live").wait_for()

        def until_all_show(amount: int) -> float:
            started = time.perf_counter()
            query = submit(http, json.dumps({"tool": f"pay{amount}", "args": {"n": amount}}), "tools")
            approval = wait_for_approval(http, query)
            for tab in tabs:
                tab.locator(f"a[href$='{approval['id']}']").wait_for()
            return (time.perf_counter() - started) * 1000

        amounts = iter(range(ROUNDS))
        return median(lambda: until_all_show(next(amounts)))


def main() -> None:
    with folder() as at, serving(at) as service, browsing() as browser:
        with api(service) as http:
            tools = [specs.tool(f"pay{n}", approval="always") for n in range(ROUNDS)]
            http.post("/runtimes", json=specs.scripted(*tools, tenant="local", name="tools"))
            hello = specs.spec(tenant="local", name="hello", interpreter="mock", mockResponse="Hello")
            http.post("/runtimes", json=hello)
            plans = specs.planning(approvalPolicies={"plans": "always"})
            http.post("/runtimes", json={**plans, "tenant": {"resourceId": "local"}, "name": "plans"})
            wait_for_approval(http, submit(http, json.dumps({"tool": "pay0", "args": {"n": -1}}), "tools"))
        rows = [("first view, compressed, kB", f"{compressed_bytes(browser, service) / 1000:.0f}")]
        cold = median(lambda: first_view(browser, service, cached=False))
        warm = median(lambda: first_view(browser, service, cached=True))
        rows += [
            ("until the inbox shows an approval, nothing cached, ms", cold),
            ("the same, scripts cached, ms", warm),
        ]
        ready, scroll = journal(browser, service)
        rows += [
            (f"journal of {EVENTS:,} events, until it is complete", ready),
            ("scrolled through in 120 steps", scroll),
        ]
        ready, scroll = large_plan(browser, service)
        rows += [
            (f"plan of {ACTIONS:,} actions, until the digest is checked", ready),
            ("scrolled through in 120 steps", scroll),
        ]
        rows.append((f"until {TABS} tabs show a new approval, ms", eight_tabs(browser, service)))
    print("| what | measured |\n| --- | ---: |")
    for row in rows:
        print("| {} | {} |".format(*row))


if __name__ == "__main__":
    main()
