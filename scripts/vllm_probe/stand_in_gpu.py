"""Make vLLM believe that this machine is a node of eight H100s, before it is imported.

Everything that vLLM asks of the hardware before a worker starts goes through NVML and a handful of ``torch.cuda``
functions; compiled extensions are only imported for their side effects there. So both are replaced by stand-ins, and
argument parsing and the validators of the engine configuration run as they are. Nothing after that may be believed.
"""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import importlib.util
import sys
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

GPUS, CAPABILITY, GPU_BYTES = 8, (9, 0), 81559 * 2**20  # an "80 GB" H100, as its driver reports it
EXTENSIONS = (
    "_C", "_C_AVX2", "_C_AVX512", "_C_stable_libtorch", "_moe_C", "_moe_C_stable_libtorch", "_qutlass_C",
    "cumem_allocator", "_flashmla_C", "_flashmla_extension_C",
    "vllm_flash_attn._vllm_fa2_C", "vllm_flash_attn._vllm_fa3_C",
)  # fmt: skip
NOT_HERE = ("orjson", "pybase64", "ijson", "nvtx")
"""Packages that a release asks for and this machine may lack; nothing of them is called before a worker starts."""


def install(*, wheel: Path | None) -> None:
    """Put the stand-ins in place. ``wheel`` is the unpacked wheel to import vLLM from; None takes the installed one."""
    if wheel is not None:
        sys.path.insert(0, str(wheel))
    else:
        _rename_the_cpu_build()
    modules = {f"vllm.{name}": types.ModuleType(f"vllm.{name}") for name in EXTENSIONS}
    modules |= {name: _anything(name) for name in NOT_HERE if importlib.util.find_spec(name) is None}
    sys.meta_path.insert(0, StandIns({**modules, "vllm.third_party.pynvml": _nvml()}))
    sys.meta_path.append(LastStandIns())
    _cuda()
    _kernels()
    _triton()


class StandIns:
    """An import finder that hands out prepared modules."""

    def __init__(self, modules: Mapping[str, types.ModuleType]) -> None:
        self._modules = modules

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> object:  # noqa: ARG002
        if name not in self._modules:
            return None
        return importlib.machinery.ModuleSpec(name, self)  # type: ignore[arg-type]

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return self._modules[spec.name]

    def exec_module(self, module: types.ModuleType) -> None:
        """Prepared already."""


