"""What setup.cfg cannot say: where folders are, and where the links of the README lead."""

import configparser
import re
import sys
from pathlib import Path

from setuptools import setup

CONFIGURATION = configparser.ConfigParser()
CONFIGURATION.read("setup.cfg", encoding="utf-8")
PACKAGES = CONFIGURATION["options"]["packages"].split()
REPOSITORY = CONFIGURATION["metadata"]["url"]
# In a clone these are beside the package; an installed package contains them.
SHIPPED = ("configs", "docs", "examples")


def folders() -> dict[str, str]:
    """Return the folder of each package that is not below `reliable_pubsub`.

    These are the shipped folders. In a ZIP or a clone without symbolic links, the rooms too.
    """
    found = {f"reliable_pubsub.{name}": name for name in SHIPPED if not is_editable()}
    for package in PACKAGES:
        _, _, inside = package.partition(".")
        if not Path("reliable_pubsub", *inside.split(".")).is_dir():
            found[package] = inside.replace(".", "/")
    return found


def is_editable() -> bool:
    """Return whether this is `pip install -e`, which is to be a plain path: see setup.cfg."""
    return "editable_wheel" in sys.argv


def readme() -> str:
    """Return the README with absolute links, for a package index."""
    text = Path("README.md").read_text(encoding="utf-8")
    text = re.sub(r"(!\[[^]]*\]\()(?!https?:)", rf"\1{REPOSITORY}/raw/main/", text)
    return re.sub(r"(\]\()(?!https?:|#)", rf"\1{REPOSITORY}/blob/main/", text)


setup(
    packages=sorted({*PACKAGES, *folders()}),
    package_dir={"": ".", **folders()},
    long_description=readme(),
    long_description_content_type="text/markdown",
    project_urls={
        "Documentation": f"{REPOSITORY}/tree/main/docs",
        "Changelog": f"{REPOSITORY}/blob/main/CHANGELOG.md",
        "Issues": f"{REPOSITORY}/issues",
    },
)
