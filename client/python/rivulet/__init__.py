# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Client of Rivulet, a server for linear-time attention language models."""

from rivulet.aio import AsyncClient, AsyncSession, AsyncStream
from rivulet.client import Client, Session, Stream
from rivulet.errors import (Busy, DeadlineExceeded, InvalidRequest, NotAllowed, NotFound, NotServed, Overloaded, RivuletError, Unavailable)
from rivulet.types import Completion, Model, Piece, SessionInfo, TokenLogprob, Usage

__all__ = [
    "AsyncClient", "AsyncSession", "AsyncStream", "Busy", "Client", "Completion", "DeadlineExceeded", "InvalidRequest", "Model", "NotFound",
    "NotAllowed", "NotServed", "Overloaded", "Piece", "RivuletError", "Session", "SessionInfo", "Stream", "TokenLogprob", "Unavailable", "Usage",
]
