// Usage: what it costs by day, agent, model, runtime, channel and query, what failed, and what stayed out of prompts.
import { useQuery, type UseQueryResult } from "@tanstack/react-query";
import { scaleBand, scaleLinear } from "d3-scale";
import { useState, type ReactNode } from "react";
import { Link, useSearchParams } from "wouter";

import { readUsage, type UsageGroup, type UsageReport } from "../../../sdk/typescript/src/index.js";
import { call } from "../api.js";
import { Badge, Empty, Facts, Loaded, Panel, Segments, usePageTitle } from "../components.js";
import { bytes, money, shortId, tokens, whole } from "../format.js";
import { useAskingQuery } from "../inbox/data.js";
import { Safe } from "../text.js";

type GroupBy = UsageReport["groupBy"];
const RANGES: readonly (readonly [string, string])[] = [["7", "7 days"], ["30", "30 days"], ["90", "90 days"]];
const DAY_MS = 86_400_000;
const MOST_DAYS = 366;
const MOST_GROUPS = 200;
const MOST_QUERIES = 20;

interface Range {
  from: string;
  to: string | undefined;
  days: number;
}

function useReport(groupBy: GroupBy, { from, to }: Range, mostExpensive?: number): UseQueryResult<UsageReport> {
  return useQuery({
    queryKey: ["usage", groupBy, from, to, mostExpensive],
    queryFn: async () => {
      const order = groupBy === "day" ? "key" : "cost";
      return (await readUsage(call({ query: { groupBy, order, from, ...(to !== undefined && { to }), limit: mostExpensive ?? MOST_DAYS } }))).data;
    },
    placeholderData: (before) => before,
  });
}

/** Return the range of the address: whole days in UTC, the last one included. */
function readRange(parameters: URLSearchParams, today: number): Range {
  const [from, to] = [Date.parse(parameters.get("from") ?? ""), Date.parse(parameters.get("to") ?? "")];
  if (!Number.isNaN(from) && !Number.isNaN(to) && from <= to) {
    const days = Math.min(Math.round((to - from) / DAY_MS) + 1, MOST_DAYS);
    return { from: new Date(from).toISOString(), to: new Date(from + days * DAY_MS).toISOString(), days };
  }
  const days = Number(RANGES.find(([value]) => value === parameters.get("days"))?.[0] ?? "30");
  return { from: new Date(today - (days - 1) * DAY_MS).toISOString(), to: undefined, days };
}

export function UsagePage(): ReactNode {
  usePageTitle("Usage");
  const [parameters, setParameters] = useSearchParams();
  const [today] = useState(() => Math.floor(Date.now() / DAY_MS) * DAY_MS);
  const range = readRange(parameters, today);
  const isCustom = range.to !== undefined;
  const last = new Date(Date.parse(range.from) + (range.days - 1) * DAY_MS).toISOString().slice(0, 10);
  const days = useReport("day", range);
  const agents = useReport("agent", range, MOST_GROUPS);
  const models = useReport("model", range, MOST_GROUPS);
  const runtimes = useReport("runtime", range, MOST_GROUPS);
  const channels = useReport("channel", range, MOST_GROUPS);
  const expensive = useReport("query", range, MOST_QUERIES);
  return (
    <main className="page">
      <header>
        <h1>Usage</h1>
        <span className="end">
          <Segments label="Range" value={isCustom ? "" : String(range.days)} onChange={(value) => setParameters({ days: value })} options={RANGES} />
          <label className="inline">From <input type="date" value={range.from.slice(0, 10)} max={last} onChange={(event) => event.target.value && setParameters({ from: event.target.value, to: last })} /></label>
          <label className="inline">To <input type="date" value={last} min={range.from.slice(0, 10)} onChange={(event) => event.target.value && setParameters({ from: range.from.slice(0, 10), to: event.target.value })} /></label>
          <button type="button" className="button" disabled={!agents.data} onClick={() => agents.data && download(agents.data)}>Download CSV</button>
        </span>
      </header>
      <Loaded what="usage" query={days}>
        {(report) => (
          <div className="stack">
            <Totals report={report} />
            <DayChart report={report} from={Date.parse(range.from)} days={range.days} />
          </div>
        )}
      </Loaded>
      <div className="stack">
        <div className="two">
          <Groups title="By agent" report={agents} />
          <Groups title="By model" report={models} />
        </div>
        <div className="two">
          <Groups title="By runtime" report={runtimes} />
          <Groups title="By channel" note="what artifacts cost" nameless="Led to no artifact" report={channels} />
        </div>
        <div className="two">
          <FailedWork report={agents} />
          <KeptOut report={agents} />
        </div>
        <ExpensiveQueries report={expensive} />
      </div>
    </main>
  );
}

