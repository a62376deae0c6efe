"""What a client of jobs does when the line is cut, as by an API server that is killed."""
