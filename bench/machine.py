"""Resource usage of processes, from the kernel: CPU to the microsecond where possible, memory, process
trees."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
MB = 1024 * 1024


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/<pid>/stat after the name, so that [1] is the parent; None if it has
    ended."""
    try:
        return Path("/proc", str(pid), "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return None


def parent_of(pid: int) -> int:
    fields = _stat(pid)
    if fields is None:
        raise ProcessLookupError(pid)
    return int(fields[1])


def tree(root: int) -> list[int]:
    """Return `root` and all its descendants."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := _stat(int(name))) is not None:
            children.setdefault(int(fields[1]), []).append(int(name))
    found, queue = [root], [root]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def _own_cpu_s(pid: int) -> float:
    """Return user and system time of a living process, all threads.

    The kernel counts nanoseconds; /proc rounds down to ticks of 10 ms, which is as much as a backend may use
    in a round, so its CPU clock is read where that is allowed.
    """
    try:
        return time.clock_gettime(~pid << 3 | 2)  # CPUCLOCK_SCHED of that process: clock_getcpuclockid(3)
    except OSError:
        fields = _stat(pid)
        return (int(fields[11]) + int(fields[12])) * TICK_S if fields else 0.0


def cpu_s(root: int, *, below: bool = False) -> float:
    """Return the CPU time of a process and its ended children; with `below`, also of living descendants."""
    total = 0.0
    for pid in tree(root) if below else [root]:
        fields = _stat(pid)
        if fields is not None:
            total += _own_cpu_s(pid) + (int(fields[13]) + int(fields[14])) * TICK_S
    return total


def _status_mb(pid: int, names: Iterable[str]) -> list[float]:
    lines = Path("/proc", str(pid), "status").read_text("utf-8", "replace").splitlines()
    values = {
        name: int(rest.split()[0]) / 1024
        for name, _, rest in (x.partition(":") for x in lines)
        if "kB" in rest
    }
    return [values[name] for name in names]


def rss_mb(pid: int) -> float:
    """Return the current resident memory in MiB."""
    return _status_mb(pid, ["VmRSS"])[0]


def peak_rss_mb(pid: int) -> float:
    """Return the peak resident memory in MiB."""
    return _status_mb(pid, ["VmHWM"])[0]


def tree_pss_mb(root: int) -> float:
    """Return the memory of a process tree in MiB, with shared pages counted once."""
    total = 0
    for pid in tree(root):
        try:
            lines = Path("/proc", str(pid), "smaps_rollup").read_text("utf-8").splitlines()
        except OSError:
            continue
        total += sum(int(x.split()[1]) for x in lines if x.startswith("Pss:"))
    return total / 1024


def kind() -> str:
    """Describe the machine in general terms: cores and memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3
    return f"{os.cpu_count()} cores, {memory:.0f} GB of memory, {os.uname().sysname} {os.uname().machine}"
