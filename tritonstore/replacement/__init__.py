"""Planned, transactional replacement of ATen ops by Triton ops in an exported program.

    plan(program, planners=None) -> Plan    what can be replaced, as a table: node, op, verdict, reason
    apply(plan) -> Applied                  do it, in place, all or nothing
    Registry, shipped(), Planner            which planner is asked about which op
    optional, required, unsupported         what a planner's preflight answers: a Decision
    device_supports(capability, device)     can a kernel run where the model is exported for?
    static, bound, same, order              questions about symbolic sizes that fix none of them

The modules: verdicts, capability, call (what a preflight sees), registry, guards, writes (the access check), snapshot,
planning, rewrite; kernels and planners are those that come with this package. docs/replacement.md has an example.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tritonstore.replacement.call import Call, bound, order, same, static
    from tritonstore.replacement.capability import device_supports
    from tritonstore.replacement.planners import shipped
    from tritonstore.replacement.planning import Plan, plan
    from tritonstore.replacement.registry import Planner, Registry
    from tritonstore.replacement.rewrite import Applied, ReplacementWarning, apply
    from tritonstore.replacement.verdicts import Decision, Verdict, optional, required, unsupported

_HOMES = {
    "Applied": "rewrite",
    "Call": "call",
    "Decision": "verdicts",
    "Plan": "planning",
    "Planner": "registry",
    "Registry": "registry",
    "ReplacementWarning": "rewrite",
    "Verdict": "verdicts",
    "apply": "rewrite",
    "bound": "call",
    "device_supports": "capability",
    "optional": "verdicts",
    "order": "call",
    "plan": "planning",
    "required": "verdicts",
    "same": "call",
    "shipped": "planners",
    "static": "call",
    "unsupported": "verdicts",
}

__all__ = [
    "Applied",
    "Call",
    "Decision",
    "Plan",
    "Planner",
    "Registry",
    "ReplacementWarning",
    "Verdict",
    "apply",
    "bound",
    "device_supports",
    "optional",
    "order",
    "plan",
    "required",
    "same",
    "shipped",
    "static",
    "unsupported",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
