"""What is private in a line of a log, as patterns: keys, prompts, addresses, names; what looks like it and is none."""

from __future__ import annotations

import ipaddress
import math
import re
from collections import Counter

QUOTE = r"""\\*["']"""

SECRET = re.compile(
    r"""(?ix)(?P<name>(?<![a-z])(?:[a-z0-9]+[-_])*
        (?:api[-_]?keys?|secret(?:[-_]?(?:access[-_]?)?key)?|passw(?:or)?d|passwd|pwd|token|credentials?|auth|
           (?:private|access|signing|encryption|account|shared)[-_]?key|pepper|authorization|cookie|sig|signature|bearer)
        (?:\\*["'])?(?:\s*[=:]>?\s*|\s+(?=\S*\d))(?:(?:bearer|basic|token|digest|negotiate|apikey)\s+)?)
        (?P<value>(?P<open>\\*["'])(?:(?!(?P=open)).)+|[^\s"',;&})\]<>|]+)"""
)
"""An assignment to a name that names a secret, whatever its value; a value after a space alone must hold a digit."""

BEARER = re.compile(r"(?i)(?P<name>\b(?:bearer|basic)\s+)(?P<value>[A-Za-z0-9+/_.~-]{6,}=*)")
USERINFO = re.compile(r"(?P<name>\b[a-z][a-z0-9+.-]*://)(?P<value>[^/\s@'\"<>]+)(?=@)")
KEYS = re.compile(
    r"(?<![A-Za-z0-9])(?:(?:sk|pk|rk|nvapi|glpat|xox[abeoprs]|dop_v1|shpat)[-_](?=[A-Za-z0-9_-]*[A-Za-z0-9]{3})[A-Za-z0-9_-]{6,}|"
    r"hf_[A-Za-z0-9]{6,}|gh[pousr]_[A-Za-z0-9]{10,}|github_pat_\w{10,}|A(?:KIA|SIA)[A-Z0-9]{10,}|AIza[\w-]{20,}|"
    r"eyJ[A-Za-z0-9_-]{8,}[\w.-]*|ya29\.[\w-]{10,}|age1[a-z0-9]{20,}|AGE-SECRET-KEY-\w+)"
)
PEM = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)")
LONG = re.compile(r"(?<![A-Za-z0-9+/_=.-])(?!_Z)[A-Za-z0-9+_-]{32,}={0,2}(?![A-Za-z0-9+/_=-])")
LONG_ENTROPY_BITS = 4.2
"""Of a letter: random base64 of 40 letters has about 4.7, words joined by lines or slashes less than 4."""

TEXT_NAMES = (
    "prompts?|messages?|contents?|inputs?|quer(?:y|ies)|questions?|instructions?|system_prompt|user_message|completions?|"
    "generated_text|output_text|response_text|answers?|text|utterance|documents?|passages?|chosen|rejected"
)
PROMPT = re.compile(
    rf"(?i)(?P<head>(?<![A-Za-z0-9])(?:[a-z]+_)?(?:{TEXT_NAMES})(?:{QUOTE})?\s*[:=]\s*)"
    rf"(?P<text>(?P<open>{QUOTE}|\[|\{{).+)"
)
BARE_PROMPT = re.compile(
    r"(?i)(?P<head>(?<![A-Za-z0-9_])(?:prompt|user (?:said|message|input|query))\s*[:=]\s*)(?P<text>[^\W\d].{2,})"
)
TOKEN_IDS = re.compile(r"(?i)(?P<head>\b\w*token_ids?(?:\\*[\"'])?\s*[:=]\s*)(?P<text>\[[\d,\s]*(?:\]|$|\.\.\.))")

IPV4 = re.compile(r"(?<![\d.])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?!\d)")
DASHED_IPV4 = re.compile(r"(?<![\w-])ip[-_]\d{1,3}(?:[-_]\d{1,3}){3}(?![\d])(?:\.[\w.-]*\w)?", re.IGNORECASE)
IPV6 = re.compile(r"(?<![0-9A-Za-z_:.])[0-9a-fA-F:]{3,}+(?:\d{0,3}(?:\.\d{1,3}){3})?(?![0-9A-Za-z_])")
MAC = re.compile(
    r"(?<![0-9A-Za-z:])[0-9a-fA-F]{2}(?:(?::[0-9a-fA-F]{2}){5,19}|(?:-[0-9a-fA-F]{2}){5})(?![0-9A-Za-z:])|"
    r"(?<![\w.])(?:[0-9a-fA-F]{4}\.){2}[0-9a-fA-F]{4}(?![\w.])"
)
GUID = re.compile(r"(?<![\w:])(?:[0-9a-fA-F]{4}:){3}[0-9a-fA-F]{4}(?![\w:])|\b0x(?!0{4})[0-9a-fA-F]{16}\b")
UUID = re.compile(r"(?<![0-9a-fA-F])[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}(?![0-9a-fA-F])")
SERIAL = re.compile(r"(?i)(?P<name>\bserial(?:[ _-]?(?:number|no))?\s*[:=]\s*)(?P<value>[\w-]{4,})")
MAIL = re.compile(r"(?<![\w.+-])[\w.+%-]{1,64}@[\w-]+(?:\.[\w-]+)+")
USER = re.compile(
    r"(?P<name>(?:/home/|/Users/|[A-Z]:\\+Users\\+|\buser(?:name)?[=:]\s?|\bfor user |\buid=\d+\())"
    r"(?P<value>[A-Za-z_][\w.-]*)"
)
TENANT = re.compile(
    r"(?i)(?P<name>(?<![a-z])(?:tenant|customer|organi[sz]ation)(?:_id|_name)?(?:\\*[\"'])?\s*[:=]\s*(?:\\*[\"'])?)"
    r"(?P<value>[A-Za-z0-9][\w.-]*)"
)
NAMED_HOST = re.compile(
    r"(?i)(?P<name>\b(?:host(?:_?name)?|node(?:_?name)?|server|peer|machine|kubernetes_node|instance|nodelist)"
    r"(?:\\*[\"'])?\s*[=:]\s*(?:\\*[\"'])?)(?P<value>[A-Za-z][A-Za-z0-9]*(?:[-_.][A-Za-z0-9]+)*\d[\w-]*)"
)
DOMAIN = re.compile(r"(?<![\w@.-])(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,62})\.)+(?P<top>[A-Za-z]{2,24})(?![\w-])(?!\.\w)")

