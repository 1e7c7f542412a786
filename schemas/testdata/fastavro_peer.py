"""Reads records that Tooltape wrote, and writes them again, with fastavro: another implementation of Avro.

Standard input has one JSON object a line: schema (text), record (hex, unframed), want (the record's value). For each, standard
output has one: fingerprint (hex, as in the single-object header), difference (null where fastavro read what was wanted), and
written (hex), which is what fastavro makes of want. A value of a union of several records is [full name, record], a timestamp
its microseconds.
"""

import datetime
import functools
import io
import json
import sys

import fastavro
from fastavro.schema import fingerprint, parse_schema, to_parsing_canonical_form

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


@functools.cache
def parsed(text):
    schema = json.loads(text)
    return parse_schema(schema), fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO")


def plain(value):
    """A value that fastavro read, as it is compared."""
    if isinstance(value, dict):
        return {name: plain(v) for name, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, datetime.datetime):
        return (value - EPOCH) // datetime.timedelta(microseconds=1)
    return value


def writable(value):
    """The inverse: fastavro is told a union's branch by a tuple."""
    if isinstance(value, dict):
        return {name: writable(v) for name, v in value.items()}
    if isinstance(value, list):
        if len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], dict):
            return value[0], writable(value[1])
        return [writable(v) for v in value]
    return value


def text(value):
    """Unlike ==, JSON text tells 1 from 1.0 and from true."""
    return json.dumps(value, sort_keys=True)


def check(case):
    schema, print_ = parsed(case["schema"])
    source = io.BytesIO(bytes.fromhex(case["record"]))
    got = plain(fastavro.schemaless_reader(source, schema, return_record_name=True, return_record_name_override=True))
    difference = None
    if source.read():
        difference = "bytes are left over"
    elif text(got) != text(case["want"]):
        difference = f"read {text(got)}, want {text(case['want'])}"
    target = io.BytesIO()
    fastavro.schemaless_writer(target, schema, writable(case["want"]), strict=True)
    return {"fingerprint": print_, "difference": difference, "written": target.getvalue().hex()}


for line in sys.stdin:
    print(json.dumps(check(json.loads(line))))
