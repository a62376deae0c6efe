"""Random input for what reads other people's text: configs, requests, journals, messages."""
