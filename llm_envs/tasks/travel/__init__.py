"""Trips that a team plans in disjoint parts: a generated world, and the rows of TravelPlanner."""
