"""List known devices and check peaks files."""

from gpuperf.verb.verb import Verb

VERB = Verb(
    "devices",
    "The devices whose peaks are known, one of them in full, or the judgement of a peaks file.",
    "gpuperf.devices.command:devices",
)
