# SPDX-License-Identifier: Apache-2.0
"""Target strings: what they mean, and the message for every mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from intarsia.target.kind_table import KindTable
from intarsia.target.parse import parse_target, parse_targets
from intarsia.target.scan import MAX_LENGTH
from intarsia_runtime.errors import TargetError

from .target_kinds import KINDS


@pytest.mark.parametrize(
    "text, canonical",
    [
        ("loops", "loops"),
        ("  loops\t-mcpu=x\n", "loops -mcpu=x"),
        ("loops -mcpu=generic", "loops"),
        (
            "loops -mcpu=skylake-avx512 -mattr=+avx512f,+avx2 -num-threads=2",
            "loops -mcpu=skylake-avx512 -mattr=+avx512f,+avx2 -num-threads=2",
        ),
        ("loops --num-threads 2 --mcpu a72", "loops -mcpu=a72 -num-threads=2"),
        ("loops -num_threads=2", "loops -num-threads=2"),
        ("loops -fast-math", "loops -fast-math=true"),
        ("loops -fast-math true -mcpu=x", "loops -mcpu=x -fast-math=true"),
        ("loops -fast-math=0 -vectorize=False", "loops -vectorize=false"),
        ("loops -mattr=+a,+b, -mcpu=x", None),
        ("loops -mattr '+a, +b'", "loops -mattr=+a,+b"),
        ('loops -mattr="loops,npu"', "loops -mattr='loops,npu'"),
        ("loops -mattr=''", "loops"),
        ("loops -mcpu=''", "loops -mcpu=''"),
        ("loops -mcpu 'two words'", "loops -mcpu='two words'"),
        ("loops -mcpu '-x'", "loops -mcpu=-x"),
        ("loops -scale -2.5e3", "loops -scale=-2500.0"),
        ("loops -scale=1e3", "loops -scale=1000.0"),
        ("loops -tiles=4,16", "loops -tiles=4,16"),
        ("loops -mcpu=native", "loops -mcpu=host-cpu"),
        ("npu, loops", "npu, loops"),
        ("npu,loops", "npu, loops"),
        (
            "npu,ethos-like -accelerator-config=u55-256,c99",
            "npu, ethos-like -accelerator-config=u55-256, c99",
        ),
        ("npu -sram-size=8 -level=2, loops", "npu -level=2 -sram-size=8, loops"),
        ("gpu", "gpu, loops"),
        ("npu, gpu, c99", "npu, gpu, c99"),
        ("fast", "npu -variant=n77, loops"),
        ("fast, loops -mcpu=x", "npu -variant=n77, loops -mcpu=x"),
        ("both", "ethos-like, npu -variant=n77, loops"),
        ("npu, cpu", "npu, loops -num-threads=1"),
        ("fast -level=2 -mcpu x", "npu -variant=n77 -level=2, loops -mcpu=x"),
        ("fast -variant=n78", "npu, loops"),
        ("fast -scale -2", "npu -variant=n77, loops -scale=-2.0"),
        ("fast -level=2, c99", "npu -variant=n77 -level=2, c99"),
        ('["npu", {"kind": "loops", "mcpu": "x"}]', "npu, loops -mcpu=x"),
        ('["npu -level=2, loops"]', "npu -level=2, loops"),
    ],
)
def test_strings_have_one_canonical_form(text: str, canonical: str | None) -> None:
    if canonical is None:
        with pytest.raises(TargetError):
            parse_target(text, KINDS)
        return
    target = parse_target(text, KINDS)
    assert str(target) == canonical
    assert parse_target(canonical, KINDS) == target
    assert hash(parse_target(canonical, KINDS)) == hash(target)
    assert parse_target(target.json_text(), KINDS) == target


@pytest.mark.parametrize(
    "text, message, hint",
    [
        ("", "the target is empty", ""),
        (" \n", "the target is empty", ""),
        ("loops,", "a comma has nothing beside it", ""),
        ("npu,,loops", "a comma has nothing beside it", ""),
        ("lops", "no target kind or alias is called 'lops'", "did you mean 'loops'"),
        ("zzz", "no target kind or alias is called 'zzz'", "known: both, c99"),
        ("-mcpu=x", "a target string starts with a kind", "KIND"),
        (
            "loops mcpu=x",
            "'mcpu=x' is neither an option of target kind 'loops' nor the value of one",
            "a dash",
        ),
        ("loops -mpcu=a72", "has no option '-mpcu'", "did you mean '-mcpu'"),
        ("loops -zzz=1", "has no option '-zzz'", "its options: -mcpu"),
        ("c99 -x", "has no option '-x'", "its options: -keys, -hardware"),
        ("loops -", "an option is one or two dashes and a name", ""),
        ("loops ---mcpu=x", "an option is one or two dashes and a name", ""),
        ("loops -=x", "an option is one or two dashes and a name", ""),
        ("loops -mcpu", "-mcpu needs a value", "-mcpu="),
        ("loops -mcpu -fast-math", "-mcpu needs a value", ""),
        ("loops -mcpu=", "-mcpu has no value", "-mcpu=''"),
        ("loops -mcpu=x -mcpu=y", "-mcpu is given twice", ""),
        ("loops -num-threads=two", "-num-threads is an integer, not 'two'", ""),
        ("loops -num-threads=1_0", "-num-threads is an integer", ""),
        ("loops -num-threads=" + "9" * 30, "-num-threads is an integer", ""),
        ("loops -num-threads=9999999999999999999", "does not fit in 64 bits", ""),
        ("loops -num-threads=-1", "-num-threads is at least 0, not -1", ""),
        ("loops -num-threads=1025", "-num-threads is at most 1024", ""),
        ("loops -scale=x", "-scale is a number, not 'x'", ""),
        ("loops -scale=nan", "-scale is a finite number", ""),
        ("loops -scale=1e999", "-scale is a finite number", ""),
        ("loops -fast-math=maybe", "-fast-math is true or false, not 'maybe'", ""),
        ("loops -tiles=4,0", "-tiles is at least 1", ""),
        ("loops -mattr=+a,,+b", "an element of -mattr is empty", ""),
        ("loops -mcpu='x; touch pwned'", "a character that no option value may have", "letters"),
        ("loops -mcpu=$(id)", "a character that no option value may have", ""),
        ("loops -mcpu='\x00'", "a character that no option value may have", ""),
        ("loops -mcpu='open", "the quote that starts here does not end", ""),
        ("npu -variant=n79, loops", "-variant cannot be 'n79'", "did you mean"),
        ("npu -variant=a, loops", "-variant cannot be 'a'", "one of n77, n78"),
        ("npu -level=7, loops", "-level cannot be 7", "one of 0, 1, 2"),
        (
            "npu",
            "'npu' is an accelerator and cannot compile a whole model",
            "npu -variant=n77, loops",
        ),
        ("npu -level=2", "'npu -level=2' is an accelerator", "'npu -level=2, loops'"),
        ("npu, ethos-like", "'npu, ethos-like' are accelerators", "'npu, ethos-like, loops'"),
        ("npu, npu, loops", "accelerator 'npu' is given twice", ""),
        ("loops, npu", "so later targets get nothing", "'npu, loops'"),
        ("loops, c99", "both backends for the CPU", "name one"),
        ("gpu, loops, c99", "3 backends in one target", "one fallback"),
        ("gpu, orphan", "cannot be the host", "a backend for the CPU"),
        ("orphan", "compiles for a device, and needs a host for it", "'orphan, HOST'"),
        ("composite", "no target kind or alias is called 'composite'", ""),
        ("fast -x", "target kind 'npu' has no option '-x'", "its options: -variant"),
        ("fast -level=0 -level=2", "-level is given twice", ""),
        ("round", "alias 'round' refers to itself: round -> square -> round", ""),
        ("wrong", "-variant cannot be 'n99'", ""),
        ("loops -fast-math -mcpu=strict", "-fast-math does not go with -mcpu=strict", ""),
        ("x" * (MAX_LENGTH + 1), "at most 100000 are read", ""),
    ],
)
def test_mistakes_say_what_is_wrong(text: str, message: str, hint: str) -> None:
    with pytest.raises(TargetError) as caught:
        parse_target(text, KINDS)
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_messages_point_at_the_column() -> None:
    with pytest.raises(TargetError) as caught:
        parse_target("npu, loops -mcpu=x -mpcu=a72", KINDS)
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("target, column 20: ")
    assert lines[1].index("-mpcu") == lines[2].index("^")


@pytest.mark.parametrize(
    ("text", "pointed"),
    [
        ("npu, loops -fast-math -mcpu=strict", "-fast-math"),
        ("fast, loops -mcpu=strict -fast-math", "-fast-math"),
    ],
)
def test_what_a_kind_finds_wrong_is_pointed_at(text: str, pointed: str) -> None:
    with pytest.raises(TargetError) as caught:
        parse_target(text, KINDS)
    lines = str(caught.value).splitlines()
    assert lines[1].index(pointed) == lines[2].index("^")


def test_messages_about_long_targets_stay_short() -> None:
    with pytest.raises(TargetError) as caught:
        parse_target("loops -mcpu=" + "x" * 5000 + " -mpcu=y" + " -fast-math" * 500, KINDS)
    text = str(caught.value)
    assert len(text) < 500
    lines = text.splitlines()
    assert lines[1].index("-mpcu") == lines[2].index("^")


def test_an_unknown_kind_is_reported_even_where_nothing_is_installed() -> None:
    with pytest.raises(TargetError, match="no plugin is installed"):
        parse_target("loops", KindTable.of())
    with pytest.raises(TargetError, match="cannot compile a whole model") as caught:
        parse_target("npu", KindTable.of(KINDS.kinds["npu"]))
    assert "install a backend" in caught.value.hint


def test_every_option_knows_who_set_it() -> None:
    target = parse_target("fast, loops -mcpu=native -num-threads=2", KINDS)
    assert target.accelerators[0].origins == (("variant", "alias fast"),)
    assert target.fallback.origins == (("mcpu", "detection"), ("num-threads", "given"))
    assert parse_target("gpu", KINDS).host.origins == ()


def test_target_host_completes_or_equals() -> None:
    (loops,) = parse_targets("loops -mcpu=x", KINDS)
    (c99,) = parse_targets("c99", KINDS)
    assert str(parse_target("npu", KINDS, host=loops)) == "npu, loops -mcpu=x"
    assert str(parse_target("gpu", KINDS, host=c99)) == "gpu, c99"
    assert parse_target("npu, loops -mcpu=x", KINDS, host=loops).host == loops
    with pytest.raises(
        TargetError, match="target_host 'c99' is not the host of the target, 'loops'"
    ):
        parse_target("npu, loops", KINDS, host=c99)
    with pytest.raises(TargetError, match="'npu' is an accelerator and cannot be the host"):
        parse_target("gpu", KINDS, host=parse_targets("npu", KINDS)[0])


def test_a_file_holds_a_target(tmp_path: Path) -> None:
    good = tmp_path / "t.json"
    good.write_text('{"kind": "loops", "accelerators": ["npu"]}')
    assert str(parse_target(str(good), KINDS)) == "npu, loops"
    good.write_text("loops")
    with pytest.raises(TargetError, match="holds one JSON object"):
        parse_target(str(good), KINDS)
    good.write_bytes(b"\xff\xfe{")
    with pytest.raises(TargetError, match="not UTF-8"):
        parse_target(str(good), KINDS)
    with pytest.raises(TargetError, match="no such target file"):
        parse_target(str(tmp_path / "missing.json"), KINDS)
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(TargetError, match="no such target file"):
        parse_target(str(tmp_path / "folder.json"), KINDS)
    with pytest.raises(TargetError, match=r"cannot be read: .*too long"):
        parse_target("x" * 300 + ".json", KINDS)
    with pytest.raises(TargetError, match="no such target file"):
        parse_target("\x00.json", KINDS)
