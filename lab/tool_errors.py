"""A fault of the judge is no verdict: it has an exit code of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import extract_tb
from typing import Final

from click import ClickException
from click.exceptions import Exit

from reliable_pubsub.common.command_line import complain, readable_errors
from reliable_pubsub.common.core.errors import PubSubError

TOOL_FAILED: Final = 70  # EX_SOFTWARE


@contextmanager
def judge_errors() -> Iterator[None]:
    """As `readable_errors`; an unexpected exception does not end with 1, "a rule is broken"."""
    with readable_errors():
        try:
            yield
        except (PubSubError, ClickException, Exit):
            raise
        except Exception as error:
            place = extract_tb(error.__traceback__)[-1]
            complain(
                f"error: the judge itself failed, so there is no verdict: {type(error).__name__}: "
                f"{error} (in {place.filename}, line {place.lineno}). Please report this"
            )
            sys.exit(TOOL_FAILED)
