"""Parts of a message as text: blocks with only text are text, no matter how their type is called, others JSON.

Content that no text can show (pictures, sounds, files) is refused if the request of the agent's user consists of it.
If a tool has returned it, words describe it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from atropos_agent.gateway import fields, refusals
from atropos_agent.gateway.requests import HistoryMessage

_PLAIN = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
"""Types of blocks that hold only text for sure, and the key of it."""
_TEXTS = ("title", "context", "text", "refusal", "source", "resource", "content")
"""Keys of text in blocks, and of blocks within blocks, in the order in which they are shown."""
_DATA = frozenset({"data", "blob", "file_data", "b64_json"})
_ADDRESSES = frozenset({"url", "file_url", "file_id", "fileUri", "image_url", "video_url", "audio_url"})
_MEDIA = ("media_type", "mimeType", "mime_type")
_KINDS = (*_MEDIA, "format")
_ABOUT = frozenset({"type", "id", "status", "cache_control", "tool_use_id", "call_id", "detail"})
_DEPTH = 6
_SHOWN = 60


def answers(last: HistoryMessage, before: bool) -> bool:
    """Tell whether the next message comes after results of tools: if a result can hold text alone, agents put other
    content read by a tool into a message of their user's. before: whether the message `last` came after results."""
    return last.role == "tool" or (before and last.role != "assistant")


def flatten_content(value: Any, where: str, *, refuses: bool) -> tuple[str, int]:
    """Return a message's content as text, of all its parts, and how many of them are words for something else.

    refuses: whether those are refused instead. Raises Refusal, also for a value that is no content."""
    if value is None or isinstance(value, str):
        return value or "", 0
    texts, unshown = [], 0
    for place, block in enumerate(fields.objects(value, where)):
        text, words = part(block, f"{where}[{place}]", refuses=refuses)
        texts.append(text)
        unshown += words
    return "\n".join(texts), unshown


def part(block: Mapping[str, Any], where: str, *, refuses: bool) -> tuple[str, int]:
    """Return one part as `flatten_content` does."""
    kind = block.get("type")
    if isinstance(kind, str) and kind in _PLAIN:
        return fields.text(block.get(_PLAIN[kind]), f"{where}.{_PLAIN[kind]}"), 0
    text = _text(block, _DEPTH)
    if text is None:
        text = _json(block)
    if text is not None:
        return text, 0
    if refuses:
        raise refusals.part(kind, f"{where}.type")
    return _words(block), 1


def show_value(value: Any) -> tuple[str, int]:
    """Return any JSON value as JSON with words in place of its files, and how many of them there are."""
    text, unshown = json.dumps(value, ensure_ascii=False), 0

    def shown(block: dict[str, Any]) -> Any:
        nonlocal unshown
        if not (_is_text(block, _DATA) and _is_text(block, _MEDIA)):
            return block
        unshown += 1
        return _words({"type": "file", **block})

    if any(f'"{key}"' in text for key in _DATA):
        text = json.dumps(json.loads(text, object_hook=shown), ensure_ascii=False)
    return text, unshown


def _is_text(block: Mapping[str, Any], keys: Collection[str]) -> bool:
    return any(isinstance(block.get(key), str) for key in keys)


def _text(value: Any, depth: int) -> str | None:
    """Return a value's text; None if it is more than text, or nothing."""
    if isinstance(value, str):
        return value
    if depth and isinstance(value, list):
        return _join_texts(value, depth - 1)
    return _block_text(value, depth - 1) if depth and isinstance(value, dict) else None


def _block_text(block: Mapping[str, Any], depth: int) -> str | None:
    if block.get("type") == "text" and isinstance(block.get("data"), str):  # of a document
        return str(block["data"])
    if not block.keys().isdisjoint(_DATA | _ADDRESSES):
        return None
    if named := [block[key] for key in _TEXTS if block.get(key)]:
        return _join_texts(named, depth)
    rest = [one for key, one in block.items() if key not in _ABOUT]
    if rest and not any(rest):
        return ""
    return "\n".join(rest) if rest and all(isinstance(one, str) for one in rest) else None


def _json(block: Mapping[str, Any]) -> str | None:
    """Return a block's other fields as JSON; None if there are none, or if they have content that no text can show."""
    rest = {key: one for key, one in block.items() if key not in _ABOUT}
    return None if not rest or _carries_data(rest, _DEPTH) else json.dumps(rest, ensure_ascii=False)


def _carries_data(value: Any, depth: int) -> bool:
    """Tell whether a value holds data, or leads to some. A value nested too deeply to look into counts as well."""
    if not isinstance(value, dict | list):
        return False
    if not depth or (isinstance(value, dict) and not value.keys().isdisjoint(_DATA | _ADDRESSES)):
        return True
    return any(_carries_data(one, depth - 1) for one in (value.values() if isinstance(value, dict) else value))


def _join_texts(values: Sequence[Any], depth: int) -> str | None:
    texts = [_text(one, depth) for one in values]
    there = [text for text in texts if text is not None]
    return "\n".join(there) if len(there) == len(texts) else None


def _words(block: Mapping[str, Any]) -> str:
    """Return words for content that can't be shown: its kind, and how large it is, as far as it says so."""
    kind, size = str(block.get("type"))[:_SHOWN], None
    for key, value in _strings(block, _DEPTH):
        if value.startswith("data:"):
            head, _, data = value.partition(",")
            kind, size = head[5:].partition(";")[0][:_SHOWN] or kind, _bytes(data)
        elif key in _DATA:
            size = _bytes(value)
        elif key in _KINDS:
            kind = value[:_SHOWN]
    return f"[{kind}{'' if size is None else f', {size:,} bytes'}: not shown to this model]"


def _strings(value: Any, depth: int) -> Iterator[tuple[str, str]]:
    if not depth or not isinstance(value, dict):
        return
    for key, one in value.items():
        if isinstance(one, str):
            yield key, one
        else:
            yield from _strings(one, depth - 1)


def _bytes(data: str) -> int:
    """Return the number of bytes in base64 data."""
    return len(data) * 3 // 4 - data[-2:].count("=")
