# SPDX-License-Identifier: Apache-2.0
"""What partitioning decided, for people and for gates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from intarsia_ir.graph.expr import CallFunction, Expr, Function
from intarsia_ir.graph.types import TensorType
from intarsia_ir.graph.typical import typical_values
from intarsia_ir.graph.walk import post_order
from intarsia_ir.passes.fuse_quantize import is_in_float
from intarsia_ir.regions.region import Region
from intarsia_ir.regions.support import Code
from intarsia_ir.regions.work import count_bytes
from intarsia_runtime.errors import GateFailed

from .annotate import Annotated
from .cautions import cautions_of
from .labels import label_calls
from .merge import Apart


class MatchCost(Struct, frozen=True):
    """What a match costs on an accelerator, and its calls on the fallback, in seconds.

    Attributes:
        here: On the accelerator.
        fallback: On the fallback.
        source: Where ``here`` comes from: ``stated`` by the plugin, ``measured``, ``estimated``.
    """

    here: float
    fallback: float
    source: str = "estimated"

    def to_json(self) -> dict[str, object]:
        """Return the costs as the command line prints them."""
        return {
            "seconds": self.here,
            "fallback_seconds": self.fallback,
            "source": self.source,
        }


class RegionCosts(Struct, frozen=True):
    """What a region costs, in seconds.

    Attributes:
        work: Of its calls.
        border: The launch, and copies of the values that enter and leave.
        fallback: Of its calls, if the fallback computed them.
    """

    work: float
    border: float
    fallback: float

    def to_json(self) -> dict[str, object]:
        """Return the costs as the command line prints them."""
        return {"work": self.work, "border": self.border, "fallback": self.fallback}


class PlanCosts(Struct, frozen=True):
    """What placements of the whole model cost, in seconds, by the same model of cost.

    Attributes:
        chosen: This one.
        greedy: Every call to the first accelerator that takes it.
        fallback: Everything to the fallback.
        sources: Where the costs of matches come from, and of how many.
    """

    chosen: float
    greedy: float
    fallback: float
    sources: Mapping[str, int] = field(default_factory=dict[str, int])

    def __str__(self) -> str:
        """One line for people."""
        times = [seconds_text(seconds) for seconds in (self.chosen, self.greedy, self.fallback)]
        text = f"estimated cost {times[0]} (greedy {times[1]}, the fallback alone {times[2]})"
        if not self.sources.get("measured"):
            return text
        counts = ", ".join(f"{count} {source}" for source, count in sorted(self.sources.items()))
        return f"{text}; matches: {counts}"

    def to_json(self) -> dict[str, object]:
        """Return the costs as the command line prints them."""
        totals = {"chosen": self.chosen, "greedy": self.greedy, "fallback": self.fallback}
        return {**totals, "sources": dict(sorted(self.sources.items()))}


class Verdict(Struct, frozen=True):
    """What one accelerator says of one node.

    Attributes:
        node: Name of the node, unique in the model.
        op: Operator.
        accelerator: Target kind.
        verdict: ``yes`` or ``no``.
        code: A value of :class:`~intarsia_ir.regions.support.Code`.
        detail: The row for a yes, the reason in words for a no.
        cost: What its match would cost, if the accelerator takes the node and costs were compared.
        caution: What the accelerator computes otherwise than defined; empty if nothing.
    """

    node: str
    op: str
    accelerator: str
    verdict: str
    code: str
    detail: str
    cost: MatchCost | None = None
    caution: str = ""

    def to_json(self) -> dict[str, object]:
        """Return the row as the command line prints it."""
        return {
            **({} if self.cost is None else {"cost": self.cost.to_json()}),
            "node": self.node,
            "op": self.op,
            "accelerator": self.accelerator,
            "verdict": self.verdict,
            "code": self.code,
            "detail": f"{self.detail}; {self.caution}" if self.caution else self.detail,
        }


class RegionRow(Struct, frozen=True):
    """One region in the report.

    Attributes:
        name: Name of the region's function.
        accelerator: Target kind.
        nodes: Names of its nodes, unique in the model, in topological order.
        bytes_in: Bytes of its inputs; constants are inside and do not count.
        bytes_out: Bytes of its outputs.
        cost: What it costs, if costs were compared.
        turned: Inputs and outputs that are images, turned between channels first and last.
    """

    name: str
    accelerator: str
    nodes: tuple[str, ...]
    bytes_in: int
    bytes_out: int
    cost: RegionCosts | None = None
    turned: int = 0

    def to_json(self) -> dict[str, object]:
        """Return the row as the command line prints it."""
        return {
            **({} if self.cost is None else {"cost": self.cost.to_json()}),
            "name": self.name,
            "accelerator": self.accelerator,
            "nodes": list(self.nodes),
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
            **({"turned": self.turned} if self.turned else {}),
        }


class LeftRow(Struct, frozen=True):
    """What an accelerator does not get because the fallback is faster.

    Attributes:
        accelerator: Target kind.
        nodes: How many nodes it would take and nobody gets.
        greedy: How many nodes it would get with ``--plan greedy``.
    """

    accelerator: str
    nodes: int
    greedy: int

    def to_json(self) -> dict[str, object]:
        """Return the row as the command line prints it."""
        return {"accelerator": self.accelerator, "nodes": self.nodes, "greedy": self.greedy}


class HostRow(Struct, frozen=True):
    """A node that is carried out in NumPy on the host.

    Attributes:
        node: Its name.
        op: Name of its operator in the model.
        reason: Why it is in no compiled piece.
    """

    node: str
    op: str
    reason: str

    def to_json(self) -> dict[str, object]:
        """Return the row as a value that prints as JSON."""
        return {"node": self.node, "op": self.op, "reason": self.reason}


class Placement(Struct, frozen=True):
    """The report of one partitioning.

    Attributes:
        nodes: How many calls the model has after preparation.
        offloaded: How many of them an accelerator takes; those that are simulated do not count.
        regions: One row for each region.
        verdicts: Exactly one row for every (node, accelerator).
        border_bytes: Bytes that enter or leave regions in one run; symbolic sizes count as nothing.
        apart: Neighbouring regions whose merge would make a cycle.
        host: Nodes that no backend compiles: the ``vm`` executor carries them out in NumPy.
        in_float: Operators that are computed in float32 although their operands are quantized.
        cost: What the placement costs, if costs were compared.
        simulated: Target kind to how its code is simulated instead of run on its device.
        left: For each accelerator what it does not get because of cost; empty if nothing is so.
        faster: How many nodes are the fallback's because it is faster.
        fallback: Target kind of the fallback, or other words for it.
    """

    nodes: int
    offloaded: int
    regions: tuple[RegionRow, ...]
    verdicts: tuple[Verdict, ...]
    border_bytes: int
    apart: tuple[Apart, ...] = ()
    host: tuple[HostRow, ...] = ()
    in_float: tuple[str, ...] = ()
    cost: PlanCosts | None = None
    simulated: Mapping[str, str] = field(default_factory=dict[str, str])
    left: tuple[LeftRow, ...] = ()
    faster: int = 0
    fallback: str = "the fallback"

    @property
    def percent(self) -> float:
        """Offloaded nodes in percent; 100 for a model without nodes."""
        return 100.0 * self.offloaded / self.nodes if self.nodes else 100.0

    def __str__(self) -> str:
        count = len(self.regions)
        if self.faster and not count:
            return (
                f"{self.offloaded}/{self.nodes} nodes offloaded: {self._left_text()}"
                f"{self._host_text()}"
            )
        return (
            f"{self.offloaded}/{self.nodes} nodes offloaded ({self.percent:.0f} %), "
            f"{count} region{'' if count == 1 else 's'}, "
            f"{bytes_text(self.border_bytes)} across borders{self._turned_text()}"
            f"{'; ' if self.faster else ''}{self._left_text()}{self._host_text()}"
            f"{self._simulated_text()}"
        )

    @property
    def idle(self) -> Mapping[str, str]:
        """Accelerators that get no node, each with the reason in words."""
        busy = {region.accelerator for region in self.regions}
        names = dict.fromkeys(row.accelerator for row in self.verdicts)
        return {name: self._idle_reason(name) for name in names if name not in busy}

    def _idle_reason(self, accelerator: str) -> str:
        for row in self.left:
            if row.accelerator == accelerator and row.nodes:
                return (
                    f"{row.nodes} of {self.nodes} nodes are faster on {self.fallback} "
                    f"(--plan greedy gives it {row.greedy})"
                )
        mine = [row for row in self.verdicts if row.accelerator == accelerator]
        (code, detail), times = max(Counter((row.code, row.detail) for row in mine).items(), key=_n)
        return f"most often it says {code}: {detail} ({times} of {self.nodes} nodes)"

    def _left_text(self) -> str:
        """Say how many nodes the fallback has because it is faster; nothing if none."""
        if not self.faster:
            return ""
        counts = " and ".join(f"{row.greedy} to {row.accelerator}" for row in self.left)
        return f"{self.faster} faster on {self.fallback} (--plan greedy gives {counts})"

    def _turned_text(self) -> str:
        """Say how many images change their layout at borders; nothing if none does."""
        count = sum(region.turned for region in self.regions)
        images = "image" if count == 1 else "images"
        return f", {count} {images} turned between NCHW and NHWC" if count else ""

    def _host_text(self) -> str:
        """Say how many nodes no backend compiles; nothing if all are compiled."""
        if not self.host:
            return ""
        count = len(self.host)
        kinds = ", ".join(sorted({row.op for row in self.host}))
        nodes = "1 node runs" if count == 1 else f"{count} nodes run"
        return f"; {nodes} in NumPy on the host ({kinds})"

    def _simulated_text(self) -> str:
        """Say what is simulated, and how; nothing if all code runs on its device."""
        parts: list[str] = []
        for kind, how in self.simulated.items():
            count = sum(len(row.nodes) for row in self.regions if row.accelerator == kind)
            nodes = f"{count} node{'' if count == 1 else 's'} of " if count else ""
            parts.append(f"; SIMULATED: {nodes}'{kind}' {how}")
        return "".join(parts)

    def summary(self) -> dict[str, object]:
        """Return what a passport keeps of the report, as a value that prints as JSON."""
        return {
            "summary": str(self),
            "nodes": self.nodes,
            "offloaded": self.offloaded,
            "border_bytes": self.border_bytes,
            "regions": [region.to_json() for region in self.regions],
            **({"left": [row.to_json() for row in self.left]} if self.left else {}),
            **({"idle": dict(self.idle)} if self.idle else {}),
            **({"host": [row.to_json() for row in self.host]} if self.host else {}),
            **({"in_float": list(self.in_float)} if self.in_float else {}),
            **cautions_of(self.regions, self.verdicts),
            **({"simulated": dict(self.simulated)} if self.simulated else {}),
        }

    def to_json(self) -> dict[str, object]:
        """Return the report as a value that prints as JSON."""
        cost = {} if self.cost is None else {"cost": self.cost.to_json()}
        verdicts = [verdict.to_json() for verdict in self.verdicts]
        return {**self.summary(), "verdicts": verdicts, **cost}


def float_text(operators: Sequence[str]) -> str:
    """Say which operators of a quantized model are computed in float32; empty if none is."""
    if not operators:
        return ""
    nodes = "1 node has" if len(operators) == 1 else f"{len(operators)} nodes have"
    kinds = ", ".join(sorted(set(operators)))
    return f"{nodes} quantized operands and no form on integers, so float32: {kinds}"


def report(
    annotated: Annotated, main: Function, regions: Sequence[Region], apart: Sequence[Apart]
) -> Placement:
    """Sum up a partitioning.

    Args:
        annotated: The answers of the last round.
        main: The outlined entry function.
        regions: Its regions.
        apart: Merges that were refused.
    """
    labels = label_calls(annotated.calls)
    rows = [
        _region_row(region, tuple(labels[c] for c in region.origins.values())) for region in regions
    ]
    verdicts = tuple(
        Verdict(
            labels[call],
            call.name,
            kind,
            "yes" if support.code is Code.OK else "no",
            support.code.value,
            support.detail,
            caution=support.caution,
        )
        for call in annotated.calls
        for kind, support in zip(annotated.kinds, annotated.verdicts[call], strict=True)
    )
    offloaded = sum(len(region.origins) for region in regions)
    return Placement(
        len(annotated.calls),
        offloaded,
        tuple(rows),
        verdicts,
        border_bytes(main),
        tuple(apart),
        in_float=tuple(call.name for call in annotated.calls if is_in_float(call)),
    )


def with_turned(
    placement: Placement, regions: Sequence[Region], channels_last: frozenset[str]
) -> Placement:
    """Count the images that regions turn between channels first and last.

    Args:
        placement: The report.
        regions: Its regions.
        channels_last: Accelerators whose images have the channels last.
    """
    counts = {
        region.name: sum(map(_is_turned, (*region.function.params, *region.function.outputs)))
        for region in regions
        if region.kind in channels_last
    }
    rows = tuple(replace(row, turned=counts.get(row.name, 0)) for row in placement.regions)
    return replace(placement, regions=rows)


def with_simulated(placement: Placement, simulated: Mapping[str, str]) -> Placement:
    """Count the nodes of simulated accelerators apart from those that are offloaded.

    Args:
        placement: The report.
        simulated: Target kind to how its code is simulated.
    """
    if not simulated:
        return placement
    nodes = sum(len(row.nodes) for row in placement.regions if row.accelerator in simulated)
    return replace(placement, offloaded=placement.offloaded - nodes, simulated=dict(simulated))


def _is_turned(value: Expr) -> bool:
    """Whether a tensor has another order of elements with its channels last."""
    match value.type:
        case TensorType(shape=(_, channels, *sizes)) if len(sizes) == 2:
            return channels != 1 and sizes != [1, 1]
        case _:
            return False


def check_gates(
    placement: Placement, *, require_offload: float | None = None, max_regions: int | None = None
) -> None:
    """Hold a placement against what the user demands.

    Args:
        placement: The report.
        require_offload: At least this many percent of the nodes must be offloaded.
        max_regions: At most this many regions.

    Raises:
        GateFailed: A demand is not met; the hint names the most frequent reason.
    """
    if require_offload is not None and placement.percent < require_offload:
        raise GateFailed(
            f"{placement.percent:.1f} % of the nodes are offloaded, {require_offload:g} % required",
            hint=_most_frequent_refusal(placement),
        )
    if max_regions is not None and len(placement.regions) > max_regions:
        raise GateFailed(
            f"{len(placement.regions)} regions, at most {max_regions} allowed",
            hint=_most_frequent_refusal(placement),
        )


def bytes_text(count: int) -> str:
    """Return a number of bytes as people read it, e.g. ``1.2 MB``."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


