"""What measuring tools print, whole, headless, broken, or an error: a number in our units, or the reason for none."""

from __future__ import annotations

import json

import pytest

from roadworthy.diagnose.hosts.fabric import nccl_tests, own, perftest
from roadworthy.diagnose.hosts.fabric.interpret import measured
from support.fabric import BW_COLUMNS_MB, BW_HEAD, LAT_COLUMNS, NCCL_HEAD, nccl, run_of, write_bw, write_lat

CUDA = """\
 WARNING: BW peak won't be measured in this run.
initializing CUDA
Listing all CUDA devices in system:
CUDA device 0: PCIe address is 18:00
CUDA device 1: PCIe address is 2A:00

Picking device No. 0
[pid = 33821, dev = 0] device name = [NVIDIA H100 80GB HBM3]
creating CUDA Ctx
making it the current CUDA Ctx
CUDA device integrated: 0
using DMA-BUF for GPU buffer address at 0x7f2f5e000000 aligned at 0x7f2f5e000000 with aligned size 131072
allocated 131072 bytes of GPU buffer at 0x7f2f5e000000
Calling ibv_reg_dmabuf_mr(offset=0, size=131072, addr=0x7f2f5e000000, fd=22) for QP #0
"""
SERVER = """\

************************************
* Waiting for client to connect... *
************************************
"""


@pytest.mark.parametrize(
    "before", ["", SERVER, CUDA, "libibverbs: Warning: couldn't load driver 'libmana-rdmav34.so'\n"]
)
@pytest.mark.parametrize("head", [True, False])
def test_the_average_is_read_below_any_header(before: str, head: bool) -> None:
    found = perftest.bandwidth(before + write_bw(391.52, head=head))
    assert found is not None
    assert found.value == pytest.approx(391.52e9 / 8)
    assert "391.52" in found.text


def test_the_largest_size_counts_and_perftests_megabytes_are_binary() -> None:
    """`-a` walks over sizes; without --report_gbits the unit is 2**20 bytes a second."""
    rows = " 2          5000             5.13               5.05   \t\t   2.647821\n"
    rows += " 65536      5000             11698.21            11697.90 \t\t   0.187166\n"
    rows += " 8388608    5000             11711.02            11710.55 \t\t   0.001464\n"
    found = perftest.bandwidth(BW_HEAD + BW_COLUMNS_MB + rows)
    assert found is not None
    assert found.value == pytest.approx(11710.55 * 2**20)


def test_a_two_way_test_counts_half_for_each_direction() -> None:
    text = write_bw(780.0).replace("RDMA_Write BW Test", "RDMA_Write Bidirectional BW Test")
    (found,) = measured(run_of("ib_write_bw", text))
    assert found.value == pytest.approx(390e9 / 8)
    assert found.both_ways


def test_cpu_use_as_a_last_column_changes_nothing() -> None:
    text = (
        write_bw(196.8)
        .replace("MsgRate[Mpps]", "MsgRate[Mpps]   CPU_Util[%]")
        .replace("375.366211", "375.366211\t    3.12")
    )
    found = perftest.bandwidth(text)
    assert found is not None
    assert found.value == pytest.approx(196.8e9 / 8)


def test_typical_latency_or_the_average_where_only_that_was_kept() -> None:
    found = perftest.latency(write_lat(2.31))
    assert found is not None
    assert found.value == pytest.approx(2.31e-6)
    found = perftest.latency(
        " #bytes        #iterations       t_avg[usec]    tps average\n 8             423012          1.93           517924.24\n"
    )
    assert found is not None
    assert found.value == pytest.approx(1.93e-6)


@pytest.mark.parametrize("text", ["", "garbage\n", BW_HEAD, BW_COLUMNS_MB, write_bw(0.0), write_bw(391.5)[:-150], LAT_COLUMNS,
                                  BW_COLUMNS_MB + " 65536 nan nan nan nan\n", "\x00\xff 65536 1 2 3 4\n" * 3])  # fmt: skip
def test_what_holds_no_number_gives_none(text: str) -> None:
    assert perftest.bandwidth(text) is None
    assert perftest.latency(text) is None


