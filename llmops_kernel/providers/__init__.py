"""Ray clusters from several sources behind one provider protocol, among them the local one."""
