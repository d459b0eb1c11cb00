"""How a listening socket is left: no new handshakes, while the last connections are taken up."""

from __future__ import annotations

import ctypes
import socket
import struct
import sys

HANDSHAKE = 0.1  # seconds in which a handshake that has begun ends
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
