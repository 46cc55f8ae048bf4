"""Seed 000's story as a real program: searches two shops, asks the person which product, confirms, reports."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from aiosd.worker.task import Task

if TYPE_CHECKING:
    from aiosd.worker.task import Json

PRICES: dict[str, int] = {"jd": 299, "taobao": 289}
OPTIONS: list[Json] = [{"id": "product-123", "title": "A"}, {"id": "product-456", "title": "B"}]
SCHEMA: dict[str, Json] = {
    "type": "object",
    "required": ["selected_product", "confirm_purchase"],
    "properties": {
        "selected_product": {"enum": ["product-123", "product-456"]},
        "confirm_purchase": {"type": "boolean"},
    },
}

with Task.connect() as task:
    task.progress(25, "正在搜索京东...", current_step=1, total_steps=4)
    time.sleep(0.3)  # a search takes its time; of progress that comes at once, the newest counts
    task.progress(50, "正在搜索淘宝...", current_step=2, total_steps=4)
    task.artifact("jd", name="京东搜索结果", type="data", data={"price": PRICES["jd"]})
    prompt = "找到多个商品，请选择要比较的商品"  # noqa: RUF001 - the document's own comma
    answer = task.ask(prompt, options=OPTIONS, schema=SCHEMA)
    report: dict[str, Json] = {shop: {"price": price} for shop, price in PRICES.items()}
    task.artifact("report", name="价格对比报告", type="report", mime_type="application/json", data=report)
    task.complete({"product": answer["selected_product"], "cheapest": min(PRICES, key=PRICES.__getitem__)})
