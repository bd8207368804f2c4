"""What is imported when: public names when they are asked for, the rest where it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import reliable_pubsub

from .harness import REPOSITORY

CLIENTS = ("reliable_pubsub.public", "reliable_pubsub.publisher", "reliable_pubsub.subscriber")
RARE = ("asyncio", "yaml", "http.server", "ssl", "difflib")

TRIED_AGAIN = """\
import sys

class Interrupting:
    def find_spec(self, name, *_):
        if name == "reliable_pubsub.subscriber.client":
            sys.meta_path.remove(self)
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupting())
import reliable_pubsub
try:
    reliable_pubsub.Publisher
except KeyboardInterrupt:
    print(reliable_pubsub.Publisher.__name__, reliable_pubsub.Subscriber.__name__)
"""


def run(program: str) -> str:
    """Run a program in a process that has imported nothing; return what it writes."""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("statement", "left_out"),
    [
        ("import reliable_pubsub", ("zmq", "msgspec", "reliable_pubsub.common", *CLIENTS)),
        ("import reliable_pubsub.__main__", ("zmq", "rich", *CLIENTS, *RARE)),
        ("import reliable_pubsub.proxy.__main__", ("rich", *CLIENTS, *RARE)),
        ("import reliable_pubsub.relay.__main__", ("rich", "sqlite3", *CLIENTS, *RARE)),
        ("import reliable_pubsub.proxy.status_command", (*CLIENTS, *RARE)),
        ("from reliable_pubsub import Publisher, Subscriber", ("click", "rich", *RARE)),
    ],
)
def test_a_process_imports_what_it_needs(statement: str, left_out: tuple[str, ...]) -> None:
    loaded = run(f"{statement}\nimport sys\nprint(*sys.modules)").split()

    assert "reliable_pubsub" in loaded
    assert set(loaded) & set(left_out) == set()


def test_every_public_name_is_listed_and_is_imported_by_a_star() -> None:
    program = "import reliable_pubsub; print(*dir(reliable_pubsub))"
    assert set(run(program).split()) >= set(reliable_pubsub.__all__)

    program = "from reliable_pubsub import *; print(*globals())"
    assert set(run(program).split()) >= set(reliable_pubsub.__all__)


def test_a_name_that_does_not_exist_is_missed_in_the_package() -> None:
    with pytest.raises(AttributeError, match="'reliable_pubsub' has no attribute 'Publishr'"):
        _ = reliable_pubsub.Publishr  # type: ignore[attr-defined]


def test_names_whose_import_was_interrupted_are_imported_when_they_are_asked_for_again() -> None:
    assert run(TRIED_AGAIN) == "Publisher Subscriber\n"
