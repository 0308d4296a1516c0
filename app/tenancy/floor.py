"""The operator's floor under a tenant's rules of approval: written by the operator, read at every gate."""

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
    """A floor as it is stored, from what an operator wrote: `{"plans"?: rule, "tools"?: rule}`. Raises Invalid."""
    try:
        floor = ApprovalPolicies.model_validate(raw)
    except ValidationError as error:
        said = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'it'}: {e['msg']}" for e in error.errors())
        raise Invalid(f'The approval floor is not {{"plans"?: rule, "tools"?: rule}}: {said}.') from error
    if floor.tools is not None and floor.tools.kind == "dynamic":
        raise Invalid(
            "The approval floor cannot be dynamic: its predicate would be the tenant's own. Use 'always' or 'never'."
        )
    return floor.to_wire()


@lru_cache(maxsize=256)
def parse_floor(text: str) -> ApprovalPolicies:
    """The floor that is stored as this text."""
    return ApprovalPolicies.model_validate(orjson.loads(text))


async def load_floor(tx: Tx) -> ApprovalPolicies:
    """The floor of the transaction's tenant, as it is now."""
    return parse_floor(await store.approval_floor(tx))
