"""The pure heart: values and decisions, with no file, network, clock, thread or framework."""
