"""A listening socket that is left: nobody who has connected is reset, nobody new is taken."""

import contextlib
import ctypes
import errno
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from xclearn.serving.listening import HANDSHAKE, half_open, refuse_new

ROUNDS, CLIENTS = 3, 8
SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27  # of Linux

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="packet filters of Linux")


def test_connections_made_while_a_port_is_left_are_not_reset() -> None:
    outcomes: Counter[str] = Counter()
    for _ in range(ROUNDS):
        with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
            listener.setblocking(False)
            address = listener.getsockname()
            threads = [threading.Thread(target=connect_until_refused, args=(address, outcomes)) for _ in range(CLIENTS)]
            for thread in threads:
                thread.start()
            answer_for(0.02, listener)
            assert refuse_new(listener)
            answer_for(HANDSHAKE, listener)
            while half_open(listener):
                answer_for(HANDSHAKE, listener)
            time.sleep(0.005)  # a busy machine, between the last accept and the close
        for thread in threads:
            thread.join()
    assert set(outcomes) == {"answered", "refused"}, outcomes
    assert outcomes["refused"] == ROUNDS * CLIENTS


def answer_for(seconds: float, listener: socket.socket) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(BlockingIOError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    connection.sendall(b".")


def connect_until_refused(address: tuple[str, int], outcomes: Counter[str]) -> None:
    while True:
        try:
            with socket.create_connection(address) as connection:
                outcomes["answered" if connection.recv(1) == b"." else "closed"] += 1
        except ConnectionRefusedError:
            outcomes["refused"] += 1
            return
        except OSError as error:
            outcomes[repr(error)] += 1


def test_a_packet_that_opens_a_connection_is_dropped() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        before = socket.create_connection(listener.getsockname(), timeout=5)
        assert refuse_new(listener)
        with pytest.raises(TimeoutError):
            socket.create_connection(listener.getsockname(), timeout=0.3)
        taken, _ = listener.accept()
        with before, taken:
            taken.sendall(b"still here")
            assert before.recv(10) == b"still here"


def test_a_handshake_is_half_open_until_the_client_ends_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, deaf_client(listener.getsockname()) as client:
        assert half_open(listener)
        hear_again(client)
        end = time.monotonic() + 60
        while half_open(listener) and time.monotonic() < end:  # the answer to it is sent again after a second
            time.sleep(0.05)
        assert not half_open(listener)
        taken, _ = listener.accept()
        taken.close()
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()):
        assert not half_open(listener)


@contextlib.contextmanager
def deaf_client(address: tuple[str, int]) -> Iterator[socket.socket]:
    """A client that has opened a connection and does not hear the answer, so that the handshake has no end."""
    with socket.socket() as client:
        drop_all = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0), 8)  # return 0: no packet passes
        client.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(drop_all)))
        client.setblocking(False)
        assert client.connect_ex(address) == errno.EINPROGRESS
        client.setblocking(True)
        client.settimeout(60)
        yield client


def hear_again(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
