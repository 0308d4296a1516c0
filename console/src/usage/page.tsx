// Usage: what it costs by day, agent, model, channel and query, what failed, and what stayed out of prompts.
import { useQuery, type UseQueryResult } from "@tanstack/react-query";
import { scaleBand, scaleLinear } from "d3-scale";
import { useState, type ReactNode } from "react";
import { Link, useSearchParams } from "wouter";

import { readUsage, type UsageGroup, type UsageReport } from "../../../sdk/typescript/src/index.js";
import { call } from "../api.js";
import { Empty, Facts, Loaded, Panel, Segments, usePageTitle } from "../components.js";
import { bytes, money, shortId, tokens, whole } from "../format.js";
import { Safe } from "../text.js";

type GroupBy = UsageReport["groupBy"];
const RANGES: readonly (readonly [string, string])[] = [["7", "7 days"], ["30", "30 days"], ["90", "90 days"]];
const DAY_MS = 86_400_000;
const MOST_DAYS = 366;

interface Range {
  from: string;
  to: string | undefined;
  days: number;
}

function useReport(groupBy: GroupBy, { from, to }: Range): UseQueryResult<UsageReport> {
  return useQuery({
    queryKey: ["usage", groupBy, from, to],
    queryFn: async () => (await readUsage(call({ query: { groupBy, from, ...(to !== undefined && { to }), limit: 200 } }))).data,
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
  const agents = useReport("agent", range);
  const models = useReport("model", range);
  const runtimes = useReport("runtime", range);
  const channels = useReport("channel", range);
  const expensive = useReport("query", range);
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
        <Groups title="By runtime" report={runtimes} />
        <Groups title="Most expensive queries" report={expensive} link={(key) => `/queries/${key}`} most={20} />
        <div className="two">
          <KeptOut report={agents} />
          <Channels report={channels} />
        </div>
      </div>
    </main>
  );
}

function used(group: { usage: UsageGroup["usage"] }): number {
  return (group.usage.inputTokens ?? 0) + (group.usage.outputTokens ?? 0);
}

function keptOut(group: { references: UsageGroup["references"]; artifacts: UsageGroup["artifacts"] }): number {
  return group.references.keptOutBytes + group.artifacts.keptOutBytes;
}

function Totals({ report }: { report: UsageReport }): ReactNode {
  const { totals } = report;
  const cached = totals.usage.cacheReadTokens ?? 0;
  const saved = (totals.references.estimate.tokens ?? 0) + (totals.artifacts.estimate.tokens ?? 0);
  const input = totals.usage.inputTokens ?? 0;
  return (
    <div className="kpis">
      <Facts
        facts={[
          { label: "Cost", value: money(totals.costUsd), note: totals.unpricedCalls > 0 ? `${whole(totals.unpricedCalls)} calls without a price` : `${whole(totals.modelCalls)} model calls` },
          { label: "Tokens", value: tokens(used(totals)), note: input + cached > 0 ? `${Math.round((cached / Math.max(input, cached, 1)) * 100)}% read from cache` : "none" },
          { label: "Spent on failed work", value: money(totals.failed.costUsd), note: `${whole(totals.failed.modelCalls)} model calls` },
          { label: "Kept out of prompts", value: bytes(keptOut(totals)), note: `about ${tokens(saved)} tokens` },
        ]}
      />
    </div>
  );
}

const WIDTH = 960;
const HEIGHT = 240;
const MARGIN = { top: 12, right: 8, bottom: 24, left: 56 };

/** Cost by day, or tokens where no model has a price. A table has the same data. */
function DayChart({ report, from, days }: { report: UsageReport; from: number; days: number }): ReactNode {
  const [view, setView] = useState<"chart" | "table">("chart");
  const [what, setWhat] = useState<"cost" | "tokens">((report.totals.costUsd ?? 0) > 0 ? "cost" : "tokens");
  const byDay = new Map(report.items.map((item) => [(item.key ?? "").slice(0, 10), item]));
  const dates = Array.from({ length: days }, (_, index) => new Date(from + index * DAY_MS).toISOString().slice(0, 10));
  const value = (date: string): number => {
    const group = byDay.get(date);
    if (!group) return 0;
    return what === "cost" ? (group.costUsd ?? 0) : used(group);
  };
  const failed = (date: string): number => {
    const group = byDay.get(date);
    if (!group) return 0;
    return what === "cost" ? (group.failed.costUsd ?? 0) : used(group.failed);
  };
  const show = (number: number) => (what === "cost" ? money(number) : tokens(number));
  const most = Math.max(...dates.map(value), 0);
  const x = scaleBand().domain(dates).range([MARGIN.left, WIDTH - MARGIN.right]).padding(0.3);
  const y = scaleLinear().domain([0, most || 1]).nice(4).range([HEIGHT - MARGIN.bottom, MARGIN.top]);
  const labelEvery = Math.ceil(days / 8);
  return (
    <Panel
      title={what === "cost" ? "Cost by day" : "Tokens by day"}
      note="UTC; failed work is darker"
      end={
        <>
          <Segments label="Measure" value={what} onChange={setWhat} options={[["cost", "Cost"], ["tokens", "Tokens"]]} />
          <Segments label="View" value={view} onChange={setView} options={[["chart", "Chart"], ["table", "Table"]]} />
        </>
      }
    >
      {view === "chart" && most === 0 ? (
        <Empty title={`No ${what === "cost" ? "cost" : "tokens"} in these ${days} days`} />
      ) : view === "chart" ? (
        <div className="chart body">
          <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={`${what === "cost" ? "Cost" : "Tokens"} by day: ${show(dates.reduce((sum, date) => sum + value(date), 0))} in ${days} days, at most ${show(most)} in a day. The table has each day.`}>
            {y.ticks(4).map((tick) => (
              <g key={tick}>
                <line className="grid" x1={MARGIN.left} x2={WIDTH - MARGIN.right} y1={y(tick)} y2={y(tick)} />
                <text x={MARGIN.left - 8} y={y(tick) + 4} textAnchor="end">{show(tick)}</text>
              </g>
            ))}
            {dates.map((date, index) => (
              <g key={date}>
                <rect x={x(date)} width={x.bandwidth()} y={y(value(date))} height={Math.max(y(0) - y(value(date)), 0)} fill="var(--chart-1)"><title>{`${date}: ${show(value(date))}`}</title></rect>
                <rect x={x(date)} width={x.bandwidth()} y={y(failed(date))} height={Math.max(y(0) - y(failed(date)), 0)} fill="var(--bad)"><title>{`${date}: ${show(failed(date))} failed`}</title></rect>
                {index % labelEvery === 0 && <text x={(x(date) ?? 0) + x.bandwidth() / 2} y={HEIGHT - 6} textAnchor="middle">{date.slice(5)}</text>}
              </g>
            ))}
          </svg>
        </div>
      ) : (
        <div className="scroll">
          <table>
            <thead><tr><th scope="col">Day</th><th scope="col" className="number">Calls</th><th scope="col" className="number">Tokens</th><th scope="col" className="number">Failed</th><th scope="col" className="number">Cost</th></tr></thead>
            <tbody>
              {dates.map((date) => {
                const group = byDay.get(date);
                return <tr key={date}><td>{date}</td><td className="number">{whole(group?.modelCalls ?? 0)}</td><td className="number">{tokens(group ? used(group) : 0)}</td><td className="number">{money(group?.failed.costUsd ?? 0)}</td><td className="number">{money(group ? group.costUsd : 0)}</td></tr>;
              })}
            </tbody>
          </table>
        </div>
      )}
    </Panel>
  );
}

function Groups({ title, report, link, most = 50 }: { title: string; report: UseQueryResult<UsageReport>; link?: (key: string) => string; most?: number }): ReactNode {
  return (
    <Panel title={title} note="most expensive first">
      <Loaded what="usage" query={report}>
        {(data) => {
          const items = [...data.items].sort((one, other) => (other.costUsd ?? 0) - (one.costUsd ?? 0) || used(other) - used(one)).slice(0, most);
          const top = Math.max(...items.map((item) => item.costUsd ?? 0), 0);
          const topTokens = Math.max(...items.map(used), 1);
          if (items.length === 0) return <Empty title="Nothing was used" />;
          return (
            <div className="scroll">
              <table>
                <thead><tr><th scope="col">{title.replace(/^By (.)/, (_, letter: string) => letter.toUpperCase()).replace(/^Most.*/, "Query")}</th><th scope="col" className="number">Calls</th><th scope="col" className="number">Tokens</th><th scope="col" className="number">Failed</th><th scope="col" className="number">Cost</th><th scope="col"><span className="hidden-text">Share</span></th></tr></thead>
                <tbody>
                  {items.map((item) => {
                    const share = top > 0 ? (item.costUsd ?? 0) / top : used(item) / topTokens;
                    return (
                      <tr key={item.key ?? "none"}>
                        <td>{link && item.key ? <Link href={link(item.key)} className="link">{shortId(item.key)}</Link> : <b><Safe text={item.key ?? "none"} limit={60} /></b>}</td>
                        <td className="number">{whole(item.modelCalls)}</td>
                        <td className="number">{tokens(used(item))}</td>
                        <td className="number">{item.failed.modelCalls > 0 ? money(item.failed.costUsd) : ""}</td>
                        <td className="number">{money(item.costUsd)}</td>
                        <td><span className="share"><i style={{ width: `${Math.round(share * 100)}%` }} /></span></td>
                      </tr>
                    );
                  })}
                </tbody>
              </table>
            </div>
          );
        }}
      </Loaded>
    </Panel>
  );
}

function KeptOut({ report }: { report: UseQueryResult<UsageReport> }): ReactNode {
  return (
    <Panel title="Kept out of prompts" note="bytes behind references and artifacts that no model read">
      <Loaded what="usage" query={report}>
        {(data) => {
          const items = data.items.filter((item) => keptOut(item) > 0).sort((one, other) => keptOut(other) - keptOut(one));
          if (items.length === 0) return <Empty title="Nothing was kept out of prompts" />;
          return (
            <table>
              <thead><tr><th scope="col">Agent</th><th scope="col" className="number">Kept out</th><th scope="col" className="number">In prompts</th><th scope="col" className="number">About</th></tr></thead>
              <tbody>
                {items.map((item) => (
                  <tr key={item.key ?? "none"}>
                    <td><Safe text={item.key ?? "none"} limit={60} /></td>
                    <td className="number">{bytes(keptOut(item))}</td>
                    <td className="number">{bytes(item.references.promptBytes + item.artifacts.promptBytes)}</td>
                    <td className="number">{tokens((item.references.estimate.tokens ?? 0) + (item.artifacts.estimate.tokens ?? 0))} tokens</td>
                  </tr>
                ))}
              </tbody>
            </table>
          );
        }}
      </Loaded>
    </Panel>
  );
}

function Channels({ report }: { report: UseQueryResult<UsageReport> }): ReactNode {
  return (
    <Panel title="By channel" note="what artifacts cost">
      <Loaded what="usage" query={report}>
        {(data) => data.items.length === 0 ? <Empty title="No artifacts were published" /> : (
          <table>
            <thead><tr><th scope="col">Channel</th><th scope="col" className="number">Calls</th><th scope="col" className="number">Cost</th><th scope="col" className="number">Kept out</th></tr></thead>
            <tbody>
              {data.items.map((item) => (
                <tr key={item.key ?? "none"}><td><Safe text={item.key ?? "none"} limit={60} /></td><td className="number">{whole(item.modelCalls)}</td><td className="number">{money(item.costUsd)}</td><td className="number">{bytes(item.artifacts.keptOutBytes)}</td></tr>
              ))}
            </tbody>
          </table>
        )}
      </Loaded>
    </Panel>
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
