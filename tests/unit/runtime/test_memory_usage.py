"""Peak memory of one reconcile pass, measured in this process and read from files
that imitate another kernel.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from chalicelib.model.errors import MemoryExceeded
from chalicelib.runtime.memory_usage import READING, MemoryGauge

MEGABYTES = 200
LINUX = Path("/proc/self/status").exists()


def says(folder: Path, *, now: int, peak: int) -> None:
    (folder / "status").write_text(
        f"Name:\tpython\nVmHWM:\t{peak * 1024} kB\nVmRSS:\t{now * 1024} kB\nThreads:\t1\n"
    )


@pytest.mark.skipif(not LINUX, reason="reads Linux's /proc")
def test_memory_usage_peak_includes_short_allocations_of_a_pass() -> None:
    gauge = MemoryGauge()
    gauge.begin()
    calm = gauge.end()
    gauge.begin()
    held = bytearray(b"x") * (MEGABYTES << 20)
    del held
    busy = gauge.end()
    assert calm is not None
    assert busy is not None
    assert busy.most >= calm.most + MEGABYTES * 0.9


def test_memory_usage_peak_of_earlier_passes_is_uncertain(tmp_path: Path) -> None:
    gauge = MemoryGauge(tmp_path)
    says(tmp_path, now=80, peak=80)
    gauge.begin()
    says(tmp_path, now=300, peak=400)
    first = gauge.end()
    gauge.begin()  # the next cluster's pass in the same process
    second = gauge.end()
    assert first is not None
    assert second is not None
    assert (first.least, first.most) == (400, 400)
    assert (second.least, second.most) == (180, 400)


def test_memory_usage_peak_is_reset_before_each_pass(tmp_path: Path) -> None:
    says(tmp_path, now=80, peak=80)
    MemoryGauge(tmp_path).begin()
    assert (tmp_path / "clear_refs").read_text() == "5"


@pytest.mark.parametrize("text", ["", "VmHWM: many kB\nVmRSS: 1 kB", "VmRSS:\t100 kB", "\xff\xfe"])
def test_memory_usage_is_unknown_with_an_unreadable_status_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "status").write_text(text, "latin-1")
    gauge = MemoryGauge(tmp_path)
    gauge.begin()
    assert gauge.end() is None


def test_memory_usage_is_unknown_without_proc(tmp_path: Path) -> None:
    gauge = MemoryGauge(tmp_path / "missing")
    gauge.begin()
    assert gauge.end() is None


@pytest.mark.parametrize(
    ("began", "now", "exceeded"),
    [
        (80, int(512 * READING), False),
        (80, int(512 * READING) + 1, True),
        (400, 430, False),
        (400, 440, True),
    ],
    ids=["within", "beyond", "memory-of-earlier-passes", "grown-beyond-them"],
)
def test_memory_usage_beyond_the_share_of_reading_is_an_error(
    tmp_path: Path, began: int, now: int, exceeded: bool
) -> None:
    gauge = MemoryGauge(tmp_path)
    says(tmp_path, now=began, peak=began)
    gauge.begin()
    says(tmp_path, now=now, peak=now)
    if exceeded:
        with pytest.raises(MemoryExceeded, match="need more than 384 MB of the 512 MB"):
            gauge.check(512)
    else:
        gauge.check(512)
    gauge.check(0)
