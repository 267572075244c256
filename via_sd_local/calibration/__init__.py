"""From recorded answers to a routing profile: evidence, thresholds, verdict, and the command that runs it all."""
