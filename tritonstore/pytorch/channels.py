"""PyTorch's own channels: ``torch._dynamo.utils.counters["tritonstore"]``, and artifacts in its structured trace.

Counters are kept up to date once somebody has imported Dynamo; importing it would cost a second. An artifact is
written for each miss and bypass, and for the first hit of each key, so that a trace of an export stays readable; with
TORCH_TRACE set, `tlparse` shows them beside the compilation that they happened in.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["DYNAMO", "artifact", "count"]

DYNAMO = "torch._dynamo.utils"
"""The module that holds `counters`."""


def count(name: str, more: str = "") -> None:
    """Add one to ``counters["tritonstore"][name]``, and to `more` where it is given."""
    dynamo = sys.modules.get(DYNAMO)
    if dynamo is not None:
        counts = dynamo.counters["tritonstore"]
        counts[name] += 1
        if more:
            counts[more] += 1


def artifact(name: str, payload: Callable[[], dict[str, Any]]) -> None:
    """Write ``tritonstore_<name>`` to the structured trace, where one is being written."""
    logging = sys.modules.get("torch._logging._internal")
    if logging is None or not logging.trace_log.handlers:
        return
    logging.trace_structured(
        "artifact",
        metadata_fn=lambda: {"name": f"tritonstore_{name}", "encoding": "json"},
        payload_fn=lambda: json.dumps(payload(), indent=1),
        expect_trace_id=False,
    )
