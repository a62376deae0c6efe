"""Two users of one machine for hours, at random: nothing lost, nothing of the other's touched."""
