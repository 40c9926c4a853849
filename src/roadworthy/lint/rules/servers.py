"""Settings of `vllm serve` that are right or wrong by the model, the split, the backend or the version."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from roadworthy.lint.context import BLACKWELL, HOPPER, Degrees
from roadworthy.lint.edits import remove_flag, replace_value

if TYPE_CHECKING:
    from collections.abc import Callable

    from roadworthy.lint.rules.judge import Judge
    from roadworthy.lint.values import Flag, Invocation

UNKNOWN_MODEL = "the model is not given here; --spec says which it is"
V4 = ("v4", "v4-0813")
V4_EXPERTS = 384
V4_TP = frozenset({1, 2, 4, 8, 16})
K3_HEADS = 96


def check_servers(judge: Judge) -> None:
    for invocation in judge.reading.invocations:
        if invocation.program != "vllm serve":
            continue
        for flag in invocation.flags:
            check = _BY_FLAG.get(_ALIASES.get(flag.name, flag.name))
            if check is not None and (invocation.flag(flag.name) is flag):
                check(judge, invocation, flag)
        _model_id(judge, invocation)
        _split(judge, invocation)


# -- one flag and what it depends on


def _log_requests(judge: Judge, _: Invocation, flag: Flag) -> None:
    context = judge.context
    if context.version_is_known and context.line >= (0, 33):
        return
    settled = (
        "" if context.version_is_known else " The engine version is not given here; --engine vllm==VERSION settles it."
    )
    judge.report(
        "vllm.disable-log-requests",
        flag.word.start,
        flag.text,
        reason="0.32 does not know it and does not start; 0.33 takes it again. Request logging is off by default."
        + settled,
        replacement="leave it out",
        edits=remove_flag(judge.text, flag),
    )


def _quantization(judge: Judge, invocation: Invocation, flag: Flag) -> None:
    value, model = (flag.value or "").lower(), judge.context.model(invocation)
    if value not in ("fp8", "mxfp4", "fp4", "deepseek_v4_fp8") or model == "other" or flag.dynamic:
        return
    if model in V4:
        if value == "deepseek_v4_fp8":
            return
        reason = "V4-Pro's method comes from its checkpoint (deepseek_v4_fp8) whatever is passed here: it does nothing."
    elif model == "k3":
        if value == "mxfp4":
            return
        reason = "K3's checkpoint is mxfp4; fp8 does not match it and the server does not start."
    elif value == "fp8":
        reason = f"Ignored for V4-Pro, fatal for K3, a choice for a bf16 checkpoint; {UNKNOWN_MODEL}."
    else:
        return
    known = model is not None
    judge.report(
        "vllm.quantization-fp8",
        flag.word.start,
        flag.text,
        reason=reason,
        edits=remove_flag(judge.text, flag) if known else (),
    )


def _kv_cache_dtype(judge: Judge, invocation: Invocation, flag: Flag) -> None:
    value, model, gpu = (flag.value or "").lower(), judge.context.model(invocation), judge.context.gpu
    if flag.dynamic or model == "other":
        return
    if value.startswith("nvfp4") and (model in (*V4, "k3") or model is None):
        if gpu in BLACKWELL and model == "k3":
            return
        judge.report(
            "vllm.kv-cache-dtype-fp8",
            flag.word.start,
            flag.text,
            reason="nvfp4 is refused for MLA: these models do not start with it on Hopper."
            + ("" if model else f" ({UNKNOWN_MODEL[0].upper()}{UNKNOWN_MODEL[1:]}.)"),
            edits=remove_flag(judge.text, flag) if model in (*V4, "k3") else (),
        )
    elif value in ("bfloat16", "float16") and model in V4:
        judge.report(
            "vllm.kv-cache-dtype-fp8",
            flag.word.start,
            flag.text,
            reason=f"V4-Pro knows only the FP8 layout: {value} passes the configuration and fails when the model is"
            f" built.",
            edits=replace_value(flag.value_words[0], "fp8"),
        )
    elif value.startswith("fp8") and model == "k3" and gpu not in BLACKWELL:
        judge.report(
            "vllm.kv-cache-dtype-fp8",
            flag.word.start,
            flag.text,
            reason="K3 takes it, but its recipe uses an FP8 cache on Blackwell alone, with other attention settings."
            + ("" if gpu else " The GPU is not given here; --spec says which it is."),
            replacement="leave it out on Hopper (auto is bfloat16), unless it was benchmarked",
        )
    elif value.startswith("fp8") and model is None:
        judge.report(
            "vllm.kv-cache-dtype-fp8",
            flag.word.start,
            flag.text,
            reason=f"Right for V4-Pro; K3's recipe for Hopper leaves it out; {UNKNOWN_MODEL}.",
        )


def _kda_prefill(judge: Judge, _: Invocation, flag: Flag) -> None:
    value = (flag.value or "").lower()
    if value in ("auto", "flashkda") or flag.dynamic:
        return
    gpu = judge.context.gpu
    if value == "flashinfer" and gpu in BLACKWELL:
        return
    if value == "fused" and gpu is not None and gpu.startswith("MI"):
        return
    reason = {
        "triton": "'triton' turns FlashKDA off. On Hopper 'auto' selects FlashKDA by itself; triton is for debugging.",
        "flashinfer": "'flashinfer' needs SM100 or SM103 (Blackwell)"
        + ("." if gpu else "; the GPU is not given here, --spec says which it is."),
        "fused": "'fused' is for ROCm alone.",
    }.get(value)
    if reason:
        judge.report(
            "vllm.kda-prefill-backend", flag.word.start, flag.text, reason=reason, edits=remove_flag(judge.text, flag)
        )


def _trust_remote_code(judge: Judge, invocation: Invocation, flag: Flag) -> None:
    name = judge.context.model_name(invocation) or ""
    if invocation.flag("--revision") is not None or name.startswith(("/", "./", "../", "~")):
        return
    if judge.context.follows_recipe(invocation):
        return
    reason = (
        "Runs code out of the checkpoint's repository as it is on the day of the start; vLLM needs none for V4-Pro or"
        " K3."
    )
    if not name:
        reason += " The model is not given here: a local, checked folder would be fine."
    judge.report(
        "vllm.trust-remote-code",
        flag.word.start,
        flag.text,
        reason=reason,
        replacement="keep it only with --revision COMMIT, or serve a local, checked folder",
    )


def _executor(judge: Judge, invocation: Invocation, flag: Flag) -> None:
    if (flag.value or "").lower() != "ray" or flag.dynamic:
        return
    context = judge.context
    nnodes = context.degrees(invocation).nnodes
    if nnodes is not None and nnodes > 1:
        judge.report(
            "vllm.distributed-executor-backend-ray",
            flag.word.start,
            flag.text,
            reason=f"vLLM refuses Ray together with --nnodes {nnodes}.",
            replacement="leave it out and keep --nnodes, or drop --nnodes and start one server on one node of the"
            " Ray cluster",
            edits=remove_flag(judge.text, flag),
        )
        return
    image = _image_of(judge, invocation)
    if image and re.search(r"(^|/)vllm-openai[\w.-]*[:@]", image) and not older_than(image, (0, 18)):
        judge.report(
            "vllm.distributed-executor-backend-ray",
            flag.word.start,
            flag.text,
            reason=f"The image {image} holds no Ray: the start ends in 'Failed to import Ray'.",
        )
    elif (
        not context.mentions_ray_install
        and not context.follows_recipe(invocation)
        and invocation.flag("--data-parallel-backend", "-dpb") is None  # who names Ray for both has a cluster of it
    ):
        judge.report(
            "vllm.distributed-executor-backend-ray",
            flag.word.start,
            flag.text,
            reason="Ray is no dependency of vLLM any more, and nothing here says that it is installed; without it"
            " the server does"
            " not start.",
        )


def older_than(image: str, line: tuple[int, int]) -> bool:
    match = re.search(r":v?(\d+)\.(\d+)", image)
    return bool(match) and (int(match.group(1)), int(match.group(2))) < line  # type: ignore[union-attr]


def _image_of(judge: Judge, invocation: Invocation) -> str:
    owner = invocation.owner
    if owner is not None and hasattr(owner, "text"):
        return str(owner.text("image"))
    for wrapper in reversed(invocation.wrappers):
        if wrapper.program.endswith(" run") and wrapper.words:
            return wrapper.words[-1].value
    if judge.reading.kind == "dockerfile" and judge.reading.images:
        return "" if re.search(r"pip\S*\s+install[^\n]*\bray\b", judge.text) else judge.reading.images[-1].value
    return ""


def _moe_backend(judge: Judge, invocation: Invocation, flag: Flag) -> None:
    value, model, gpu = (flag.value or "").lower(), judge.context.model(invocation), judge.context.gpu
    if flag.dynamic or model == "other":
        return
    if "mega_moe" in value:
        if gpu in BLACKWELL:
            return
        known = gpu in HOPPER
        judge.report(
            "vllm.moe-backend-hopper",
            flag.word.start,
            flag.text,
            reason="MegaMoE is for Blackwell and its NVLink alone."
            + ("" if known else " The GPU is not given here; --spec says which it is."),
            edits=remove_flag(judge.text, flag) if known else (),
        )
    elif model in V4 and value != "auto":
        judge.report(
            "vllm.moe-backend-hopper",
            flag.word.start,
            flag.text,
            reason="V4-Pro picks its own expert kernels; its recipe leaves the flag out.",
            replacement="leave it out",
        )
    elif model is None and value == "marlin":
        judge.report(
            "vllm.moe-backend-hopper",
            flag.word.start,
            flag.text,
            reason=f"The recipe's choice for K3 on Hopper, not for V4-Pro; {UNKNOWN_MODEL}.",
        )


def _custom_all_reduce(judge: Judge, invocation: Invocation, flag: Flag) -> None:
    model = judge.context.model(invocation)
    expandable = any(
        one.name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
        and "expandable_segments:true" in one.raw.lower().replace(" ", "")
        for one in judge.reading.env
    )
    if expandable or model in ("k3", "other"):
        return
    judge.report(
        "vllm.disable-custom-all-reduce",
        flag.word.start,
        flag.text,
        reason="Needed with expandable_segments, and in K3's recipe for Hopper; elsewhere it only slows the"
        " all-reduce inside a node." + ("" if model else f" {UNKNOWN_MODEL[0].upper()}{UNKNOWN_MODEL[1:]}."),
        replacement="leave it out" if model in V4 else None,
    )


def _all2all(judge: Judge, invocation: Invocation, flag: Flag) -> None:
    value = (flag.value or "").lower()
    if flag.dynamic:
        return
    if value in ("naive", "pplx"):
        judge.report(
            "vllm.all2all-backend",
            flag.word.start,
            flag.text,
            reason=f"'{value}' still parses, and falls back with a warning.",
            replacement="leave it out (allgather_reducescatter)",
            edits=remove_flag(judge.text, flag),
        )
    elif value.startswith("flashinfer_nvlink") or value == "moonep":
        degrees = judge.context.degrees(invocation)
        if (
            (degrees.nnodes or 1) <= 1
            and not judge.context.uses_ray(invocation)
            and (degrees.world or 0) <= 8
            and not invocation.fragment
        ):
            return
        known = (degrees.nnodes or 1) > 1 or (degrees.world or 0) > 8
        judge.report(
            "vllm.all2all-backend",
            flag.word.start,
            flag.text,
            reason=f"'{value}' works inside one NVLink domain; "
            + (
                "these ranks span several hosts."
                if known
                else "how many hosts the ranks span is not given here; --spec says."
            ),
        )


def _dbo(judge: Judge, invocation: Invocation, flag: Flag) -> None:
    backend = invocation.flag("--all2all-backend")
    value = backend.value if backend is not None else None
    if backend is not None and backend.dynamic:
        return
    if value in ("deepep_low_latency", "deepep_high_throughput", "nixl_ep") or (
        invocation.fragment and backend is None
    ):
        return
    judge.report(
        "vllm.dbo",
        flag.word.start,
        flag.text,
        status="context_dependent",
        reason=f"With {f'--all2all-backend {value}' if value else 'the default all-to-all backend'} the"
        f" configuration is refused.",
        replacement="with --all2all-backend deepep_low_latency, deepep_high_throughput or nixl_ep, or leave it out",
        edits=remove_flag(judge.text, flag),
    )


def _speculative(judge: Judge, invocation: Invocation, flag: Flag) -> None:
    if flag.dynamic:
        return
    value = flag.value or ""
    try:
        document = json.loads(value)
        method = str(document.get("method", "")) if isinstance(document, dict) else ""
    except ValueError:
        found = re.search(r"method\W+(\w+)", value)
        method = found.group(1) if found else ""
    if "." in flag.name:
        method = value if flag.name.endswith(".method") else ""
    if method.lower() not in ("mtp", "dspark", "deepseek_mtp"):
        return
    model, pp = judge.context.model(invocation), judge.context.degrees(invocation).pp
    if model == "other":
        return
    reason = ""
    if model is None:
        reason = f"MTP belongs to V4-Pro's preview, DSpark to the 0813 checkpoint and to K3; {UNKNOWN_MODEL}."
    elif model == "v4" and method == "dspark":
        reason = "The preview checkpoint drafts by MTP; DSpark needs the 0813 release."
    elif model == "v4-0813" and "mtp" in method:
        reason = "The 0813 checkpoint drafts by DSpark (7 tokens); MTP belongs to the preview."
    elif model == "k3" and "mtp" in method:
        reason = "K3 has no MTP layers; it drafts by a separate DSpark model."
    elif pp is not None and pp > 1:
        reason = f"Drafting is not released together with a pipeline (here {pp} stages): vLLM issue 50098."
    elif pp is None and not invocation.fragment:
        reason = (
            "Drafting is not released together with a pipeline; the number of stages is not given here, --spec says it."
        )
    if reason:
        judge.report("vllm.speculative", flag.word.start, flag.text, reason=reason)


def _numa_bind(judge: Judge, invocation: Invocation, flag: Flag) -> None:
    if judge.context.uses_ray(invocation):
        judge.report(
            "vllm.numa-bind",
            flag.word.start,
            flag.text,
            status="context_dependent",
            reason="With Ray it binds only the driver's process; no option of vLLM binds Ray's actors.",
            replacement="leave it out, or use native mp (--nnodes)",
            edits=remove_flag(judge.text, flag),
        )


def _no_chunked_prefill(judge: Judge, invocation: Invocation, flag: Flag) -> None:
    if judge.context.model(invocation) == "k3" and invocation.flag("--no-enable-prefix-caching") is None:
        judge.report(
            "vllm.enable-chunked-prefill",
            flag.word.start,
            flag.text,
            status="context_dependent",
            reason="K3's prefix caching needs chunked prefill: the server does not start.",
            replacement="leave it out",
            edits=remove_flag(judge.text, flag),
        )


def _hybrid_lb(judge: Judge, invocation: Invocation, flag: Flag) -> None:
    if invocation.flag("--headless") is not None:
        judge.report(
            "vllm.data-parallel-flags",
            flag.word.start,
            flag.text,
            status="context_dependent",
            reason="With --headless it is an assertion error: with hybrid balancing every node serves.",
            replacement="drop --headless",
            edits=remove_flag(judge.text, invocation.flag("--headless") or flag),
        )
    elif (
        invocation.flag("--data-parallel-size-local", "-dpl") is None
        and not invocation.fragment
        and not invocation.unexpanded
    ):
        judge.report(
            "vllm.data-parallel-flags",
            flag.word.start,
            flag.text,
            status="context_dependent",
            reason="It needs --data-parallel-size-local: how many of the ranks this node runs.",
            replacement="add --data-parallel-size-local N",
        )


def _dp_backend(judge: Judge, invocation: Invocation, flag: Flag) -> None:
    if (flag.value or "").lower() != "ray":
        return
    degrees = judge.context.degrees(invocation)
    if degrees.nnodes is not None and degrees.nnodes > 1:
        judge.report(
            "vllm.data-parallel-flags",
            flag.word.start,
            flag.text,
            status="context_dependent",
            reason=f"vLLM refuses it together with --nnodes {degrees.nnodes}.",
            replacement="keep one of the two",
        )
    elif degrees.tp and degrees.pp and degrees.tp * degrees.pp > 8 and not judge.context.uses_ray(invocation):
        judge.report(
            "vllm.ray-dp",
            flag.word.start,
            flag.text,
            status="context_dependent",
            reason=f"A replica of {degrees.tp * degrees.pp} GPUs spans nodes, which needs Ray as the executor too.",
            replacement="add --distributed-executor-backend ray",
        )


def _kv_offload_backend(judge: Judge, invocation: Invocation, flag: Flag) -> None:
    if (flag.value or "").lower() == "lmcache" and judge.context.model(invocation) == "k3":
        judge.report(
            "vllm.kv-offloading",
            flag.word.start,
            flag.text,
            status="context_dependent",
            reason="The LMCache connector of vLLM works only without the hybrid cache manager, which K3 needs.",
            replacement="--kv-offloading-backend native",
            edits=replace_value(flag.value_words[0], "native") if flag.value_words else (),
        )


def _mamba_dtype(judge: Judge, invocation: Invocation, flag: Flag) -> None:
    if judge.context.model(invocation) == "k3" and (flag.value or "").lower() == "float16":
        judge.report(
            "vllm.mamba-ssm-cache-dtype",
            flag.word.start,
            flag.text,
            status="context_dependent",
            reason="K3's attention state takes auto, float32 or bfloat16.",
            edits=remove_flag(judge.text, flag),
        )


def _block_size(judge: Judge, invocation: Invocation, flag: Flag) -> None:
    if judge.context.model(invocation) in V4 and (flag.value or "").isdecimal() and flag.value != "256":
        judge.report(
            "vllm.block-size-256",
            flag.word.start,
            flag.text,
            status="context_dependent",
            reason="V4's sparse attention knows blocks of 256 tokens alone.",
            replacement="--block-size 256",
            edits=replace_value(flag.value_words[0], "256"),
        )


def _attention_backend(judge: Judge, invocation: Invocation, flag: Flag) -> None:
    if (
        judge.context.model(invocation) in V4
        and re.search(r"SPARSE", flag.value or "", re.IGNORECASE)
        and "V4" not in (flag.value or "").upper()
    ):
        judge.report(
            "vllm.attention-backend-k3",
            flag.word.start,
            flag.text,
            status="context_dependent",
            reason="The generic sparse-MLA names are refused for V4, which picks its own.",
            replacement="leave it out",
            edits=remove_flag(judge.text, flag),
        )


def _eplb(judge: Judge, invocation: Invocation, flag: Flag) -> None:
    """Redundant experts must leave every rank as many as every other."""
    if flag.dynamic:
        return
    value, wanted = flag.value or "", None
    found = re.search(r"[\"']?num_redundant_experts[\"']?\s*:\s*(\d+)", value)
    if flag.name.endswith(".num_redundant_experts"):
        found = re.match(r"(\d+)$", value)
    if found:
        wanted = int(found.group(1))
    if not wanted:
        return
    context, degrees = judge.context, judge.context.degrees(invocation)
    model = context.model(invocation)
    if model in V4 and degrees.ep_size:
        if (V4_EXPERTS + wanted) % degrees.ep_size:
            near = [
                count for count in range(0, 4 * degrees.ep_size + 1) if (V4_EXPERTS + count) % degrees.ep_size == 0
            ][:3]
            judge.report(
                "vllm.moe-redundant-experts",
                flag.word.start,
                flag.text,
                status="context_dependent",
                reason=f"{V4_EXPERTS} experts and {wanted} more do not divide over {degrees.ep_size} ranks: the"
                f" model is not built.",
                replacement=f"num_redundant_experts of {', '.join(map(str, near))}",
            )
    elif model is None or degrees.ep_size is None:
        missing = "the model" if model is None else "the split"
        judge.report(
            "vllm.moe-redundant-experts",
            flag.word.start,
            flag.text,
            status="context_dependent",
            reason=f"The experts and these must divide evenly over the EP ranks; {missing} is not given here,"
            f" --spec says it.",
        )


_ALIASES = {
    "-q": "--quantization",
    "-dph": "--data-parallel-hybrid-lb",
    "-dpb": "--data-parallel-backend",
    "-sc": "--speculative-config",
}
_BY_FLAG: dict[str, Callable[[Judge, Invocation, Flag], None]] = {
    "--disable-log-requests": _log_requests,
    "--quantization": _quantization,
    "--kv-cache-dtype": _kv_cache_dtype,
    "--kda-prefill-backend": _kda_prefill,
    "--trust-remote-code": _trust_remote_code,
    "--distributed-executor-backend": _executor,
    "--moe-backend": _moe_backend,
    "--disable-custom-all-reduce": _custom_all_reduce,
    "--all2all-backend": _all2all,
    "--enable-dbo": _dbo,
    "--speculative-config": _speculative,
    "--speculative-config.method": _speculative,
    "--numa-bind": _numa_bind,
    "--no-enable-chunked-prefill": _no_chunked_prefill,
    "--data-parallel-hybrid-lb": _hybrid_lb,
    "--data-parallel-backend": _dp_backend,
    "--kv-offloading-backend": _kv_offload_backend,
    "--mamba-ssm-cache-dtype": _mamba_dtype,
    "--block-size": _block_size,
    "--attention-backend": _attention_backend,
    "--eplb-config": _eplb,
    "--eplb-config.num_redundant_experts": _eplb,
}


# -- the model and the split as a whole


def _model_id(judge: Judge, invocation: Invocation) -> None:
    flag = invocation.flag("--model", "--model-tag")
    word = flag.value_words[0] if flag is not None and flag.value_words else next(iter(invocation.positionals), None)
    if word is None or judge.context.model(invocation) != "v4-32b":
        return
    if "32b" not in word.value.lower():
        return
    judge.report(
        "vllm.model-ids",
        word.start,
        word.value,
        reason="There is no V4 of 32B: V4-Pro has 61 layers, 384 experts and 1.6T parameters.",
        replacement="deepseek-ai/DeepSeek-V4-Pro-0813, or moonshotai/Kimi-K3",
    )


def _split(judge: Judge, invocation: Invocation) -> None:
    degrees = judge.context.degrees(invocation)
    model = judge.context.model(invocation)
    tp_flag = invocation.flag("--tensor-parallel-size", "-tp")
    pp_flag = invocation.flag("--pipeline-parallel-size", "-pp")
    if tp_flag is not None and degrees.tp is not None:
        _tensor_parallel(judge, invocation, tp_flag, degrees, model)
    if pp_flag is not None and (degrees.pp or 1) > 1 and model in V4 and not judge.context.follows_recipe(invocation):
        uneven = 61 % (degrees.pp or 1) != 0 and not any(
            one.name == "VLLM_PP_LAYER_PARTITION" for one in judge.reading.env
        )
        judge.report(
            "vllm.pp-on-v4",
            pp_flag.word.start,
            pp_flag.text,
            reason="The configuration is accepted, but no published recipe of V4-Pro uses a pipeline"
            + (
                f", and 61 layers do not divide over {degrees.pp} stages (VLLM_PP_LAYER_PARTITION splits them)."
                if uneven
                else "."
            ),
            replacement="--tensor-parallel-size 8 --data-parallel-size 4 --enable-expert-parallel on 4 nodes",
        )
    if model == "k3":
        _headroom(judge, invocation, degrees)
    _hosts(judge, invocation, degrees)


def _headroom(judge: Judge, invocation: Invocation, degrees: Degrees) -> None:
    """K3 over 32 H100: weights leave some 20 GB of each GPU, whatever is asked for beside them."""
    world = degrees.world
    if judge.context.gpu != "H100" or world is None or not 8 < world <= 32:
        return
    limits = (("--max-num-seqs", 255), ("--max-model-len", 131072))
    for name, most in limits:
        flag = invocation.flag(name)
        value = flag.value if flag is not None else None
        if flag is not None and value is not None and value.isdecimal() and int(value[:12]) > most:
            judge.report(
                "proc.dynamic-k3-hosts",
                flag.word.start,
                flag.text,
                reason=f"On {world} H100 K3's weights take about 59 of 80 GB of each GPU; this asks for more"
                f" context than that"
                " surely leaves room for.",
                replacement="what `roadworthy plan` says fits; the recipe starts with --max-num-seqs 5 and"
                " --max-model-len 32768",
            )
            return


def _tensor_parallel(judge: Judge, invocation: Invocation, flag: Flag, degrees: Degrees, model: str | None) -> None:
    tp = degrees.tp or 1
    nnodes = degrees.nnodes
    if model in V4 and tp not in V4_TP:
        judge.report(
            "vllm.tp-limit-v4",
            flag.word.start,
            flag.text,
            reason=f"V4-Pro has 16 groups of output projections, which {tp} ranks cannot share: "
            + ("the model build divides by zero." if tp > 16 else "take a power of two up to 16."),
            replacement="--tensor-parallel-size 8 with --data-parallel-size, or 16 over two nodes",
        )
    elif (
        model in V4 and tp == 16 and nnodes == 1 and not invocation.fragment and not judge.context.uses_ray(invocation)
    ):
        judge.report(
            "vllm.tp-limit-v4",
            flag.word.start,
            flag.text,
            reason="TP16 spans two nodes of 8 GPUs; without --nnodes 2 the server finds only its own.",
            replacement="--tensor-parallel-size 16 --nnodes 2 --node-rank R --master-addr HEAD_IP",
        )
    elif model == "k3" and K3_HEADS % tp:
        judge.report(
            "vllm.tp-limit-k3",
            flag.word.start,
            flag.text,
            reason=f"K3's {K3_HEADS} heads do not divide over {tp} ranks.",
            replacement="--tensor-parallel-size 8",
        )
    elif model == "k3" and tp >= 16 and not degrees.ep and not invocation.fragment:
        factor = {16: "1.33", 32: "2.67"}.get(tp)
        judge.report(
            "vllm.tp-limit-k3",
            flag.word.start,
            flag.text,
            reason=f"Without expert parallelism {3072 // tp} columns of each expert are padded to 256"
            + (f": {factor} times the expert memory." if factor else "."),
            replacement="add --enable-expert-parallel",
        )
    elif model is None and tp > 8 and not invocation.fragment:
        judge.report(
            "vllm.tp-limit-v4",
            flag.word.start,
            flag.text,
            reason=f"V4-Pro takes TP 1, 2, 4, 8 or 16, K3 a divisor of 96; {UNKNOWN_MODEL}.",
        )


def _hosts(judge: Judge, invocation: Invocation, degrees: Degrees) -> None:
    """A split larger than the node, and nothing that says how its ranks reach other nodes."""
    if invocation.fragment or invocation.unexpanded or invocation.module in ("python", "config"):
        return
    context = judge.context
    gpus = context.options.gpus_per_node or 8
    nnodes_flag = invocation.flag("--nnodes", "-n")
    if nnodes_flag is not None:
        stated = invocation.flag("--tensor-parallel-size", "-tp") is not None
        if stated and degrees.nnodes and degrees.world and degrees.world % degrees.nnodes:
            judge.report(
                "vllm.nnodes-mp",
                nnodes_flag.word.start,
                nnodes_flag.text,
                status="context_dependent",
                reason=f"{degrees.world} ranks do not divide over {degrees.nnodes} nodes.",
                replacement="a number of nodes that divides TP x PP x DP",
            )
        return
    if degrees.tp is None or degrees.pp is None or degrees.tp * degrees.pp <= gpus:
        return
    if (
        invocation.flag("--distributed-executor-backend") is not None
        or invocation.flag("--data-parallel-backend", "-dpb") is not None
    ):
        return
    at = invocation.flag("--pipeline-parallel-size", "-pp", "--tensor-parallel-size", "-tp")
    if at is None:
        return
    judge.report(
        "vllm.nnodes-mp",
        at.word.start,
        f"TP {degrees.tp} x PP {degrees.pp} without --nnodes",
        status="context_dependent",
        reason=f"{degrees.tp * degrees.pp} ranks are more than the {gpus} GPUs of a node, and neither --nnodes nor"
        f" Ray says where the"
        " others are: the start ends in 'World size is larger than the number of available GPUs'. Ray is not needed.",
        replacement="--nnodes N --node-rank R --master-addr HEAD_IP --master-port 29501, --headless on every rank"
        " but 0",
    )
