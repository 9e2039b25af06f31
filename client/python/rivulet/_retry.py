# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""When a call that failed is tried again."""

import random
import time
from dataclasses import dataclass
from typing import Optional

from rivulet.errors import Busy, Overloaded, RivuletError, Unavailable

_FIRST_WAIT, _LONGEST_WAIT = 0.1, 5.0  # seconds


@dataclass
class Retries:
    """Of one call: how many are left, and until when (time.monotonic(); None: no limit)."""

    left: int
    deadline: Optional[float]
    waits: int = 0

    @classmethod
    def of(cls, retries: int, timeout: Optional[float]) -> "Retries":
        return cls(retries, None if timeout is None else time.monotonic() + timeout)

    def timeout(self) -> Optional[float]:
        return None if self.deadline is None else max(self.deadline - time.monotonic(), 0.001)

    def wait_after(self, error: RivuletError, repeatable: bool) -> Optional[float]:
        """Seconds to wait before the next try; None: the error is final. The server says when, by retry_after, where nothing of the
        call has begun. Otherwise only a call that changes nothing (`repeatable`) is tried again, after a lost connection."""
        wait: Optional[float] = None
        if isinstance(error, (Busy, Overloaded)):
            wait = error.retry_after
        elif isinstance(error, Unavailable) and repeatable:
            wait = min(_FIRST_WAIT * 2**self.waits, _LONGEST_WAIT) * random.uniform(0.5, 1.0)
        if wait is None or self.left == 0:
            return None
        if self.deadline is not None and time.monotonic() + wait >= self.deadline:
            return None
        self.left -= 1
        self.waits += 1
        return wait
