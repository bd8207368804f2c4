"""Reliable publish/subscribe on ZeroMQ: messages that arrive exactly once.

    from reliable_pubsub import Publisher, Subscriber

The rooms (common, proxy, publisher, subscriber) stand beside this folder and are linked into it.
"""

import platform
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if platform.system() == "Windows":  # asked so, because type checkers would skip what follows
    raise ImportError(
        "reliable_pubsub needs what Linux and macOS have, and Windows has not: there, run it in "
        "WSL (`wsl --install`), with its Python"
    )

_here = Path(__file__).parent
if not (_here / "common").is_dir():  # a checkout without symbolic links
    __path__.append(str(_here.parent))

if TYPE_CHECKING:
    from .public import *  # noqa: F403
    from .public import __all__ as __all__

    __version__: str
else:  # hidden, because type checkers would take any name for one that it finds

    def __getattr__(name: str) -> object:
        """Load the public names when one is asked for: a proxy and most commands need none."""
        if name == "__version__":
            globals()[name] = import_module("importlib.metadata").version("reliable-pubsub")
            return globals()[name]
        if name == "__all__" or not name.startswith("_"):
            public = import_module(".public", __name__)
            names = {"__all__", *public.__all__} - {"aio"}
            globals().update({one: getattr(public, one) for one in names})
            if name == "aio":  # a module, which loads asyncio
                return import_module(".aio", __name__)
            if name in globals():  # also a room that this has loaded
                return globals()[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        """Every name, for people and editors."""
        return sorted({*globals(), *__getattr__("__all__")})
