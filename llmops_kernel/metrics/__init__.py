"""FLOPs, MFU and the journal event types. Pure: no torch, no Ray, no clock."""
