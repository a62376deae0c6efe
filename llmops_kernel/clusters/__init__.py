"""Where Ray clusters come from: one provider protocol, the local one behind it."""
