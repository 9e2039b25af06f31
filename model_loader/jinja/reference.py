# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""What transformers and jinja2 make of a template. Needs both (transformers 5)."""

import datetime
from unittest import mock

from transformers.utils import chat_template_utils

# The time that strftime_now shows.
NOW = 1_800_000_000


class FixedTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(NOW, tz)


def render(template, variables):
    """{"text": ...}, or {"error": ...} when the template or the input is refused."""
    try:
        compiled = chat_template_utils._compile_jinja_template(template)
        with mock.patch.object(chat_template_utils, "datetime", FixedTime):
            text = compiled.render(**variables)
        text.encode("utf-8")
        return {"text": text}
    except Exception as error:  # every kind: TemplateError, TypeError, ValueError, KeyError ...
        return {"error": f"{type(error).__name__}: {error}"}
