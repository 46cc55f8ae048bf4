"""Running a task: the root launcher, its fork server, the shim inside the scope, and the daemon's side of both."""
