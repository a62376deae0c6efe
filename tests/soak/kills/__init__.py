"""A training and a scoring go on beside busy processes while what they need is killed."""
