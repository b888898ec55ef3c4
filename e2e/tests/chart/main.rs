//! The chart as both helms that are in use read it: what it renders, what it refuses, and how releases of it live in a
//! real API server.

mod helm;
mod lives;
mod objects;
mod older;
mod refused;
mod rendered;
