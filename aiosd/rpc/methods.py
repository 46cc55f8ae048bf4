"""The methods of JSON-RPC: the rows of the table of operations that have a name there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiosd.core.operations import OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiosd.core.operations import Operation

METHODS: Mapping[str, Operation] = {
    operation.rpc: operation for operation in OPERATIONS.values() if operation.rpc is not None
}
"""By JSON-RPC name."""
DISCOVER = "rpc.discover"
"""Answers with the OpenRPC document; every server that has one calls it so."""
