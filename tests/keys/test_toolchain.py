"""The toolchain's fingerprint: by content, complete, equal for equal wheels, and quick when warm."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
from pathlib import Path

import pytest
import torch
import triton

import tritonstore
from tritonstore.errors import Bypass
from tritonstore.keys import filestat, toolchain
from tritonstore.keys.filestat import FileDigests
from tritonstore.keys.integrity import snapshot

TORCH = Path(torch.__file__).parent


@pytest.fixture
def torch_root(tmp_path: Path) -> Path:
    """A folder with the files of PyTorch's analysis, as they are."""
    root = tmp_path / "torch"
    for name in toolchain.ANALYSIS_FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(TORCH / name, root / name)
    return root


@pytest.fixture
def triton_root(tmp_path: Path) -> Path:
    """A small installed package with a RECORD as pip writes it, last."""
    return install(tmp_path / "site")


def install(site: Path) -> Path:
    root = site / "triton"
    files = {"__init__.py": b"", "language/core.py": b"def load(): ...\n", "_C/libtriton.so": b"\x7fELF native"}
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    rows = [f"triton/{name},sha256={record_hash(content)},{len(content)}" for name, content in files.items()]
    info = site / f"triton-{triton.__version__}.dist-info"
    info.mkdir()
    later_than(root, info, "\n".join(rows) + "\n")
    return root


def later_than(root: Path, info: Path, text: str) -> None:
    """Write RECORD in a later clock tick than the files, as it is for a package of ordinary size."""
    newest = max(path.stat().st_ctime_ns for path in root.rglob("*"))
    record = info / "RECORD"
    while True:
        record.write_text(text)
        if record.stat().st_ctime_ns > newest:
            return


def record_hash(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


@pytest.fixture(autouse=True)
def _files_are_older_than_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    # The fixtures write files now, which a process that runs already must not trust.
    monkeypatch.setattr(toolchain, "process_start", lambda: float("inf"))


def fingerprint(torch_root: Path, triton_root: Path) -> object:
    return toolchain.fingerprint(str(torch_root), str(triton_root)).record


def test_equal_wheels_on_another_host_are_equal(torch_root: Path, triton_root: Path, tmp_path: Path) -> None:
    other = install(tmp_path / "elsewhere" / "lib")
    assert fingerprint(torch_root, triton_root) == fingerprint(torch_root, other)


@pytest.mark.parametrize("name", toolchain.ANALYSIS_FILES)
def test_an_edit_of_the_analysis_is_noticed(torch_root: Path, triton_root: Path, name: str) -> None:
    before = fingerprint(torch_root, triton_root)
    with (torch_root / name).open("a") as file:
        file.write("# edited\n")
    assert fingerprint(torch_root, triton_root) != before


@pytest.mark.parametrize("name", ["language/core.py", "_C/libtriton.so"])
@pytest.mark.parametrize("keep_times", [False, True])
def test_an_edit_of_triton_is_noticed_though_record_lists_the_old(
    torch_root: Path, triton_root: Path, name: str, keep_times: bool
) -> None:
    before = fingerprint(torch_root, triton_root)
    path = triton_root / name
    old = path.stat()
    path.write_bytes(bytes(reversed(path.read_bytes())))  # the same size
    if keep_times:
        os.utime(path, ns=(old.st_atime_ns, old.st_mtime_ns))
    after = fingerprint(torch_root, triton_root)
    assert after != before
    path.write_bytes(bytes(reversed(path.read_bytes())))
    assert fingerprint(torch_root, triton_root) == before


def test_a_new_and_a_removed_file_are_noticed(torch_root: Path, triton_root: Path) -> None:
    before = fingerprint(torch_root, triton_root)
    added = triton_root / "language" / "extra.py"
    added.write_text("x = 1\n")
    assert fingerprint(torch_root, triton_root) != before
    added.unlink()
    assert fingerprint(torch_root, triton_root) == before
    (triton_root / "language" / "core.py").unlink()
    assert fingerprint(torch_root, triton_root) != before


@pytest.mark.parametrize("damage", ["", "garbage", "triton/__init__.py,sha256=!!!,0\n", "\xff\n"])
def test_a_record_that_cannot_be_read_means_hashing(torch_root: Path, triton_root: Path, damage: str) -> None:
    before = fingerprint(torch_root, triton_root)
    record = next(triton_root.parent.glob("*.dist-info")) / "RECORD"
    record.write_text(damage, encoding="latin-1")
    assert fingerprint(torch_root, triton_root) == before


def test_unchanged_files_are_not_read_again(
    torch_root: Path, triton_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filestat, "_STILL_NS", -1)
    next(triton_root.parent.glob("*.dist-info")).joinpath("RECORD").unlink()
    before = fingerprint(torch_root, triton_root)
    monkeypatch.setattr(filestat, "_hash", lambda path, identity: pytest.fail(f"{path} was read again"))
    assert fingerprint(torch_root, triton_root) == before


def test_a_file_that_changed_after_the_start_bypasses(
    torch_root: Path, triton_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "process_start", lambda: (triton_root / "__init__.py").stat().st_ctime - 1)
    with pytest.raises(Bypass, match="after this process started; start it again") as caught:
        fingerprint(torch_root, triton_root)
    assert caught.value.reason == "toolchain"


def test_a_torch_without_the_analysis_is_named(torch_root: Path, triton_root: Path) -> None:
    (torch_root / toolchain.ANALYSIS_FILES[0]).unlink()
    with pytest.raises(Bypass, match=r"torch has no _higher_order_ops/triton_kernel_wrap\.py"):
        fingerprint(torch_root, triton_root)


def test_the_real_one_says_what_it_is() -> None:
    known = toolchain.fingerprint(str(TORCH), os.path.dirname(triton.__file__))
    assert known.detail["torch"] == str(torch.__version__)
    assert known.detail["triton"] == triton.__version__
    assert len(known.detail["triton_files"]) == 64


@pytest.mark.parametrize("damage", [b"", b"\x00" * 40, b"x" * 100, b"\xff" * 5000])
def test_a_damaged_memory_is_no_memory(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "file-digests-v1").write_bytes(damage)
    (tmp_path / "file-digests-v1").chmod(0o600)
    target = tmp_path / "some.py"
    target.write_bytes(b"text")
    assert FileDigests.load(str(tmp_path)).sha256(str(target)) == hashlib.sha256(b"text").hexdigest()


def test_a_memory_that_others_can_write_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filestat, "_STILL_NS", -1)
    target = tmp_path / "some.py"
    target.write_bytes(b"text")
    digests = FileDigests.load(str(tmp_path))
    monkeypatch.setattr(filestat, "_hash", lambda path, identity: "f" * 64)  # somebody's lie
    digests.sha256(str(target))
    digests.save()
    monkeypatch.undo()
    memory = tmp_path / "file-digests-v1"
    assert FileDigests.load(str(tmp_path)).sha256(str(target)) == "f" * 64
    memory.chmod(0o666)
    assert FileDigests.load(str(tmp_path)).sha256(str(target)) == hashlib.sha256(b"text").hexdigest()