function used(group: { usage: UsageGroup["usage"] }): number {
  return (group.usage.inputTokens ?? 0) + (group.usage.outputTokens ?? 0);
}

function spentInVain(group: UsageGroup): number {
  return group.failed.costUsd ?? 0;
}

/** Return the estimated tokens of what was kept out, or null if the service has no measured call to estimate from. */
function keptOutTokens({ references, artifacts }: { references: UsageGroup["references"]; artifacts: UsageGroup["artifacts"] }): number | null {
  const estimates = [references.estimate.tokens, artifacts.estimate.tokens].filter((each) => each !== null);
  return estimates.length > 0 ? estimates.reduce((sum, each) => sum + each, 0) : null;
}

function showEstimate(estimate: number | null): string {
  return estimate === null ? "–" : `${tokens(estimate)} tokens`;
}

function keptOut(group: { references: UsageGroup["references"]; artifacts: UsageGroup["artifacts"] }): number {
  return group.references.keptOutBytes + group.artifacts.keptOutBytes;
}

function Totals({ report }: { report: UsageReport }): ReactNode {
  const { totals } = report;
  const cached = totals.usage.cacheReadTokens ?? 0;
  const saved = keptOutTokens(totals);
  const input = totals.usage.inputTokens ?? 0;
  return (
    <div className="kpis">
      <Facts
        facts={[
          { label: "Cost", value: money(totals.costUsd), note: totals.unpricedCalls > 0 ? `${whole(totals.unpricedCalls)} calls without a price` : `${whole(totals.modelCalls)} model calls` },
          { label: "Tokens", value: tokens(used(totals)), note: input + cached > 0 ? `${Math.round((cached / Math.max(input, cached, 1)) * 100)}% read from cache` : "none" },
          { label: "Spent on failed work", value: money(totals.failed.costUsd), note: `${whole(totals.failed.modelCalls)} model calls` },
          { label: "Kept out of prompts", value: bytes(keptOut(totals)), note: saved === null ? "no estimate in tokens" : `about ${tokens(saved)} tokens` },
        ]}
      />
    </div>
  );
}

const WIDTH = 960;
const HEIGHT = 240;
const MARGIN = { top: 12, right: 8, bottom: 24, left: 56 };

type Measure = "cost" | "tokens" | "failed" | "keptOut";

interface MeasureView {
  title: string;
  nothing: string;
  value: (group: UsageGroup) => number;
  /** The part of the value that failed work used. */
  failed?: (group: UsageGroup) => number;
  show: (value: number) => string;
}

const MEASURES: Record<Measure, MeasureView> = {
  cost: { title: "Cost by day", nothing: "No cost", value: (group) => group.costUsd ?? 0, failed: spentInVain, show: money },
  tokens: { title: "Tokens by day", nothing: "No tokens", value: used, failed: (group) => used(group.failed), show: tokens },
  failed: { title: "Tokens of failed work by day", nothing: "No failed work", value: (group) => used(group.failed), show: tokens },
  keptOut: { title: "Kept out of prompts by day", nothing: "Nothing was kept out of prompts", value: keptOut, show: bytes },
};

