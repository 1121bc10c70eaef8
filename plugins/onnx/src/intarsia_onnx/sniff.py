# SPDX-License-Identifier: Apache-2.0
"""Say what a file is when it is not an ONNX model."""

from __future__ import annotations

import stat

_MAGIC = (
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"\x89PNG\r\n", "a PNG image"),
    (b"GIF8", "a GIF image"),
    (b"%PDF", "a PDF document"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ", "xz data"),
    (b"\x7fELF", "an ELF binary"),
    (b"\x89HDF", "an HDF5 file (Keras weights?)"),
    (b"\x80\x02", "a Python pickle"),
    (b"\x80\x04", "a Python pickle"),
    (b"version https://git-lfs", "a Git LFS pointer; fetch the real file with 'git lfs pull'"),
)


def found_kind(data: bytes) -> str:
    """Return what ``data`` looks like, e.g. ``a JPEG image``; empty if it could be protobuf."""
    for magic, kind in _MAGIC:
        if data.startswith(magic):
            return kind
    if data.startswith(b"PK\x03\x04"):
        if b"passport.json" in data:
            return "an artifact, which is compiled already"
        return "a zip archive (a PyTorch checkpoint?)"
    if data[4:8] == b"TFL3":
        return "a TensorFlow Lite model"
    head = data[:512].lstrip().lower()
    if head.startswith((b"<!doctype html", b"<html")):
        return "an HTML page"
    if head.startswith((b"<?xml", b"<net")):
        return "XML text"
    if head.startswith((b"{", b"[")):
        return "JSON text"
    return ""


_FIRST_FIELDS = (0x08, 0x12, 0x3A, 0x42)
"""Tags of ModelProto's ir_version, producer_name, graph and opset_import, of which one is first."""


def could_be_onnx(head: bytes) -> bool:
    """Whether a file that begins with these bytes may be an ONNX model, which has no magic."""
    return bool(head) and head[0] in _FIRST_FIELDS and not found_kind(head)


def describe_bytes(data: bytes) -> str:
    """Return words for data that did not parse as a model."""
    kind = found_kind(data)
    if kind:
        return kind
    sample = data[:512]
    if sample and all(32 <= byte < 127 or byte in b"\t\r\n" for byte in sample):
        return "plain text"
    if sample and not any(sample):
        return "zero bytes"
    return f"{len(data)} bytes that are cut short or are not protobuf"


def describe_mode(mode: int) -> str:
    """Return words for a file that is not a regular file, given its ``st_mode``."""
    kinds = (
        (stat.S_ISDIR, "a directory"),
        (stat.S_ISFIFO, "a named pipe"),
        (stat.S_ISCHR, "a character device"),
        (stat.S_ISBLK, "a block device"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISLNK, "a symbolic link"),
    )
    return next((words for test, words in kinds if test(mode)), "a special file")
