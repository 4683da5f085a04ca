"""Traces made to exhaust time or memory (D13)."""

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support import SOURCE

pytest.importorskip("msgspec")
pytest.importorskip("numpy")

from rocsolid.errors import InputError
from rocsolid.observe import break_message, graph_text, kernels, recompile_message, torch_trace_files
from rocsolid.trace.analysis.analyze import analyze_trace
from rocsolid.trace.analysis.categories import PATTERNS
from rocsolid.trace.columns import MAX_DEVICES
from rocsolid.trace.read import read_trace


def kernel(number: int, name: str = "k", device: int = 0) -> dict[str, Any]:
    args = {"device": device, "stream": 7, "correlation": number}
    return {
        "ph": "X",
        "cat": "kernel",
        "name": name,
        "pid": device,
        "tid": 7,
        "ts": number * 2.0,
        "dur": 1.0,
        "args": args,
    }


def written(tmp_path: Path, events: list[dict[str, Any]]) -> Path:
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": events}))
    return tmp_path / "t.json"


def test_d13_many_devices(tmp_path: Path) -> None:
    columns = read_trace(written(tmp_path, [kernel(n, device=n) for n in range(20_000)]), single_process=True)
    assert len(set(columns.device.device.tolist())) == MAX_DEVICES
    assert "20,000 device numbers: only events of the first 1024 were read" in columns.damage


def test_d13_many_kernel_names(tmp_path: Path) -> None:
    columns = read_trace(written(tmp_path, [kernel(n, name=f"k{n}") for n in range(30_000)]), single_process=True)
    assert len(set(columns.device.name.tolist())) == 20_000
    assert columns.names[-1] == "(10,001 others)"
    assert len(columns.device) == 30_000


def test_a_line_break_in_a_name_imitates_no_line(tmp_path: Path) -> None:
    columns = read_trace(written(tmp_path, [kernel(1, name="a\nno findings\r\n\u2028b")]), single_process=True)
    assert columns.names == ("a no findings b",)


def test_d13_a_deep_event_does_not_lose_the_others(tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": [kernel(1), {**kernel(2), "args": "DEEP"}, kernel(3)]})
    (tmp_path / "t.json").write_text(text.replace('"DEEP"', '{"x": ' + "[" * 1_000_000 + "]" * 1_000_000 + "}"))
    trace = analyze_trace("t", read_trace(tmp_path / "t.json", single_process=True))
    assert trace.devices[0].kernel_count == 2


# Interns names, and prints how many slots were looked at in vain: first names chosen for a known seed, with that seed, then
# the same names and names chosen for every seed, with five other seeds.
COUNT_SLOTS = r"""
#include <stdio.h>
#include "string_table.h"
enum { COUNT = 512, LENGTH = 144 };

static size_t slots_in_vain(char (*names)[LENGTH + 1], uint64_t first, uint64_t second) {
    string_table t = {.seed = {first, second}};
    for (int n = 0; n < COUNT; n++) id_of(&t, names[n], LENGTH);
    size_t sum = 0;
    for (uint32_t slot = 0; slot <= t.mask; slot++)
        if (t.slots[slot]) sum += (slot - (uint32_t)t.hashes[t.slots[slot] - 1]) & t.mask;
    return sum;
}

int main(void) {
    static char chosen[COUNT][LENGTH + 1], differing[COUNT][LENGTH + 1];
    uint64_t known[2] = {0x9E3779B97F4A7C15u, 0xD1B54A32D192ED03u}, random = 88172645463325252u;
    for (uint64_t found = 0, n = 0; found < COUNT; n++) {
        sprintf(chosen[found], "%0144llu", (unsigned long long)n);
        found += (hash_of(chosen[found], LENGTH, known) & 0x7ff) == 0;
    }
    for (int n = 0; n < COUNT; n++) {
        memset(differing[n], 'a', LENGTH);
        for (int pair = 0; pair < 9; pair++) {
            char *block = differing[n] + 16 * pair;
            /* The top bit of a block, and what a product by a known odd factor, folded, makes of this bit. */
            if (n >> pair & 1) block[7] ^= 0x80, block[11] ^= 0x80, block[15] ^= 0x80;
        }
    }
    printf("%zu", slots_in_vain(chosen, known[0], known[1]));
    for (int n = 0; n < 5; n++) {
        uint64_t seed[2];
        for (int k = 0; k < 2; k++) random ^= random << 13, random ^= random >> 7, seed[k] = random ^= random << 17;
        printf(" %zu", slots_in_vain(chosen, seed[0], seed[1]));
        printf(" %zu", slots_in_vain(differing, seed[0], seed[1]));
    }
}
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_d13_names_chosen_to_collide_are_not_slower(tmp_path: Path) -> None:
    """512 names in a half-empty table: ordinary ones look at about 200 slots in vain, colliding ones at 130,000."""
    scan = SOURCE / "rocsolid/trace/readers/scan"
    (tmp_path / "count.c").write_text(COUNT_SLOTS)
    subprocess.run(["cc", "-O2", "-I", str(scan), "count.c", "-o", "count"], cwd=tmp_path, check=True)
    known, *others = map(int, subprocess.run([tmp_path / "count"], capture_output=True, check=True).stdout.split())
    assert known > 60_000  # the names do collide, when the seed is known
    assert max(others) < 1_000


@pytest.mark.parametrize(
    ("pattern", "piece"),
    [
        (torch_trace_files._BREAK, "Graph break in user code at "),
        (break_message._RESUME_FUNCTION, "torch_dynamo_resume_in_"),
        (kernels._ORIGIN_COMMENT, "# Topologically Sorted Source Nodes: ["),
        (recompile_message._TENSOR, "tensor 'a' size "),
        (recompile_message._TYPE, "expected type of 'a' to be a tensor type"),
        (recompile_message._OBJECT, "___check_"),
        (graph_text._SIGNATURE, " \n"),
        (graph_text._CALL, "a."),
    ],
)
def test_no_text_in_a_compile_log_takes_long(pattern: re.Pattern[str], piece: str) -> None:
    """Each of these took from seconds to hours."""
    text = piece * (100_000 // len(piece))
    started = time.process_time()
    assert not pattern.search(text)
    assert time.process_time() - started < 3


def test_no_kernel_name_takes_long_to_classify() -> None:
    """One pattern took 1.5 s for a name of 20,000 letters, and a trace may have 20,000 names."""
    for entry in PATTERNS:
        started = time.process_time()
        for word in re.findall(r"[A-Za-z_]{2,}", entry.pattern):
            re.search(entry.pattern, word * (30_000 // len(word)))
        assert time.process_time() - started < 1.5, entry.family


def test_odd_entries_in_a_folder_of_compile_logs_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "a.log").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "b.log")
    with pytest.raises(InputError, match="contains no trace of a compile"):
        torch_trace_files.read_trace(tmp_path)
