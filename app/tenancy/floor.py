"""The operator's approval floor: the minimum for a tenant's approval rules, read at every gate."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import orjson
from plangate.spec.models import ApprovalPolicies
from pydantic import ValidationError

from app.base.errors import Invalid
from app.base.postgres.database import Tx
from app.tenancy import store


def validate_floor(raw: Any) -> dict[str, Any]:
    """Return a floor to store, from the operator's input: `{"plans"?: rule, "tools"?: rule}`. Raise
    Invalid."""
    try:
        floor = ApprovalPolicies.model_validate(raw)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'it'}: {e['msg']}" for e in error.errors())
        raise Invalid(f'The approval floor is not {{"plans"?: rule, "tools"?: rule}}: {problems}.') from error
    if floor.tools is not None and floor.tools.kind == "dynamic":
        raise Invalid(
            "The approval floor cannot be dynamic: its predicate would be the tenant's own. Use 'always' or 'never'."
        )
    return floor.to_wire()


@lru_cache(maxsize=256)
def parse_floor(text: str) -> ApprovalPolicies:
    """Parse a stored floor."""
    return ApprovalPolicies.model_validate(orjson.loads(text))


async def load_floor(tx: Tx) -> ApprovalPolicies:
    """Return the current floor of the transaction's tenant."""
    return parse_floor(await store.approval_floor(tx))
