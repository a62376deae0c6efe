"""What is done with scored tables on this machine: reading and comparing them."""
