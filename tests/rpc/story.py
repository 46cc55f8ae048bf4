"""Seed 000's own example, from the request to the last event, as text of the document; and a program that plays it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.unit.core.rig import manifest

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonValue
    from tests.rpc.serving import Json
    from tests.unit.core.fakelauncher import FakeRun

CAPABILITY = "compat.browser.search_and_compare"
MANIFEST = manifest(
    CAPABILITY,
    "estimated_duration = '30s'\npausable = 'freeze'\n"
    "[input]\ntype = 'object'\nadditionalProperties = false\n"
    "[input.properties]\nquery = { type = 'string' }\nsites = { type = 'array', items = { type = 'string' } }\n",
)

REQUESTS: dict[str, Json] = {
    "aios/task.create": {
        "capability_id": "compat.browser.search_and_compare",
        "arguments": {"query": "无线耳机", "sites": ["jd.com", "taobao.com"]},
        "options": {
            "async": True,
            "priority": "normal",
            "timeout_ms": 120000,
            "retry": {"max_attempts": 3, "delay_ms": 1000},
        },
        "metadata": {"user_request": "比较京东和淘宝的耳机价格", "tags": ["shopping", "comparison"]},
    },
    "aios/task.get": {"task_id": "task-001"},
    "aios/task.list": {
        "filter": {"status": ["pending", "working"], "capability_id": "compat.browser.*"},
        "pagination": {"limit": 10, "offset": 0},
        "sort": {"field": "created_at", "order": "desc"},
    },
    "aios/task.cancel": {"task_id": "task-001", "reason": "user_request"},
    "aios/task.pause": {"task_id": "task-001"},
    "aios/task.resume": {"task_id": "task-001"},
    "aios/task.input": {
        "task_id": "task-001",
        "input": {"selected_product": "product-123", "confirm_purchase": True},
    },
    "aios/task.subscribe": {"task_id": "task-001", "events": ["status", "progress", "artifact", "log"]},
    "aios/task.unsubscribe": {"subscription_id": "sub-001"},
    "aios/task.resubscribe": {"task_id": "task-001", "last_event_id": "evt-003"},
    "aios/artifact.get": {"artifact_id": "art-001"},
    "aios/artifact.list": {"task_id": "task-001"},
    "aios/task.history": {
        "filter": {
            "start_time": "2026-01-05T00:00:00Z",
            "end_time": "2026-01-05T23:59:59Z",
            "status": ["completed", "failed"],
        },
        "pagination": {"limit": 50, "offset": 0},
    },
}
"""The `params` of every request that the document shows, except for authentication and webhooks."""

PROMPT = "找到多个商品，请选择要比较的商品"  # noqa: RUF001 - the document's own comma
OPTIONS: list[JsonValue] = [{"id": "product-123", "title": "A"}, {"id": "product-456", "title": "B"}]
REPORT_PARTS: list[JsonValue] = [
    {"type": "text", "text": "## 价格对比结果\n\n京东价格: ¥299\n淘宝价格: ¥289"},
    {
        "type": "data",
        "data": {
            "jd": {"price": 299, "url": "https://jd.com/..."},
            "taobao": {"price": 289, "url": "https://taobao.com/..."},
        },
    },
]
RESULT: Json = {"cheapest": "taobao.com", "price": 289}

EVENTS: list[tuple[str, Json]] = [
    ("task.status", {"status": "working"}),
    ("task.progress", {"progress": {"percent": 25, "message": "正在搜索京东..."}}),
    ("task.progress", {"progress": {"percent": 50, "message": "正在搜索淘宝..."}}),
    ("task.artifact", {"artifact": {"name": "京东搜索结果", "type": "data"}}),
    ("task.input_required", {"prompt": PROMPT, "options": OPTIONS}),
    ("task.status", {"status": "completed"}),
    ("task.result", {"result": RESULT}),
]
"""The document's stream: each event's kind, and what its data says besides ids and times."""


async def search_and_compare(run: FakeRun) -> None:
    """The program of the story."""
    await run.go()
    run.say("processing", {"progress": EVENTS[1][1]["progress"]})
    await asyncio.sleep(0.2)  # a search takes its time; of progress that comes at once, the newest counts
    run.say("processing", {"progress": EVENTS[2][1]["progress"]})
    parts: list[JsonValue] = [{"type": "data", "data": {"hits": 2}}]
    run.say("artifact", {"key": "jd", "name": "京东搜索结果", "type": "data", "parts": parts})
    schema: Json = {"type": "object", "required": ["selected_product"]}
    run.say(
        "task_interaction", {"interaction": 1, "kind": "input", "prompt": PROMPT, "options": OPTIONS, "schema": schema}
    )
    heard = await run.hear("input")
    assert heard["input"] == REQUESTS["aios/task.input"]["input"]
    report = {"key": "report", "name": "价格对比报告", "type": "report", "mime_type": "application/json"}
    run.say("artifact", {**report, "parts": REPORT_PARTS})
    run.say("task_completion", {"result": RESULT})
    run.end(0)
