//! Plans as stories: what was seen, and what comes of it.

mod any_world;
mod scene;
mod stories;
