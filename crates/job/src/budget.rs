//! The memory of a run: so many buffers of one part each, wherever they are. Who wants another one waits, and so the
//! store's pace becomes etcd's.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// One is filled while two are on their way.
pub const BUFFERS: usize = 3;

/// All the buffers there are.
#[derive(Clone, Debug)]
pub struct Budget {
    seats: Arc<Semaphore>,
    count: Arc<Count>,
}

#[derive(Debug, Default)]
struct Count {
    held: AtomicUsize,
    most: AtomicUsize,
}

/// The right to one buffer, given back when it is dropped.
#[derive(Debug)]
pub struct Seat {
    count: Arc<Count>,
    _permit: OwnedSemaphorePermit,
}

impl Budget {
    /// So many buffers.
    pub fn of(buffers: usize) -> Self {
        Self {
            seats: Arc::new(Semaphore::new(buffers)),
            count: Arc::default(),
        }
    }

    /// Waits for one.
    pub async fn seat(&self) -> Seat {
        let permit = Arc::clone(&self.seats).acquire_owned().await;
        let held = self.count.held.fetch_add(1, Ordering::Relaxed) + 1;
        self.count.most.fetch_max(held, Ordering::Relaxed);
        Seat {
            count: Arc::clone(&self.count),
            _permit: permit.expect("the semaphore is never closed"),
        }
    }

    /// The most that were held at once.
    pub fn most(&self) -> usize {
        self.count.most.load(Ordering::Relaxed)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.count.held.fetch_sub(1, Ordering::Relaxed);
    }
}
