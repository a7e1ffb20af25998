//! The HTTP face over raw sockets.
