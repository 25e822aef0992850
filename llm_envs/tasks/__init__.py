"""The task families that come with the package: the module called like an id, without its version, has the id's `task(...)`."""
