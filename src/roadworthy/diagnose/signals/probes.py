"""Single lines of probes, settings and notes that operators put beside logs."""

from __future__ import annotations

from roadworthy.diagnose.scan import signal

SIGNALS = (
    signal("args.high-utilization", "gpu-memory-utilization | gpu_memory_utilization", r"gpu[-_]memory[-_]utilization[ =]+(?P<value>0\.9[4-9]\d*|1\.0)"),
    signal("jit.empty-cache", "empty | cold", r"(?:\bcaches?\b.{0,40}\b(?:is )?(?:empty|cold)\b|\b(?:empty|cold)\b.{0,20}\bcaches?\b|total 0$)", unless="[Pp]refix|KV|kv[_ ]cache"),
    signal("router.round-robin", "ROUND_ROBIN | round_robin | round-robin | round robin | roundrobin | least_conn | random lb", r"(?P<policy>ROUND_ROBIN|round[_ -]?robin|least_conn)"),
    signal("rate.below-possible", "ould be ", r"==\(\s*(?P<width>\d+X)\s+(?P<rate>[\d.]+) Gbps.*\( *Could be (?P<wanted>[\d.]+) Gbps *\)"),
    signal("router.local-store", "in-memory | per-replica | local store | not shared", r"(?:affinity|session|sticky|store|hash).{0,60}(?:in-memory|per[- ]replica|local|not shared)"),
    signal("memory.snapshot-split", "state=inactive | inactive_split", r"state=inactive|inactive_split"),
    signal("proxy.served", "server: | via: | Server: ", r"(?i)^<? ?(?:server|via): ?(?P<server>nginx\S*|envoy|haproxy|apache\S*|cloudflare|traefik|caddy|openresty\S*|istio\S*)"),
    signal("hca.listed", "hca_id | ibdev2netdev | ==> ", r"(?:hca_id:\s*(?P<device>\w+)|^(?P<device2>mlx5_\w+) port \d+ ==> )"),
    signal("lspci.mellanox", "Mellanox | ConnectX | BlueField | BCM57 | Infiniband controller | E810", r"(?:controller|Controller).*(?P<what>Mellanox|ConnectX\S*|BlueField\S*)"),
    signal("rdma.dev-folder-missing", "/dev/infiniband", r"(?:cannot access|No such file|not found|does not exist|missing).*|/dev/infiniband.*(?:No such file|not found|does not exist|missing|absent)"),
    signal("dev.nvidia-missing", "/dev/nvidia", r"/dev/nvidia\S*'?.*(?:No such file|not found|does not exist)"),
    signal("env.visible-devices-empty", "VISIBLE_DEVICES", r"(?:CUDA|NVIDIA)_VISIBLE_DEVICES=(?P<value>(?:['\"]{2}|none|void|-1|NoDevFiles)?)\s*$"),
    signal("env.visible-devices", "CUDA_VISIBLE_DEVICES=", r"CUDA_VISIBLE_DEVICES=['\"]?(?P<value>\d+(?:,\d+)*)['\"]?\s*$"),
    signal("nvreg.missing", "EnableStreamMemOPs | RegistryDwords", r"(?P<option>EnableStreamMemOPs): 0|(?P<option2>RegistryDwords): \"\""),
    signal("env.HF_HUB_OFFLINE", "HF_HUB_OFFLINE", r"HF_HUB_OFFLINE=1"),
    signal("moe.balancedness-low", "balancedness | imbalance | Imbalance", r"(?:balancedness\D{0,12}(?P<ratio>0?\.[0-6]\d*)|(?:max|peak)\s?/\s?(?:mean|avg)\D{0,12}(?P<times>[2-9]\.?\d*))"),
    signal("counters.clean", "error counters | counters", r"(?:counters?|errors?).{0,40}(?:clean|zero|all 0|no errors|unchanged)"),
    signal("nvidia-smi.hangs", "nvidia-smi", r"nvidia-smi.{0,60}(?:hang|hung|no output|timed? ?out|timeout|does not return|killed after|stuck)"),
    signal("log.prefill-fills-step", "prefill", r"(?:prefill (?:tokens|batch)|#new-token).{0,60}(?:budget (?:full|filled|exhausted)|fills|of (?P<budget>\d+) budget)"),
    signal("rdma.devices-not-mapped", "Devices | devices:", r"(?:HostConfig\.)?Devices\"?:? ?(?:\[\]|null|none)"),
    signal("switch.storm", "PFC storm | pfc storm | pfcwd | PFC watchdog | PFCWD", r"(?i)(?:pfc ?(?:storm|watchdog|wd)).*(?:detect|storm|restor|drop)"),
)  # fmt: skip
