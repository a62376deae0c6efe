"""Objects of the API: kinds, storage, validation and every way of writing one."""
