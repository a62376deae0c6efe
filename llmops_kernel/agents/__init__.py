"""Tools of coding agents over MCP: what they may read and do, within a budget of a person."""
