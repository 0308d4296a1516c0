// The console: who is signed in, the frame of all pages, and which page an address leads to.
import { QueryClientProvider, useQuery } from "@tanstack/react-query";
import {
  Archive, BarChart3, Boxes, Database, FileText, GitBranch, Inbox as InboxIcon, ListTree, MessageSquare, Play, Settings2,
  Workflow, WifiOff, type LucideIcon,
} from "lucide-react";
import { StrictMode, Suspense, lazy, useEffect, useRef, useState, type ReactNode } from "react";
import { createRoot } from "react-dom/client";
import { Link, Redirect, Route, Router, Switch, useLocation } from "wouter";

import { whoami, type WhoAmI } from "../../sdk/typescript/src/index.js";
import { BASE_PATH, RequestFailed, call, onSignedOut } from "./api.js";
import { Empty, ErrorBoundary, Failed, Loading, showIcon, showWaiting, useNow, usePageTitle } from "./components.js";
import { clock, count } from "./format.js";
import { InboxPage } from "./inbox/page.js";
import { useApprovalCounts } from "./inbox/data.js";
import { KeyHelp, useShortcutHelp } from "./keys.js";
import { queries, retryNow, startStream, useConnection } from "./live.js";
import { SignIn, signIn, signOut, takeTicket } from "./session.js";
import { Safe } from "./text.js";
import "./styles.css";

const QueriesPage = lazy(async () => ({ default: (await import("./query/pages.js")).QueriesPage }));
const QueryPage = lazy(async () => ({ default: (await import("./query/pages.js")).QueryPage }));
const records = () => import("./records/pages.js");
const PlansPage = lazy(async () => ({ default: (await records()).PlansPage }));
const PlanPage = lazy(async () => ({ default: (await records()).PlanPage }));
const ReferencesPage = lazy(async () => ({ default: (await records()).ReferencesPage }));
const ArtifactsPage = lazy(async () => ({ default: (await records()).ArtifactsPage }));
const ThreadsPage = lazy(async () => ({ default: (await records()).ThreadsPage }));
const system = () => import("./system/pages.js");
const RuntimesPage = lazy(async () => ({ default: (await system()).RuntimesPage }));
const SourcesPage = lazy(async () => ({ default: (await system()).SourcesPage }));
const TryPage = lazy(async () => ({ default: (await system()).TryPage }));
const OperationsPage = lazy(async () => ({ default: (await system()).OperationsPage }));
const UsagePage = lazy(async () => ({ default: (await import("./usage/page.js")).UsagePage }));

interface Place {
  path: string;
  title: string;
  icon: LucideIcon;
}

const WORK: Place[] = [
  { path: "/inbox", title: "Inbox", icon: InboxIcon },
  { path: "/queries", title: "Queries", icon: MessageSquare },
  { path: "/plans", title: "Plans", icon: ListTree },
  { path: "/references", title: "References", icon: Boxes },
  { path: "/artifacts", title: "Artifacts", icon: FileText },
  { path: "/threads", title: "Threads", icon: GitBranch },
];
const SYSTEM: Place[] = [
  { path: "/runtimes", title: "Runtimes", icon: Workflow },
  { path: "/sources", title: "Sources", icon: Database },
  { path: "/usage", title: "Usage", icon: BarChart3 },
  { path: "/try", title: "Try it", icon: Play },
  { path: "/operations", title: "Operations", icon: Settings2 },
];

function Item({ place, count: waiting }: { place: Place; count?: number | undefined }): ReactNode {
  const [location] = useLocation();
  const here = location === place.path || location.startsWith(`${place.path}/`);
  return (
    <Link href={place.path} className="item" aria-current={here ? "page" : undefined}>
      <place.icon aria-hidden size={16} /> {place.title}
      {waiting ? <span className="count">{waiting}</span> : null}
    </Link>
  );
}

