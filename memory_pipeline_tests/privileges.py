"""Root passes by the permissions of files; within these it is bound by them as everybody is (Linux capabilities)."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

_DAC_OVERRIDE, _DAC_READ_SEARCH = 1, 2
_MASK = 1 << _DAC_OVERRIDE | 1 << _DAC_READ_SEARCH
_VERSION_3 = 0x20080522
_PR_CAPBSET_DROP = 24

_libc = ctypes.CDLL(None, use_errno=True)
# Of capabilities 0 to 31, then of the others: effective, permitted, inheritable.
_Sets = ctypes.c_uint32 * 6


@contextmanager
def bound_by_permissions() -> Iterator[None]:
    """This thread cannot read or write what its user may not, root or not."""
    before = _Sets()
    _require(_libc.capget(_header(), before))
    bound = _Sets(*before)
    bound[0] &= ~_MASK
    _require(_libc.capset(_header(), bound))
    try:
        yield
    finally:
        _require(_libc.capset(_header(), before))


def bind_child() -> None:
    """As `preexec_fn` of a subprocess: the program that it becomes, and its children, are bound."""
    if os.geteuid() == 0:
        for capability in (_DAC_OVERRIDE, _DAC_READ_SEARCH):
            _require(_libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0))


def _header() -> ctypes.Array[ctypes.c_uint32]:
    return (ctypes.c_uint32 * 2)(_VERSION_3, 0)


def _require(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
