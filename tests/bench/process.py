"""What a benchmark says about its process and machine. Linux only: it reads /proc."""

import datetime
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
GIB = 2**30


def status(field: str) -> int:
    """A memory field of this process in bytes: VmRSS (held now), VmHWM (the most held so far)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def restart_peak() -> None:
    """Let VmHWM count from now: imports can hold more for a moment than a small step does."""
    Path("/proc/self/clear_refs").write_text("5")


def machine(threads: int) -> dict[str, Any]:
    """Everything a reader needs to compare figures with their own."""
    import torch

    cpu, flags = "", set()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        cpu = value.strip() if key.strip() == "model name" else cpu
        flags = set(value.split()) if key.strip() == "flags" else flags
    commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True)
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), "cpu": cpu,
            "simd": [f for f in ("avx2", "avx512f", "amx_tile") if f in flags],
            "cores": len(os.sched_getaffinity(0)), "threads": threads, "memory_gib": round(total / GIB, 1),
            "system": platform.platform(), "python": platform.python_version(), "torch": torch.__version__,
            "commit": commit.stdout.strip() or None}
