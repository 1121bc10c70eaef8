# SPDX-License-Identifier: Apache-2.0
# The part of google-re2 that matches whole texts; the library has no types.

class error(Exception): ...

class Options:
    log_errors: bool

class Regexp:
    def fullmatch(self, text: str) -> object | None: ...

def compile(pattern: str, options: Options | None = ...) -> Regexp: ...
