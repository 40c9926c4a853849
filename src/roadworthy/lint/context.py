"""What a rule may need to know beyond the setting itself: engine version, model, GPUs, layout, and how sure that is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from roadworthy.catalog.environment import EnvironmentCatalog, environment_catalog
from roadworthy.lint.flag_book import VERSIONS, FlagBook, flag_book

if TYPE_CHECKING:
    from roadworthy.lint.reading import Reading
    from roadworthy.lint.values import EnvVar, Invocation

HOPPER = frozenset({"H100", "H200", "H20", "GH200", "H800"})
BLACKWELL = frozenset({"B200", "B300", "GB200", "GB300"})
_GPU = re.compile(
    r"(?<![A-Za-z0-9])(A100|A800|H100|H200|H20|H800|GH200|B200|B300|GB200|GB300|L40S|A10)(?![0-9A-Za-z])", re.IGNORECASE
)
_VERSIONS = (
    re.compile(r"vllm-openai[\w.-]*:v?(\d+\.\d+(?:\.\d+)?)"),
    re.compile(r"\bvllm(?:\[[\w,-]*\])?\s*==\s*v?(\d+\.\d+(?:\.\d+)?)"),
    re.compile(r"\bvllm[ \t]+v?(0\.\d+(?:\.\d+)?)\b", re.IGNORECASE),
    re.compile(r"\bvllm[\w/-]*:v?(0\.\d+(?:\.\d+)?)\b"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LintOptions:
    """What the caller says of the deployment; None where nothing is said.

    Args:
        engine_version: of vLLM, as ``0.33.0``.
        model: id or path, as in the deployment document.
        gpu: such as ``H100-80GB``.
        link_layer: ``infiniband`` or ``ethernet``.
        endpoints: engines behind the gateway.
    """

    engine_version: str | None = None
    model: str | None = None
    gpu: str | None = None
    nodes: int | None = None
    gpus_per_node: int | None = None
    link_layer: str | None = None
    endpoints: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Degrees:
    """The split that a command asks for; None where the file does not give a number."""

    tp: int | None
    pp: int | None
    dp: int | None
    nnodes: int | None
    ep: bool

    @property
    def world(self) -> int | None:
        return None if None in (self.tp, self.pp, self.dp) else (self.tp or 1) * (self.pp or 1) * (self.dp or 1)

    @property
    def ep_size(self) -> int | None:
        return None if self.tp is None or self.dp is None else self.tp * self.dp


def model_kind(name: str | None) -> str | None:
    """``v4``, ``v4-0813``, ``k3``, ``v4-32b`` (no such model), ``other``, or None for a name that is not given."""
    if not name or re.search(r"[$\ue000<]|\{\{|^MODEL", name):
        return None
    lowered = name.lower()
    if re.search(r"deepseek-?v4-32b", lowered):
        return "v4-32b"
    if re.search(r"deepseek-?v4-pro", lowered):
        return "v4-0813" if re.search(r"0813|dspark", lowered) else "v4"
    if re.search(r"kimi-?k3", lowered):
        return "k3"
    return "other"


class Context:
    """Answers about one file, under what the caller said."""

    def __init__(self, reading: Reading, options: LintOptions) -> None:
        self.reading, self.options = reading, options
        self.stated_version = options.engine_version or self._version_in_file()
        self.book: FlagBook = flag_book(self._known(self.stated_version))
        self.environment: EnvironmentCatalog = environment_catalog(self.book.version)
        self.gpus = self._gpus()
        lowered = reading.text.lower()
        self.mentions_vllm = "vllm" in lowered
        self.mentions_ray_install = bool(
            re.search(
                r"ray\s+(?:start|status|job|up)\b|\bRAY_ADDRESS=|pip\S*\s+install[^\n]*\bray\b|rayproject/ray"
                r"|^\s*import ray"
                r"|ray-llm|kind:\s*Ray",
                reading.text,
                re.MULTILINE,
            )
        )

    def _known(self, version: str | None) -> str:
        line = ".".join((version or VERSIONS[0]).split(".")[:2])
        if self.options.engine_version is not None:
            return self.options.engine_version
        return version if version is not None and any(one.startswith(line + ".") for one in VERSIONS) else VERSIONS[0]

    def _version_in_file(self) -> str | None:
        for pattern in _VERSIONS:
            found = {match.group(1) for match in pattern.finditer(self.reading.text)}
            if len(found) == 1:
                return found.pop()
        return None

    @property
    def version_is_known(self) -> bool:
        """Whether the engine version is stated (by the caller or the file) rather than taken to be the newest."""
        line = ".".join((self.stated_version or "").split(".")[:2])
        return any(one.startswith(line + ".") for one in VERSIONS) if line else False

    @property
    def line(self) -> tuple[int, int]:
        major, minor = self.book.version.split(".")[:2]
        return int(major), int(minor)

    def _gpus(self) -> frozenset[str]:
        named = self.options.gpu or ""
        if named:
            return frozenset(match.group(1).upper() for match in _GPU.finditer(named))
        return frozenset(match.group(1).upper() for match in _GPU.finditer(self.reading.text))

    @property
    def gpu(self) -> str | None:
        """The one kind of GPU that is named, or None."""
        return next(iter(self.gpus)) if len(self.gpus) == 1 else None

    def adopt(self) -> None:
        """Take flags without a program (Helm values, a variable, ``./serve.sh --flags``) for vLLM's, if enough of
        their long names are."""
        for invocation in self.reading.invocations:
            loose = invocation.program == "?" or invocation.program.endswith(".sh")
            long = [flag for flag in invocation.flags if flag.name.startswith("--") and len(flag.name) > 4]
            if not loose or not long:
                continue
            known = sum(self.book.match(flag.name) is not None for flag in long)
            if known and (known * 2 >= len(long) or self.mentions_vllm):
                invocation.program, invocation.fragment = "vllm serve", True

    def model_name(self, invocation: Invocation | None) -> str | None:
        """The model that a command serves: its own word, else that of the file, else the caller's."""
        if invocation is not None:
            flag = invocation.flag("--model", "--model-tag")
            if flag is not None and flag.value is not None and not flag.dynamic:
                return flag.value
            if invocation.positionals and not invocation.positionals[0].dynamic:
                return invocation.positionals[0].value
            if flag is not None or invocation.positionals:
                served = invocation.value("--served-model-name")
                if served is not None and model_kind(served) not in (None, "other"):
                    return served
        if self.options.model is not None:
            return self.options.model
        names = (
            {self.model_name(one) for one in self.reading.servers() if one is not invocation}
            if invocation is None or invocation.fragment
            else set()
        )
        names.discard(None)
        if len(names) == 1:
            return names.pop()
        return self._model_variable() if not names else None

    def _model_variable(self) -> str | None:
        found = {
            one.value
            for one in self.reading.env
            if one.value
            and one.name.upper() in ("MODEL", "MODEL_NAME", "MODEL_ID", "MODEL_PATH", "VLLM_MODEL", "HF_MODEL_ID")
        }
        return found.pop() if len(found) == 1 else None

    def model(self, invocation: Invocation | None = None) -> str | None:
        return model_kind(self.model_name(invocation))

    def degrees(self, invocation: Invocation) -> Degrees:
        """The split of a command; a degree that a whole command leaves out is 1."""
        return Degrees(
            tp=self._degree(invocation, "--tensor-parallel-size", "-tp"),
            pp=self._degree(invocation, "--pipeline-parallel-size", "-pp"),
            dp=self._degree(invocation, "--data-parallel-size", "-dp"),
            nnodes=self._degree(invocation, "--nnodes", "-n"),
            ep=invocation.flag("--enable-expert-parallel", "-ep") is not None,
        )

    def _degree(self, invocation: Invocation, *names: str) -> int | None:
        flag = invocation.flag(*names)
        if flag is None:
            return None if invocation.fragment or invocation.unexpanded else 1
        value = flag.value or ""
        return int(value) if value.isdecimal() and len(value) < 7 and not flag.dynamic else None

    def uses_ray(self, invocation: Invocation) -> bool:
        return (invocation.value("--distributed-executor-backend") or "").lower() == "ray"

    def servers_of(self, variable: EnvVar) -> list[Invocation]:
        """Commands that a variable reaches: those of its own command or container, else every server of the file."""
        servers = [one for one in self.reading.invocations if one.program == "vllm serve"]
        own = [
            one
            for one in servers
            if variable.owner is not None and (one.owner is variable.owner or variable in one.env)
        ]
        return own or servers

    def follows_recipe(self, invocation: Invocation) -> bool:
        """Whether a command carries the settings that its model's recipe and the checked lines of the table share."""
        if invocation.flag("--max-num-seqs") is None or invocation.flag("--gpu-memory-utilization") is None:
            return False
        if self.model(invocation) in ("v4", "v4-0813"):
            return invocation.value("--block-size") == "256" and invocation.flag("--reasoning-parser") is not None
        if self.model(invocation) == "k3":
            return invocation.flag("--moe-backend") is not None and invocation.flag("--reasoning-parser") is not None
        return False
