"""The fuzzing harness: random programs (`generate`; `control` for control flow) and comparison with the interpreters
(`differential`)."""
