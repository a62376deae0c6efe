"""Why a worker process is gone, in one sentence, from what Ray reports about it."""

from __future__ import annotations

import re
import signal

_OUT_OF_MEMORY = "because its node ran out of memory"
_USAGE = re.compile(r"was ([\d.]+ ?[KMGT]i?B) / ([\d.]+ ?[KMGT]i?B)")
_EXIT_CODE = re.compile(r"exit code:? (-?\d+)")
_SIGNAL = re.compile(r"\b(SIG(?:KILL|TERM|SEGV|ABRT|BUS|INT))\b")
_NODE = re.compile(r"^\s*ip: (\S+)", re.MULTILINE)
_TIMEOUT = re.compile(r"(?:timeout|timed out|hang).*?([\d.]+ ?s(?:econds)?)\b", re.IGNORECASE)
MAX_CHARS = 240


def death_reason(text: str) -> str:
    """Return what happened to the process, as the end of "worker rank 1 ...".

    Ray's own text is a paragraph with a list of possible causes and advice. It does not know the
    signal: a process that was killed only leaves a closed connection behind.
    """
    node = _NODE.search(text)
    where = f" (node {node[1]})" if node else ""
    return f"{_reason(text)}{where}"


def _reason(text: str) -> str:
    lowered = text.lower()
    if "low on memory" in lowered or "memory usage threshold" in lowered:
        usage = _USAGE.search(text)
        used = f": {usage[1]} of {usage[2]} were in use" if usage else ""
        return f"was killed by Ray {_OUT_OF_MEMORY}{used}"
    if "its node has died" in lowered or "node was terminated" in lowered:
        return "was lost with its node"
    if "preempt" in lowered or "drain" in lowered:
        return "was lost with its node, which was preempted"
    if code := _EXIT_CODE.search(text):
        return _exit(int(code[1]))
    if "connection error code" in lowered:
        return f"was killed, probably by signal 9 {_OUT_OF_MEMORY}"
    if "ray.kill" in lowered or "intended" in lowered:
        return "was stopped by Ray"
    if timeout := _TIMEOUT.search(text):
        return f"did not answer a health check within {timeout[1]}"
    if named := _SIGNAL.search(text):
        return _killed(signal.Signals[named[1]])
    return f"died: {shortened(_first_sentence(text))}"


def _exit(code: int) -> str:
    number = -code if code < 0 else code - 128
    try:
        return _killed(signal.Signals(number))
    except ValueError:
        return f"exited with code {code}"


def _killed(by: signal.Signals) -> str:
    why = f", probably {_OUT_OF_MEMORY}" if by is signal.SIGKILL else ""
    return f"was killed by signal {by.value} ({by.name}){why}"


def _first_sentence(text: str) -> str:
    """Return the first line that says something; class names and ids are skipped."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    useful = [line for line in lines if not re.match(r"[\w ]{1,20}: \S+$", line)]
    informative = [
        line for line in useful if re.search(r"exit|died|dead|killed", line, re.IGNORECASE)
    ]
    return (informative or useful or lines or ["no reason was reported"])[-1]


def shortened(text: str, *, most: int = MAX_CHARS) -> str:
    """Return the text, cut behind a sentence or at least a word if it is long."""
    if len(text) <= most:
        return text
    cut = text[:most]
    sentence = cut.rfind(". ")
    return cut[: sentence + 1] if sentence > most // 4 else f"{cut.rsplit(' ', 1)[0]} …"
