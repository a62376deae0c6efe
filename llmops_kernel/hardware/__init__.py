"""What accelerators and hosts can do, as cited data. Pure: no torch, no Ray."""
