# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""What a call may raise. Every error has the server's message, which names the field or session and the remedy."""

from typing import Any, Dict, Optional, Type

import grpc


class RivuletError(Exception):
    """A call failed. `retry_after`: seconds after which the server asks to try again, or None if waiting alone does not help."""

    def __init__(self, message: str, code: str = "UNKNOWN", retry_after: Optional[float] = None) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after = retry_after


class InvalidRequest(RivuletError):
    """A field is outside its limits."""


class NotServed(RivuletError):
    """The server, or its model, does not do this."""


class NotAllowed(RivuletError):
    """The server asks for a token: there is none, it is not valid, or it does not allow this."""


class NotFound(RivuletError):
    """There is no such session; the message says what became of it."""


class Busy(RivuletError):
    """A turn of the session is still running."""


class Overloaded(RivuletError):
    """The queue is full, or the request can never fit."""


class Unavailable(RivuletError):
    """The server cannot be reached, or is shutting down."""


class DeadlineExceeded(RivuletError):
    """The call took longer than its timeout."""


_CLASSES: Dict[str, Type[RivuletError]] = {
    "INVALID_ARGUMENT": InvalidRequest,
    "OUT_OF_RANGE": InvalidRequest,
    "ALREADY_EXISTS": InvalidRequest,
    "FAILED_PRECONDITION": NotServed,
    "UNIMPLEMENTED": NotServed,
    "UNAUTHENTICATED": NotAllowed,
    "PERMISSION_DENIED": NotAllowed,
    "NOT_FOUND": NotFound,
    "ABORTED": Busy,
    "RESOURCE_EXHAUSTED": Overloaded,
    "UNAVAILABLE": Unavailable,
    "DEADLINE_EXCEEDED": DeadlineExceeded,
}


def from_grpc(error: Any) -> RivuletError:
    """Of a grpc.RpcError that ended a call, sync or async."""
    code = error.code().name if isinstance(error.code(), grpc.StatusCode) else "UNKNOWN"
    after = None
    for key, value in error.trailing_metadata() or ():
        if key == "retry-after-ms":
            after = int(value) / 1000
    return _CLASSES.get(code, RivuletError)(error.details() or code, code, after)
