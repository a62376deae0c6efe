"""Tables that runs read: their files, parts of rows, and the rows of a part."""
