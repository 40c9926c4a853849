"""What an operation of the admin API is: one value that is routed, checked, and described in the OpenAPI document."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from roadworthy.gateway.admin.answers import AdminError

if TYPE_CHECKING:
    from starlette.requests import Request

    from roadworthy.gateway.admin.access import Caller
    from roadworthy.gateway.admin.desk import Desk
    from roadworthy.gateway.admin.view import AdminView
    from roadworthy.route.keys import Role

Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter of the path, the query or a header. ``default`` stands in where it is left out."""

    name: str
    place: Literal["path", "query", "header"]
    schema: Schema
    doc: str
    default: Any = None


@dataclass(slots=True, kw_only=True)
class Call:
    """One request as a handler gets it: let in, parameters and body checked."""

    request: Request
    view: AdminView
    caller: Caller
    given: dict[str, Any]
    body: dict[str, Any]
    desk_or_none: Desk | None

    @property
    def desk(self) -> Desk:
        """For operations that need one; others are not routed without."""
        assert self.desk_or_none is not None
        return self.desk_or_none

    async def record(
        self,
        action: str,
        subject: str,
        before: Mapping[str, Any] | None = None,
        after: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Write an audit row; what an answer says of it, which is nothing when it was written."""
        if self.desk_or_none is None or await self.desk_or_none.record(self.caller, action, subject, before, after):
            return {}
        return {"audited": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path.

    Args:
        role: who may; None for everybody who reaches the port.
        changes_keys: it changes tenants, quotas or keys: never without an admin key.
        needs_desk: it is there only where tenants can be changed.
        doc: what it does beyond the summary, for the reference.
        body: schema of the body, None for one without.
        answer: schema of the answer, or the name of a component; None for an answer that is not JSON.
        media: types of the answer.
        errors: codes beyond those that every operation of its kind has.
        handle: answers with a value, or a response.
    """

    name: str
    method: Literal["GET", "POST", "PATCH", "DELETE"]
    path: str
    summary: str
    handle: Callable[[Call], Awaitable[Any]]
    role: Role | None = "viewer"
    changes_keys: bool = False
    needs_desk: bool = True
    doc: str = ""
    parameters: tuple[Parameter, ...] = ()
    body: Schema | None = None
    answer: Schema | str | None = None
    status: int = 200
    media: tuple[str, ...] = ("application/json",)
    errors: tuple[str, ...] = ()
    examples: Mapping[str, Any] = field(default_factory=dict)

    @property
    def all_errors(self) -> tuple[str, ...]:
        """Every code that it can answer with."""
        codes = [*self.errors]
        if self.role is not None:
            codes += ["admin_key_required", "invalid_admin_key", "admin_key_not_set", "role_too_low", "cross_origin"]
            if self.parameters or self.needs_desk:
                codes.append("invalid_parameter")
        if self.body is not None:
            codes += ["invalid_json", "invalid_fields", "body_too_large"]
        if self.changes_keys:
            codes.append("change_refused")
        if self.needs_desk:
            codes.append("state_unavailable")
        return tuple(dict.fromkeys(codes))


def wrong_parameter(name: str, seen: str, wanted: str, hint: str = "") -> AdminError:
    """A parameter of the right form that cannot be used."""
    return AdminError(f"{name}: {seen}, wanted {wanted}", code="invalid_parameter", param=name, hint=hint)
