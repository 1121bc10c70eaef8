# SPDX-License-Identifier: Apache-2.0
# The part of ONNX Runtime that models are measured against; the library has few types.

from collections.abc import Mapping, Sequence

import numpy as np

class SessionOptions:
    intra_op_num_threads: int
    inter_op_num_threads: int
    log_severity_level: int

class InferenceSession:
    def __init__(
        self,
        path_or_bytes: str | bytes,
        sess_options: SessionOptions | None = ...,
        providers: Sequence[str] | None = ...,
    ) -> None: ...
    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, np.ndarray]
    ) -> Sequence[object]: ...
