"""Key files, and endpoints that carry their keys."""

from __future__ import annotations

import copy
import errno
import os
import pickle
import stat
from pathlib import Path
from typing import Any

import pytest

from reliable_pubsub import ConfigurationError, InvalidNameError, secure
from reliable_pubsub.common.core.certificates import KEY_CHARS, is_key
from reliable_pubsub.common.core.keys import SecureEndpoint, keys_of_endpoint
from reliable_pubsub.common.core.rights import KnownKey
from reliable_pubsub.common.core.settings import Settings
from reliable_pubsub.common.key_files import (
    client_keys,
    new_pair,
    read_clients,
    read_pair,
    read_public,
    server_keys,
)
from reliable_pubsub.relay.above import reachable

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change owners")
STRANGER = 65_534


class TestANewPair:
    def test_can_be_read_back(self, tmp_path: Path) -> None:
        public_file, secret_file = new_pair(tmp_path, "proxy")

        pair = read_pair(secret_file)

        assert pair == read_pair(public_file)  # the secret is looked for beside it
        assert read_public(str(public_file)) == read_public(pair.public) == pair.public

    def test_keeps_its_secret_from_other_users(self, tmp_path: Path) -> None:
        old = os.umask(0)
        try:
            _, secret_file = new_pair(tmp_path / "new", "proxy")
        finally:
            os.umask(old)

        assert stat.S_IMODE(secret_file.stat().st_mode) == 0o600
        assert stat.S_IMODE(secret_file.parent.stat().st_mode) == 0o700
        assert read_pair(secret_file).secret not in repr(read_pair(secret_file))

    def test_never_overwrites_one(self, tmp_path: Path) -> None:
        _, secret_file = new_pair(tmp_path, "proxy")
        before = secret_file.read_bytes()

        with pytest.raises(ConfigurationError, match="never overwritten"):
            new_pair(tmp_path, "proxy")

        assert secret_file.read_bytes() == before

    def test_is_not_written_through_a_link(self, tmp_path: Path) -> None:
        (tmp_path / "proxy.key_secret").symlink_to(tmp_path / "elsewhere")

        with pytest.raises(ConfigurationError):
            new_pair(tmp_path, "proxy")

        assert not (tmp_path / "elsewhere").exists()

    def test_that_cannot_be_made_whole_leaves_no_secret(self, tmp_path: Path) -> None:
        (tmp_path / "proxy.key").write_text("of another one")

        with pytest.raises(ConfigurationError, match="never overwritten"):
            new_pair(tmp_path, "proxy")

        assert os.listdir(tmp_path) == ["proxy.key"]

    def test_has_a_name_and_no_path(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidNameError):
            new_pair(tmp_path, "../proxy")