def test_a_file_that_was_just_written_is_not_remembered(tmp_path: Path) -> None:
    target = tmp_path / "some.py"
    target.write_bytes(b"text")
    digests = FileDigests.load(str(tmp_path))
    digests.sha256(str(target))
    digests.save()
    # An edit in the same clock tick would leave the same times.
    assert FileDigests.load(str(tmp_path))._known == {}


def test_the_memory_survives_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    digests = FileDigests.load(str(tmp_path / "file" / "cache"))
    target = tmp_path / "some.py"
    target.write_bytes(b"text")
    assert digests.sha256(str(target)) == hashlib.sha256(b"text").hexdigest()
    digests.save()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "some.py"]


def test_the_start_of_this_process_is_in_the_past() -> None:
    assert 0 < filestat.process_start() <= tritonstore.LOADED


def renew_change_times(site: Path) -> None:
    """As chmod -R, chown -R, cp -a, tar and image layers do: new change times for all, RECORD's the last."""
    for path in sorted(site.rglob("*"), key=lambda path: path.name == "RECORD"):
        path.chmod(path.stat().st_mode)
    record = next(site.glob("*.dist-info")) / "RECORD"
    while record.stat().st_ctime_ns <= max(path.stat().st_ctime_ns for path in site.rglob("*") if path != record):
        record.chmod(record.stat().st_mode)


@pytest.mark.parametrize("name", ["language/core.py", "_C/libtriton.so"])
def test_an_edit_is_noticed_though_a_chmod_of_the_whole_tree_renewed_record(
    torch_root: Path, triton_root: Path, name: str
) -> None:
    before = fingerprint(torch_root, triton_root)
    path = triton_root / name
    path.write_bytes(bytes(reversed(path.read_bytes())))  # the same size
    after = fingerprint(torch_root, triton_root)
    assert after != before
    renew_change_times(triton_root.parent)
    assert fingerprint(torch_root, triton_root) == after


def test_an_edit_is_noticed_though_a_copy_of_the_tree_renewed_all_times(
    torch_root: Path, triton_root: Path, tmp_path: Path
) -> None:
    """As `cp -r` does, which writes RECORD last: nothing tells by then that the file is not the one it lists."""
    before = fingerprint(torch_root, triton_root)
    path = triton_root / "language" / "core.py"
    path.write_bytes(bytes(reversed(path.read_bytes())))  # the same size
    other = tmp_path / "copy"
    shutil.copytree(triton_root.parent, other, copy_function=shutil.copyfile)
    info = next(other.glob("*.dist-info"))
    later_than(other / "triton", info, (info / "RECORD").read_text())
    assert fingerprint(torch_root, other / "triton") != before


def test_a_chmod_of_an_untouched_tree_changes_nothing(torch_root: Path, triton_root: Path) -> None:
    before = fingerprint(torch_root, triton_root)
    renew_change_times(triton_root.parent)
    assert fingerprint(torch_root, triton_root) == before


def test_a_package_under_a_path_that_is_no_text(
    torch_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory of digests has no word for such a path."""
    monkeypatch.setattr(filestat, "_STILL_NS", -1)
    roots = [install(tmp_path / "plain"), install(Path(os.fsdecode(os.fsencode(tmp_path) + b"/od\xffd")))]
    for root in roots:
        next(root.parent.glob("*.dist-info")).joinpath("RECORD").unlink()
    plain, odd, again = (fingerprint(torch_root, root) for root in (*roots, roots[1]))
    assert plain == odd == again


def test_files_that_changed_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each call of such a process would read the times of hundreds of files again."""
    looks = []

    def fingerprint(torch_root: str, triton_root: str) -> toolchain.Toolchain:
        looks.append(triton_root)
        raise Bypass("toolchain", "changed")

    memory = snapshot()
    monkeypatch.setattr(toolchain, "_known", None)
    monkeypatch.setattr(toolchain, "fingerprint", fingerprint)
    caught = []
    for _ in range(3):
        with pytest.raises(Bypass, match="changed") as error:
            toolchain.toolchain(memory)
        caught.append(error.value)
    assert len(looks) == 1
    assert len(set(map(id, caught))) == 3