_GENERIC = """
    com net org edu gov mil int info biz pro dev cloud tech online site xyz internal local localdomain localhost
    corp lan intra intranet arpa example invalid cluster consul private onprem hosting
"""
_COUNTRIES = """
    io ai ac ad ae af ag al am ao aq ar as at au aw az ba bb bd be bf bg bh bi bj bm bn bo br bs bt bw by bz ca cd
    cf cg ch ci ck cl cm cn co cr cv cy cz de dj dk dm dz ec ee eg er es et eu fi fj fk fm fo fr ga gd ge gf gg gh
    gi gl gm gn gp gq gr gs gt gu gw gy hk hm hn hr ht hu ie il im iq ir je jm jo jp ke kg kh ki km kn kp kr kw ky
    kz la lb lc li lk lr ls lt lu lv ly ma mc me mg mh mm mn mo mp mq mr mt mu mv mw mx my mz na nc ne nf ng ni nl
    np nr nu nz om pa pe pf pg ph pk pm pn pr pt pw qa ro ru rw sa sb sc sd se sg si sj sk sl sn sr su sv sx sz
    tc td tg th tj tk tl tm tn tr tt tv tw tz ua ug uk us uy uz va vc ve vg vi vn vu wf ws ye yt za zm zw
"""
"""Less those that end names of files, modules, units and sentences."""

TOP_LEVELS = frozenset((_GENERIC + _COUNTRIES).split())

PUBLIC_DOMAINS = frozenset({
    "huggingface.co", "hf.co", "pytorch.org", "github.com", "githubusercontent.com", "nvidia.com", "kernel.org",
    "vllm.ai",
    "docker.io", "quay.io", "ghcr.io", "nvcr.io", "k8s.io", "kubernetes.io", "ray.io", "x-k8s.io", "openai.com",
    "amd.com",
    "debian.org", "ubuntu.com", "python.org", "pypi.org", "prometheus.io", "mellanox.com", "intel.com", "modelscope.cn",
})  # fmt: skip
"""These and what lies below them say nothing of who runs the service."""

COMMON_USERS = frozenset(
    {"root", "ubuntu", "ec2-user", "nobody", "ray", "vllm", "user", "admin", "debian", "app", "none"}
)


def is_public(domain: str) -> bool:
    name = domain.lower()
    return any(name == one or name.endswith(f".{one}") for one in PUBLIC_DOMAINS)


def is_domain(top: str) -> bool:
    return top.lower() in TOP_LEVELS


def is_plain_value(value: str) -> bool:
    """Whether what a secret's name is set to is no secret: a number, a switch, a mark of a tokenizer, a stand-in."""
    bare = value.strip("\\\"'")
    return bool(
        re.fullmatch(
            r"[\d.]*|none|null|true|false|auto|yes|no|\*+|x+|<[^>]*>?|\$\{?\w*\}?|required|missing|invalid|not|is|for",
            bare,
            re.IGNORECASE,
        )
    )


def ipv6_in(text: str) -> str | None:
    """The address that ``text`` is but for colons at its end; None for a time of day, a name of C++, a local one."""
    candidate = text
    while candidate:
        try:
            address = ipaddress.IPv6Address(candidate)
        except ValueError:
            if not candidate.endswith(":"):
                return None
            candidate = candidate[:-1]
            continue
        return None if address.is_loopback or address.is_unspecified else candidate
    return None


def is_random(text: str) -> bool:
    """Whether letters come as they do in keys: mixed with digits, and none much more often than another."""
    kinds = (re.search(r"[a-z]", text), re.search(r"[A-Z]", text), re.search(r"\d", text))
    hexadecimal = re.fullmatch(r"[0-9a-f]{32,}|[0-9A-F]{32,}", text)
    if hexadecimal and kinds[2] and (kinds[0] or kinds[1]):
        return True
    counts = Counter(text)
    bits = -sum(count / len(text) * math.log2(count / len(text)) for count in counts.values())
    return all(kinds) and bits >= LONG_ENTROPY_BITS and len(re.findall(r"\d", text)) >= 3