/** A measure by day. A table has the same data. */
function DayChart({ report, from, days }: { report: UsageReport; from: number; days: number }): ReactNode {
  const [view, setView] = useState<"chart" | "table">("chart");
  const [measure, setMeasure] = useState<Measure>((report.totals.costUsd ?? 0) > 0 ? "cost" : "tokens");
  const { title, nothing, value, failed, show } = MEASURES[measure];
  const byDay = new Map(report.items.map((item) => [(item.key ?? "").slice(0, 10), item]));
  const dates = Array.from({ length: days }, (_, index) => new Date(from + index * DAY_MS).toISOString().slice(0, 10));
  const valueOf = (date: string, read: (group: UsageGroup) => number): number => {
    const group = byDay.get(date);
    return group ? read(group) : 0;
  };
  const most = Math.max(...dates.map((date) => valueOf(date, value)), 0);
  const total = dates.reduce((sum, date) => sum + valueOf(date, value), 0);
  const x = scaleBand().domain(dates).range([MARGIN.left, WIDTH - MARGIN.right]).padding(0.3);
  const y = scaleLinear().domain([0, most || 1]).nice(4).range([HEIGHT - MARGIN.bottom, MARGIN.top]);
  const bar = (date: string, height: number) => ({ x: x(date), width: x.bandwidth(), y: y(height), height: Math.max(y(0) - y(height), 0) });
  const labelEvery = Math.ceil(days / 8);
  return (
    <Panel
      title={title}
      note={failed ? "UTC; failed work is red" : "UTC"}
      end={
        <>
          <Segments label="Measure" value={measure} onChange={setMeasure} options={[["cost", "Cost"], ["tokens", "Tokens"], ["failed", "Failed work"], ["keptOut", "Kept out"]]} />
          <Segments label="View" value={view} onChange={setView} options={[["chart", "Chart"], ["table", "Table"]]} />
        </>
      }
    >
      {view === "chart" && most === 0 ? (
        <Empty title={`${nothing} in these ${days} days`} />
      ) : view === "chart" ? (
        <div className="chart body">
          <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={`${title}: ${show(total)} in ${days} days, at most ${show(most)} in a day. The table has each day.`}>
            {y.ticks(4).map((tick) => (
              <g key={tick}>
                <line className="grid" x1={MARGIN.left} x2={WIDTH - MARGIN.right} y1={y(tick)} y2={y(tick)} />
                <text x={MARGIN.left - 8} y={y(tick) + 4} textAnchor="end">{show(tick)}</text>
              </g>
            ))}
            {dates.map((date, index) => (
              <g key={date}>
                <rect {...bar(date, valueOf(date, value))} fill={measure === "failed" ? "var(--bad)" : "var(--chart-1)"}><title>{`${date}: ${show(valueOf(date, value))}`}</title></rect>
                {failed && <rect {...bar(date, valueOf(date, failed))} fill="var(--bad)"><title>{`${date}: ${show(valueOf(date, failed))} failed`}</title></rect>}
                {index % labelEvery === 0 && <text x={(x(date) ?? 0) + x.bandwidth() / 2} y={HEIGHT - 6} textAnchor="middle">{date.slice(5)}</text>}
              </g>
            ))}
          </svg>
        </div>
      ) : (
        <UsageTable columns={["Day", "Calls", "Tokens", "Failed", "Cost", "Kept out"]}>
          {dates.map((date) => {
            const group = byDay.get(date);
            return (
              <tr key={date}>
                <td>{date}</td>
                <td className="number">{whole(group?.modelCalls ?? 0)}</td>
                <td className="number">{tokens(valueOf(date, used))}</td>
                <td className="number">{money(valueOf(date, spentInVain))}</td>
                <td className="number">{money(group ? group.costUsd : 0)}</td>
                <td className="number">{bytes(valueOf(date, keptOut))}</td>
              </tr>
            );
          })}
        </UsageTable>
      )}
    </Panel>
  );
}

