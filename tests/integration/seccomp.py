# SPDX-License-Identifier: Apache-2.0
"""System calls refused to a child, as by a kernel that lacks them or by a filter."""
import ctypes
import struct

IO_URING_SETUP, CACHESTAT = 425, 451 # the same on every architecture
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
SECCOMP_RET_ERRNO, SECCOMP_RET_ALLOW = 0x00050000, 0x7fff0000


class Program(ctypes.Structure):
    """struct sock_fprog"""
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def refuse(calls):
    """For a child before it runs its program: {number of a system call: errno}."""
    def instruction(code, yes, no, k):
        return struct.pack("=HBBI", code, yes, no, k)
    text = instruction(0x20, 0, 0, 0) # the number
    for number, answer in calls.items():
        text += instruction(0x15, 0, 1, number) + instruction(0x06, 0, 0, SECCOMP_RET_ERRNO | answer)
    text += instruction(0x06, 0, 0, SECCOMP_RET_ALLOW)
    program = Program(len(text) // 8, text)
    libc = ctypes.CDLL(None, use_errno=True)

    def install():
        if (libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
                or libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) != 0):
            raise OSError(ctypes.get_errno(), "prctl")
    return install
