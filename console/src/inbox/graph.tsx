// The graph of a plan: what runs at the same time, and what waits for what. A list says the same for screen readers.
import dagre from "@dagrejs/dagre";
import { useMemo, type ReactNode } from "react";

import { visibleText } from "../characters.js";
import { shortName } from "../format.js";
import { Safe } from "../text.js";

export interface GraphNode {
  index: number;
  kind: string;
  /** The class of the node, such as `changed` or `succeeded`. */
  mark: string;
}

export interface GraphEdge {
  from: number;
  to: number;
  path: string;
}

const WIDTH = 168;
const HEIGHT = 34;

export default function PlanGraph({ nodes, edges }: { nodes: readonly GraphNode[]; edges: readonly GraphEdge[] }): ReactNode {
  const layout = useMemo(() => {
    const graph = new dagre.graphlib.Graph({ multigraph: true });
    graph.setGraph({ rankdir: "LR", nodesep: 12, ranksep: 96, marginx: 4, marginy: 4 });
    graph.setDefaultEdgeLabel(() => ({}));
    for (const node of nodes) graph.setNode(String(node.index), { width: WIDTH, height: HEIGHT });
    edges.forEach((edge, index) => graph.setEdge(String(edge.from), String(edge.to), {}, String(index)));
    dagre.layout(graph);
    return graph;
  }, [nodes, edges]);
  const size = layout.graph();
  return (
    <div className="graph" role="region" aria-label="Graph of the plan" tabIndex={0}>
      <svg width={size.width} height={size.height} role="img" aria-labelledby="graph-title">
        <title id="graph-title">{`${nodes.length} actions and ${edges.length} values that one action hands to another`}</title>
        <defs>
          <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">
            <path d="M0 0L8 4L0 8" />
          </marker>
        </defs>
        {edges.map((edge, index) => {
          const found = layout.edge({ v: String(edge.from), w: String(edge.to), name: String(index) }) as
            | { points: { x: number; y: number }[] }
            | undefined;
          const points = found?.points ?? [];
          const middle = points[Math.floor(points.length / 2)];
          return (
            <g key={index}>
              <path d={curve(points)} markerEnd="url(#arrow)" />
              {middle && (
                <text className="label" x={middle.x} y={middle.y} textAnchor="middle">
                  {visibleText(shortName(edge.path, 22))}
                </text>
              )}
            </g>
          );
        })}
        {nodes.map((node) => {
          const at = layout.node(String(node.index)) as { x: number; y: number };
          return (
            <g key={node.index} className={node.mark} transform={`translate(${at.x - WIDTH / 2} ${at.y - HEIGHT / 2})`}>
              <rect width={WIDTH} height={HEIGHT} rx="5" />
              <text className="index" x="8" y="21">
                {node.index}
              </text>
              <text x="30" y="21">
                {visibleText(shortName(node.kind, 20))}
              </text>
            </g>
          );
        })}
      </svg>
      <details className="meta">
        <summary>The same as a list</summary>
        <ul>
          {nodes.map((node) => {
            const needs = edges.filter((edge) => edge.to === node.index);
            return (
              <li key={node.index}>
                {node.index} <Safe text={node.kind} limit={60} />
                {node.mark && ` (${node.mark})`}
                {needs.length === 0 ? " starts at once" : ` waits for ${[...new Set(needs.map((edge) => edge.from))].join(", ")}`}
              </li>
            );
          })}
        </ul>
      </details>
    </div>
  );
}

function curve(points: readonly { x: number; y: number }[]): string {
  const [first, ...rest] = points;
  if (!first) return "";
  const parts = [`M${first.x} ${first.y}`];
  let from = first;
  for (const to of rest) {
    const middle = (from.x + to.x) / 2;
    parts.push(`C${middle} ${from.y} ${middle} ${to.y} ${to.x} ${to.y}`);
    from = to;
  }
  return parts.join("");
}