/** What bars show: the cost or, if none is known, the tokens or, if none were counted, the calls. */
const SHARED: readonly ((spent: UsageGroup | UsageGroup["failed"]) => number)[] = [
  (spent) => spent.costUsd ?? 0,
  used,
  (spent) => spent.modelCalls,
];

/** Return the groups of a report with their parts of the greatest. */
function shares(items: readonly UsageGroup[]): { item: UsageGroup; share: number; failed: number }[] {
  const measure = SHARED.find((each) => items.some((item) => each(item) > 0)) ?? used;
  const top = Math.max(...items.map(measure), 0) || 1;
  return items.map((item) => ({ item, share: measure(item) / top, failed: measure(item.failed) / top }));
}

/** A bar of a chart whose numbers are in the same row. */
function ShareBar({ share, failed = 0 }: { share: number; failed?: number }): ReactNode {
  return (
    <span className="share" aria-hidden>
      <i className="failed" style={{ width: `${failed * 100}%` }} />
      <i style={{ width: `${Math.max(share - failed, 0) * 100}%` }} />
    </span>
  );
}

const NUMBER_COLUMNS: ReadonlySet<string> = new Set(["Calls", "Tokens", "Failed", "Cost", "Kept out", "In prompts", "Estimate"]);

function UsageTable({ columns, children }: { columns: readonly string[]; children: ReactNode }): ReactNode {
  return (
    <div className="scroll">
      <table>
        <thead><tr>{columns.map((name) => <th key={name} scope="col" className={NUMBER_COLUMNS.has(name) ? "number" : undefined}>{name}</th>)}</tr></thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}

interface UsagePanelProps {
  title: string;
  note: string;
  /** What the panel says if there are no rows. */
  nothing: string;
  columns: readonly string[];
  report: UseQueryResult<UsageReport>;
  rows: (data: UsageReport) => readonly ReactNode[];
}

/** A table of a report in a panel. */
function UsagePanel({ title, note, nothing, columns, report, rows }: UsagePanelProps): ReactNode {
  return (
    <Panel title={title} note={note}>
      <Loaded what="usage" query={report}>
        {(data) => {
          const found = rows(data);
          return found.length === 0 ? <Empty title={nothing} /> : <UsageTable columns={columns}>{found}</UsageTable>;
        }}
      </Loaded>
    </Panel>
  );
}

function GroupName({ name, nameless = "None" }: { name: string | null; nameless?: string }): ReactNode {
  return <td>{name === null ? <span className="meta">{nameless}</span> : <b><Safe text={name} limit={60} /></b>}</td>;
}

function Groups({ title, note, nameless, report }: { title: string; note?: string; nameless?: string; report: UseQueryResult<UsageReport> }): ReactNode {
  const name = title.replace(/^By (.)/, (_, letter: string) => letter.toUpperCase());
  return (
    <UsagePanel
      title={title}
      note={note ?? "most expensive first"}
      nothing="Nothing was used"
      columns={[name, "Calls", "Tokens", "Failed", "Cost", "Kept out", "Share"]}
      report={report}
      rows={(data) =>
        shares(data.items).map(({ item, share, failed }) => (
          <tr key={item.key ?? "none"}>
            <GroupName name={item.key} nameless={nameless} />
            <td className="number">{whole(item.modelCalls)}</td>
            <td className="number">{tokens(used(item))}</td>
            <td className="number">{item.failed.modelCalls > 0 ? money(item.failed.costUsd) : ""}</td>
            <td className="number">{money(item.costUsd)}</td>
            <td className="number">{keptOut(item) > 0 ? bytes(keptOut(item)) : ""}</td>
            <td><ShareBar share={share} failed={failed} /></td>
          </tr>
        ))
      }
    />
  );
}

function FailedWork({ report }: { report: UseQueryResult<UsageReport> }): ReactNode {
  return (
    <UsagePanel
      title="Failed work"
      note="calls whose work failed or was canceled"
      nothing="No work failed"
      columns={["Agent", "Calls", "Tokens", "Cost", "Share"]}
      report={report}
      rows={(data) => {
        const items = data.items.filter((item) => item.failed.modelCalls > 0).sort((one, other) => spentInVain(other) - spentInVain(one) || used(other.failed) - used(one.failed));
        const measure = SHARED.find((each) => items.some((item) => each(item.failed) > 0)) ?? used;
        const most = Math.max(...items.map((item) => measure(item.failed)), 0) || 1;
        return items.map((item) => (
          <tr key={item.key ?? "none"}>
            <GroupName name={item.key} />
            <td className="number">{whole(item.failed.modelCalls)} of {whole(item.modelCalls)}</td>
            <td className="number">{tokens(used(item.failed))}</td>
            <td className="number">{money(item.failed.costUsd)}</td>
            <td><ShareBar share={0} failed={measure(item.failed) / most} /></td>
          </tr>
        ));
      }}
    />
  );
}

function KeptOut({ report }: { report: UseQueryResult<UsageReport> }): ReactNode {
  return (
    <UsagePanel
      title="Kept out of prompts"
      note="bytes behind references and artifacts that no model read"
      nothing="Nothing was kept out of prompts"
      columns={["Agent", "Kept out", "In prompts", "Estimate", "Share"]}
      report={report}
      rows={(data) => {
        const items = data.items.filter((item) => keptOut(item) > 0).sort((one, other) => keptOut(other) - keptOut(one));
        const most = Math.max(...items.map(keptOut), 1);
        return items.map((item) => (
          <tr key={item.key ?? "none"}>
            <GroupName name={item.key} />
            <td className="number">{bytes(keptOut(item))}</td>
            <td className="number">{bytes(item.references.promptBytes + item.artifacts.promptBytes)}</td>
            <td className="number">{showEstimate(keptOutTokens(item))}</td>
            <td><ShareBar share={keptOut(item) / most} /></td>
          </tr>
        ));
      }}
    />
  );
}

function ExpensiveQueries({ report }: { report: UseQueryResult<UsageReport> }): ReactNode {
  return (
    <UsagePanel
      title="Most expensive queries"
      note={`up to ${MOST_QUERIES}`}
      nothing="Nothing was used"
      columns={["Query", "Asked by", "Status", "Calls", "Tokens", "Cost", "Share"]}
      report={report}
      rows={(data) =>
        shares(data.items.filter((item) => item.key !== null)).map(({ item, share, failed }) => (
          <ExpensiveQuery key={item.key} group={item} share={share} failed={failed} />
        ))
      }
    />
  );
}

function ExpensiveQuery({ group, share, failed }: { group: UsageGroup; share: number; failed: number }): ReactNode {
  const id = group.key ?? "";
  const query = useAskingQuery(id).data; // none for a query whose thread was deleted: its usage remains
  return (
    <tr>
      <td><Link href={`/queries/${id}`} className="link"><Safe text={query?.prompt.slice(0, 100) || shortId(id)} /></Link></td>
      <td>{query && <Safe text={query.principal} limit={40} />}</td>
      <td>{query && <Badge status={query.status} />}</td>
      <td className="number">{whole(group.modelCalls)}</td>
      <td className="number">{tokens(used(group))}</td>
      <td className="number">{money(group.costUsd)}</td>
      <td><ShareBar share={share} failed={failed} /></td>
    </tr>
  );
}

function download(report: UsageReport): void {
  const quote = (text: string) => `"${text.replaceAll('"', '""').replace(/^([=+\-@\t\r])/, "'$1")}"`; // no formulas in a spreadsheet
  const lines = [["agent", "modelCalls", "inputTokens", "outputTokens", "costUsd"].join(",")];
  for (const item of report.items) lines.push([quote(item.key ?? ""), item.modelCalls, item.usage.inputTokens ?? 0, item.usage.outputTokens ?? 0, item.costUsd ?? ""].join(","));
  const url = URL.createObjectURL(new Blob([lines.join("\n")], { type: "text/csv" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = "plangate-usage.csv";
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
