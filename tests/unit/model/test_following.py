"""What `aiosd.model.following` accepts, the models of the same operations accept, with the same values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from aiosd.model import following, wire

if TYPE_CHECKING:
    from aiosd.model.jsontext import JsonValue

KINDS = ("status", "progress", "artifact", "input_required", "auth_required", "log", "result", "error")
MODELS: dict[str, type[wire.Wire]] = {
    "TaskSubscribe": wire.TaskSubscribe,
    "TaskResubscribe": wire.TaskResubscribe,
}

words = st.sampled_from((*KINDS, "timeline", "task.log"))
anything = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.just([]), st.just({}))
rows = st.fixed_dictionaries(
    {},
    optional={
        "task_id": st.one_of(st.from_regex(r"^[A-Za-z0-9._\- \n]{0,130}$"), anything),
        "events": st.one_of(st.lists(st.one_of(words, anything), max_size=18), anything),
        "all_users": anything,
        "last_event_id": st.one_of(st.text(max_size=70), anything),
        "limit": st.one_of(st.integers(-1, 10_002), st.floats(0, 10), anything),
        "other": anything,
    },
)


@given(row=rows)
def test_the_models_say_the_same(row: dict[str, JsonValue]) -> None:
    for name, plain in following.PLAIN.items():
        found = plain(row)
        if found is not None:
            try:
                expected = MODELS[name].model_validate(row)
            except ValidationError as error:
                raise AssertionError(row) from error
            assert {key: getattr(found, key) for key in type(expected).model_fields} == expected.model_dump()


def test_what_clients_send_needs_no_model() -> None:
    rows: list[dict[str, JsonValue]] = [
        {}, {"task_id": "task-u0-x", "events": [*KINDS], "all_users": True}, {"task_id": "", "events": []}
    ]  # fmt: skip
    for row in rows:
        assert following.subscribe(row) is not None
        assert following.resubscribe({**row, "last_event_id": "evt-0000000000000007", "limit": 500}) is not None
