"""Connection strings as they may be shown. Pure."""

from __future__ import annotations

import re
from typing import Final

_IN_ADDRESS: Final = re.compile(r"(://[^:@/\s]*):.*@")  # up to the last @: rather too much
_IN_OPTIONS: Final = re.compile(r"(\bpassword\s*=\s*)('[^']*'|[^&\s]+)")


def without_password(text: str) -> str:
    """A text with `***` in place of each password of a connection string in it."""
    return _IN_OPTIONS.sub(r"\1***", _IN_ADDRESS.sub(r"\1:***@", text))
