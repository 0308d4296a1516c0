// What the inbox reads: open approvals, one approval, its subject, and the revisions of its plan.
import { useQuery, type UseQueryResult } from "@tanstack/react-query";

import {
  countPendingApprovals,
  listApprovals,
  listPlanRevisions,
  readApproval,
  readQuery,
  readWorkRecord,
  type ApprovalInfo,
  type ExactValue,
  type ListApprovalsData,
  type ListedRevision,
  type PendingCountsView,
  type QueryView,
  type Subject,
  type WhoAmI,
} from "../../../sdk/typescript/src/index.js";
import { call, plangate, readExact } from "../api.js";
import { isObject } from "../exact.js";

const PAGE = 200;
const MOST = 1000;
const MOST_PAGES = 20;

export async function readPages<T>(
  page: (cursor: string | undefined) => Promise<{ items: T[]; nextCursor: string | null }>,
  most = MOST,
): Promise<T[]> {
  const items: T[] = [];
  let cursor: string | undefined;
  do {
    const { items: more, nextCursor } = await page(cursor);
    items.push(...more);
    cursor = nextCursor ?? undefined;
  } while (cursor !== undefined && items.length < most);
  return items;
}

/** The filters of the inbox, which the service applies. */
export const APPROVAL_FILTERS = ["text", "kind", "agent", "tool", "runtime", "requester", "from", "to"] as const;
export type ApprovalFilters = { [name in (typeof APPROVAL_FILTERS)[number]]?: string } & { canDecide?: boolean };

/** Approvals that match, and whether these are all of them. */
export interface ApprovalList {
  items: ApprovalInfo[];
  isComplete: boolean;
}

/** Read approvals from the newest on, until enough are kept or a bound of requests is reached. */
async function readApprovals(filters: ListApprovalsData["query"], keep: (one: ApprovalInfo) => boolean, most: number): Promise<ApprovalList> {
  const items: ApprovalInfo[] = [];
  let cursor: string | undefined;
  for (let pages = 0; pages < MOST_PAGES && items.length < most; pages += 1) {
    const page = (await listApprovals(call({ query: { ...filters, limit: PAGE, ...(cursor !== undefined && { cursor }) } }))).data;
    items.push(...page.items.filter(keep));
    if (page.nextCursor === null) return { items, isComplete: true };
    cursor = page.nextCursor;
  }
  return { items, isComplete: false };
}

/** The approvals that wait, those that expire first at the top. With `canDecide`, only those that this person can decide. */
export function useOpenApprovals(filters: ApprovalFilters, enabled = true): UseQueryResult<ApprovalList> {
  return useQuery({
    queryKey: ["approvals", "pending", filters],
    enabled,
    placeholderData: (before) => before,
    queryFn: async () => {
      const query = { ...filters, status: "pending" } as ListApprovalsData["query"];
      const { items, isComplete } = await readApprovals(query, () => true, MOST);
      items.sort((one, other) => one.expiresAt.localeCompare(other.expiresAt) || one.id.localeCompare(other.id));
      return { items, isComplete };
    },
  });
}

/** The approvals that were decided last. */
export function useDecidedApprovals(filters: ApprovalFilters, enabled: boolean): UseQueryResult<ApprovalList> {
  return useQuery({
    queryKey: ["approvals", "decided", filters],
    enabled,
    placeholderData: (before) => before,
    queryFn: () => readApprovals(filters as ListApprovalsData["query"], (one) => one.status !== "pending", PAGE),
  });
}

/** How many approvals wait, and for which agents and runtimes. */
export function useApprovalCounts(): UseQueryResult<PendingCountsView> {
  return useQuery({ queryKey: ["approvals", "counts"], queryFn: async () => (await countPendingApprovals(call({}))).data });
}

export function useApproval(id: string): UseQueryResult<ApprovalInfo> {
  return useQuery({
    queryKey: ["approval", id],
    queryFn: async () => (await readApproval(call({ path: { approval_id: id } }))).data,
  });
}

/** The bytes that a decision is about. They are read again if the digest of the approval changes. */
export function useSubject(id: string, digest: string): UseQueryResult<Subject> {
  return useQuery({
    queryKey: ["subject", id, digest],
    staleTime: Infinity,
    queryFn: () => plangate.readSubject(id),
  });
}

