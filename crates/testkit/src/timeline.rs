//! What happened in a simulation, in order, as text: what a failing seed shows, and what a replay must repeat byte for
//! byte. Nothing is ever read back from here to decide anything.

use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

/// The record of one simulation. Clones share it.
#[derive(Clone)]
pub struct Timeline(Arc<Inner>);

struct Inner {
    start: Instant,
    lines: Mutex<Vec<String>>,
}

impl fmt::Debug for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Timeline")
    }
}

impl Default for Timeline {
    fn default() -> Self {
        Self::new()
    }
}

impl Timeline {
    /// An empty record that begins now.
    pub fn new() -> Self {
        Self(Arc::new(Inner {
            start: Instant::now(),
            lines: Mutex::default(),
        }))
    }

    /// Notes something that happens now.
    pub fn note(&self, who: &str, what: impl fmt::Display) {
        let at = Instant::now().saturating_duration_since(self.0.start);
        let mut line = String::new();
        // Writing to a text cannot fail.
        let _ = write!(
            line,
            "{:>6}.{:03} {who:<14} {what}",
            at.as_secs(),
            at.subsec_millis()
        );
        self.lines().push(line);
    }

    /// How many lines there are.
    pub fn len(&self) -> usize {
        self.lines().len()
    }

    /// Whether nothing was noted yet.
    pub fn is_empty(&self) -> bool {
        self.lines().is_empty()
    }

    /// All of it as one text.
    pub fn text(&self) -> String {
        self.lines().join("\n")
    }

    fn lines(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.0.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
