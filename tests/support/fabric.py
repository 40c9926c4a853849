"""What perftest, nccl-tests and our own program print, in their own form, and fabrics made of such measurements."""

from __future__ import annotations

from itertools import permutations

from roadworthy.diagnose.hosts.fabric.values import Command, End, Measured, Output, Run, Step

RULE = "-" * 87

BW_HEAD = f"""\
{RULE}
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : mlx5_0
 Number of qps   : 1\t\tTransport type : IB
 Connection type : RC\t\tUsing SRQ      : OFF
 PCIe relax order: ON
 ibv_wr* API     : ON
 CQ Moderation   : 1
 Mtu             : 4096[B]
 Link type       : Ethernet
 GID index       : 3
 Max inline data : 0[B]
 rdma_cm QPs\t : OFF
 Data ex. method : Ethernet
{RULE}
 local address: LID 0000 QPN 0x0127 PSN 0x2a3bdc RKey 0x1fff00 VAddr 0x007f0c4a2b1000
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:20:00:11
 remote address: LID 0000 QPN 0x0127 PSN 0x93ab8e RKey 0x1fff00 VAddr 0x007f3b8e0d9000
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:20:00:12
{RULE}
"""
BW_COLUMNS = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
BW_COLUMNS_MB = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n"
LAT_COLUMNS = (
    " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   "
    "99% percentile[usec]   99.9% percentile[usec] \n"
)


def write_bw(gigabits_per_s: float, *, head: bool = True) -> str:
    """What the client of `ib_write_bw --report_gbits -D 2` prints."""
    row = f" 65536      1402510          0.00               {gigabits_per_s:.2f}  \t\t   {gigabits_per_s / 0.524288:.6f}\n"
    return (BW_HEAD if head else "") + BW_COLUMNS + row + RULE + "\n"


def write_lat(microseconds: float) -> str:
    """What `ib_write_lat -n 2000` prints."""
    row = (
        f" 8       2000          {microseconds - 0.1:.2f}           {microseconds + 4:.2f}         {microseconds:.2f}"
        f"     \t       {microseconds + 0.02:.2f}        \t0.05   \t\t{microseconds + 0.3:.2f}    \t\t{microseconds + 4:.2f}\n"
    )
    return BW_HEAD.replace("BW Test", "Latency Test") + LAT_COLUMNS + row + RULE + "\n"


NCCL_HEAD = """\
# nThread 1 nGpus 2 minBytes 8 maxBytes 268435456 step: 4(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid  41201 on     node-a device  0 [0x18] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid  41201 on     node-a device  1 [0x2a] NVIDIA H100 80GB HBM3
#
#                                                              out-of-place                       in-place          
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       
"""  # noqa: W291 - the tool prints them


def nccl(gigabytes_per_s: float, *, small_us: float = 9.5, wrong: str = "0", head: bool = True) -> str:
    """What `sendrecv_perf -g 2` prints of its smallest and its largest size."""
    large_us = 268435456 / (gigabytes_per_s * 1e3)
    rows = (
        f"           8             2     float     sum      -1    {small_us:.2f}    0.00    0.00      0    "
        f"{small_us + 0.1:.2f}    0.00    0.00    N/A\n"
        f"   268435456      67108864     float     sum      -1   {large_us:.1f}  {gigabytes_per_s:.2f}  {gigabytes_per_s:.2f}"
        f"      {wrong}   {large_us + 9:.1f}  {gigabytes_per_s - 0.4:.2f}  {gigabytes_per_s - 0.4:.2f}    N/A\n"
    )
    foot = f"# Out of bounds values : 0 OK\n# Avg bus bandwidth    : {gigabytes_per_s / 2:.3f} \n#\n"
    return (NCCL_HEAD if head else "") + rows + foot


def run_of(program: str, text: str, *, other: str = "", code: int = 0, timed_out: bool = False) -> Run:
    """A step between node-a and node-b that printed ``text`` on the side that sends."""
    kind = "latency" if program.endswith("lat") else "bandwidth"
    tool = {"ib": "perftest", "se": "nccl-tests", "to": "torch"}[program[:2]]
    one, two = End(host="node-a", part="mlx5_0"), End(host="node-b", part="mlx5_0")
    step = Step(
        name=f"{program}.a.b", tool=tool, program=program, kinds=(kind,), one=one, two=two,  # type: ignore[arg-type]
        first=Command(host="node-b", argv=()),
    )  # fmt: skip
    outputs = (Output(file="fabric/sends.txt", text=text, code=code), Output(file="fabric/receives.txt", text=other))
    return Run(step=step, outputs=outputs, timed_out=timed_out)


def link(
    one: str, two: str, gigabytes_per_s: float | None, *, rail: str = "", fault: str = "", why: str = "",
    program: str = "ib_write_bw", link_gigabytes_per_s: float | None = 50.0, both_ways: bool = False,
) -> Measured:  # fmt: skip
    """One direction of one link, measured or not."""
    return Measured(
        kind="bandwidth", tool="torch" if program.startswith("torch") else "perftest", program=program,
        one=End(host=one, part=rail), two=End(host=two, part=rail), both_ways=both_ways,
        status="failed" if gigabytes_per_s is None else "measured", fault=fault, why=why,
        value=None if gigabytes_per_s is None else gigabytes_per_s * 1e9,
        link_bytes_per_s=None if link_gigabytes_per_s is None else link_gigabytes_per_s * 1e9,
    )  # fmt: skip


def fabric(hosts: int, rails: int, slow: dict[tuple[str, str, str], float]) -> list[Measured]:
    """Every direction of every rail between ``hosts`` hosts at 48 GB/s, but for ``slow``: (from, to, rail) -> GB/s,
    with ``*`` for any."""
    names = [f"node-{chr(97 + number)}" for number in range(hosts)]
    found = []
    for one, two in permutations(names, 2):
        for number in range(rails):
            rail = f"mlx5_{number}"
            value = next(
                (
                    speed
                    for (a, b, r), speed in slow.items()
                    if a in (one, "*") and b in (two, "*") and r in (rail, "*")
                ),
                48.0,
            )
            found.append(link(one, two, value, rail=rail))
    return found
