"""Facts about accelerators and hosts, as cited data. Pure: no torch, no Ray."""
