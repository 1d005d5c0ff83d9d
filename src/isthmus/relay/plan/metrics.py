"""A frontend's metrics, hostile bytes, -> how many requests of each model it has (RL-11).

prober.py calls `read_load` with the body of GET /metrics. Read are the names of Dynamo's frontend, of vLLM
and of SGLang; everything else is passed over without a look, since such pages have thousands of lines. In
Dynamo's words a request is in flight from its arrival to its end, and queued until its first token. Values
of one model are added up over whatever other labels there are.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Final

from isthmus.api.pools import MAX_ITEMS
from isthmus.relay.plan.model import Sample

MAX_SERIES: Final = 4096
"""Lines that are read; a page with more of those that count is not believed."""
_MOST: Final = float(1 << 53)
_DYNAMO: Final = "dynamo_frontend_"
_FIELDS: Final = {
    f"{_DYNAMO}inflight_requests": "inflight",
    f"{_DYNAMO}queued_requests": "awaiting",
    f"{_DYNAMO}requests_total": "ended",
    f"{_DYNAMO}requests_started_total": "started",
    f"{_DYNAMO}input_sequence_tokens_sum": "input_tokens",
    f"{_DYNAMO}output_tokens_total": "output_tokens",
    f"{_DYNAMO}model_max_num_seqs": "max_sequences",
    "vllm:num_requests_waiting": "awaiting",
    "vllm:num_requests_running": "generating",
    "vllm:request_success_total": "completed",
    "vllm:prompt_tokens_total": "input_tokens",
    "vllm:generation_tokens_total": "output_tokens",
    "sglang:num_queue_reqs": "awaiting",
    "sglang:num_running_reqs": "generating",
    "sglang:prompt_tokens_total": "input_tokens",
    "sglang:generation_tokens_total": "output_tokens",
}
_LINE: Final = re.compile(
    rb"^("
    + b"|".join(re.escape(name.encode()) for name in _FIELDS)
    + rb")\{([^\n]{1,4096})\}[ \t]+(\S{1,40})",
    re.MULTILINE,
)
_LABEL: Final = re.compile(r'\s*([A-Za-z_][A-Za-z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(,|$)')
_ESCAPES: Final = {r"\\": "\\", r"\"": '"', r"\n": "\n"}
_ESCAPE: Final = re.compile(r'\\[\\"n]')


def read_load(body: bytes) -> dict[str, Sample] | None:
    """The load by model as it is labelled; empty where there are no requests yet, None where the page does
    not say how many there are."""
    sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    counted, broken = 0, set()
    for found in _LINE.finditer(body):
        counted += 1
        if counted > MAX_SERIES:
            return None
        labels = _labels(found[2].decode(errors="replace"))
        model = labels.get("model") or labels.get("model_name") or ""
        if not model:
            continue
        field = _field(_FIELDS[found[1].decode()], labels)
        value = _number(found[3])
        if value is None:
            broken.add((model, field))
        else:
            sums[model][field] += value
    for model, field in broken:
        sums[model].pop(field, None)
    if not any({"inflight", "awaiting", "generating"} & fields.keys() for fields in sums.values()):
        return None
    return {model: _sample(sums[model]) for model in sorted(sums)[:MAX_ITEMS]}


def _field(field: str, labels: dict[str, str]) -> str:
    if field != "ended":
        return field
    return "completed" if labels.get("status", "success") == "success" else "failed"


def _labels(text: str) -> dict[str, str]:
    """The labels of a line; empty where they cannot be read."""
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        match = _LABEL.match(text, at)
        if match is None:
            return {} if text[at:].strip() else found
        found[match[1]] = _ESCAPE.sub(lambda each: _ESCAPES[each[0]], match[2])
        at = match.end()
    return found


def _number(raw: bytes) -> float | None:
    """A count; None for what is none."""
    try:
        value = float(raw)
    except ValueError:
        return None
    return value if 0 <= value <= _MOST else None


def _sample(fields: dict[str, float]) -> Sample:
    whole = {name: round(value) for name, value in fields.items()}
    inflight = whole.pop("inflight", None)
    if inflight is not None and "awaiting" in whole:
        whole["awaiting"] = min(whole["awaiting"], inflight)
        whole.setdefault("generating", inflight - whole["awaiting"])
    return Sample(**whole)
