"""Every request of the table is refused with the error and the argument that it names; nothing reaches the core."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from aiosd.bus.connection import BusCallError, Call, SystemBus
from aiosd.bus.paths import BUS_NAME
from tests.bus.bad_requests import BAD_REQUESTS, INVALID_PARAMS, BadRequest
from tests.bus.fake_core import FakeCore, served
from tests.bus.running import run_for

if TYPE_CHECKING:
    from tests.bus.conftest import PrivateBus


async def _refusal(client: SystemBus, bad: BadRequest) -> str:
    """What is wrong with the answer, "" when it is right."""
    call = Call(BUS_NAME, bad.path, bad.interface, bad.member, bad.signature, bad.body)
    try:
        await client.call(call)
    except BusCallError as error:
        if error.name != bad.error:
            return f"{bad}: {error.name} instead of {bad.error}"
        if "Traceback" in error.message or len(error.message) > 500:
            return f"{bad}: said {error.message[:600]}"
        if bad.error != INVALID_PARAMS:
            return ""
        data = json.loads(str(error.body[1]))
        if (data["error_id"], data.get("field")) != ("AIOS-INVALID-PARAMS", bad.field):
            return f"{bad}: {data}"
        return ""
    return f"{bad}: answered"


def test_the_table_is_large_and_has_no_row_twice() -> None:
    assert len(BAD_REQUESTS) >= 150
    assert len({repr(bad) for bad in BAD_REQUESTS}) == len(BAD_REQUESTS)


def test_bad_requests_are_refused_by_name(private_bus: PrivateBus) -> None:
    async def scenario() -> tuple[list[str], list[str]]:
        core = FakeCore()
        async with served(core) as (client, _):
            wrong = [await _refusal(client, bad) for bad in BAD_REQUESTS]
        return [text for text in wrong if text], [name for name, _, _ in core.calls]

    wrong, reached = run_for(60, scenario())
    assert wrong == []
    assert reached == []
