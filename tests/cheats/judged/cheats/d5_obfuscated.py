"""D5: the code is hidden in a text."""

import base64

TASK, DEVICE = "matmul", "any"

exec(
    base64.b64decode(
        b"aW1wb3J0IHRvcmNoCgoKY2xhc3MgTW9kZWxOZXcodG9yY2gubm4uTW9kdWxlKToKICAgIGRlZiBmb3J3"
        b"YXJkKHNlbGYsIGEsIGIpOgogICAgICAgIHJldHVybiB0b3JjaC56ZXJvcyhhLnNoYXBlWzBdLCBiLnNo"
        b"YXBlWzFdKQo="
    ).decode()
)
