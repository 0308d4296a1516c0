"""The statuses of everything that has a lifecycle, each spelled once.

The service's transition tables have these as their keys; the API document, the events and the command line
derive their lists from them.
"""

from __future__ import annotations

from typing import Literal

QueryStatus = Literal["queued", "running", "waiting", "succeeded", "failed", "cancelled"]
PlanStatus = Literal["draft", "approved", "executing", "executed", "failed"]
UnapprovedStatus = Literal["rejected", "revised"]
"""The status of a revision that a person did not approve."""
ShownPlanStatus = Literal[PlanStatus, "pending_approval"]
"""A plan's status as events show it: `pending_approval` while its approval is pending, which is never stored."""
ActionStatus = Literal["pending", "dispatched", "succeeded", "failed", "skipped", "unknown"]
EndedApprovalStatus = Literal["approved", "rejected", "revised", "expired", "cancelled"]
ApprovalStatus = Literal["pending", EndedApprovalStatus]
Decision = Literal["approve", "reject", "revise"]
CallStatus = Literal["open", "claimed", "done", "unknown", "withdrawn"]
WorkKind = Literal[
    "query", "agent", "model_call", "tool_call", "predicate", "plan_execution", "action", "host"
]
WorkStatus = Literal["running", "waiting", "succeeded", "failed", "cancelled", "unknown"]
FactKind = Literal["decimal", "integer", "text"]
FactStatus = Literal["known", "depends_on_results", "failed"]
"""Whether a fact of a plan has a value when the plan reaches its gate. The others are not known before execution."""