@pytest.mark.parametrize(
    ("sends", "receives", "code"),
    [
        ("Couldn't connect to node-b:18515\n Unable to init the socket connection\n", SERVER, "network-port-blocked"),
        (BW_HEAD + "Failed to modify QP 295 to RTR\n Unable to Connect the HCA's through the link\n", "", "rdma-peer-unreachable"),
        (BW_HEAD + " Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\nscnt=128, ccnt=0\n", "", "rdma-peer-unreachable"),
        ("Couldn't allocate MR\n Couldn't create IB resources\n", SERVER, "memlock-limit"),
        ("IB device mlx5_7 not found\n Unable to find the Infiniband/RoCE device\n", "", "rdma-device-not-exposed"),
        ("Couldn't connect to node-b:18515\n", "IB device mlx5_0 not found\n Unable to find the Infiniband/RoCE device\n", "rdma-device-not-exposed"),
        (" Port number 1 state is Down\n Couldn't set the link layer\n Couldn't get context for the device\n", "", "rdma-link-degraded"),
        ("Couldn't listen to port 18515\n", "", ""),
        ("ib_write_bw: error while loading shared libraries: libmlx5.so.1: cannot open shared object file\n", "", ""),
        ("ethernet_read_keys: Couldn't read remote address\n Unable to read from socket/rdma_cm\n", "", ""),
    ],
)  # fmt: skip
def test_an_error_of_perftest_is_a_cause_or_could_not_look(sends: str, receives: str, code: str) -> None:
    """A side that could not connect says less than one that says why it ended."""
    (found,) = measured(run_of("ib_write_bw", sends, other=receives, code=1))
    assert (found.status, found.fault, found.value) == ("failed", code, None)
    assert found.why


def test_a_step_that_was_stopped_timed_out() -> None:
    (found,) = measured(run_of("ib_write_bw", SERVER, timed_out=True))
    assert (found.status, found.fault) == ("timed out", "")
    assert "time limit" in found.why


@pytest.mark.parametrize("head", [True, False])
@pytest.mark.parametrize("tag", ["", "[1,0]<stdout>:", "[1,0]<stdout>: "])
def test_rows_of_nccl_tests_give_bus_bandwidth_and_time(head: bool, tag: str) -> None:
    text = "".join(f"{tag}{line}\n" for line in nccl(341.7, small_us=8.9, head=head).splitlines())
    bandwidth, latency = nccl_tests.bandwidth(text), nccl_tests.latency(text)
    assert bandwidth is not None
    assert latency is not None
    assert bandwidth.value == pytest.approx(341.7e9)
    assert latency.value == pytest.approx(8.9e-6)


def test_older_nccl_tests_have_fewer_columns_and_an_error_in_floating_point() -> None:
    row = "    37748736       9437184     float   6485.7    5.82    5.82  0e+00   6496.1    5.81    5.81  0e+00\n"
    found = nccl_tests.bandwidth("#   Rank  0 Pid   5897 on         x0 device  0 [0x05] NVIDIA A100\n" + row)
    assert found is not None
    assert found.value == pytest.approx(5.82e9)


def test_wrong_values_are_no_speed() -> None:
    found = measured(run_of("sendrecv_perf", nccl(341.7, wrong="16")))[0]
    assert (found.status, found.value) == ("failed", None)
    assert "16 values came out wrong" in found.why


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("node-a: Test NCCL failure sendrecv.cu:60 'unhandled cuda error'\n", "gpu-memory-occupied"),
        (
            "misc/ibvwrap.cc:263 NCCL WARN Call to ibv_modify_qp failed with error Connection timed out\nibv_modify_qp failed\n",
            "rdma-peer-unreachable",
        ),
        ("ssh: connect to host node-b port 22: No route to host\n", "network-port-blocked"),
        ("Test NCCL failure common.cu:1005 'internal error'\n .. node-a pid 12: Test failure common.cu:844\n", ""),
        (NCCL_HEAD, None),
    ],
)
def test_an_error_of_nccl_tests(text: str, code: str | None) -> None:
    found = nccl_tests.fault(text)
    assert (found.code if found else None) == code


def test_our_own_lines_give_the_best_of_several() -> None:
    text = "".join(
        own.MARK + json.dumps(one) + "\n"
        for one in (
            {"latency_s": 5e-5},
            {"latency_s": 4e-5},
            {"bytes_per_s": 1e9},
            {"bytes_per_s": 3e9},
            {"bytes_per_s": 2e9},
        )
    )
    text = "[W1130 socket.cpp:464] a warning\n" + text + own.MARK + '{"bytes_per_s": 9e9, "half\n'
    assert own.reading(text, "bandwidth").value == 3e9  # type: ignore[union-attr]
    assert own.reading(text, "latency").value == 4e-5  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (
            "RuntimeError: [../gloo/transport/tcp/pair.cc:144] no error. connectFullMesh failed, remote=[127.0.0.1]:33123\n",
            "nccl-socket-ifname",
        ),
        (
            "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to connect to (10.0.0.9, 41231).\n",
            "network-port-blocked",
        ),
        ("ModuleNotFoundError: No module named 'torch'\n", ""),
        ("RuntimeError: something nobody foresaw\n", ""),
        ("all is well\n", None),
    ],
)
def test_an_error_of_our_own(text: str, code: str | None) -> None:
    found = own.fault(text)
    assert (found.code if found else None) == code
