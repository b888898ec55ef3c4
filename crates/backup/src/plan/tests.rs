//! Plans as stories: what was seen, and what comes of it.

mod any_world;
mod hindered;
mod put_off;
mod scene;
mod stories;
mod told;
