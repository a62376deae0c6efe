"""What a training needs before it is run: memory, time and money, from its config alone. Pure."""
