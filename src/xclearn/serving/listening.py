"""How a listening socket is left: no new handshakes, while the last connections are taken up."""

from __future__ import annotations

import ctypes
import socket
import struct
import sys
from pathlib import Path

HANDSHAKE = 0.1  # seconds between two looks for handshakes that have begun and not ended
LONGEST_HANDSHAKE = 8.0  # seconds that they are waited for; a lost packet of theirs is sent again after 1, 3 and 7
_SOCKETS = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))  # of this network namespace, a line each
_SYN_RECEIVED = "03"  # the state there of a handshake whose last packet has not come
_ATTACH_FILTER = 26  # SO_ATTACH_FILTER of Linux, which the socket module does not name
_FLAGS, _SYN = 13, 0x02  # where a TCP header has its flags, and the flag that opens a connection
_LOAD_BYTE, _JUMP_IF_SET, _RETURN = 0x30, 0x45, 0x06  # instructions of the packet filter


def refuse_new(listener: socket.socket) -> bool:
    """Drop packets that open a connection; false where the system cannot.

    A connection that is made between the last `accept` and `close` is reset by the kernel. One whose first packet
    was dropped is tried again by its client's kernel, which then finds the port closed, or the next server.
    """
    if sys.platform != "linux":
        return False
    program = b"".join(
        struct.pack("HBBI", *instruction)  # operation, jump if true, jump if false, operand
        for instruction in [
            (_LOAD_BYTE, 0, 0, _FLAGS),
            (_JUMP_IF_SET, 0, 1, _SYN),
            (_RETURN, 0, 0, 0),
            (_RETURN, 0, 0, 0xFFFFFFFF),
        ]
    )
    instructions = ctypes.create_string_buffer(program, len(program))
    try:
        listener.setsockopt(
            socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack("HL", len(program) // 8, ctypes.addressof(instructions))
        )
    except OSError:  # a sandbox may forbid it
        return False
    return True


def half_open(listener: socket.socket) -> bool:
    """Whether a handshake with this port has begun and not ended; false where the system does not say.

    Its end is up to the client: one far away, or one that does not get its turn on a busy machine, takes its time, and
    is reset if the port is closed before.
    """
    port = f":{listener.getsockname()[1]:04X}"
    for table in _SOCKETS:
        try:
            lines = table.read_text("ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            _, local, _, state, *_ = line.split()
            if state == _SYN_RECEIVED and local.endswith(port):
                return True
    return False
