"""The fuzzing harness: random programs (`generate`) and comparison with the interpreters (`differential`)."""
