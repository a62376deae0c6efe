"""What is wrong with a line that is no JSON: often the file is no text, or no UTF-8."""

from __future__ import annotations

import codecs

_GZIP = b"\x1f\x8b"
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def not_json(line: bytes, error: Exception) -> tuple[str, str]:
    """Return words that follow "row 5 is", and what to do."""
    if line.startswith(_GZIP):
        return "compressed with gzip", "unpack the file"
    if line.startswith(_UTF_16):
        return "UTF-16, not UTF-8", "save the file as UTF-8"
    try:
        line.decode()
    except UnicodeDecodeError as wrong:
        byte = f"byte {wrong.start + 1} of the row is 0x{line[wrong.start]:02x}"
        return f"not UTF-8 ({byte})", "save the file as UTF-8; unpack it if it is compressed"
    return f"not valid JSON ({error})", "each line must be one JSON object; fix or delete that line"
