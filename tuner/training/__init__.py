"""Inside a trial process: build, train, report, and find the search space."""
