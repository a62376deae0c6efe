"""A turn of a chat: the driver, its engines and the streams of their answers."""
