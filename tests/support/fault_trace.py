"""Stop a forked child at its system calls: kill it there, let the call fail, let it do a part only, or send a signal.

The kernel itself stops the child (ptrace), so nothing that it calls is replaced: a system call of Python, of a library
in C or of an import is met alike. The child asks to be traced, so no privilege is needed; it dies with its tracer.
Linux; stopping at chosen calls only (a seccomp filter, four times as fast) and changing them know x86-64 alone.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import struct
import sys
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

TRACEME, CONT, GETREGS, SETREGS, SYSCALL, SETOPTIONS, SYSCALL_INFO = 0, 7, 12, 13, 24, 0x4200, 0x420E
TRACESYSGOOD, TRACESECCOMP, EXITKILL = 1, 0x80, 0x100000
_AT_SYSCALL, _AT_SECCOMP = signal.SIGTRAP | 0x80, signal.SIGTRAP | 7 << 8

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.prctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong]

# The calls that reach a file system or a descriptor, by their x86-64 numbers. Memory, clocks, locks in memory and
# signals are left out: no store is behind them.
_NUMBERS = {
    0: "read", 1: "write", 2: "open", 3: "close", 4: "stat", 5: "fstat", 6: "lstat", 8: "lseek", 16: "ioctl",
    17: "pread64", 18: "pwrite64", 19: "readv", 20: "writev", 21: "access", 32: "dup", 72: "fcntl", 73: "flock",
    74: "fsync", 75: "fdatasync", 77: "ftruncate", 79: "getcwd", 80: "chdir", 82: "rename", 83: "mkdir", 84: "rmdir",
    86: "link", 87: "unlink", 89: "readlink", 90: "chmod", 91: "fchmod", 137: "statfs", 138: "fstatfs",
    217: "getdents64", 257: "openat", 258: "mkdirat", 260: "fchownat", 262: "newfstatat", 263: "unlinkat",
    264: "renameat", 265: "linkat", 267: "readlinkat", 268: "fchmodat", 269: "faccessat", 280: "utimensat",
    292: "dup3", 316: "renameat2", 332: "statx", 439: "faccessat2",
}  # fmt: skip
ERRORS = ("ENOSPC", "EDQUOT", "EROFS", "EIO", "ESTALE", "EBUSY", "EACCES", "EMFILE", "EINTR", "ENOENT", "ENOTDIR")
FILES = frozenset(_NUMBERS.values())
CHANGES = frozenset({  # those after which a disk or a lock may look different; of `openat` those that create
    "open", "openat", "write", "pwrite64", "writev", "rename", "renameat", "renameat2", "mkdir", "mkdirat",
    "rmdir", "link", "linkat", "unlink", "unlinkat", "chmod", "fchmod", "fchmodat", "fchownat", "ftruncate",
    "utimensat", "flock", "fsync", "fdatasync", "close",
})  # fmt: skip

_RAX, _RDX, _ORIG_RAX = 10, 12, 15  # where they stand in the kernel's user_regs_struct of 27 words


_BY_DESCRIPTOR = frozenset({
    "read", "write", "close", "fstat", "lseek", "ioctl", "pread64", "pwrite64", "readv", "writev", "fcntl",
    "flock", "fsync", "fdatasync", "ftruncate", "fchmod", "getdents64", "fstatfs", "dup", "dup3",
})  # fmt: skip

_AT = frozenset({
    "openat", "mkdirat", "fchownat", "newfstatat", "unlinkat", "renameat", "renameat2", "linkat", "readlinkat",
    "fchmodat", "faccessat", "faccessat2", "utimensat", "statx",
})  # fmt: skip


class Stop(NamedTuple):
    """The `number`-th call of the child, from 1 on, before or after it. `creates`: an open that may make a file.

    `path` is known where calls were chosen by their folders.
    """

    number: int
    call: str
    after: bool = False
    creates: bool = False
    path: str = ""

    @property
    def changes(self) -> bool:
        """Whether a disk or a lock may look different after this call."""
        return self.call in CHANGES and (self.creates or self.call not in ("open", "openat"))


class Traced(NamedTuple):
    """What became of a child: its exit code (or minus the signal), what it said, the stops, and those changed."""

    code: int
    said: bytes
    stops: list[Stop]
    changed: list[Stop]


Act = Callable[[Stop], "int | str | signal.Signals | None"]
"""What to do at a stop: None goes on, ``"kill"`` kills, a signal is sent; an errno makes a chosen call fail, and
``"short"`` halves its count of bytes."""


def run(
    work: Callable[[], bytes | None],
    act: Act = lambda stop: None,
    *,
    only: frozenset[str] | None = None,
    under: str = "",
) -> Traced:
    """Run `work` in a traced child, and what it returns is `said`. An exception of it is exit code 1 and a traceback.

    It stops before each of the calls named in `only`; else before and after every system call. With `under` only calls
    that are about that folder count. The caller should have one thread.
    """
    if only is not None and platform.machine() != "x86_64":
        raise RuntimeError("chosen system calls can be stopped at on x86-64 only")
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _child(work, writer, only)
    os.close(writer)
    try:
        tracer = _Tracer(pid, act, CONT if only is not None else SYSCALL, under)
        code = tracer.follow()
        return Traced(code, _drain(reader), tracer.stops, tracer.changed)
    finally:
        os.close(reader)


def count(work: Callable[[], Any], *, only: frozenset[str] | None = None, under: str = "") -> list[Stop]:
    """The stops of `work` left alone. Raises AssertionError where it fails."""
    done = run(work, only=only, under=under)
    assert done.code == 0, done.said.decode()
    return done.stops


def _child(work: Callable[[], bytes | None], writer: int, only: frozenset[str] | None) -> None:
    """The traced part lies between two SIGSTOPs."""
    code, said = 0, b""
    signal.alarm(60)  # what hangs ends by that signal
    try:
        _libc.ptrace(TRACEME, 0, None, None)
        os.kill(os.getpid(), signal.SIGSTOP)
        if only is not None:
            _filter([number for number, name in _NUMBERS.items() if name in only])
        try:
            said = work() or b""
        finally:
            os.kill(os.getpid(), signal.SIGSTOP)
    except BaseException:
        code, said = 1, traceback.format_exc().encode()
    finally:
        os.write(writer, said[:60_000])  # a pipe holds this much unread
        os._exit(code)


def _filter(numbers: list[int]) -> None:
    """Have the kernel stop at these calls only. struct sock_filter: code, jump if true, jump if false, operand."""
    program = struct.pack("=HBBI", 0x20, 0, 0, 0)  # load the number of the call
    for left, number in zip(range(len(numbers), 0, -1), numbers, strict=True):
        program += struct.pack("=HBBI", 0x15, left, 0, number)  # if it is this one, go to the last line
    program += struct.pack("=HBBI", 0x06, 0, 0, 0x7FFF0000)  # allow
    program += struct.pack("=HBBI", 0x06, 0, 0, 0x7FF00000)  # trace
    code = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    if _libc.prctl(38, 1, None, 0, 0) or _libc.prctl(22, 2, described, 0, 0):
        raise OSError(ctypes.get_errno(), "a seccomp filter is refused")


def _drain(reader: int) -> bytes:
    said = b""
    while part := os.read(reader, 65536):
        said += part
    return said


class _Tracer:
    def __init__(self, pid: int, act: Act, request: int, under: str) -> None:
        self._pid = pid
        self._act = act
        self._go_on = request
        self._under = under
        self.stops: list[Stop] = []
        self.changed: list[Stop] = []
        self._info = ctypes.create_string_buffer(88)

    def follow(self) -> int:
        """The child's exit code, once it has ended."""
        self._wait()
        self._ptrace(SETOPTIONS, TRACESYSGOOD | TRACESECCOMP | EXITKILL)
        ended = killed = False
        while True:
            if not killed:  # the dead cannot be told to go on
                self._ptrace(self._go_on, 0)
            status = self._wait()
            if status is None:  # the second SIGSTOP
                ended, self._go_on = True, CONT
                continue
            if not os.WIFSTOPPED(status):
                return os.waitstatus_to_exitcode(status)
            if ended or killed:  # the child says good-bye
                continue
            stop = self._where()
            if not stop.path.startswith(self._under):
                continue
            self.stops.append(stop)
            verdict = self._act(stop)
            if isinstance(verdict, signal.Signals):
                self.changed.append(stop)
                os.kill(self._pid, verdict)
            elif verdict == "kill":
                killed = True
                os.kill(self._pid, signal.SIGKILL)
            elif verdict is not None:
                self.changed.append(stop)
                self._change(verdict)

    def _wait(self) -> int | None:
        """The next stop at a system call, or the end; None at a SIGSTOP. Other signals are passed on."""
        while True:
            _, status = os.waitpid(self._pid, 0)
            if not os.WIFSTOPPED(status) or status >> 8 in (_AT_SYSCALL, _AT_SECCOMP):
                return status
            number = os.WSTOPSIG(status)
            if number == signal.SIGSTOP:
                return None
            self._ptrace(self._go_on, number)

    def _where(self) -> Stop:
        self._ptrace(SYSCALL_INFO, ctypes.addressof(self._info), len(self._info))
        operation, number, *given = struct.unpack_from("=B23xQ6Q", self._info)
        if operation == 2:  # after the call that was named before
            return self.stops[-1]._replace(after=True)
        name = _NUMBERS.get(number, f"call {number}") if platform.machine() == "x86_64" else f"call {number}"
        flags = {"open": given[1], "openat": given[2]}.get(name, 0)
        before = self.stops[-1].number if self.stops else 0
        path = self._path(name, given) if self._under else ""
        return Stop(before + 1, name, creates=bool(flags & os.O_CREAT), path=path)

    def _path(self, name: str, given: list[int]) -> str:
        """What the call is about, as well as can be told."""
        if name in _BY_DESCRIPTOR:
            return self._link(f"fd/{given[0]}")
        text = self._text(given[1] if name in _AT else given[0])
        if text.startswith("/"):
            return text
        above = f"fd/{given[0]}" if name in _AT and given[0] < 1 << 20 else "cwd"
        return os.path.join(self._link(above), text).rstrip("/")

    def _link(self, name: str) -> str:
        try:
            return os.readlink(f"/proc/{self._pid}/{name}")
        except OSError:  # it is not open
            return ""

    def _text(self, address: int) -> str:
        if not address:
            return ""
        with open(f"/proc/{self._pid}/mem", "rb", buffering=0) as memory:
            memory.seek(address)
            return memory.read(4096 - address % 4096).partition(b"\0")[0].decode(errors="replace")

    def _change(self, verdict: int | str) -> None:
        """Skip the call and answer with an errno for it, or halve its count of bytes."""
        registers = (ctypes.c_ulonglong * 27)()
        self._ptrace(GETREGS, ctypes.addressof(registers))
        if isinstance(verdict, str):
            registers[_RDX] = max(1, registers[_RDX] // 2)
        else:
            registers[_ORIG_RAX], registers[_RAX] = 2**64 - 1, 2**64 - verdict
        self._ptrace(SETREGS, ctypes.addressof(registers))

    def _ptrace(self, request: int, data: int, address: int = 0) -> None:
        if _libc.ptrace(request, self._pid, address, data) == -1:
            error = ctypes.get_errno()
            raise OSError(error, f"ptrace request {request:#x}: {os.strerror(error)}")