export function useAskingQuery(id: string, enabled = true): UseQueryResult<QueryView> {
  return useQuery({
    queryKey: ["query", id],
    enabled,
    queryFn: async () => (await readQuery(call({ path: { query_id: id } }))).data,
  });
}

/** A revision of a plan, without its body. */
export type Revision = ListedRevision;

/** Return the agent or principal that stored a revision. */
export function useAuthor(revision: Revision | undefined): string | undefined {
  const storedBy = revision?.storedBy;
  return useQuery({
    queryKey: ["work", storedBy],
    enabled: storedBy !== undefined,
    staleTime: Infinity,
    queryFn: async () => (await readWorkRecord(call({ path: { work_id: storedBy ?? "" } }))).data.agent,
  }).data;
}

export function asObject(value: unknown): Record<string, ExactValue> {
  return isObject(value) ? (value as Record<string, ExactValue>) : {};
}

export function asList(value: unknown): ExactValue[] {
  return Array.isArray(value) ? (value as ExactValue[]) : [];
}

export function asText(value: unknown): string {
  return typeof value === "string" ? value : value === undefined || value === null ? "" : String(value);
}

/** Read the revisions of a plan without their bodies, oldest first. */
export function useRevisions(planId: string | undefined): UseQueryResult<Revision[]> {
  return useQuery({
    queryKey: ["plan", planId, "revisions"],
    enabled: planId !== undefined,
    queryFn: async () => {
      const newestFirst = await readPages(
        async (cursor) =>
          (await listPlanRevisions(call({ path: { plan_id: planId ?? "" }, query: { limit: PAGE, ...(cursor !== undefined && { cursor }) } }))).data,
      );
      return newestFirst.reverse();
    },
  });
}

/** Read the body of a revision of a plan, with the digits of its numbers. */
export function useRevisionBody(planId: string, revision: number | undefined): UseQueryResult<Record<string, ExactValue>> {
  return useQuery({
    queryKey: ["plan", planId, "revisions", revision],
    enabled: revision !== undefined,
    staleTime: Infinity,
    queryFn: async ({ signal }) =>
      asObject(asObject(await readExact(`plans/${encodeURIComponent(planId)}/revisions/${revision}`, signal)).body),
  });
}

/** The name of what an approval is about, from typed fields. */
export function nameOf(approval: ApprovalInfo): string {
  if (approval.kind === "tool") return approval.target;
  const name = approval.glimpses?.specName;
  return typeof name === "string" ? name : approval.target;
}

export function revisionOf(approval: ApprovalInfo): number | undefined {
  const revision = approval.glimpses?.revision;
  return approval.kind === "plan" && revision !== undefined ? Number(asText(revision)) : undefined;
}

/** The kinds of a plan's actions, in their order. */
export function actionKinds(approval: ApprovalInfo): string[] {
  return asList(asObject(approval.glimpses?.body).actions).map((action) => asText(asObject(action).kind));
}

interface Approvers {
  minimum: number;
  notRequester: boolean;
}

export function approversOf(approval: ApprovalInfo): Approvers {
  const approvers = asObject(approval.rule?.approvers);
  return {
    minimum: typeof approvers.minimum === "number" ? approvers.minimum : 1,
    notRequester: approvers.notRequester === true,
  };
}

export function approvalsOf(approval: ApprovalInfo): number {
  return (approval.votes ?? []).filter((vote) => vote.decision === "approve").length;
}

/** Return why this person cannot decide, or undefined. */
export function obstacle(approval: ApprovalInfo, me: WhoAmI): "scope" | "requester" | "voted" | undefined {
  if (!me.scopes.some((scope) => scope === "approvals:decide" || scope === "admin")) return "scope";
  if (approversOf(approval).notRequester && approval.requestedBy === me.principal) return "requester";
  if ((approval.votes ?? []).some((vote) => vote.principal === me.principal)) return "voted";
  return undefined;
}

/** Approvals of the same tool by the same agent for the same person can be decided together. */
export function kindOf(approval: ApprovalInfo): string {
  return [approval.kind, nameOf(approval), approval.agent ?? "", approval.requestedBy ?? ""].join("\0");
}
