# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""What calls return. Plain values: nothing here holds a connection."""

from dataclasses import dataclass, field
from typing import Any, List, Optional, Tuple

from rivulet import _proto


@dataclass(frozen=True)
class TokenLogprob:
    """The natural logarithm of a token's probability, before penalties and temperature."""

    token_id: int
    logprob: float
    text: str
    top: Tuple["TokenLogprob", ...] = ()


@dataclass(frozen=True)
class Usage:
    prompt_tokens: int = 0
    cached_tokens: int = 0  # of the context, not computed again
    completion_tokens: int = 0


@dataclass(frozen=True)
class Piece:
    """What a stream has generated since its last piece. The last piece of each completion has `finish_reason`, `usage`, and, where
    it became a session of its own, `fork_id`."""

    text: str
    token_ids: Tuple[int, ...] = ()
    logprobs: Tuple[TokenLogprob, ...] = ()
    index: int = 0
    finish_reason: Optional[str] = None  # stop, eos, length, cancelled, deadline, error
    matched_stop: str = ""
    usage: Optional[Usage] = None
    fork_id: str = ""


@dataclass
class Completion:
    """A whole completion. `finish_reason` as of Piece."""

    text: str = ""
    token_ids: List[int] = field(default_factory=list)
    logprobs: List[TokenLogprob] = field(default_factory=list)
    index: int = 0
    finish_reason: Optional[str] = None
    matched_stop: str = ""
    usage: Usage = Usage()
    fork_id: str = ""

    def add(self, piece: Piece) -> None:
        self.text += piece.text
        self.token_ids.extend(piece.token_ids)
        self.logprobs.extend(piece.logprobs)
        if piece.finish_reason is not None:
            self.finish_reason, self.matched_stop, self.fork_id = piece.finish_reason, piece.matched_stop, piece.fork_id
            self.usage = piece.usage or Usage()


@dataclass(frozen=True)
class Model:
    name: str
    architecture: str
    parameters: int
    vocab_size: int
    max_context: int  # 0: unbounded
    state_bytes_per_session: int
    state_bytes_per_token: int
    has_tokenizer: bool
    has_chat_template: bool


@dataclass(frozen=True)
class SessionInfo:
    id: str
    name: str
    position: int  # tokens in its context
    state_bytes: int
    busy: bool
    kept_positions: Tuple[int, ...]
    forked_from: str
    forked_at: int


def logprob_of(message: Any) -> TokenLogprob:
    return TokenLogprob(message.token_id, message.logprob, message.text, tuple(logprob_of(top) for top in message.top))


def piece_of(message: Any) -> Piece:
    reason = None
    if message.finish_reason:
        reason = _proto.name_of("FinishReason", message.finish_reason)[len("FINISH_REASON_"):].lower()
    usage = message.usage
    return Piece(message.text, tuple(message.token_ids), tuple(logprob_of(each) for each in message.logprobs), message.index, reason,
                 message.matched_stop, Usage(usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens) if reason else None, message.fork_id)


def model_of(message: Any) -> Model:
    return Model(**{name: getattr(message, name) for name in Model.__dataclass_fields__})


def session_of(message: Any) -> SessionInfo:
    fields = {name: getattr(message, name) for name in SessionInfo.__dataclass_fields__}
    return SessionInfo(**{**fields, "kept_positions": tuple(message.kept_positions)})