def seconds_text(seconds: float) -> str:
    """Return a time as people read it, e.g. ``1.2 us``."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e12:.0f} ps" if seconds else "0 s"


def border_bytes(main: Function) -> int:
    """Return the bytes that calls of regions read and return in one run of ``main``."""
    total, typical = 0, typical_values(main.params)
    for node in post_order(main.body):
        if isinstance(node, CallFunction):
            types = (node.type, *(arg.type for arg in node.args))
            total += count_bytes(*types, values=typical)
    return total


def _region_row(region: Region, nodes: tuple[str, ...]) -> RegionRow:
    inputs: Sequence[Expr] = region.function.params
    return RegionRow(
        region.name,
        region.kind,
        nodes,
        count_bytes(*(param.type for param in inputs), values=region.typical),
        count_bytes(region.function.body.type, values=region.typical),
    )


def _most_frequent_refusal(placement: Placement) -> str:
    taken = {verdict.node for verdict in placement.verdicts if verdict.verdict == "yes"}
    count: dict[tuple[str, str, str], int] = {}
    for verdict in placement.verdicts:
        if verdict.node not in taken:
            key = (verdict.accelerator, verdict.code, verdict.detail)
            count[key] = count.get(key, 0) + 1
    if not count:
        return "see every reason with 'intarsia explain'"
    (accelerator, code, detail), times = max(count.items(), key=_times)
    return (
        f"most often '{accelerator}' says {code}: {detail} ({times} nodes); "
        "see every reason with 'intarsia explain'"
    )


def _times(item: tuple[tuple[str, str, str], int]) -> int:
    return item[1]


def _n(item: tuple[tuple[str, str], int]) -> int:
    return item[1]
