"""TRITONSTORE=1: the entry point in real processes that import torch, spawned and forked ones included."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

KERNEL = """
import triton
import triton.language as tl

@triton.jit
def kernel(x, y, n):
    tl.store(y, tl.load(x) + n)
"""

ASK = """
import logging, torch
from kernel_of_test import kernel
import torch._higher_order_ops.triton_kernel_wrap as wrap
logging.getLogger("torch._dynamo").setLevel(logging.ERROR)
SEAM = "identify_accessed_tensors" if hasattr(wrap, "identify_accessed_tensors") else "identify_mutated_tensors"

def written(n=1):
    answer = getattr(wrap, SEAM)(kernel, {"x": torch.zeros(4), "y": torch.zeros(4), "n": n}, {})
    return answer if isinstance(answer, list) else [dep.name for dep in answer.read_writes.writes]

def patched():
    return hasattr(getattr(wrap, SEAM), "__wrapped__")
"""


POOL = """
def work():
    import ask, tritonstore
    return ask.patched(), ask.written(), tritonstore.stats()
"""


class Machine:
    """Runs programs with tritonstore's entry point on their path, as if it were installed."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.folder = folder
        info = folder / "site" / "tritonstore-0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tritonstore\nVersion: 0\n")
        (info / "entry_points.txt").write_text(
            "[torch.backends]\ntritonstore = tritonstore.pytorch.autoload:activate\n"
        )
        (folder / "site" / "kernel_of_test.py").write_text(KERNEL)
        (folder / "site" / "ask.py").write_text(ASK)
        (folder / "site" / "pool_of_test.py").write_text(POOL)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("TRITONSTORE")},
            "PYTHONPATH": os.pathsep.join([str(folder / "site"), str(root), os.environ.get("PYTHONPATH", "")]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONWARNINGS": "ignore:Failed to initialize NumPy",
        }
        self.on = {"TRITONSTORE": "1", "TRITONSTORE_TARGET": "cuda:90:32", "TRITONSTORE_STRICT": "1"}

    def run(self, program: str, **environment: str) -> subprocess.CompletedProcess[str]:
        path = self.folder / "program.py"
        path.write_text(textwrap.dedent(program))
        done = subprocess.run(
            [sys.executable, str(path)],
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done


@pytest.fixture
def machine(root: Path, tmp_path: Path) -> Any:
    return Machine(root, tmp_path)


def test_off_means_off(machine: Any) -> None:
    machine.run(
        """
        import sys, torch
        assert "tritonstore.pytorch.autoload" in sys.modules  # the entry point was called
        for name in ("install", "session", "outcome"):
            assert f"tritonstore.pytorch.{name}" not in sys.modules
        assert not any(type(finder).__module__.startswith("tritonstore") for finder in sys.meta_path)
        from ask import patched
        assert not patched()
        """
    )


def test_on_patches_at_the_first_import_and_leaves_no_trace(machine: Any) -> None:
    machine.run(
        """
        import importlib.machinery, importlib.util, sys, torch
        NAME = "torch._higher_order_ops.triton_kernel_wrap"
        for heavy in (NAME, "torch._inductor.dependencies", "triton", "tritonstore.pytorch.install"):
            assert heavy not in sys.modules, heavy
        hooks = [f for f in sys.meta_path if type(f).__module__ == "tritonstore.pytorch.autoload"]
        assert len(hooks) == 1
        assert importlib.util.find_spec(NAME).loader.get_filename(NAME).endswith("triton_kernel_wrap.py")
        assert importlib.util.find_spec("torch._higher_order_ops.no_such_module") is None
        from ask import patched, wrap, written
        assert patched()
        assert wrap.__spec__.loader is wrap.__loader__
        assert type(wrap.__loader__) is importlib.machinery.SourceFileLoader
        assert not any(type(f).__module__ == "tritonstore.pytorch.autoload" for f in sys.meta_path)
        assert written() == ["y"]
        import tritonstore
        assert tritonstore.stats()["publishes"] == 1
        tritonstore.uninstall()
        assert not patched()
        """,
        **machine.on,
    )


def test_an_analysis_that_is_imported_already_is_patched_at_once(machine: Any) -> None:
    machine.run(
        """
        import os, torch
        from ask import patched
        assert not patched()
        os.environ["TRITONSTORE"] = "1"
        from tritonstore.pytorch.autoload import activate
        activate()
        activate()
        assert patched()
        """
    )


def test_a_failing_import_leaves_the_hook_for_the_next(machine: Any) -> None:
    machine.run(
        """
        import sys, torch
        needed = "torch.utils._ordered_set"
        kept, sys.modules[needed] = sys.modules.get(needed), None
        try:
            import torch._higher_order_ops.triton_kernel_wrap
        except ImportError:
            pass
        else:
            raise SystemExit("imported")
        del sys.modules[needed]
        if kept is not None:
            sys.modules[needed] = kept
        from ask import patched
        assert patched()
        """,
        **machine.on,
    )


def test_threads_that_import_at_once_find_it_patched(machine: Any) -> None:
    machine.run(
        """
        import threading, torch
        ready, found = threading.Barrier(4), []
        def work():
            ready.wait()
            import torch._higher_order_ops.triton_kernel_wrap as wrap
            name = [n for n in ("identify_accessed_tensors", "identify_mutated_tensors") if hasattr(wrap, n)][0]
            found.append(hasattr(getattr(wrap, name), "__wrapped__"))
        threads = [threading.Thread(target=work) for _ in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        assert found == [True] * 4
        """,
        **machine.on,
    )


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_workers_share_the_store(machine: Any, method: str) -> None:
    machine.run(
        f"""
        import multiprocessing, warnings
        warnings.simplefilter("ignore")

        def work(queue):
            import ask, tritonstore
            queue.put((ask.patched(), ask.written(), tritonstore.stats()))

        if __name__ == "__main__":
            import ask, tritonstore
            assert ask.written() == ["y"]
            context = multiprocessing.get_context({method!r})
            queue = context.Queue()
            workers = [context.Process(target=work, args=(queue,)) for _ in range(2)]
            [worker.start() for worker in workers]
            told = [queue.get(timeout=120) for _ in workers]
            [worker.join() for worker in workers]
            for patched, written, stats in told:
                assert patched and written == ["y"]
                assert (stats["calls"], stats["analyses"]) == (1, 0), stats
        """,
        **machine.on,
    )


@pytest.mark.parametrize("kind", ["FORK", "SPAWN"])
def test_inductors_compile_workers_share_the_store(machine: Any, kind: str) -> None:
    """Inductor's own pool: a process that imports torch, and forks or spawns its workers."""
    machine.run(
        f"""
        from pool_of_test import work
        from torch._inductor.compile_worker.subproc_pool import SubprocKind, SubprocPool

        if __name__ == "__main__":
            import ask
            assert ask.written() == ["y"]
            pool = SubprocPool(2, kind=SubprocKind.{kind})
            try:
                told = [pool.submit(work).result(timeout=200) for _ in range(2)]
            finally:
                pool.shutdown()
            for patched, written, stats in told:
                assert patched and written == ["y"]
                assert stats["analyses"] == 0, stats
        """,
        **machine.on,
    )


def test_a_program_of_its_own_mind_wins(machine: Any) -> None:
    machine.run(
        """
        import torch, tritonstore
        tritonstore.install(url="memory:", target="hip:gfx942:64")
        from tritonstore.pytorch.install import _installer
        assert _installer.session.settings.urls == ("memory:",)
        """,
        **machine.on,
    )


@pytest.mark.parametrize(
    ("variable", "value", "warnings"),
    [("TRITONSTORE_TARGET", "nonsense", "default"), ("TRITONSTORE_MODE", "sometimes", "error")],
)
def test_a_bad_setting_warns_once_and_leaves_pytorch_alone(
    machine: Any, variable: str, value: str, warnings: str
) -> None:
    done = machine.run(
        """
        import torch
        from ask import patched, written
        assert not patched()
        assert written() == ["x", "y"]  # no driver: PyTorch's failure path
        """,
        **{**machine.on, variable: value, "PYTHONWARNINGS": f"{warnings}::RuntimeWarning"},
    )
    assert done.stderr.count("TRITONSTORE is set, but") == 1
    assert variable in done.stderr
    assert value in done.stderr


def test_an_unknown_pytorch_warns_once_and_completes(machine: Any) -> None:
    (machine.folder / "site" / "sitecustomize.py").write_text(
        textwrap.dedent(
            """
            import importlib.abc, importlib.machinery, sys
            class Source(importlib.machinery.SourceFileLoader):
                def get_data(self, path):
                    data = super().get_data(path)
                    return data.replace(b"get_tma_stores", b"get_other_stores") if path.endswith(".py") else data
                def get_code(self, name):
                    return self.source_to_code(self.get_data(self.path), self.path)
            class Finder:
                def find_spec(self, name, path=None, target=None):
                    if name != "torch._higher_order_ops.triton_kernel_wrap":
                        return None
                    spec = importlib.machinery.PathFinder.find_spec(name, path)
                    spec.loader = Source(name, spec.origin)
                    return spec
            sys.meta_path.insert(0, Finder())
            """
        )
    )
    done = machine.run("from ask import patched, written\nassert not patched()\nassert written()\n", **machine.on)
    assert done.stderr.count("TRITONSTORE is set, but") == 1
    assert "get_tma_stores" in done.stderr


def test_a_store_that_cannot_be_used_is_told_once_and_the_export_completes(machine: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for url in (f"file://{tmp_path}/file", "no-such-scheme://x"):
        done = machine.run(
            "from ask import patched, written\nassert patched()\nassert written(1) == written(2) == ['y']\n",
            **{**machine.on, "TRITONSTORE_URL": url, "TRITONSTORE_STRICT": "0"},
        )
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr
