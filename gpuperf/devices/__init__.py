"""List known devices and check peaks files."""

from gpuperf.verb.verb import Verb

VERB = Verb(
    "devices",
    "List known devices, show one, or check a peaks file.",
    "gpuperf.devices.command:devices",
)
