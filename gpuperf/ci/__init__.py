"""Write continuous-integration workflows that gate each change."""

from gpuperf.verb.verb import Verb

VERB = Verb("ci", "Print CI workflows that gate each change.", "gpuperf.ci.command:ci", group=True)
