"""Clocks of several hosts beside each other: where a line carries two, where NTP tells, and where nothing does."""

from __future__ import annotations

from roadworthy.diagnose.examine import examine
from roadworthy.diagnose.timeline import reach, timeline

XID = "NVRM: Xid (PCI:0000:dd:00): 79, GPU has fallen off the bus."
FATAL = "ERROR {clock} [core.py:842] EngineCore encountered a fatal error."


def order(texts: dict[str, str]) -> list[tuple[str, str, str]]:
    book, _ = examine(texts)
    return [(one.when, one.host, one.note) for one in timeline(book, set())]


def test_a_runtime_s_time_before_the_engines_tells_year_and_zone_of_that_host() -> None:
    engine = "2026-11-02T04:11:09.5Z stderr F INFO 11-02 12:11:09 [x.py:1] hub: Engine process failed to start\n"
    texts = {
        "node-a/engine.log": engine + f"(EngineCore pid=7) {FATAL.format(clock='11-02 12:30:00')}\n",
        "node-b/dmesg.log": f"2026-11-02T04:29:58+00:00 node-b kernel: {XID}\n",
    }
    found = order(texts)
    assert [(when, host) for when, host, _ in found][-2:] == [
        ("2026-11-02 04:29:58", "node-b"),
        ("2026-11-02 04:30:00", "node-a"),
    ]
    assert "year and zone" in found[-1][2]


def test_the_journal_tells_when_the_kernel_booted() -> None:
    texts = {
        "node-a/journal.log": "2026-11-02T04:00:10Z node-a kernel: [   10.000] mlx5_core 0000:1a:00.0: Port module "
        "event: module 0, Cable unplugged\n",
        "node-a/dmesg.txt": f"[  771.000] {XID}\n",
    }
    assert ("2026-11-02 04:12:51", "node-a", "counted from boot") in order(texts)


def test_a_host_that_runs_fast_is_put_back() -> None:
    texts = {
        "node-a/engine.log": "2026-11-02T04:11:10Z " + FATAL.format(clock="") + "\n",
        "node-b/chronyc.txt": "System time     : 3.500000000 seconds fast of NTP time\n",
        "node-b/engine.log": f"2026-11-02T04:11:12Z node-b kernel: {XID}\n",
    }
    found = [one for one in order(texts) if one[1] in ("node-a", "node-b")]
    assert [host for _, host, _ in found] == ["node-b", "node-a"]
    assert "3.5 s fast" in found[0][2]


def test_clocks_that_nothing_compares_stay_apart() -> None:
    texts = {
        "node-a/engine.log": FATAL.format(clock="11-02 04:11:09") + "\n",
        "node-b/engine.log": f"2026-11-02T04:11:12Z node-b kernel: {XID}\n",
    }
    assert [(when, note) for when, _, note in order(texts)] == [("2026-11-02 04:11:12", ""), ("11-02 04:11:09", "")]


def test_a_line_of_another_day_is_no_zone() -> None:
    late = "2026-11-05T04:11:09Z " + FATAL.format(clock="11-02 04:11:09") + "\n"
    texts = {"node-a/a.log": late, "node-a/b.log": FATAL.format(clock="11-02 04:11:09") + "\n"}
    assert ("11-02 04:11:09", "node-a", "") in order(texts)


def test_the_reach_has_a_beginning_an_end_and_names_hosts_that_stayed_quiet() -> None:
    texts = {
        "node-a/a.log": "2026-11-02T04:11:09Z " + FATAL.format(clock="") + "\n",
        "node-b/b.log": "2026-11-02T04:12:09Z " + FATAL.format(clock="") + "\n",
        "node-c/c.log": "2026-11-02T04:12:09Z INFO all is well\n",
    }
    book, _ = examine(texts)
    reached = reach(book)
    assert (reached.hosts, reached.quiet_hosts) == (("node-a", "node-b"), ("node-c",))
    assert (reached.first, reached.last) == ("2026-11-02 04:11:09", "2026-11-02 04:12:09")
