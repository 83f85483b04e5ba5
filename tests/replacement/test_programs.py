"""Whole exported programs: the plan as a table, the numbers before and after, and what can be done with them then."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import tritonstore
from tritonstore.replacement import Verdict, apply, plan

from .conftest import export
from .models import Plain, example, length


@pytest.fixture(scope="module")
def plain() -> Any:
    """To be deep-copied before it is changed."""
    return export(Plain(), *example(), dynamic_shapes=({1: length()},))


TABLE = """\
node                          op                                         verdict      reason
rms_norm                      aten.rms_norm.default                      OPTIONAL     one kernel instead of several, or of a library call
conv1d                        aten.conv1d.default                        OPTIONAL     one kernel instead of several, or of a library call
conv1d_1                      aten.conv1d.default                        UNSUPPORTED  not depthwise: groups and filters must be as many as the channels
scaled_dot_product_attention  aten.scaled_dot_product_attention.default  OPTIONAL     one kernel instead of several, or of a library call
topk                          aten.topk.default                          OPTIONAL     one kernel instead of several, or of a library call
true_graph_0.topk             aten.topk.default                          OPTIONAL     one kernel instead of several, or of a library call
false_graph_0.topk            aten.topk.default                          OPTIONAL     one kernel instead of several, or of a library call"""  # noqa: E501


def test_the_table(plain: Any) -> None:
    assert str(plan(plain)) == TABLE


def test_required_ops_are_required(plain: Any) -> None:
    rows = plan(plain, required=("aten.topk.default",)).rows
    assert {row.node for row in rows if row.verdict is Verdict.REQUIRED} == {
        "topk",
        "true_graph_0.topk",
        "false_graph_0.topk",
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_before_and_after_agree(dtype: torch.dtype) -> None:
    model = Plain().to(dtype)
    program = export(model, *(x.to(dtype) for x in example()), dynamic_shapes=({1: length()},))
    assert len(apply(plan(program)).replaced) == 6
    program.validate()
    for size in (9, 70, 128):
        inputs = tuple(x.to(dtype) for x in example(size))
        with torch.no_grad():
            expected = model(*inputs)
        found = program.module()(*inputs)
        torch.testing.assert_close(found[:2], expected[:2])


def test_opened_it_launches_the_kernels_and_the_store_answers(plain: Any) -> None:
    program = copy.deepcopy(plain)
    apply(plan(program))
    asked = tritonstore.stats()
    opened = program.run_decompositions({}, decompose_custom_triton_ops=True)
    launches = [node for node in opened.graph.nodes if "triton_kernel_wrapper_functional" in str(node.target)]
    assert len(launches) == 4
    assert tritonstore.stats()["calls"] > asked["calls"]
    assert tritonstore.stats()["analyses"] == asked["analyses"]


def test_it_can_be_saved_and_loaded(plain: Any, tmp_path: Path) -> None:
    program = copy.deepcopy(plain)
    expected = program.module()(*example())
    apply(plan(program))
    torch.export.save(program, str(tmp_path / "program.pt2"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch 2.11 warns of its own way to read tensors
        loaded = torch.export.load(str(tmp_path / "program.pt2"))
    found = loaded.module()(*example())
    torch.testing.assert_close(found[:2], expected[:2])
    assert [str(node.target) for node in loaded.graph.nodes].count("tritonstore.sdpa.default") == 1
    opened = program.run_decompositions({}, decompose_custom_triton_ops=True)
    with pytest.raises(Exception, match="Failed serializing node triton_kernel_wrapper_functional"):
        torch.export.save(opened, str(tmp_path / "opened.pt2"))
    assert [row.verdict for row in plan(loaded).rows] == [Verdict.UNSUPPORTED]
