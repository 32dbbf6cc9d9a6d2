"""Convert the headers and records of older schemas to the current schema.

Schemas 7 to 9 stored the tensors of an operator as text, in the axis `of` of its case. Up to
schema 9 the only sign of a run of `gpuperf timing-check` is its command.
"""

from __future__ import annotations

import re
from dataclasses import replace

from gpuperf.model.aten import Tensor
from gpuperf.model.record import Header, Record

FIELDS = 10  # the first schema with fields for tensors of operators, and the study timing-check
LONGEST = 1000  # characters of a text that is parsed
# `8×768 bf16`, `→ scalar fp32`, `2 more`
OPERAND = re.compile(r"(→ )?(scalar|[0-9]{1,18}(?:×[0-9]{1,18})*) ([^,]*)(?:, |$)")


def upgrade_header(header: Header) -> Header:
    """Return *header* with the study that its schema could not name."""
    if header.schema >= FIELDS or header.command[1:2] != ("timing-check",):
        return header
    return replace(header, study="timing-check")


def upgrade_record(record: Record) -> Record:
    """Return *record* with the fields that its schema did not have."""
    if record.schema >= FIELDS or record.operator is None:
        return record
    tensors, more, made = operands_of(str(record.case.point.get("of", "")))
    operator = replace(record.operator, tensors=tensors, more=more, made=made)
    return replace(record, operator=operator)


def operands_of(text: str) -> tuple[tuple[Tensor, ...], int, bool]:
    """Return the `tensors`, `more` and `made` of the operator that *text* describes.

    Text of any other form gives no tensors.
    """
    tensors: list[Tensor] = []
    more = at = 0
    while at < len(text) <= LONGEST:
        match = OPERAND.match(text, at)
        if match is None or (match[1] and tensors):
            return (), 0, False
        at = match.end()
        if match[3] == "more" and at == len(text) and match[2].isdecimal():
            more = int(match[2])
            break
        sizes = () if match[2] == "scalar" else tuple(map(int, match[2].split("×")))
        tensors.append(Tensor(sizes, match[3]))
    return tuple(tensors), more, text.startswith("→ ") and bool(tensors)