class TestASecretKey:
    @pytest.fixture
    def secret_file(self, tmp_path: Path) -> Path:
        return new_pair(tmp_path, "proxy")[1]

    @pytest.mark.parametrize("mode", [0o644, 0o604, 0o660])
    def test_that_others_can_read_is_refused(self, secret_file: Path, mode: int) -> None:
        secret_file.chmod(mode)

        with pytest.raises(ConfigurationError, match="chmod 600"):
            read_pair(secret_file)

    @AS_ROOT
    @pytest.mark.parametrize("mode", [0o640, 0o440])
    def test_of_root_may_be_readable_by_its_group(self, secret_file: Path, mode: int) -> None:
        secret_file.chmod(mode)

        read_pair(secret_file)

    @AS_ROOT
    def test_of_another_user_that_a_group_can_read_is_refused(self, secret_file: Path) -> None:
        secret_file.chmod(0o640)
        os.chown(secret_file, STRANGER, STRANGER)

        with pytest.raises(ConfigurationError, match="chmod 600"):
            read_pair(secret_file)

    def test_is_found_through_a_link_of_ones_own(self, secret_file: Path, tmp_path: Path) -> None:
        """As in a Kubernetes Secret."""
        link = tmp_path / "link.key_secret"
        link.symlink_to(secret_file)

        assert read_pair(link) == read_pair(secret_file)

    @AS_ROOT
    def test_through_the_link_of_another_user_is_refused(
        self, secret_file: Path, tmp_path: Path
    ) -> None:
        link = tmp_path / "link.key_secret"
        link.symlink_to(secret_file)
        os.chown(link, STRANGER, STRANGER, follow_symlinks=False)

        with pytest.raises(ConfigurationError, match="only links of root"):
            read_pair(link)

    def test_that_is_no_file_is_refused(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe.key_secret", 0o600)

        with pytest.raises(ConfigurationError, match="is no file"):
            read_pair(tmp_path / "pipe.key_secret")

    @pytest.mark.parametrize("text", ["", 'public-key = "short"', "\xff\0"])
    def test_of_another_form_is_refused(self, secret_file: Path, text: str) -> None:
        secret_file.write_text(text)

        with pytest.raises(ConfigurationError, match="keys new"):
            read_pair(secret_file)


class TestTheKnownClients:
    def test_cannot_be_known_where_the_folder_cannot_be_listed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It was read as empty, which revoked every key."""
        new_pair(tmp_path, "sensor-1")

        def denied(path: Path) -> list[str]:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))

        monkeypatch.setattr(os, "listdir", denied)
        with pytest.raises(ConfigurationError, match=r"cannot be listed.*belongs to"):
            read_clients(tmp_path)

    def test_are_the_public_files_of_a_folder(self, tmp_path: Path) -> None:
        new_pair(tmp_path, "sensor-1")
        new_pair(tmp_path, "sensor-2")

        found = read_clients(tmp_path).values()

        assert sorted(one.name for one in found) == ["sensor-1", "sensor-2"]

    def test_are_read_from_a_path_that_looks_like_a_key(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        folder = Path("c" * (KEY_CHARS - len("/a.key")))
        pair = read_pair(new_pair(folder, "a")[1])
        assert is_key(str(folder / "a.key"))

        assert read_clients(folder) == {pair.public: KnownKey(name="a")}

    def test_are_the_map_of_a_file(self, tmp_path: Path) -> None:
        public = read_public(str(new_pair(tmp_path, "sensor-1")[0]))
        (tmp_path / "clients.yaml").write_text(f'"{public}": sensor-1\n')

        assert read_clients(tmp_path / "clients.yaml") == {public: KnownKey(name="sensor-1")}

    def test_of_one_key_have_one_name(self, tmp_path: Path) -> None:
        public_file, _ = new_pair(tmp_path, "sensor-1")
        (tmp_path / "sensor-2.key").write_bytes(public_file.read_bytes())

        with pytest.raises(ConfigurationError, match="the same key"):
            read_clients(tmp_path)

    @pytest.mark.parametrize("text", ["", "[]", "short: sensor-1", f'"{"x" * 40}": 7'])
    def test_in_a_file_of_another_form_are_refused(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "clients.yaml").write_text(text)

        with pytest.raises(ConfigurationError, match=r"clients\.yaml"):
            read_clients(tmp_path / "clients.yaml")


def pickled(endpoint: str) -> object:
    """As a task of Spark gets it."""
    return pickle.loads(pickle.dumps(endpoint))  # noqa: S301


class TestAnEndpointWithKeys:
    @pytest.fixture
    def endpoint(self, tmp_path: Path) -> str:
        public_file, secret_file = new_pair(tmp_path, "proxy")
        return secure("tcp://host:5555", str(public_file), str(secret_file))

    @pytest.mark.parametrize("copied", [copy.copy, pickled])
    def test_is_its_text_and_keeps_them_in_copies(self, endpoint: str, copied: Any) -> None:
        assert copied(endpoint) == endpoint == "tcp://host:5555"
        assert keys_of_endpoint(copied(endpoint)) == keys_of_endpoint(endpoint) is not None

    def test_lends_them_to_the_endpoints_that_its_node_names(self, endpoint: str) -> None:
        assert reachable("tcp://0.0.0.0:5557", endpoint) == "tcp://host:5557"
        for named in ("tcp://0.0.0.0:5557", "tcp://other:5557"):
            assert keys_of_endpoint(reachable(named, endpoint)) == keys_of_endpoint(endpoint)

    def test_has_a_key_of_its_own_if_it_was_given_none(self, tmp_path: Path) -> None:
        public_file, _ = new_pair(tmp_path, "proxy")

        one, other = (keys_of_endpoint(secure("tcp://host:1", str(public_file))) for _ in range(2))

        assert isinstance(secure("tcp://host:1", str(public_file)), SecureEndpoint)
        assert one is not None
        assert other is not None
        assert one.server == other.server
        assert one.own != other.own


class TestWhatIsNoEndpointWithKeys:
    @pytest.mark.parametrize("server_key", ["", "/", "\0", "\ud800", "x" * 5000, "/no/such.key"])
    def test_for_its_server_key_is_refused(self, server_key: str) -> None:
        with pytest.raises(ConfigurationError, match=r"expected|cannot be read"):
            secure("tcp://host:1", server_key)

    @pytest.mark.parametrize("secret_key", ["/", "\0", "\ud800", "x" * 5000, "/no/such.key_secret"])
    def test_for_its_secret_key_is_refused(self, secret_key: str) -> None:
        with pytest.raises(ConfigurationError, match=r"expected|cannot be read"):
            secure("tcp://host:1", "x" * 40, secret_key)

    @pytest.mark.parametrize(
        "endpoint", ["", "localhost:5555", "tcp://*:1", "tcp://host", "ipc://\0"]
    )
    def test_for_its_form_is_refused(self, endpoint: str) -> None:
        with pytest.raises(ConfigurationError, match="expected an endpoint such as"):
            secure(endpoint, "x" * 40)

    def test_leaves_no_file_open(self) -> None:
        os.close(free := os.open("/", os.O_RDONLY))

        with pytest.raises(ConfigurationError, match="is no file"):
            secure("tcp://host:1", "/")

        os.close(still_free := os.open("/", os.O_RDONLY))
        assert still_free == free


class TestTheSettings:
    def test_of_a_client_with_a_key_name_that_of_its_server(self, tmp_path: Path) -> None:
        _, secret_file = new_pair(tmp_path, "sensor-1")

        with pytest.raises(ConfigurationError, match="server_key"):
            client_keys(Settings(secret_key=str(secret_file)))

    def test_of_a_server_that_knows_clients_name_its_key(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match="secret_key"):
            server_keys(Settings(clients=str(tmp_path)))

    def test_without_keys_mean_plaintext(self) -> None:
        assert client_keys(Settings()) is None
        assert server_keys(Settings()) is None