class LastStandIns:
    """Asked when nobody else has the module: Ray, not started, and what only a build for CUDA generates."""

    FAMILIES = ("ray", "vllm.third_party.flashmla", "vllm.third_party.fmha_sm100", "vllm.vllm_flash_attn")

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> object:  # noqa: ARG002
        if not any(name == family or name.startswith(f"{family}.") for family in self.FAMILIES):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = _anything(spec.name)
        if spec.name == "ray":
            module.is_initialized = lambda: False  # type: ignore[attr-defined]
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Made already."""


def _anything(name: str) -> types.ModuleType:
    """A module whose every attribute is an empty class, so that ``from NAME import X`` and ``except NAME.X`` work."""

    def attribute(wanted: str) -> type:
        if wanted.startswith("__"):
            raise AttributeError(wanted)
        return type(wanted, (Exception,), {})

    module = types.ModuleType(name)
    module.__getattr__ = attribute  # type: ignore[method-assign]
    return module


_present = [GPUS]


def gpus() -> int:
    """How many GPUs the node has."""
    return _present[0]


def set_gpus(count: int) -> None:
    """Give the node ``count`` GPUs from now on."""
    _present[0] = count


def _rename_the_cpu_build() -> None:
    """The installed wheel calls itself ``0.32.0+cpu``, by which vLLM picks its CPU platform."""
    real = importlib.metadata.version
    importlib.metadata.version = lambda name: real(name).removesuffix("+cpu")  # type: ignore[assignment]


def _nvml() -> types.ModuleType:
    nvml = types.ModuleType("vllm.third_party.pynvml")

    class NVMLError(Exception):
        pass

    memory = types.SimpleNamespace(total=GPU_BYTES, free=GPU_BYTES, used=0)
    answers: dict[str, Any] = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": gpus,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetCudaComputeCapability": lambda _: CAPABILITY,
        "nvmlDeviceGetName": lambda _: "NVIDIA H100 80GB HBM3",
        "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle:032x}",
        "nvmlDeviceGetMemoryInfo": lambda _: memory,
        "nvmlDeviceGetP2PStatus": lambda *_: 0,
        "nvmlDeviceGetNumaNodeId": lambda handle: 2 * handle // gpus(),
        "nvmlSystemGetDriverVersion": lambda: "580.95.05",
    }
    for name, answer in answers.items():
        setattr(nvml, name, answer)
    nvml.NVMLError = NVMLError  # type: ignore[attr-defined]
    nvml.NVML_P2P_CAPS_INDEX_NVLINK = nvml.NVML_P2P_STATUS_OK = 0  # type: ignore[attr-defined]
    return nvml


def _kernels() -> None:
    """vLLM's compiled operators: modules ask them as they load whether they support the device. They do."""
    import torch

    real = torch._ops._OpNamespace.__getattr__

    def attribute(namespace: Any, name: str) -> Any:
        try:
            return real(namespace, name)
        except AttributeError:
            if namespace.name.split("_")[1:2] not in (["C"], ["moe"]) or name.startswith("__"):
                raise
            return lambda *_, **__: True

    torch._ops._OpNamespace.__getattr__ = attribute  # type: ignore[method-assign]
    register = torch.library.register_fake

    def register_fake(name: Any, func: Any = None, /, **rest: Any) -> Any:
        if isinstance(name, str) and name.split("::")[0].split("_")[1:2] in (["C"], ["moe"]):
            return func if func is not None else lambda made: made
        return register(name, func, **rest)

    torch.library.register_fake = register_fake


def _triton() -> None:
    """A Triton driver that knows its target and nothing else; kernels are declared as modules load, never compiled."""
    import triton
    from triton.backends.compiler import GPUTarget

    target = GPUTarget("cuda", CAPABILITY[0] * 10 + CAPABILITY[1], 32)
    properties = {"max_shared_mem": 232448, "multiprocessor_count": 132, "warpSize": 32, "max_num_regs": 65536}
    driver = types.SimpleNamespace(
        get_current_target=lambda: target, get_current_device=lambda: 0, get_device_capability=lambda *_: CAPABILITY,
        get_active_torch_device=lambda: None, get_current_stream=lambda *_: 0, is_active=lambda: True,
        get_benchmarker=lambda: lambda *_, **__: [0.0],
        utils=types.SimpleNamespace(get_device_properties=lambda *_: properties),
    )  # fmt: skip
    triton.runtime.driver.set_active(driver)


def _cuda() -> None:
    import torch
    import torch._inductor.lowering  # while torch still knows that it is a CPU build: its modules ask as they load

    properties = types.SimpleNamespace(
        name="NVIDIA H100 80GB HBM3", major=CAPABILITY[0], minor=CAPABILITY[1], total_memory=GPU_BYTES,
        multi_processor_count=132, warp_size=32, is_integrated=0, gcnArchName="",
    )  # fmt: skip
    torch.version.cuda = "13.0"
    for name in ("_cuda_getCurrentRawStream", "_cuda_getDeviceCount"):
        setattr(torch._C, name, lambda *_: 0)
    torch.cuda._is_compiled = lambda: True
    torch.cuda._device_count_nvml = gpus
    torch.cuda.device_count = gpus
    torch.cuda.is_initialized = lambda: False
    torch.cuda.get_device_capability = lambda *_, **__: CAPABILITY
    torch.cuda.get_device_properties = lambda *_, **__: properties
    torch.cuda.get_device_name = lambda *_, **__: properties.name
    torch.cuda.current_device = lambda: 0
    torch.cuda.mem_get_info = lambda *_, **__: (GPU_BYTES, GPU_BYTES)