function Theme(): ReactNode {
  const [theme, setTheme] = useState(() => localStorage.getItem("plangate-theme") ?? "system");
  function choose(next: string): void {
    setTheme(next);
    localStorage.setItem("plangate-theme", next);
    if (next === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
  }
  return (
    <div className="themes" role="group" aria-label="Theme">
      {["light", "dark", "system"].map((name) => (
        <button key={name} type="button" aria-pressed={theme === name} onClick={() => choose(name)}>
          {name.charAt(0).toUpperCase() + name.slice(1)}
        </button>
      ))}
    </div>
  );
}

function Mark(): ReactNode {
  return (
    <svg aria-hidden width="20" height="20" viewBox="0 0 20 20" fill="none" stroke="currentColor" strokeWidth="2.2">
      <path d="M4 17V4h7a4 4 0 0 1 0 8H8" />
      <path d="M12.5 16.5l2 2 4-4.5" />
    </svg>
  );
}

const FOCUS_WAIT_MS = 5000;

/** Move the focus to the heading of a page that a link opened, once it is there. The inbox moves it by itself. */
function useFocusOnHeading(location: string): void {
  const before = useRef(location);
  useEffect(() => {
    if (before.current === location) return undefined;
    before.current = location;
    const content = document.getElementById("content");
    if (!content || location.startsWith("/inbox/")) return undefined;
    const focus = () => {
      // While a page loads, React keeps the one before, hidden.
      const heading = [...content.querySelectorAll<HTMLElement>("main h1")].find((each) => each.checkVisibility());
      if (!heading) return;
      stop();
      heading.tabIndex = -1;
      heading.focus({ preventScroll: true });
    };
    const observer = new MutationObserver(focus);
    const wait = setTimeout(() => stop(), FOCUS_WAIT_MS);
    const stop = () => {
      observer.disconnect();
      clearTimeout(wait);
    };
    observer.observe(content, { childList: true, subtree: true });
    focus();
    return stop;
  }, [location]);
}

function Shell({ me, onSignOut }: { me: WhoAmI; onSignOut: () => void }): ReactNode {
  const waiting = useApprovalCounts().data?.canDecide;
  const connection = useConnection();
  const [location] = useLocation();
  useFocusOnHeading(location);
  useEffect(() => showWaiting(waiting ?? 0), [waiting]);
  const [help, setHelp] = useShortcutHelp();
  const initials = me.principal.split(/[\s._@-]+/u).map((part) => [...part][0] ?? "").join("").slice(0, 2).toUpperCase();
  return (
    <div className="shell">
      <a className="skip" href="#content" onClick={(event) => { event.preventDefault(); document.getElementById("content")?.focus(); }}>
        Skip to the content
      </a>
      <nav className="nav" aria-label="Console">
        <Link href="/inbox" className="brand">
          <Mark /> Plangate
        </Link>
        {WORK.map((place) => (
          <Item key={place.path} place={place} count={place.path === "/inbox" ? waiting : undefined} />
        ))}
        <p className="separator">System</p>
        {SYSTEM.map((place) => (
          <Item key={place.path} place={place} />
        ))}
        <div className="foot">
          <span className={`live ${connection.kind}`}>
            {{ live: "Live", offline: "Offline", connecting: "Connecting" }[connection.kind]}
          </span>
          <Theme />
          <div className="who">
            <span className="avatar" aria-hidden>
              {initials}
            </span>
            <span className="names">
              <b>
                <Safe text={me.principal} limit={40} />
              </b>
              <span>
                <Safe text={me.tenant} limit={40} />
              </span>
            </span>
          </div>
          <div className="row">
            <button type="button" className="link" onClick={onSignOut}>
              Sign out
            </button>
            <button type="button" className="link" onClick={() => setHelp(true)}>
              Keys <kbd>?</kbd>
            </button>
          </div>
        </div>
      </nav>
      <div className="content" id="content" tabIndex={-1}>
        <ConnectionNote />
        <ErrorBoundary place={location}>
        <Suspense fallback={<main><Loading what="the page" /></main>}>
          <Switch>
            <Route path="/inbox/:id?">{({ id }) => <InboxPage me={me} id={id} />}</Route>
            <Route path="/queries"><QueriesPage /></Route>
            <Route path="/queries/:id">{({ id }) => <QueryPage key={id} id={id ?? ""} me={me} />}</Route>
            <Route path="/plans"><PlansPage /></Route>
            <Route path="/plans/:id">{({ id }) => <PlanPage key={id} id={id ?? ""} />}</Route>
            <Route path="/references/:kind?/:id?">{(at) => <ReferencesPage kind={at.kind} id={at.id} />}</Route>
            <Route path="/artifacts/:id?">{({ id }) => <ArtifactsPage id={id} />}</Route>
            <Route path="/threads/:id?">{({ id }) => <ThreadsPage id={id} />}</Route>
            <Route path="/runtimes/:id?">{({ id }) => <RuntimesPage id={id} />}</Route>
            <Route path="/sources"><SourcesPage /></Route>
            <Route path="/usage"><UsagePage /></Route>
            <Route path="/try"><TryPage /></Route>
            <Route path="/operations"><OperationsPage me={me} /></Route>
            <Route path="/"><Redirect to="/inbox" replace /></Route>
            <Route><NotFound /></Route>
          </Switch>
        </Suspense>
        </ErrorBoundary>
      </div>
      <TabBar waiting={waiting} />
      {help && <KeyHelp onClose={() => setHelp(false)} />}
    </div>
  );
}

/** The four places of the bar at the bottom of a phone. */
function TabBar({ waiting }: { waiting: number | undefined }): ReactNode {
  const places = [WORK[0], WORK[1], WORK[2]].filter((place) => place !== undefined);
  const [location] = useLocation();
  return (
    <nav className="tab-bar" aria-label="Places">
      {places.map((place) => (
        <Link key={place.path} href={place.path} aria-current={location.startsWith(place.path) ? "page" : undefined}>
          <place.icon aria-hidden size={20} /> {place.title}
          {place.path === "/inbox" && waiting ? <span className="count">{waiting}</span> : null}
        </Link>
      ))}
      <MoreMenu />
    </nav>
  );
}

function MoreMenu(): ReactNode {
  const [open, setOpen] = useState(false);
  const [location] = useLocation();
  useEffect(() => setOpen(false), [location]);
  return (
    <>
      <button type="button" aria-expanded={open} onClick={() => setOpen(!open)}>
        <Archive aria-hidden size={20} /> More
      </button>
      {open && (
        <div className="more">
          {[...WORK.slice(3), ...SYSTEM].map((place) => (
            <Item key={place.path} place={place} />
          ))}
          <Theme />
        </div>
      )}
    </>
  );
}

/** Says across the top that the stream is away, and for a moment that it is back. */
function ConnectionNote(): ReactNode {
  const connection = useConnection();
  const [back, setBack] = useState<number>();
  useEffect(() => {
    if (connection.kind !== "live" || !connection.back) return undefined;
    setBack(connection.caughtUp);
    const hide = setTimeout(() => setBack(undefined), 6000);
    return () => clearTimeout(hide);
  }, [connection]);
  if (connection.kind === "offline") return <Offline since={connection.since} retryAt={connection.retryAt} />;
  if (back === undefined || connection.kind !== "live") return null;
  return (
    <div className="banner ok" role="status">
      <b>Back online.</b> {back > 0 ? `${count(back, "event")} caught up, none lost.` : "Nothing was missed."}
    </div>
  );
}

function Offline({ since, retryAt }: { since: number; retryAt: number }): ReactNode {
  useNow();
  const wait = Math.max(0, Math.ceil((retryAt - Date.now()) / 1000));
  return (
    <div className="banner warn" role="status">
      <WifiOff aria-hidden size={16} />
      <span>
        <b>Offline since {clock(since)}.</b> What you see may be old. Decisions are off until the stream is back.
      </span>
      <span className="end" aria-live="off">Next try in {wait} s</span>
      <button type="button" className="button" onClick={retryNow}>
        Try now
      </button>
    </div>
  );
}

function NotFound(): ReactNode {
  usePageTitle("Not found");
  return (
    <main className="page">
      <h1>There is no such page</h1>
      <Empty title="Nothing is at this address">
        <Link href="/inbox" className="link">
          Open the inbox
        </Link>
      </Empty>
    </main>
  );
}

/** Ask who is signed in, take a ticket if there is one, and show the sign-in page otherwise. */
function Session(): ReactNode {
  const [ticket] = useState(takeTicket);
  const first = useQuery({
    queryKey: ["me"],
    queryFn: async () => (ticket ? signIn({ ticket }) : (await whoami(call({}))).data),
    retry: false,
    staleTime: Infinity,
  });
  const [me, setMe] = useState<WhoAmI | null>();
  useEffect(() => onSignedOut(() => setMe((now) => (now ? null : now))), []);
  const current = me === undefined ? first.data : me;
  useEffect(() => {
    if (current) startStream();
  }, [current]);
  useEffect(() => {
    if (!first.data || !ticket) return;
    queries.clear();
    queries.setQueryData(["me"], first.data);
  }, [first.data, ticket]);

  if (current) {
    return (
      <Shell
        me={current}
        onSignOut={() => void signOut().finally(() => { queries.clear(); setMe(null); })}
      />
    );
  }
  if (me === undefined && first.isPending) return <main className="page"><Loading what="the session" /></main>;
  const refused = first.error instanceof RequestFailed && [401, 421].includes(first.error.status ?? 0);
  if (me === undefined && first.error && !refused && !ticket) {
    return (
      <main className="page">
        <h1>Plangate</h1>
        <Failed what="The console could not start" error={first.error} onRetry={() => void first.refetch()} />
      </main>
    );
  }
  return (
    <SignIn
      error={me === undefined && ticket ? first.error : undefined}
      onSignIn={(signedIn) => { queries.clear(); setMe(signedIn); }}
    />
  );
}

const place = document.getElementById("console");
showIcon();
if (place) {
  createRoot(place).render(
    <StrictMode>
      <QueryClientProvider client={queries}>
        <Router base={BASE_PATH}>
          <Session />
        </Router>
      </QueryClientProvider>
    </StrictMode>,
  );
}
